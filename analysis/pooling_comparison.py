"""Figure: poolings side by side at one signal norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import cube_parts as parts
from eigensweep.analysis import figure_style as style
from eigensweep.analysis.predictions import prediction_for
from eigensweep.pipeline.errors import Fault, InputError
from eigensweep.pipeline.views import cube_at

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

QUANTITIES = ("eigenvalue", "overlap")


def pooling_comparison(
    cube: xr.Dataset,
    mu2: float | None = None,
    *,
    level: str | Sequence[str] | None = None,
    select: Mapping[str, Any] | None = None,
    across: Sequence[str] | None = None,
    axes: Any = None,
) -> Figure:
    """Draw top eigenvalue and overlap of every pooling at one squared norm of the signal.

    Of a "raw" table, which has a second outlier, the overlap is summed over the leading pairs kept.

    Parameters
    ----------
    cube : xarray.Dataset
        From `eigensweep.pipeline.open_cube`, with a parameter ``pooling``.
    mu2 : float, optional
        Squared signal norm ``|mu|^2``; every pooling makes ``rho = mu2 alpha/kappa`` of it. If not given,
        the largest at which no pooling leaves the sweep's rho, or the middle one of a sweep over mu2. Off
        the grid, values are computed from the stored columns.
    level : str or sequence of str, optional
        Levels to draw; all of the cube if not given.
    select : mapping, optional
        From parameters to the value, or for parameters that are shown side by side the list of values, to
        draw; ``pooling`` takes a list. Of the others the first value in the sweep's order is drawn.
    across : sequence of str, optional
        Parameters of which each value has a panel of its own; if not given, the last of the parameters that
        are ratios and of which the cube holds several values.
    axes : Axes or sequence of Axes, optional
        Draw on these, two for each panel (eigenvalue, overlap), instead of on a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, poolings ascending by alpha/kappa. Nothing is written.

    Raises
    ------
    InputError
        If the cube has no poolings, lacks what was asked for, or keeps no columns where they are needed.
    ValueError
        If there are more or fewer axes than panels.
    """
    levels = parts.levels_of(cube, level)
    if "pooling" not in cube.dims:
        reason = "it has no dimension 'pooling' to compare along"
        raise InputError(
            Fault("cube", "", reason, "name several poolings under [grid], or keep the dimension")
        )
    size = levels[0].axes[0]
    shown = list(across) if across is not None else parts.side_by_side(cube)
    chosen, fixed = parts.choose(cube, select, [size, "pooling"], shown)
    gains = (chosen["alpha"] / chosen["kappa"]).values
    at = _norm(chosen, mu2, float(gains.max()))
    panels = parts.parts_of(chosen, levels, shown)
    held = style.given(axes, 2 * len(panels))
    height = 0.75 + 0.3 * gains.size
    figure, places = style.panel_grid(len(panels), 2, height, held, sharex="row", sharey=True)
    counts: set[int] = set()
    for number, (panel, place) in enumerate(zip(panels, places, strict=True)):
        dots = _Dots.of(panel, at)
        place[0].set_title(style.panel_title(panel.level.name, panel.point), fontsize=style.NORMAL)
        _draw(dots, place, held is not None or number % style.columns_for(len(panels)) == 0)
        counts |= set(dots.counts.ravel().tolist())
    if held is None:
        told = {"mu2": at, **parts.told(cube, fixed, levels, (size, "pooling", *panels[-1].point))}
        words = style.settings({**told, **style.model_words(cube)})
        style.heading(figure, [words, f"{max(counts)} replicates"])
    sizes = np.sort(np.atleast_1d(chosen[size].values)).tolist()
    style.legend(places[0][0] if held else figure, _handles(size, sizes, panels), below=held is None)
    return figure


def _norm(cube: xr.Dataset, mu2: float | None, gain: float) -> float:
    if mu2 is not None:
        if not (np.isfinite(mu2) and mu2 >= 0):
            fault = Fault("mu2", str(mu2), "a squared norm is finite and at least 0", "give such a number")
            raise InputError(fault)
        return float(mu2)
    if "mu2" in cube.dims:
        return float(np.sort(cube["mu2"].values)[cube.sizes["mu2"] // 2])
    return float(f"{cube['rho'].values.max() / gain:.12g}")


@dataclass(frozen=True)
class _Dots:
    """Means and standard errors over quantity, size and pooling, and what theory says, by ascending gain."""

    poolings: list[str]
    gains: Array
    means: dict[str, Array]
    errors: dict[str, Array]
    counts: NDArray[Any]
    theory: dict[str, Array]
    edge: float
    summed: bool

    @classmethod
    def of(cls, panel: parts.Part, mu2: float) -> _Dots:
        level, cube = panel.level, panel.cube
        gains = (cube["alpha"] / cube["kappa"]).values
        order = np.argsort(gains, kind="stable")
        found: dict[str, list[tuple[Array, ...]]] = {name: [] for name in QUANTITIES}
        said: list[tuple[float, ...]] = []
        ones = [_at(cube.isel(pooling=int(place)), mu2, float(gains[place])) for place in order]
        for one, gain in zip(ones, gains[order], strict=True):
            said.append(_theory(one, level, mu2 * float(gain)))
        summed = bool(np.isfinite([rival for *_, rival in said]).any())
        for one in ones:
            for name in QUANTITIES:
                values = parts.done(one, level, name).sortby(level.axes[0]).squeeze("signal", drop=True)
                both = name == "overlap" and summed
                kept = values.sum("top", skipna=False) if both else values.isel(top=0)
                found[name].append(tuple(part.values for part in parts.averages(kept)))
        stacked = {n: [np.stack(p, axis=-1) for p in zip(*rows, strict=True)] for n, rows in found.items()}
        outlier, overlap, edge, rival = np.array(said).T
        return cls(
            [str(name) for name in cube["pooling"].values[order]],
            gains[order],
            {name: rows[0] for name, rows in stacked.items()},
            {name: rows[1] for name, rows in stacked.items()},
            stacked["overlap"][2],
            {"eigenvalue": np.fmax(outlier, rival), "overlap": overlap},
            float(edge[0]),
            summed,
        )


def _theory(cube: xr.Dataset, level: parts.CubeLevel, rho: float) -> tuple[float, float, float, float]:
    """Return outlier, overlap, bulk edge and second outlier at the largest size; NaN without theory."""
    size = level.axes[0]
    largest = cube.isel({size: int(cube[size].values.argmax())}) if size in cube.dims else cube
    theory = prediction_for(largest)
    if theory is None or level.name not in theory.levels:
        return np.nan, np.nan, np.nan, np.nan
    return (
        theory.outlier(level.name, rho).item(),
        theory.overlap(level.name, rho).item(),
        theory.edges(level.name)[1].item(),
        theory.second_outlier(level.name).item(),
    )


def _at(cube: xr.Dataset, mu2: float, gain: float) -> xr.Dataset:
    """One pooling at one norm, the dimension of the signal called ``signal``: from the grid, else exactly."""
    dimension = "mu2" if "mu2" in cube.dims else "rho"
    wanted = mu2 if dimension == "mu2" else mu2 * gain
    place = np.flatnonzero(np.isclose(cube[dimension].values, wanted, rtol=1e-9, atol=0.0))
    if place.size:
        return cube.isel({dimension: place[:1]}).rename({dimension: "signal"})
    states = [name for name in cube if str(name).startswith("column_status")]
    computed = cube_at(cube, [mu2 * gain]).assign({name: cube[name] for name in states})
    return computed.rename({"rho": "signal"})


def _draw(dots: _Dots, place: Sequence[Axes], named: bool) -> None:
    rows = np.arange(len(dots.poolings), dtype=float)
    labels = [f"{name} ({gain:.3g})" for name, gain in zip(dots.poolings, dots.gains, strict=True)]
    for quantity, ax in zip(QUANTITIES, place, strict=True):
        sizes = len(dots.means[quantity])
        shift = np.linspace(-0.2, 0.2, sizes) if sizes > 1 else np.zeros(1)
        for row, shade in enumerate(style.shades(sizes)):
            mean, error = dots.means[quantity][row], dots.errors[quantity][row]
            keep = np.isfinite(mean)
            look: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none", "color": shade}
            ax.errorbar(mean[keep], (rows + shift[row])[keep], xerr=error[keep], elinewidth=1.0, **look)
        if np.isfinite(dots.edge):
            ax.vlines(
                dots.theory[quantity], rows - 0.36, rows + 0.36, color=style.BLACK, linewidth=1.3, zorder=1
            )
            if quantity == "eigenvalue":
                ax.axvline(dots.edge, color=style.GREY, linestyle=(0, (4, 2)), linewidth=0.9, zorder=0)
        ax.set_ylim(-0.6, rows[-1] + 0.6)
        ax.set_yticks(rows, labels)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color="#EEEEEE", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.tick_params(labelbottom=True)
        overlap = style.SUMMED if dots.summed else style.OVERLAP
        words = style.EIGENVALUE if quantity == "eigenvalue" else overlap
        ax.set_xlabel(words, fontsize=style.NORMAL)
        if named:
            ax.set_ylabel(r"pooling ($\alpha/\kappa$)", fontsize=style.NORMAL)
        if quantity == "overlap":
            ax.set_xlim(-0.03, 1.03)
            ax.set_xticks([0.0, 0.5, 1.0])


def _handles(size: str, sizes: Sequence[Any], panels: Sequence[parts.Part]) -> list[Any]:
    handles = [
        style.line(style.setting(size, value), color=shade, marker="o", markersize=4, linestyle="none")
        for value, shade in zip(sizes, style.shades(len(sizes)), strict=True)
    ]
    if prediction_for(panels[0].cube) is not None:
        handles.append(
            style.line(
                "theory", color=style.BLACK, marker="|", markersize=9, markeredgewidth=1.3, linestyle="none"
            )
        )
        handles.append(style.line("bulk edge", color=style.GREY, linestyle=(0, (4, 2)), linewidth=0.9))
    return handles
