"""How eigensweep's figures look: sizes, colours, symbols, legends. matplotlib is imported when it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2
"""Inches: the text width of a page, so that a figure is printed at the size at which it is drawn."""
SMALL, NORMAL = 8.0, 9.0
"""Font sizes in points."""
_GLYPH = 0.0078
"""Mean width of a glyph in inches, for each point of font size."""

# Okabe and Ito's colours, told apart by readers with any colour vision.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
GREY = "#8C8C8C"
PALE = "#A9CCE3"
THRESHOLDS: tuple[tuple[str, Any], ...] = ((VERMILLION, (0, (5, 2))), (GREEN, (0, (1.2, 1.0))))
"""Colour and dashes of the thresholds, from the weakest level on."""
BOUNDARIES: tuple[tuple[str, Any], ...] = ((VERMILLION, (0, (5, 2))), (BLACK, "solid"))
"""The same where they are boundaries on a map."""
MAP = "Blues"
FIT: dict[str, Any] = {
    "marker": "o",
    "markersize": 4.0,
    "color": BLACK,
    "markerfacecolor": "white",
    "markeredgewidth": 1.0,
    "linestyle": "none",
}
"""Look of fitted thresholds."""

EIGENVALUE = r"top eigenvalue $\lambda_1/\kappa$"
OVERLAP = r"squared overlap $|\langle u,\hat{u}_1\rangle|^2$"
SUMMED = r"squared overlap $\sum_k|\langle u,\hat{u}_k\rangle|^2$"
RHO = r"signal strength $\rho$"
SYMBOLS = {
    "d": "$d$",
    "T": "$T$",
    "delta": r"$\delta$",
    "gamma": r"$\gamma$",
    "beta": r"$\beta$",
    "rho": r"$\rho$",
    "mu2": r"$|\mu|^2$",
}
_MEANINGS = {
    "delta": r"$\delta = d/V$",
    "gamma": r"$\gamma = d/N$",
    "rho": RHO,
    "T": "sequence length $T$",
    "d": "dimension $d$",
}
_PHRASES = {"pooling": "{} pooling", "table": "{} table", "correlation": "{} signs"}


def axis_label(name: str) -> str:
    """Label of an axis on which a parameter varies."""
    return _MEANINGS.get(name, SYMBOLS.get(name, name))


def setting(name: str, value: Any) -> str:
    """Tell a parameter's value: a symbol and a number, or words such as ``mean pooling``."""
    shown = f"{float(value):.4g}" if isinstance(value, (float, np.floating)) else str(value)
    if name in _PHRASES:
        return _PHRASES[name].format(shown)
    return f"{SYMBOLS.get(name, name)} = {shown}"


def settings(values: Mapping[str, Any]) -> str:
    """Tell several parameters' values."""
    return ", ".join(setting(name, value) for name, value in values.items())


def model_words(cube: Any) -> dict[str, str]:
    """Options of a cube's model that are words and no axes, by name."""
    sweeps = cube.attrs.get("sweeps") or [{}]
    model = sweeps[-1].get("sweep", {}).get("model", {})
    return {name: model[name] for name in _PHRASES if isinstance(model.get(name), str)}


def shades(count: int) -> list[tuple[float, ...]]:
    """Blues from light to dark, one for each size, the largest darkest."""
    import matplotlib as mpl

    colours = mpl.colormaps["Blues"](np.linspace(0.42, 0.95, count) if count > 1 else [0.85])
    return [tuple(colour) for colour in colours]


