"""Figure: overlap or detection over two parameters, with theory's boundaries and fitted thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import cube_parts as parts
from eigensweep.analysis import figure_style as style
from eigensweep.analysis.cells import axis_scale, cell_edges
from eigensweep.analysis.predictions import Prediction, prediction_for
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.views import cube_at

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

QUANTITIES = ("overlap", "detection")
_FINE = 200


def phase_diagram(
    cube: xr.Dataset,
    x: str | None = None,
    y: str = "rho",
    *,
    level: str | None = None,
    quantity: str = "overlap",
    false_alarm: float = 0.05,
    rho: float | None = None,
    select: Mapping[str, Any] | None = None,
    across: Sequence[str] | None = None,
    fits: xr.Dataset | None = None,
    axes: Any = None,
) -> Figure:
    """Draw the mean overlap, or the probability of detection, over two parameters.

    Parameters
    ----------
    cube : xarray.Dataset
        From `eigensweep.pipeline.open_cube`.
    x, y : str, optional
        The axes: ``"rho"`` or a parameter whose values are numbers, such as ``"delta"`` and ``"gamma"``. If x
        is not given, the first ratio that varies.
    level : str, optional
        Which level; the one that depends on most parameters, the sample, if not given.
    quantity : {"overlap", "detection"}
        Mean squared overlap of the top eigenvector with u (for a "raw" table summed over the leading pairs
        kept), or the share of replicates whose top eigenvalue exceeds what pure noise exceeds with
        probability `false_alarm` (Tracy-Widom).
    false_alarm : float
        Of detection.
    rho : float, optional
        Signal strength where rho is no axis; the sweep's value nearest to the middle of the thresholds if
        not given. Off the sweep's grid it is computed from the stored columns.
    select : mapping, optional
        From parameters to the value, or list of values, to draw. Of parameters not shown, the largest size
        and the first value in the sweep's order are.
    across : sequence of str, optional
        Up to two parameters of which each value has a panel of its own, rows and columns; if not given, the
        last two that vary and are not axes: T and pooling where both do.
    fits : xarray.Dataset, optional
        ``threshold``, ``low`` and ``high`` in units of rho over the grid's axes and ``level``: drawn as
        points with their intervals.
    axes : Axes or sequence of Axes, optional
        Draw on these instead of on a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.

    Raises
    ------
    InputError
        If the cube lacks what was asked for, an axis is no number, or fits are given and rho is no axis.
    ValueError
        If there are more or fewer axes than panels.
    """
    kept = parts.levels_of(cube, level)[-1]
    x = x if x is not None else _first_ratio(cube, kept, y)
    _check(cube, kept, x, y, quantity, fits)
    shown = list(across) if across is not None else _multiples(cube, kept, (x, y))
    chosen, fixed = parts.choose(cube, select, [name for name in (x, y) if name != "rho"], shown)
    panels = parts.parts_of(chosen, [kept], shown)
    counts = [chosen.sizes[name] for name in shown if name in chosen.dims]
    columns = counts[1] if len(counts) == 2 and counts[1] <= 4 else 0
    held = style.given(axes, len(panels))
    figure, places = style.panel_grid(len(panels), 1, 2.6, held, columns=columns, sharex=False, sharey=False)
    maps = [_Map.of(panel, x, y, quantity, false_alarm, rho) for panel in panels]
    columns = columns or style.columns_for(len(panels))
    for number, (found, (ax,)) in enumerate(zip(maps, places, strict=True)):
        mesh = _draw(found, ax)
        if fits is not None:
            _points(found, fits, {**fixed, **found.panel.point}, ax)
        ax.set_title(found.title(), fontsize=style.NORMAL)
        ax.set_xlabel(style.axis_label(x), fontsize=style.NORMAL)
        if held is not None or number % columns == 0:
            ax.set_ylabel(style.axis_label(y), fontsize=style.NORMAL)
    bar = figure.colorbar(mesh, ax=[ax for (ax,) in places], aspect=30, pad=0.015)
    bar.set_label(_words(quantity, maps), fontsize=style.NORMAL)
    bar.ax.tick_params(labelsize=style.SMALL, width=0.7, length=3)
    bar.outline.set_linewidth(0.7)
    if held is None:
        told = parts.told(cube, fixed, [kept], (x, y, *panels[0].point))
        words = style.settings({**told, **style.model_words(cube)})
        style.heading(figure, [f"{kept.name} level", words])
    style.legend(places[0][0] if held else figure, _handles(maps, fits is not None), below=held is None)
    return figure


def _check(
    cube: xr.Dataset, level: parts.CubeLevel, x: str, y: str, quantity: str, fits: xr.Dataset | None
) -> None:
    faults = []
    numbers = [name for name in level.axes if name in cube.dims and cube[name].dtype.kind in "iuf"]
    for thing, name in (("x", x), ("y", y)):
        if name != "rho" and name not in numbers:
            reason = f"the {level.name} level has no such axis of numbers"
            faults.append(Fault(thing, name, reason, nearest(name, [*numbers, "rho"])))
    if x == y:
        faults.append(Fault("y", y, "it is x as well", "choose two different axes"))
    if quantity not in QUANTITIES:
        faults.append(Fault("quantity", quantity, "there is no such quantity", nearest(quantity, QUANTITIES)))
    if quantity == "detection" and prediction_for(cube) is None:
        reason = "it needs the law of pure noise, and no theory is known for this ensemble"
        faults.append(Fault("quantity", quantity, reason, "draw the overlap"))
    if fits is not None and "rho" not in (x, y):
        reason = "fitted thresholds are values of rho, and rho is no axis of this diagram"
        faults.append(Fault("fits", "", reason, "make rho x or y, or leave the fits out"))
    if faults:
        raise InputError(faults)


def _first_ratio(cube: xr.Dataset, level: parts.CubeLevel, y: str) -> str:
    """Name the first parameter that is a ratio and varies; if none does, the first ratio, else the size."""
    held = [
        name for name in level.axes[1:] if name in cube.dims and cube[name].dtype.kind == "f" and name != y
    ]
    return [*parts.varying(cube, held), *held, level.axes[0]][0]


def _multiples(cube: xr.Dataset, level: parts.CubeLevel, taken: Sequence[str]) -> list[str]:
    return [name for name in parts.varying(cube, level.axes[1:]) if name not in taken][-2:]


@dataclass(frozen=True)
class _Map:
    """What one panel shows."""

    panel: parts.Part
    names: tuple[str, str]
    x: Array
    y: Array
    scales: tuple[str, str]
    values: Array  # (y, x)
    rho: float | None  # where it is no axis
    theory: Prediction | None
    summed: bool

    @classmethod
    def of(
        cls, panel: parts.Part, x: str, y: str, quantity: str, false_alarm: float, rho: float | None
    ) -> _Map:
        level, cube = panel.level, panel.cube
        theory = prediction_for(cube)
        theory = theory if theory is not None and level.name in theory.levels else None
        at = None
        if "rho" not in (x, y):
            cube, at = _fixed_strength(cube, level, rho, theory)
        dimension, strengths = parts.strengths(cube)
        found, summed = _measured(cube, level, quantity, false_alarm, theory)
        if at is not None:
            found = found.isel({dimension: 0})
        along = [dimension if name == "rho" else name for name in (y, x)]
        found = found.squeeze([dim for dim in found.dims if dim not in along], drop=True).transpose(*along)
        coordinates = [strengths if name == "rho" else cube[name].values.astype(float) for name in (x, y)]
        orders = [np.argsort(values, kind="stable") for values in coordinates]
        xs, ys = (values[order] for values, order in zip(coordinates, orders, strict=True))
        values = found.values[np.ix_(orders[1], orders[0])]
        return cls(panel, (x, y), xs, ys, (axis_scale(xs), axis_scale(ys)), values, at, theory, summed)

    def edges(self) -> tuple[Array, Array]:
        return cell_edges(self.x, self.scales[0]), cell_edges(self.y, self.scales[1])

    def title(self) -> str:
        point = self.panel.point if self.rho is None else {**self.panel.point, "rho": self.rho}
        return style.settings(point)

    def boundaries(self) -> list[tuple[int, str, str]]:
        """List rank, level and legend of the boundaries: of this level and of those below it."""
        if self.theory is None:
            return []
        names = self.theory.levels[: self.theory.levels.index(self.panel.level.name) + 1]
        return [(i, name, f"{name} threshold {self.theory.formula(name)}") for i, name in enumerate(names)]


def _fixed_strength(
    cube: xr.Dataset, level: parts.CubeLevel, rho: float | None, theory: Prediction | None
) -> tuple[xr.Dataset, float]:
    """Keep one signal strength: the wanted one, exactly, or one at which there is a boundary to see."""
    dimension, strengths = parts.strengths(cube)
    wanted = float(np.median(strengths)) if rho is None else float(rho)
    if rho is None and theory is not None:
        wanted = float(np.nanmedian(theory.threshold(level.name).values))
    place = int(np.argmin(np.abs(strengths - wanted)))
    if rho is None or np.isclose(strengths[place], wanted, rtol=1e-9):
        return cube.isel({dimension: [place]}), float(strengths[place])
    states = [name for name in cube if str(name).startswith("column_status")]
    return cube_at(cube, [wanted]).assign({name: cube[name] for name in states}), wanted


def _measured(
    cube: xr.Dataset, level: parts.CubeLevel, quantity: str, false_alarm: float, theory: Prediction | None
) -> tuple[xr.DataArray, bool]:
    """Average over the replicates that are done; say whether overlaps were summed over pairs."""
    if quantity == "overlap":
        found = parts.done(cube, level, "overlap")
        rival = theory is not None and bool(np.isfinite(theory.second_outlier(level.name)).any())
        found = found.sum("top", skipna=False) if rival else found.isel(top=0)
        return parts.averages(found)[0], rival
    assert theory is not None
    top = parts.done(cube, level, "eigenvalue").isel(top=0)
    seen = (top > theory.top_quantile(level.name, 1.0 - false_alarm)).where(top.notnull())
    return parts.averages(seen)[0], False


def _draw(found: _Map, ax: Axes) -> Any:
    x, y = found.edges()
    ax.set_xscale(found.scales[0])
    ax.set_yscale(found.scales[1])
    ax.patch.set(facecolor="#EEEEEE", hatch="////", edgecolor="#BBBBBB", linewidth=0.0)
    look: dict[str, Any] = {"cmap": style.MAP, "vmin": 0.0, "vmax": 1.0, "shading": "flat"}
    mesh = ax.pcolormesh(x, y, np.ma.masked_invalid(found.values), rasterized=True, **look)
    for rank, name, _ in found.boundaries():
        _boundary(found, name, rank, ax)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(y[0], y[-1])
    for axis, values, scale in ((ax.xaxis, found.x, found.scales[0]), (ax.yaxis, found.y, found.scales[1])):
        if values.size <= 8 or scale == "log":
            style.label_values(axis, values, scale)
    return mesh


def _fine(values: Array, scale: str) -> Array:
    edges = cell_edges(values, scale)
    space = np.geomspace if scale == "log" else np.linspace
    return space(max(edges[0], 1e-6 * edges[-1]), edges[-1], _FINE)


def _boundary(found: _Map, level: str, rank: int, ax: Axes) -> None:
    """Draw where theory's threshold equals the signal strength."""
    colour, dashes = style.BOUNDARIES[rank % len(style.BOUNDARIES)]
    if "rho" in found.names:
        other, rho = _threshold_line(found, level)
        line = (other, rho) if found.names[1] == "rho" else (rho, other)
        ax.plot(*line, color=colour, linestyle=dashes, linewidth=1.5)
        return
    x, y, field = _threshold_field(found, level)
    if found.rho is not None and field.size and field.min() < found.rho < field.max():
        ax.contour(x, y, field, [found.rho], colors=[colour], linestyles=[dashes], linewidths=1.5)


