"""What theory predicts for the ensemble of a cube, found by the ensemble's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.analysis.attention_theory import AttentionPoolingPrediction

if TYPE_CHECKING:
    import xarray as xr


class BulkLaw(Protocol):
    """Limit law of the noise eigenvalues, in units of kappa."""

    @property
    def support(self) -> tuple[float, float]:
        """Edges of the continuous part."""

    @property
    def atom(self) -> float:
        """Mass at 0."""

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Density of the continuous part, which integrates to 1 minus the atom."""

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Distribution function, atom included."""


class Prediction(Protocol):
    """What theory predicts at the points of a cube: every method broadcasts over their dimensions."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels it knows, the one whose threshold is lowest first."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters that `at` takes."""

    def at(self, **values: ArrayLike) -> Prediction:
        """Predict at other values of some parameters: a number, or an array that becomes a dimension."""

    def threshold(self, level: str) -> xr.DataArray:
        """Signal strength rho above which the spectrum of a level has an outlier."""

    def formula(self, level: str) -> str:
        """Name the threshold for a legend, in the mathtext of matplotlib; empty if it has no short form."""

    def outlier(self, level: str, rho: ArrayLike | xr.DataArray) -> xr.DataArray:
        """Position of the signal's eigenvalue, in units of kappa; the bulk edge below threshold."""

    def overlap(self, level: str, rho: ArrayLike | xr.DataArray) -> xr.DataArray:
        """Squared overlap of u with the signal's eigenvector; 0 below threshold."""

    def second_outlier(self, level: str) -> xr.DataArray:
        """Position of an outlier that has nothing to do with u; NaN where there is none."""

    def edges(self, level: str) -> tuple[xr.DataArray, xr.DataArray]:
        """Lower and upper edge of the bulk, in units of kappa."""

    def top_quantile(self, level: str, q: float) -> xr.DataArray:
        """Quantile of the top eigenvalue of pure noise at the points' own dimension."""

    def law(self, level: str) -> BulkLaw:
        """Law of the bulk at the one point that is left; ValueError if there are several."""


def prediction_for(cube: xr.Dataset) -> Prediction | None:
    """Find what theory predicts for a cube, or for any part of it.

    Parameters
    ----------
    cube : xarray.Dataset
        From `eigensweep.pipeline.open_cube`, perhaps with some points selected.

    Returns
    -------
    Prediction or None
        None for an ensemble of which no theory is registered.

    Examples
    --------
    >>> import xarray as xr
    >>> sweep = {"model": {"ensemble": "attention-pooling", "table": "class-centered"}}
    >>> ratios = {"d": 400, "delta": [0.5, 1.0], "gamma": 0.25, "alpha": 1.75, "kappa": 1.0}
    >>> cube = xr.Dataset(coords=ratios, attrs={"sweeps": [{"sweep": sweep}]})
    >>> theory = prediction_for(cube)
    >>> theory.threshold("sample").values.round(4).tolist()
    [1.5545, 2.366]
    >>> float(theory.at(delta=0.5).outlier("sample", 3.0))
    4.62
    """
    sweeps = cube.attrs.get("sweeps") or [{}]
    model = sweeps[-1].get("sweep", {}).get("model", {})
    make = PREDICTIONS.get(str(model.get("ensemble")))
    return None if make is None else make(cube, model)


PREDICTIONS: dict[str, Callable[[xr.Dataset, Mapping[str, Any]], Prediction]] = {
    "attention-pooling": AttentionPoolingPrediction.of,
}
"""From an ensemble's name in ``model.ensemble`` to what makes its prediction of a cube and model options."""
