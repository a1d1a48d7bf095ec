"""``eigensweep plot``, and the figures that a run leaves in its study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.workflows import console

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
AFTER_RUN = ("transition", "spectrum")
"""Kinds that every run draws."""


def plot(kind: str, study: Path, output: Path | None) -> None:
    """Draw one figure of a study into a file."""
    from eigensweep.analysis import figures
    from eigensweep.pipeline.study import FIGURES

    if kind not in figures.KINDS:
        raise InputError(Fault("plot", kind, "there is no such figure", nearest(kind, figures.KINDS)))
    target = output if output is not None else study / FIGURES / f"{kind}.png"
    if target.suffix not in FORMATS:
        reason = "its ending names no format that can be drawn"
        raise InputError(Fault("--output", str(target), reason, f"end it in one of {', '.join(FORMATS)}"))
    print(_save(_draw(kind, study), target))


def draw_all(study: Path) -> list[Path]:
    """Draw what every run leaves in its study; a figure that can't be drawn does not fail the run."""
    from eigensweep.pipeline.study import FIGURES

    drawn = []
    for kind in AFTER_RUN:
        try:
            drawn.append(_save(_draw(kind, study), study / FIGURES / f"{kind}.png"))
        except (InputError, ValueError) as error:
            console.say(f"no figure {kind}: {error}")
    return drawn


def _draw(kind: str, study: Path) -> Figure:
    from eigensweep.analysis import figures
    from eigensweep.pipeline.views import open_cube

    draw, _ = figures.KINDS[kind]
    figure: Figure = draw(open_cube(study))
    return figure


def _save(figure: Figure, target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=200)
    except OSError as error:
        reason = f"it can't be written ({error.strerror or error})"
        raise InputError(Fault("--output", str(target), reason, "name a file in a writable folder")) from None
    return target