def _threshold_line(found: _Map, level: str) -> tuple[Array, Array]:
    """Return the axis that is not rho, finely where theory can vary it, and the threshold along it."""
    assert found.theory is not None
    other, values, scale = next(
        (name, values, scale)
        for name, values, scale in zip(found.names, (found.x, found.y), found.scales, strict=True)
        if name != "rho"
    )
    theory = found.theory
    if other in theory.parameters:
        values = _fine(values, scale)
        theory = theory.at(**{other: values})
    return values, np.broadcast_to(theory.threshold(level).squeeze(drop=True).values, values.shape)


def _threshold_field(found: _Map, level: str) -> tuple[Array, Array, Array]:
    """Return fine values of both axes and the threshold over (y, x); nothing where theory can't vary them."""
    assert found.theory is not None
    (x, y), nothing = found.names, np.empty(0)
    if x not in found.theory.parameters or y not in found.theory.parameters:
        return nothing, nothing, nothing
    fine = {x: _fine(found.x, found.scales[0]), y: _fine(found.y, found.scales[1])}
    threshold = found.theory.at(**fine).threshold(level).squeeze(drop=True)
    missing = {name: values.size for name, values in fine.items() if name not in threshold.dims}
    return fine[x], fine[y], threshold.expand_dims(missing).transpose(y, x).values


