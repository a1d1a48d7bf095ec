"""Preparing a study for a run: made, checked, grown, and held against other runs."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigensweep.pipeline import cube, lock, provenance
from eigensweep.pipeline.blocks import Block, Layout, fresh_layout
from eigensweep.pipeline.errors import Fault, InputError, StoppedError, StudyError
from eigensweep.pipeline.study import (
    CUBE,
    INPUTS,
    LOCK,
    OWN,
    SWEEP,
    Study,
    cube_plan,
    joined_ensemble,
    load,
    seen_inputs,
)
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.tomltext import to_toml

PATIENCE = 300.0
"""Seconds that a share waits for another one to lay out the study."""


@dataclass(frozen=True)
class Share:
    """One of several runs that divide a study's blocks among them, without a scheduler.

    Parameters
    ----------
    number, count : int
        The ``number``-th of ``count`` shares, from 1.
    """

    number: int
    count: int

    @property
    def suffix(self) -> str:
        """Its mark in the names of its files."""
        return f".share-{self.number}-of-{self.count}"

    def owns(self, block: Block) -> bool:
        """Say whether a block is its own: by what the block is, so that all shares agree for ever."""
        words = repr((block.level, block.point, block.run)).encode()
        return zlib.crc32(words) % self.count == self.number - 1


@contextmanager
def prepared(sweep: Sweep, folder: Path, share: Share | None = None) -> Iterator[Study]:
    """Hold a study for a run: made if it is not there, grown if the sweep asks for more.

    Parameters
    ----------
    sweep : Sweep
        What is asked.
    folder : Path
        The study.
    share : Share, optional
        Which part of the work is meant. Shares hold a lock each, and the study's own only while they lay
        it out: they join each other, and a whole run joins none.

    Yields
    ------
    Study
        Published with every axis that the sweep needs.

    Raises
    ------
    InputError
        If the folder holds something else, or the sweep contradicts the study.
    StudyError
        If another run holds it.
    StoppedError
        If it can't be written, or no longer.
    """
    try:
        refuse_foreign(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if share is None:
            with lock.hold(folder / LOCK):
                _refuse_shares(folder, lambda path: True)
                yield _prepare(sweep, folder, alone=True)
        else:
            with lock.hold(folder / f"{LOCK}{share.suffix}"):
                with lock.hold(folder / LOCK, PATIENCE):
                    suffix = f"-of-{share.count}"
                    _refuse_shares(folder, lambda path: not path.name.endswith(suffix))
                    alone = len(lock.living(folder, f"{LOCK}.share-*{suffix}")) == 1
                    study = _prepare(sweep, folder, alone)
                yield study
    except OSError as error:
        if error.filename is None and error.strerror is None:
            raise
        where = error.filename or folder
        raise StoppedError(
            f"{where}: {error.strerror or error}; make room or make the folder writable, then run again: "
            "what is done stays done"
        ) from error


def _refuse_shares(folder: Path, foreign: Callable[[Path], bool]) -> None:
    """Refuse to work beside shares that divide the blocks in another way."""
    for path, holder in lock.living(folder, f"{LOCK}.share-*-of-[0-9]*"):
        if path.suffix.rpartition("-")[2].isdigit() and foreign(path):
            share = path.name.removeprefix(f"{LOCK}.share-").replace("-of-", "/")
            raise StudyError(
                f"{folder}: share {share} is at work here ({holder.describe()}); wait for it or stop it"
            )


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something other than a study.

    Parameters
    ----------
    folder : Path
        Where a study is meant to live.

    Raises
    ------
    InputError
        If it is a file, or holds what no study holds and no cube.
    """
    remedy = "name another folder with --study"
    if folder.exists() and not folder.is_dir():
        raise InputError(Fault("study", str(folder), "it is a file", remedy))
    if not folder.exists() or (folder / CUBE).exists():
        return
    foreign = sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in OWN and not path.name.startswith((".", "lock"))
    )
    if foreign:
        shown = ", ".join(foreign[:3]) + (" and more" if len(foreign) > 3 else "")
        raise InputError(
            Fault("study", str(folder), f"it holds something that is no study ({shown})", remedy)
        )


def check(sweep: Sweep, folder: Path) -> Study | None:
    """Say whether a sweep fits a study, without touching either.

    Parameters
    ----------
    sweep : Sweep
        What is asked.
    folder : Path
        The study.

    Returns
    -------
    Study or None
        The study as it is, None if it is not there yet.

    Raises
    ------
    InputError
        If the folder holds something else, or the sweep contradicts the study.
    """
    refuse_foreign(folder)
    if not (folder / CUBE).exists():
        return None
    study = load(folder)
    faults = sweep.contradictions(study.sweep)
    # A file that the last sweep did not name may have been named by an earlier one.
    seen = seen_inputs(study.attributes)
    faults += [
        Fault(f"inputs.{name}", digest[:12], f"the study has another, {seen[name][:12]}", "rename the file")
        for name, digest in sweep.inputs.items()
        if name not in study.sweep.inputs and seen.get(name, digest) != digest
    ]
    if faults:
        raise InputError(faults)
    return study


def asked_layout(sweep: Sweep) -> Layout:
    """Lay out the study that a sweep alone would make."""
    return fresh_layout(sweep.axes, sweep.signal, sweep.signal_values, sweep.replicates, sweep.record.top)


def _prepare(sweep: Sweep, folder: Path, alone: bool) -> Study:
    study = check(sweep, folder)
    if study is not None and alone:
        # Beside other shares a file that is half written need not be anybody's leftover.
        cube.sweep_up(folder / CUBE)
    for name, path in sweep.files.items():
        _copy(path, folder / INPUTS / name)
    if study is None:
        plan = cube_plan(sweep, asked_layout(sweep), sweep.ensemble)
        cube.create(folder / CUBE, plan, _attributes(sweep, {}))
    else:
        ensemble = joined_ensemble(sweep, seen_inputs(study.attributes), folder / INPUTS)
        plan = cube_plan(sweep, study.plan.layout.grown(asked_layout(sweep)), ensemble)
        attributes = _attributes(sweep, study.attributes)
        if plan.layout == study.plan.layout and attributes["sweeps"] == study.attributes["sweeps"]:
            _keep(folder / SWEEP, to_toml(sweep.to_dict()))
            return replace(study, sweep=sweep, plan=plan)
        cube.publish(folder / CUBE, plan, attributes)
    _keep(folder / SWEEP, to_toml(sweep.to_dict()))
    document, token = cube.read_metadata(folder / CUBE)
    return Study(folder, sweep, plan, token, document["attributes"])


def _attributes(sweep: Sweep, before: Mapping[str, Any]) -> dict[str, Any]:
    """Put a sweep last among those that the study has seen."""
    stamp = {"first_run": provenance.now(), **provenance.versions(), "machine": provenance.machine()}
    seen = [entry for entry in before.get("sweeps", []) if entry["digest"] != sweep.digest]
    own = [entry for entry in before.get("sweeps", []) if entry["digest"] == sweep.digest]
    entry = own[0] if own else {"digest": sweep.digest, "sweep": sweep.to_dict(), "provenance": stamp}
    kept = {key: value for key, value in before.items() if key not in ("eigensweep_format", "coordinates")}
    return {**kept, "created": before.get("created", provenance.now()), "sweeps": [*seen, entry]}


def _keep(path: Path, text: str) -> None:
    """Have a file hold a text: whole or not at all, and untouched where it does already."""
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _copy(source: Path, target: Path) -> None:
    if source.resolve() == target.resolve():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.copyfile(source, temporary)
    temporary.replace(target)
