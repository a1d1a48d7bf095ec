"""Theory of attention pooling at every point of a cube: threshold, outlier, overlap, bulk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from eigensweep.analysis import spike
from eigensweep.analysis.laws import ProductLaw

if TYPE_CHECKING:
    import xarray as xr

LEVELS = ("population", "sample")
SOURCE = "Seddik, arXiv:2605.06826, Theorems 1 to 4"


@dataclass(frozen=True)
class AttentionPoolingPrediction:
    """Theory of attention pooling, at the realised ratios (Seddik, arXiv:2605.06826, Theorems 1 to 4).

    Parameters
    ----------
    d : DataArray
        Embedding dimension.
    delta, gamma : DataArray
        Ratios d/V and d/N as realised after rounding, over d and the nominal ratio.
    gain : DataArray
        alpha/kappa of each pooling.
    gain_sum : DataArray
        (1'w)^2/kappa of each pooling.
    table : DataArray of str
        What is removed from the noise of the table: "class-centered", "centered" or "raw".
    """

    d: xr.DataArray
    delta: xr.DataArray
    gamma: xr.DataArray
    gain: xr.DataArray
    gain_sum: xr.DataArray
    table: xr.DataArray

    levels: ClassVar[tuple[str, ...]] = LEVELS
    parameters: ClassVar[tuple[str, ...]] = ("d", "delta", "gamma", "gain", "gain_sum", "table")

    @classmethod
    def of(cls, cube: xr.Dataset, model: Mapping[str, Any]) -> AttentionPoolingPrediction:
        """Read the parameters off a cube's coordinates, and the table off its sweep where it is no axis.

        Parameters
        ----------
        cube : xarray.Dataset
            A cube of the ensemble ``attention-pooling``, or a part of one.
        model : mapping
            The sweep's ``[model]`` options.

        Returns
        -------
        AttentionPoolingPrediction
            The theory at its points.
        """
        import xarray as xr

        def read(*names: str, default: Any = np.nan) -> xr.DataArray:
            found = next((cube[name] for name in names if name in cube.coords), xr.DataArray(default))
            return found.reset_coords(drop=True).astype(object if isinstance(default, str) else np.float64)

        kappa = read("kappa")
        table = model.get("table", "class-centered")
        return cls(
            d=read("d"),
            delta=read("delta_realised", "delta"),
            gamma=read("gamma_realised", "gamma"),
            gain=read("alpha") / kappa,
            gain_sum=read("weight_sum") ** 2 / kappa,
            table=read("table", default=str(table)),
        )

    def at(self, **values: ArrayLike) -> AttentionPoolingPrediction:
        """Predict at other values of d, delta, gamma, gain, gain_sum or table.

        Parameters
        ----------
        **values : array_like
            A number or text, or a sequence, which becomes a dimension of that name.

        Returns
        -------
        AttentionPoolingPrediction
            The theory there.
        """
        return replace(self, **{name: _named(name, value) for name, value in values.items()})

    def threshold(self, level: str) -> xr.DataArray:
        """Signal strength rho above which a level has an outlier; negative where it always has one.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.

        Returns
        -------
        DataArray
            ``delta + sqrt(delta)`` or ``delta + w+``, less ``delta alpha/kappa`` for tables that keep
            class means, over the dimensions of what it depends on.
        """
        words = f"threshold of the {level} level"
        return self._apply(spike.sample_threshold, [self.delta, self._gamma(level)], words, "1")

    def formula(self, level: str) -> str:
        """Name the threshold in mathtext.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.

        Returns
        -------
        str
            The formula; empty where tables of several kinds have several.
        """
        kinds = {str(kind) for kind in self.table.values.ravel()}
        drifting = {kind != "class-centered" for kind in kinds}
        if len(drifting) > 1:
            return ""
        root = r"\sqrt{\delta}" if level == "population" else "w_{+}"
        return rf"$\delta + {root}" + (r" - \delta\alpha/\kappa$" if drifting.pop() else "$")

    def outlier(self, level: str, rho: ArrayLike | xr.DataArray) -> xr.DataArray:
        """Position of the signal's eigenvalue.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.
        rho : array_like or DataArray
            Signal strengths; a plain sequence becomes the dimension ``rho``.

        Returns
        -------
        DataArray
            In units of kappa; the bulk edge below threshold.
        """
        words = f"outlier of the {level} level"
        parts = [_named("rho", rho), self.delta, self._gamma(level)]
        return self._apply(spike.sample_outlier, parts, words, "kappa")

    def overlap(self, level: str, rho: ArrayLike | xr.DataArray) -> xr.DataArray:
        """Squared overlap of u with the signal's eigenvector.

        Parameters
        ----------
        level, rho
            As for `outlier`.

        Returns
        -------
        DataArray
            Squared overlap, 0 below threshold.
        """
        words = f"squared overlap of the {level} level"
        parts = [_named("rho", rho), self.delta, self._gamma(level)]
        return self._apply(spike.sample_overlap, parts, words, "1")

    def second_outlier(self, level: str) -> xr.DataArray:
        """Position of the outlier that the mean of all noise vectors makes in a "raw" table.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.

        Returns
        -------
        DataArray
            In units of kappa; NaN for other tables, and where it is too weak to leave the bulk.
        """
        import xarray as xr

        gamma = self._gamma(level)
        strength = xr.apply_ufunc(spike.second_strength, self.delta, self.gain_sum)
        place = xr.apply_ufunc(spike.sample_outlier, strength, self.delta, gamma)
        outside = strength > xr.apply_ufunc(spike.sample_threshold, self.delta, gamma)
        words = f"second outlier of the {level} level"
        return _documented(place.where(outside & (self.table == "raw")), words, "kappa")

    def edges(self, level: str) -> tuple[xr.DataArray, xr.DataArray]:
        """Lower and upper edge of the bulk.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.

        Returns
        -------
        lower, upper : DataArray
            In units of kappa.
        """
        import xarray as xr

        support = np.vectorize(
            lambda delta, gamma: ProductLaw(float(delta), float(gamma)).support, otypes=[float, float]
        )
        lower, upper = xr.apply_ufunc(support, self.delta, self._gamma(level), output_core_dims=[[], []])
        return (
            _documented(lower, f"lower bulk edge of the {level} level", "kappa"),
            _documented(upper, f"upper bulk edge of the {level} level", "kappa"),
        )

    def top_quantile(self, level: str, q: float) -> xr.DataArray:
        """Quantile of the top eigenvalue of pure noise, to leading order in d.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.
        q : float
            A probability.

        Returns
        -------
        DataArray
            In units of kappa.
        """
        import xarray as xr

        quantile = np.vectorize(
            lambda delta, gamma, d: float(ProductLaw(float(delta), float(gamma)).top_quantile(q, d)),
            otypes=[float],
        )
        result = xr.apply_ufunc(quantile, self.delta, self._gamma(level), self.d)
        words = f"{q:g}-quantile of the top noise eigenvalue of the {level} level"
        return _documented(result, words, "kappa")

    def law(self, level: str) -> ProductLaw:
        """Law of the bulk at the one point that is left.

        Parameters
        ----------
        level : {"population", "sample"}
            Which matrix.

        Returns
        -------
        ProductLaw
            With gamma = 0, the Marchenko-Pastur law, for the population.

        Raises
        ------
        ValueError
            If delta or gamma still has several values.
        """
        gamma = self._gamma(level)
        for name, ratio in (("delta", self.delta), ("gamma", gamma)):
            if ratio.size != 1:
                raise ValueError(
                    f"{name} has {ratio.size} values: a law needs one; select one with at() or sel()"
                )
        return ProductLaw(self.delta.item(), gamma.item())

    def _gamma(self, level: str) -> xr.DataArray:
        """Ratio d/N at a level: the population is the limit of infinitely many sequences."""
        if level not in LEVELS:
            raise ValueError(f"level = {level!r}: there is no such level; choose among {', '.join(LEVELS)}")
        return _named("gamma", 0.0) if level == "population" else self.gamma

    def _apply(
        self, function: Callable[..., Any], parts: Sequence[xr.DataArray], words: str, units: str
    ) -> xr.DataArray:
        """Broadcast a function of `spike` over its arguments, the gain and the table's kind."""
        import xarray as xr

        def of(kind: str) -> xr.DataArray:
            # Only the tables that keep class means make the pooling matter at a given rho.
            gain = xr.DataArray(1.0) if kind == "class-centered" else self.gain
            found: xr.DataArray = xr.apply_ufunc(
                lambda *args: function(*args[:-1], table=kind, gain=args[-1]), *parts, gain
            )
            return found

        found = [of(str(kind)) for kind in self.table.values.ravel()]
        result = found[0] if self.table.ndim == 0 else xr.concat(xr.broadcast(*found), self.table)
        return _documented(result, words, units)


def _named(name: str, value: Any) -> xr.DataArray:
    import xarray as xr

    if isinstance(value, xr.DataArray):
        return value
    array = np.asarray(value)
    array = array.astype(np.float64) if array.dtype.kind in "iuf" else array.astype(object)
    return xr.DataArray(array, {name: array}, (name,)) if array.ndim else xr.DataArray(array)


def _documented(result: xr.DataArray, words: str, units: str) -> xr.DataArray:
    result = result.rename(None)
    result.attrs = {"long_name": words, "units": units, "source": SOURCE}
    return result