def _points(found: _Map, fits: xr.Dataset, point: Mapping[str, Any], ax: Axes) -> None:
    """Draw fitted thresholds with their intervals, those that are numbers."""
    x, y = found.names
    other = x if y == "rho" else y
    here = {"level": found.panel.level.name, **{k: v for k, v in point.items() if k != other}}
    kept = fits[["threshold", "low", "high"]].sel({k: v for k, v in here.items() if k in fits.dims})
    kept = kept.squeeze([dim for dim in kept.dims if dim != other], drop=True)
    place = kept[other].values.astype(float)
    middle, low, high = (kept[name].values for name in ("threshold", "low", "high"))
    good = np.isfinite(middle) & np.isfinite(low) & np.isfinite(high)
    bars = np.abs(np.stack([middle - low, high - middle]))[:, good]
    look: dict[str, Any] = {**style.FIT, "elinewidth": 1.0, "capsize": 2.0, "zorder": 4}
    if y == "rho":
        ax.errorbar(place[good], middle[good], yerr=bars, **look)
    else:
        ax.errorbar(middle[good], place[good], xerr=bars, **look)


def _words(quantity: str, maps: Sequence[_Map]) -> str:
    if quantity == "detection":
        return "detection probability"
    return style.SUMMED if any(found.summed for found in maps) else style.OVERLAP


def _handles(maps: Sequence[_Map], fitted: bool) -> list[Any]:
    from matplotlib.patches import Patch

    handles: dict[str, Any] = {}
    for found in maps:
        for rank, _, label in found.boundaries():
            colour, dashes = style.BOUNDARIES[rank % len(style.BOUNDARIES)]
            handles.setdefault(label, style.line(label, color=colour, linestyle=dashes, linewidth=1.5))
    if fitted:
        handles["fit"] = style.line("fitted, 95% interval", **style.FIT)
    if any(np.isnan(found.values).any() for found in maps):
        patch = Patch(facecolor="#EEEEEE", hatch="////", edgecolor="#BBBBBB", linewidth=0, label="not done")
        handles["empty"] = patch
    return list(handles.values())
