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
"""Kinds that a run draws where its sweep has no recipe of its own."""
RECIPES = {"phase-diagram": ("phase-diagram", "thresholds")}
"""Kinds that the runs of packaged sweeps draw instead, by the sweep's name."""


def kinds() -> dict[str, str]:
    """List what can be drawn, with a line on each."""
    from eigensweep.analysis import figures

    found = {name: words for name, (_, words) in figures.KINDS.items()}
    return found | {"thresholds": "fitted thresholds against theoretical ones, with their intervals"}


def plot(kind: str, study: Path, output: Path | None) -> None:
    """Draw one figure of a study into a file."""
    from eigensweep.pipeline.study import FIGURES

    if kind not in kinds():
        raise InputError(Fault("plot", kind, "there is no such figure", nearest(kind, kinds())))
    target = output if output is not None else study / FIGURES / f"{kind}.png"
    if target.suffix not in FORMATS:
        reason = "its ending names no format that can be drawn"
        raise InputError(Fault("--output", str(target), reason, f"end it in one of {', '.join(FORMATS)}"))
    print(_save(_draw(kind, study), target))


def draw_all(study: Path) -> list[Path]:
    """Draw what a run leaves in its study; a figure that can't be drawn does not fail the run."""
    from eigensweep.pipeline.study import FIGURES, load

    drawn = []
    for kind in RECIPES.get(load(study).sweep.name.removesuffix("-quick"), AFTER_RUN):
        try:
            drawn.append(_save(_draw(kind, study), study / FIGURES / f"{kind}.png"))
        except (InputError, ValueError) as error:
            console.say(f"no figure {kind}: {error}")
    return drawn


def _draw(kind: str, study: Path) -> Figure:
    from eigensweep.analysis import figures
    from eigensweep.pipeline.views import open_cube
    from eigensweep.workflows.fitting import fits_of

    cube = open_cube(study)
    if kind == "thresholds":
        return figures.thresholds(fits_of(study))
    if kind == "phase-diagram":
        # The fitted points belong on it; where there are none, their reasons are in `eigensweep fit`.
        return figures.phase_diagram(cube, fits=fits_of(study))
    draw, _ = figures.KINDS[kind]
    figure: Figure = draw(cube)
    return figure


def _save(figure: Figure, target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=200)
    except OSError as error:
        reason = f"it can't be written ({error.strerror or error})"
        raise InputError(Fault("--output", str(target), reason, "name a file in a writable folder")) from None
    return target