def new_figure(
    rows: int, columns: int, size: tuple[float, float], **sharing: Any
) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure and its axes.

    Parameters
    ----------
    rows, columns : int
        Of the grid of axes.
    size : tuple of float
        Inches.
    **sharing
        ``sharex`` and ``sharey``, as matplotlib takes them.

    Returns
    -------
    figure : Figure
        With a layout that keeps texts from overlapping.
    axes : list of list of Axes
        By row.
    """
    from eigensweep.analysis.paper_figure import PaperFigure

    figure = PaperFigure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **sharing)
    for ax in axes.ravel():
        dress(ax)
    return figure, [list(row) for row in axes]


def dress(ax: Axes) -> None:
    """Give axes ticks that can be read and no box."""
    ax.tick_params(labelsize=SMALL, width=0.7, length=3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_linewidth(0.7)


def given(axes: Any, count: int) -> list[Axes] | None:
    """Check the axes that a caller wants drawn on.

    Parameters
    ----------
    axes : Axes or (nested) sequence of Axes or None
        What the caller gave.
    count : int
        How many are needed.

    Returns
    -------
    list of Axes or None
        None if there are none.

    Raises
    ------
    ValueError
        If there are fewer or more than are needed.
    """
    if axes is None:
        return None
    held = np.asarray(axes, dtype=object).ravel().tolist()
    if len(held) != count:
        raise ValueError(
            f"axes: {len(held)} given and {count} panels to draw; give {count}, or narrow the figure with "
            "level=, quantity= and select="
        )
    return held


def columns_for(count: int) -> int:
    """Panels side by side on a page."""
    return 2 if count in (2, 4) else min(count, 3)


def panel_grid(
    count: int,
    rows: int,
    height: float,
    held: Sequence[Axes] | None,
    *,
    columns: int = 0,
    sharex: Any = True,
    sharey: Any = "row",
) -> tuple[Figure, list[list[Axes]]]:
    """Make axes for some panels, each of one or more rows, at most three panels side by side.

    Parameters
    ----------
    count : int
        Panels.
    rows : int
        Axes of a panel, above one another.
    height : float
        Inches of each.
    held : sequence of Axes or None
        A caller's axes, panel by panel, to use instead.
    columns : int, optional
        Panels side by side.
    sharex, sharey
        As matplotlib takes them.

    Returns
    -------
    figure : Figure
        The figure.
    places : list of list of Axes
        The axes of each panel.
    """
    if held is not None:
        return figure_of(held[0]), [list(held[start : start + rows]) for start in range(0, len(held), rows)]
    columns = columns or columns_for(count)
    groups = -(-count // columns)
    size = (WIDTH if columns > 1 else 0.62 * WIDTH, 1.0 + groups * rows * height)
    figure, axes = new_figure(groups * rows, columns, size, sharex=sharex, sharey=sharey)
    places = []
    for number in range(groups * columns):
        group, column = divmod(number, columns)
        place = [axes[group * rows + row][column] for row in range(rows)]
        if number < count:
            place[-1].tick_params(labelbottom=True)
            places.append(place)
            continue
        for ax in place:
            ax.remove()
    return figure, places


def panel_title(level: str, point: Mapping[str, Any]) -> str:
    """Title of a panel: its level and what tells it from the others."""
    return ", ".join(filter(None, [f"{level} level", settings(point)]))


def heading(figure: Figure, words: Sequence[str]) -> None:
    """Put what a figure's panels have in common above them, on as many lines as its width asks for."""
    pieces = [piece for word in words for piece in word.split(", ") if piece]
    limit = figure.get_figwidth() / (_GLYPH * NORMAL)
    lines: list[str] = []
    for piece in pieces:
        longer = f"{lines[-1]}, {piece}" if lines else piece
        if lines and _length(longer) <= limit:
            lines[-1] = longer
        else:
            lines.append(piece)
    figure.suptitle(",\n".join(lines), fontsize=NORMAL)


def _length(text: str) -> int:
    """Glyphs of a text as it is drawn: a command of mathtext is one, its braces are none."""
    return len(re.sub(r"[${}_^]|\\(sqrt|hat|langle|rangle)", "", re.sub(r"\\[a-z]+", "x", text)))


def legend(target: Figure | Axes, handles: Sequence[Any], *, below: bool) -> None:
    """Draw a compact legend: below the panels of a figure of its own, or inside given axes."""
    if not handles:
        return
    labels = [str(handle.get_label()) for handle in handles]
    look: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "handlelength": 1.8}
    if not below:
        target.legend(handles, labels, loc="best", **look)
        return
    widest = (max(_length(label) for label in labels) + 6) * _GLYPH * SMALL
    total = sum(_length(label) + 6 for label in labels) * _GLYPH * SMALL
    width = target.get_figwidth()  # type: ignore[union-attr]
    columns = len(labels) if total <= width else max(1, int(width / widest))
    look |= {"loc": "outside lower center", "columnspacing": 1.3, "handletextpad": 0.5}
    target.legend(handles, labels, ncols=columns, **look)


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes belong to."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


APART = 0.16
"""Least distance of two labels, as a share of a small panel's axis: four digits and a gap."""


def label_values(axis: Any, values: NDArray[np.float64], scale: str) -> None:
    """Label the given values on an axis, without those that would collide, in plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    position = np.log(values) if scale == "log" else values
    span = float(np.ptp(position)) or 1.0
    kept: list[int] = []
    for place in range(values.size):
        if not kept or position[place] - position[kept[-1]] > APART * span:
            kept.append(place)
    axis.set_major_locator(FixedLocator(values[kept].tolist()))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def plain_ticks(axis: Any, ends: tuple[float, float]) -> None:
    """Label 1, 2 and 5 of every decade on a logarithmic axis, in plain numbers."""
    decades = 10.0 ** np.arange(np.floor(np.log10(ends[0])), np.ceil(np.log10(ends[1])) + 1)
    values = np.outer(decades, [1.0, 2.0, 5.0]).ravel()
    label_values(axis, values[(values >= ends[0]) & (values <= ends[1])], "log")


def line(label: str, **style: Any) -> Any:
    """Make a legend's entry that stands for lines or points drawn elsewhere."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def empty(ax: Axes, words: str) -> None:
    """Say in a panel why it is empty."""
    ax.text(
        0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", fontsize=SMALL, color="#555555"
    )
