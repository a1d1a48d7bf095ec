"""Figure: all eigenvalues of a level against the limit law, with bulk edges and outliers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import cube_parts as parts
from eigensweep.analysis import figure_style as style
from eigensweep.analysis.predictions import BulkLaw, prediction_for
from eigensweep.pipeline.schema import MODES
from eigensweep.pipeline.views import spectrum_at

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_BINS = 48
"""Bins across the bulk."""
_NOTHING = 1e-10
"""Relative to the largest, eigenvalues below this are the zeros of a matrix of less than full rank."""


def spectrum(
    cube: xr.Dataset,
    *,
    rho: float | None = None,
    level: str | Sequence[str] | None = None,
    pooling: str | None = None,
    select: Mapping[str, Any] | None = None,
    across: Sequence[str] | None = None,
    axes: Any = None,
) -> Figure:
    """Draw the histogram of all eigenvalues over replicates against the density of the limit law.

    Parameters
    ----------
    cube : xarray.Dataset
        From `eigensweep.pipeline.open_cube`, with spectral columns.
    rho : float, optional
        Signal strength, on the sweep's grid or not; the largest of the grid if not given.
    level : str or sequence of str, optional
        Levels to draw; all of the cube if not given.
    pooling : str, optional
        Which pooling, as ``select={"pooling": ...}`` would say.
    select : mapping, optional
        From parameters to the value, or for parameters that are shown side by side the list of values, to
        draw. Of the others the largest size and the first value in the sweep's order are drawn.
    across : sequence of str, optional
        Parameters of which each value has a panel of its own; if not given, the last of the parameters that
        are ratios and of which the cube holds several values.
    axes : Axes or sequence of Axes, optional
        Draw on these instead of on a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.

    Raises
    ------
    InputError
        If the cube keeps no columns, lacks a level, parameter or value that was asked for, or rho is
        negative.
    ValueError
        If there are more or fewer axes than panels.

    Notes
    -----
    The histogram counts every eigenvalue, so that the law and it have one norm. Zeros of a matrix of less
    than full rank, the law's atom, are not drawn but told.
    """
    levels = parts.levels_of(cube, level)
    shown = list(across) if across is not None else parts.side_by_side(cube)
    wanted = {**(select or {}), **({"pooling": pooling} if pooling is not None else {})}
    chosen, fixed = parts.choose(cube, wanted, [], shown)
    panels = [_Bulk.of(part, rho) for part in parts.parts_of(chosen, levels, shown)]
    held = style.given(axes, len(panels))
    figure, places = style.panel_grid(len(panels), 1, 2.5, held)
    single = len({bulk.rho for bulk in panels}) == 1
    for number, (bulk, (ax,)) in enumerate(zip(panels, places, strict=True)):
        point = bulk.point if single else {**bulk.point, "rho": bulk.rho}
        ax.set_title(style.panel_title(bulk.level, point), fontsize=style.NORMAL)
        ax.set_xlabel(r"eigenvalue $\lambda/\kappa$", fontsize=style.NORMAL)
        if held is not None or number % style.columns_for(len(panels)) == 0:
            ax.set_ylabel("density", fontsize=style.NORMAL)
        _draw(bulk, ax)
    _limit([ax for (ax,) in places], panels)
    if held is None:
        told = parts.told(cube, fixed, levels, tuple(panels[-1].point))
        told = {**({"rho": panels[0].rho} if single else {}), **told, **style.model_words(cube)}
        count = max(bulk.replicates for bulk in panels)
        words = f"{count} replicate" + ("s" if count != 1 else "")
        style.heading(figure, [style.settings(told), words])
    style.legend(places[0][0] if held else figure, _handles(panels), below=held is None)
    return figure


@dataclass(frozen=True)
class _Bulk:
    """All eigenvalues of one panel and what theory says of them."""

    level: str
    point: dict[str, Any]
    rho: float
    values: Array  # (replicate, mode), done columns only
    law: BulkLaw | None
    outliers: list[float]

    @classmethod
    def of(cls, part: parts.Part, rho: float | None) -> _Bulk:
        level, cube = part.level, part.cube
        at = float(parts.strengths(cube)[1].max()) if rho is None else float(rho)
        # The level's own columns only: the others' eigenvalues are not wanted.
        names = [f"{level.prefix}{role}" for role in MODES]
        states = [name for name in cube if str(name).startswith("column_status")]
        whole = spectrum_at(cube[[name for name in names if name in cube]], [at])
        found = parts.done(whole.assign({name: cube[name] for name in states}), level, "eigenvalue")
        rows = found.squeeze([d for d in found.dims if d not in ("replicate", "mode")], drop=True)
        values = rows.transpose("replicate", "mode").values
        values = values[np.isfinite(values).any(axis=1)]
        theory = prediction_for(cube)
        if theory is None or level.name not in theory.levels:
            return cls(level.name, part.point, at, values, None, [])
        law = theory.law(level.name)
        places = [float(theory.outlier(level.name, at)), float(theory.second_outlier(level.name))]
        return cls(
            level.name, part.point, at, values, law, [p for p in places if p > law.support[1] * (1 + 1e-9)]
        )

    @property
    def replicates(self) -> int:
        return len(self.values)

    def all(self) -> Array:
        return self.values[np.isfinite(self.values)]

    def leading(self) -> Array:
        """Return as many leading eigenvalues of each replicate as theory has outliers."""
        return self.values[:, : len(self.outliers)].ravel()

    def histogram(self) -> tuple[Array, Array, float]:
        """Return density and edges of the bins, and the share of zeros."""
        values = self.all()
        zero = np.abs(values) <= _NOTHING * np.abs(values).max()
        low, high = self.law.support if self.law else (values[~zero].min(), values.max())
        width = (high - low) / _BINS
        before = int(np.ceil(max(low - values[~zero].min(), 0.0) / width))
        if self.law is not None and low >= 0:
            before = min(before, int(low / width))  # eigenvalues are not negative, nor are the bins
        after = int(np.ceil(max(values.max() - high, 0.0) / width)) + 1
        edges: Array = np.asarray(low + width * np.arange(-before, _BINS + after + 1), dtype=np.float64)
        edges[0] = min(edges[0], values[~zero].min())
        counts, _ = np.histogram(values[~zero], edges)
        return np.asarray(counts / (values.size * np.diff(edges))), edges, float(zero.mean())


def _draw(bulk: _Bulk, ax: Axes) -> None:
    if not bulk.replicates:
        style.empty(ax, "no column is done")
        return
    height, edges, zeros = bulk.histogram()
    ax.stairs(height, edges, fill=True, color=style.PALE, linewidth=0)
    if bulk.law is None:
        return
    low, high = bulk.law.support
    x = low + (high - low) * (1 - np.cos(np.linspace(0, np.pi, 600))) / 2
    y = bulk.law.pdf(x)
    keep = np.isfinite(y)
    ax.plot(x[keep], y[keep], color=style.BLACK, linewidth=1.1)
    for edge in (low, high):
        ax.axvline(edge, color=style.GREY, linestyle=(0, (4, 2)), linewidth=0.9, zorder=0)
    across = ax.get_xaxis_transform()
    ax.vlines(bulk.leading(), 0.0, 0.06, transform=across, color=style.BLUE, linewidth=0.8)
    for place in bulk.outliers:
        ax.plot(place, 0.10, marker="v", markersize=6, color=style.VERMILLION, transform=across)
    if bulk.law.atom > 0 or zeros > 0:
        words = f"zeros: {zeros:.3f}\ntheory: {bulk.law.atom:.3f}"
        ax.text(0.97, 0.95, words, transform=ax.transAxes, ha="right", va="top", fontsize=style.SMALL)


def _limit(axes: Sequence[Axes], panels: Sequence[_Bulk]) -> None:
    """Let the bulk fill the height: a density that diverges at 0 leaves the frame there."""
    tops = []
    for bulk in panels:
        if bulk.replicates:
            height = bulk.histogram()[0]
            diverges = bulk.law is not None and bulk.law.support[0] == 0
            tops.append(float(np.sort(height)[-4 if diverges else -1]))
    for ax in axes:
        if tops:
            ax.set_ylim(0, 1.12 * max(tops))
            low = min(0.0, *(bulk.all().min() for bulk in panels if bulk.replicates))
            ax.set_xlim(left=low - 0.02 * (ax.get_xlim()[1] - low))


def _handles(panels: Sequence[_Bulk]) -> list[Any]:
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=style.PALE, linewidth=0, label="all eigenvalues")]
    if any(bulk.law for bulk in panels):
        handles += [
            style.line("limit law", color=style.BLACK, linewidth=1.1),
            style.line("bulk edges", color=style.GREY, linestyle=(0, (4, 2)), linewidth=0.9),
        ]
    if any(bulk.outliers for bulk in panels):
        handles += [
            style.line("outlier, theory", color=style.VERMILLION, marker="v", markersize=6, linestyle="none"),
            style.line("top of each replicate", color=style.BLUE, marker="|", markersize=7, linestyle="none"),
        ]
    return handles
