"""The packaged sweeps, and what a user may write where a sweep is asked for."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import Fault, InputError, nearest

if TYPE_CHECKING:
    from eigensweep.pipeline.sweep import Sweep

QUICK_SIZES, QUICK_VALUES, QUICK_SIGNALS, QUICK_REPLICATES = 2, 2, 9, 4
"""What --quick keeps of a sweep: the smallest sizes, and the first values of every other axis."""


def names() -> list[str]:
    """List the packaged sweeps."""
    return sorted(
        item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml")
    )


def text(name: str) -> str:
    """Return a packaged sweep's file.

    Parameters
    ----------
    name : str
        Its name.

    Returns
    -------
    str
        TOML, to print or to edit.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in names():
        raise InputError(
            Fault("workflow", name, "there is no packaged sweep of that name", nearest(name, names()))
        )
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def describe(name: str) -> str:
    """Return the comment at the head of a packaged sweep, in one line."""
    head = []
    for line in text(name).splitlines():
        if not line.startswith("#"):
            break
        head.append(line.lstrip("# "))
    return " ".join(head)


def resolve(written: str, study: Path | None = None) -> tuple[Sweep, Path]:
    """Find the sweep that a user means, and the study that it lives in.

    Parameters
    ----------
    written : str
        A sweep file, a packaged sweep's name, or a study whose last sweep is meant.
    study : Path, optional
        The study's folder, if the user named one.

    Returns
    -------
    sweep : Sweep
        The sweep.
    study : Path
        Where it lives.

    Raises
    ------
    InputError
        If nothing of that name is there, or the sweep file is wrong.
    """
    from eigensweep.pipeline.study import CUBE, load
    from eigensweep.pipeline.sweep import Sweep

    path = Path(written)
    if (path / CUBE).is_dir():
        return load(path).sweep, study or path
    if written in names() and not path.exists():
        with resources.as_file(_folder() / f"{written}.toml") as packaged:
            sweep = Sweep.from_toml(packaged)
        return sweep, study or Path(sweep.name)
    if not path.is_file() and path.suffix != ".toml":
        reason = "it is neither a sweep file, nor a study, nor a packaged sweep"
        raise InputError(Fault("sweep", written, reason, nearest(written, names())))
    sweep = Sweep.from_toml(path)
    return sweep, study or Path(sweep.name)


def quick(sweep: Sweep) -> Sweep:
    """Cut a sweep down to a trial of itself: a part of its grid, with the same numbers in every cell.

    Parameters
    ----------
    sweep : Sweep
        The sweep.

    Returns
    -------
    Sweep
        Its two smallest sizes, at most two values of every other axis, nine signal values from end to end
        and four replicates.
    """
    from eigensweep.pipeline.sweep import Sweep

    asked = sweep.to_dict()
    size = sweep.ensemble.axes[0].name
    kept = {name: list(values[:QUICK_VALUES]) for name, values in sweep.axes.items()}
    kept[size] = sorted(sweep.axes[size], key=float)[:QUICK_SIZES]
    count = len(sweep.signal_values)
    step = max(1, (count - 1) / (QUICK_SIGNALS - 1))
    picked = sorted({round(i * step) for i in range(QUICK_SIGNALS) if round(i * step) < count})
    for table in ("grid", "model"):
        asked[table] |= {name: values for name, values in kept.items() if name in asked[table]}
    asked["grid"][sweep.signal] = [sweep.signal_values[i] for i in picked]
    asked["grid"]["replicates"] = min(QUICK_REPLICATES, *(sweep.replicate_counts.values()))
    base = next(iter(sweep.files.values())).parent if sweep.files else Path()
    return Sweep.from_dict({key: value for key, value in asked.items() if key != "inputs"}, base=base)


def _folder() -> Traversable:
    return resources.files("eigensweep.workflows") / "sweeps"
