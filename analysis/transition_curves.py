"""Figure: top eigenvalue and overlap against the signal strength, with theory and its thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.analysis import cube_parts as parts
from eigensweep.analysis import figure_style as style
from eigensweep.analysis.predictions import Prediction, prediction_for
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.views import cube_at

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

QUANTITIES = ("eigenvalue", "overlap")
_POINTS = 400


def transition(
    cube: xr.Dataset,
    *,
    level: str | Sequence[str] | None = None,
    pooling: str | None = None,
    select: Mapping[str, Any] | None = None,
    across: Sequence[str] | None = None,
    quantity: str | None = None,
    rho: ArrayLike | None = None,
    axes: Any = None,
) -> Figure:
    """Draw the top eigenvalue and its overlap with u against rho.

    Points are means over the replicates that are done, bars their standard error; lines are what theory
    predicts at the realised ratios of the largest size, with the thresholds of the level and of those below
    it. Of a "raw" table, which has a second outlier, the two leading eigenvalues are drawn, and the overlap
    is summed over the leading pairs that the cube keeps.

    Parameters
    ----------
    cube : xarray.Dataset
        From `eigensweep.pipeline.open_cube`.
    level : str or sequence of str, optional
        Levels to draw; all of the cube if not given.
    pooling : str, optional
        Which pooling, as ``select={"pooling": ...}`` would say.
    select : mapping, optional
        From parameters to the value, or for parameters that are shown side by side the list of values, to
        draw. Of every other parameter the first value in the sweep's order is drawn; all sizes are.
    across : sequence of str, optional
        Parameters of which each value has a panel of its own; if not given, the last of the parameters that
        are numbers and of which the cube holds several values, T apart.
    quantity : {"eigenvalue", "overlap"}, optional
        Draw this one only.
    rho : (n,) array_like, optional
        Draw at these strengths instead of the sweep's, from the stored columns.
    axes : Axes or sequence of Axes, optional
        Draw on these, quantity by quantity within a panel, instead of on a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.

    Raises
    ------
    InputError
        If the cube lacks a level, parameter or value that was asked for, or `rho` is given and it keeps no
        columns.
    ValueError
        If there are more or fewer axes than panels.
    """
    quantities = _checked(quantity)
    levels = parts.levels_of(cube, level)
    size = levels[0].axes[0]
    shown = list(across) if across is not None else parts.side_by_side(cube)
    wanted = {**(select or {}), **({"pooling": pooling} if pooling is not None else {})}
    chosen, fixed = parts.choose(cube, wanted, [size], shown)
    panels = parts.parts_of(chosen, levels, shown)
    held = style.given(axes, len(panels) * len(quantities))
    figure, places = style.panel_grid(len(panels), len(quantities), 1.95, held)
    key = _Key()
    for number, (panel, place) in enumerate(zip(panels, places, strict=True)):
        _label(place, quantities, first=held is not None or number % style.columns_for(len(panels)) == 0)
        place[0].set_title(style.panel_title(panel.level.name, panel.point), fontsize=style.NORMAL)
        _draw(_Curves.of(panel, rho), dict(zip(quantities, place, strict=True)), key)
    if held is None:
        figure.align_ylabels()
        told = parts.told(cube, fixed, levels, (size, *panels[-1].point))
        style.heading(figure, [style.settings({**told, **style.model_words(cube)}), key.replicates()])
    style.legend(places[0][0] if held else figure, key.handles(), below=held is None)
    return figure


def _checked(quantity: str | None) -> tuple[str, ...]:
    if quantity is None:
        return QUANTITIES
    if quantity not in QUANTITIES:
        fault = Fault("quantity", quantity, "there is no such quantity", nearest(quantity, QUANTITIES))
        raise InputError(fault)
    return (quantity,)


def _label(place: Sequence[Axes], quantities: Sequence[str], *, first: bool) -> None:
    place[-1].set_xlabel(style.RHO, fontsize=style.NORMAL)
    for ax, quantity in zip(place, quantities, strict=True):
        if first:
            words = style.EIGENVALUE if quantity == "eigenvalue" else style.OVERLAP
            ax.set_ylabel(words, fontsize=style.NORMAL)


@dataclass
class _Key:
    """What the legend and the heading tell, gathered while panels are drawn."""

    entries: dict[str, tuple[int, Any]] = field(default_factory=dict)
    counts: set[int] = field(default_factory=set)

    def add(self, rank: int, label: str, **look: Any) -> None:
        self.entries.setdefault(label, (rank, style.line(label, **look)))

    def handles(self) -> list[Any]:
        return [handle for _, handle in sorted(self.entries.values(), key=lambda entry: entry[0])]

    def replicates(self) -> str:
        counts = self.counts - {0}
        if not counts:
            return ""
        span = str(max(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        return f"{span} replicate" + ("s" if max(counts) > 1 else "")


@dataclass(frozen=True)
class _Curves:
    """What one panel shows: values over size, replicate, signal and rank, and what theory says of them."""

    name: str
    size: str
    sizes: list[Any]
    rho: Array
    values: dict[str, xr.DataArray]
    theory: Prediction | None
    rival: float
    smooth: bool

    @classmethod
    def of(cls, panel: parts.Part, rho: ArrayLike | None) -> _Curves:
        level, cube = panel.level, panel.cube
        size = level.axes[0]
        if rho is not None:
            states = [name for name in cube if str(name).startswith("column_status")]
            cube = cube_at(cube, rho).assign({name: cube[name] for name in states})
        dimension, strengths = parts.strengths(cube)
        order = np.argsort(strengths, kind="stable")
        values = {}
        for name in QUANTITIES:
            found = parts.done(cube, level, name).sortby(size)
            values[name] = found.transpose(size, "replicate", dimension, "top").isel({dimension: order})
        largest = panel.cube[size].values.argmax()
        theory = prediction_for(panel.cube.isel({size: largest}) if size in panel.cube.dims else panel.cube)
        theory = theory if theory is not None and level.name in theory.levels else None
        rival = float(theory.second_outlier(level.name)) if theory is not None else np.nan
        sizes = np.atleast_1d(values["overlap"][size].values).tolist()
        return cls(level.name, size, sizes, strengths[order], values, theory, rival, rho is not None)

    def drawn(self, quantity: str) -> list[xr.DataArray]:
        """Return what has a curve: the leading value, and for two outliers what tells of both."""
        found = self.values[quantity]
        if not np.isfinite(self.rival):
            return [found.isel(top=0)]
        if quantity == "overlap":
            return [found.sum("top", skipna=False)]
        return [found.isel(top=rank) for rank in range(min(2, found.sizes["top"]))]

    def predicted(self, quantity: str, rho: Array) -> list[Array]:
        """Return what theory says of each curve."""
        if self.theory is None:
            return []
        if quantity == "overlap":
            return [np.asarray(self.theory.overlap(self.name, rho).values)]
        outlier = np.asarray(self.theory.outlier(self.name, rho).values)
        if not np.isfinite(self.rival):
            return [outlier]
        return [np.maximum(outlier, self.rival), np.minimum(outlier, self.rival)]


def _draw(curves: _Curves, place: Mapping[str, Axes], key: _Key) -> None:
    for quantity, ax in place.items():
        measured = [
            _measure(curves, ax, array, rank, key) for rank, array in enumerate(curves.drawn(quantity))
        ]
        if not any(measured):
            style.empty(ax, "no column is done")
        _predict(curves, ax, quantity, key)
        if quantity == "overlap":
            ax.set_ylim(-0.03, 1.03)
            if np.isfinite(curves.rival) and ax.get_ylabel():
                ax.set_ylabel(style.SUMMED, fontsize=style.NORMAL)


def _measure(curves: _Curves, ax: Axes, array: xr.DataArray, rank: int, key: _Key) -> bool:
    """Draw mean and standard error of every size; say whether there was anything."""
    mean, error, count = (part.values for part in parts.averages(array))
    for row, (size, shade) in enumerate(zip(curves.sizes, style.shades(len(curves.sizes)), strict=True)):
        here = np.isfinite(mean[row])
        key.counts |= set(count[row].tolist())
        label = style.setting(curves.size, size)
        x, y, bar = curves.rho[here], mean[row][here], error[row][here]
        if curves.smooth:
            ax.fill_between(x, y - bar, y + bar, color=shade, alpha=0.35, linewidth=0)
            ax.plot(x, y, color=shade, linewidth=1.0)
            key.add(row, label, color=shade)
            continue
        look: dict[str, Any] = {
            "marker": "o",
            "markersize": 2.6 if curves.rho.size < 60 else 1.8,
            "color": shade,
            "linestyle": "none",
        }
        if rank:
            look |= {"markerfacecolor": "white", "markeredgewidth": 0.7}
            hollow = {**look, "markersize": 4, "color": style.BLACK}
            key.add(100, r"second eigenvalue $\lambda_2/\kappa$", **hollow)
        ax.errorbar(x, y, yerr=bar, elinewidth=0.9, zorder=2 + 0.01 * row, **look)
        key.add(row, label, **{**look, "markersize": 4, "markerfacecolor": shade})
    return bool(np.isfinite(mean).any())


def _predict(curves: _Curves, ax: Axes, quantity: str, key: _Key) -> None:
    """Draw theory's line and the thresholds of this level and of those below it."""
    theory = curves.theory
    if theory is None:
        return
    low, high = float(curves.rho.min()), float(curves.rho.max())
    marks = []
    for number, name in enumerate(theory.levels[: theory.levels.index(curves.name) + 1]):
        threshold = float(theory.threshold(name))
        colour, dashes = style.THRESHOLDS[number % len(style.THRESHOLDS)]
        label = f"{name} threshold {theory.formula(name)}".strip()
        if threshold <= 0:
            key.add(
                102 + number, f"{label} < 0: an outlier at every {style.SYMBOLS['rho']}", linestyle="none"
            )
            continue
        marks.append(threshold)
        ax.axvline(threshold, color=colour, linestyle=dashes, linewidth=1.4, zorder=1)
        key.add(102 + number, label, color=colour, linestyle=dashes, linewidth=1.4)
    kinks = [mark for mark in marks if low < mark < high]
    rho = np.union1d(np.linspace(low, high, _POINTS), kinks)
    for line in curves.predicted(quantity, rho):
        ax.plot(rho, line, color=style.BLACK, linewidth=1.0, zorder=3)
        key.add(101, "theory", color=style.BLACK, linewidth=1.0)
