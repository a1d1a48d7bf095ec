"""Figure: fitted thresholds against theory's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import figure_style as style
from eigensweep.analysis.cells import axis_scale
from eigensweep.pipeline.errors import Fault, InputError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def thresholds(fits: xr.Dataset, *, axes: Any = None) -> Figure:
    """Draw fitted thresholds against theory's, with their intervals and the line on which they agree.

    Parameters
    ----------
    fits : xarray.Dataset
        ``threshold``, ``low``, ``high`` and ``theory``, in units of rho, over ``level`` and any others.
    axes : Axes, optional
        Draw on this instead of on a figure of its own.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its legend tells how many intervals hold theory. Nothing is written.

    Raises
    ------
    InputError
        If a variable is missing, or no cell has both a fit and a theory.

    Notes
    -----
    Cells without a fitted number are not drawn, and not counted.
    """
    import xarray as xr

    names = ("threshold", "low", "high", "theory")
    missing = [name for name in names if name not in fits]
    if missing:
        reason = f"it has no {', '.join(missing)}"
        raise InputError(Fault("fits", "", reason, "give the Dataset that fit_transitions returns"))
    held = style.given(axes, 1)
    if held is None:
        figure, grid = style.new_figure(1, 1, (0.55 * style.WIDTH, 0.55 * style.WIDTH))
        ax = grid[0][0]
    else:
        ax = held[0]
        figure = style.figure_of(ax)
    levels = np.atleast_1d(fits["level"].values).tolist() if "level" in fits.coords else [""]
    looks = ((style.VERMILLION, "s"), (style.BLUE, "o"), (style.GREEN, "D"), (style.PURPLE, "^"))
    drawn, handles = [], []
    for level, (colour, marker) in zip(levels, looks, strict=False):
        part = fits.sel(level=level) if "level" in fits.dims else fits
        rows = np.stack([array.values.ravel() for array in xr.broadcast(*(part[name] for name in names))])
        # A level that does not depend on an axis is repeated along it: one fit is one point.
        middle, low, high, x = np.unique(rows[:, np.isfinite(rows).all(axis=0)], axis=1)
        if not x.size:
            continue
        bars = np.abs([middle - low, high - middle])
        inside = int(np.sum((low <= x) & (x <= high)))
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3.2, "linestyle": "none"}
        ax.errorbar(x, middle, yerr=bars, elinewidth=0.9, **look)
        words = f"{level}: {inside} of {x.size} intervals hold theory".lstrip(": ")
        handles.append(style.line(words, **look))
        drawn += [x, low, high]
    if not drawn:
        reason = "no cell has both a fitted threshold and a theory"
        raise InputError(
            Fault("fits", "", reason, "read the fits' messages, which say what to add to the sweep")
        )
    _frame(ax, np.concatenate(drawn))
    handles.append(style.line("fit = theory", color=style.GREY, linewidth=1.0))
    style.legend(ax, handles, below=False)
    return figure


def _frame(ax: Axes, values: NDArray[np.float64]) -> None:
    """Give both axes one range and scale, and draw the line on which fit and theory agree."""
    low, high = float(values.min()), float(values.max())
    scale = axis_scale(np.geomspace(low, high, 5)) if low > 0 else "linear"
    margin = 0.06 * (np.log(high / low) if scale == "log" else high - low) or 0.1
    ends = (low * np.exp(-margin), high * np.exp(margin)) if scale == "log" else (low - margin, high + margin)
    ax.set_xscale(scale)
    ax.set_yscale(scale)
    ax.plot(ends, ends, color=style.GREY, linewidth=1.0, zorder=0)
    ax.set_xlim(ends)
    ax.set_ylim(ends)
    ax.set_aspect("equal")
    if scale == "log":
        for axis in (ax.xaxis, ax.yaxis):
            style.plain_ticks(axis, ends)
    ax.set_xlabel(r"threshold in theory, $\rho_c$", fontsize=style.NORMAL)
    ax.set_ylabel(r"fitted threshold, $\hat{\rho}_c$", fontsize=style.NORMAL)
