"""The study: the folder where a sweep lives, made, checked, grown and told the story of."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline import cube, lock, provenance
from eigensweep.pipeline.blocks import Block, Layout, blocks, fresh_layout
from eigensweep.pipeline.chunks import Chunks
from eigensweep.pipeline.errors import Fault, InputError, StoppedError, StudyError
from eigensweep.pipeline.kernel import Failure, Recipe
from eigensweep.pipeline.schema import DONE, PENDING, Names
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.tomltext import to_toml

CUBE, SWEEP, INPUTS = "cube.zarr", "sweep.toml", "inputs"
LOG, FAILURES, LOCK, STOP = "log.jsonl", "failures.jsonl", "lock", "stop"
FIGURES, REPORT = "figures", "report.html"
PATIENCE = 300.0
"""Seconds that a share waits for another one to lay out the study."""
OWN = frozenset({CUBE, SWEEP, LOG, FAILURES, LOCK, STOP, INPUTS, FIGURES, REPORT})


@dataclass(frozen=True)
class Pending:
    """A block that lacks something.

    Parameters
    ----------
    block : Block
        The block.
    stored : bool
        Whether a part of it is stored already.
    columns : int
        How many of its columns are to be sampled, or extended to rho values that are new.
    extended : int
        How many of these are only extended, from what is stored.
    """

    block: Block
    stored: bool
    columns: int
    extended: int = 0


@dataclass(frozen=True)
class Study:
    """A study on disk, as it was published last.

    Parameters
    ----------
    folder : Path
        Where it lives.
    sweep : Sweep
        The last sweep that it was run with.
    plan : eigensweep.pipeline.cube.Plan
        What its cube holds.
    token : str
        Names the publication.
    attributes : mapping
        The cube's provenance.
    """

    folder: Path
    sweep: Sweep
    plan: cube.Plan
    token: str
    attributes: Mapping[str, Any]

    @property
    def cube(self) -> Path:
        """Where its cube is."""
        return self.folder / CUBE

    @property
    def recipe(self) -> Recipe:
        """What its columns' numbers depend on."""
        layout = self.plan.layout
        return Recipe(
            ensemble=self.plan.ensemble,
            seed=self.sweep.seed,
            signal=layout.signal,
            signal_values=layout.signal_values,
            top=layout.top,
            columns=self.plan.columns,
            modes=layout.modes,
        )

    def chunks(self) -> Chunks:
        """Open its arrays for reading and writing blocks."""
        levels = {level.name: level for level in self.plan.levels}
        return Chunks(self.cube, self.token, self.plan.layout, levels, self.plan.columns)

    def blocks(self) -> Iterator[Block]:
        """List the blocks that its last sweep asks for."""
        counts: dict[Value, int] = {d: self.sweep.replicates_of(d) for d in self.sweep.replicate_counts}
        return blocks(self.plan.layout, self.plan.levels, self.sweep.axes, counts)

    def pending(self, retry: bool = False) -> Iterator[Pending]:
        """List the blocks that its last sweep asks for and that lack something.

        Parameters
        ----------
        retry : bool
            Whether columns that failed count as lacking.

        Yields
        ------
        Pending
            In the order of :meth:`blocks`.
        """
        states: dict[str, tuple[NDArray[np.uint8], NDArray[np.uint32]]] = {}
        written = {level.name: self._written(Names(level)["column_status"]) for level in self.plan.levels}
        chunks = self.chunks()
        full = len(self.plan.layout.signal_values)
        for block in self.blocks():
            if block.key not in written[block.level]:
                yield Pending(block, False, block.wanted - block.first)
                continue
            if block.level not in states:
                whole = (chunks.whole(block.level, role) for role in ("column_status", "column_rho_count"))
                states[block.level] = (next(whole), next(whole))
            asked = block.wanted - block.first
            status, count = (_asked(array, block, asked) for array in states[block.level])
            short = (status == DONE) & (count < full)
            lacking = short | (status == PENDING) | (retry & (status != DONE))
            if lacking.any():
                extended = np.count_nonzero(short) if self.plan.columns else 0
                yield Pending(block, True, int(np.count_nonzero(lacking)), int(extended))

    def tally(self) -> dict[str, NDArray[np.int64]]:
        """Count the columns that the last sweep asks for, by level and state.

        Returns
        -------
        dict of str to (6,) array
            Columns by ``column_status``, for each level.
        """
        chunks = self.chunks()
        result = {}
        for level in self.plan.levels:
            status = chunks.whole(level.name, "column_status")
            counts = np.zeros(6, dtype=np.int64)
            for block in self.blocks():
                if block.level == level.name:
                    asked = status[block.selection].ravel()[: block.wanted - block.first]
                    counts += np.bincount(asked, minlength=6)
            result[level.name] = counts
        return result

    def note(self, event: str, **details: Any) -> None:
        """Add a line to the study's log."""
        _append(self.folder / LOG, {"time": provenance.now(), "event": event, **details})

    def note_failure(self, failure: Failure) -> None:
        """Add a line to the study's list of failures, with the command that runs the column alone."""
        line = {
            "time": provenance.now(),
            "level": failure.level,
            "parameters": failure.point,
            "replicate": failure.replicate,
            "seed": self.sweep.seed,
            "status": failure.status,
            "reason": failure.reason,
            "log": failure.log,
            "command": column_command(self.folder, failure),
        }
        _append(self.folder / FAILURES, line)

    def _written(self, name: str) -> frozenset[str]:
        """Names of the chunks that an array has on disk: one listing, however large the study."""
        return frozenset(path.name.removeprefix("c.") for path in (self.cube / name).glob("c.*"))


def _asked(array: NDArray[Any], block: Block, asked: int) -> NDArray[Any]:
    """Take a block's columns out of a whole array; replicates that it does not hold yet read 0."""
    held = array[block.selection].ravel()[:asked]
    return np.pad(held, (0, asked - held.size))


def column_command(folder: Path, failure: Failure) -> str:
    """Write the command that computes one column alone and shows it."""
    parameters = " ".join(f"{name}={_quoted(value)}" for name, value in failure.point.items())
    return f"eigensweep column {folder} {parameters} replicate={failure.replicate} --level {failure.level}"


def load(folder: Path) -> Study:
    """Open a study for reading.

    Parameters
    ----------
    folder : Path
        The study.

    Returns
    -------
    Study
        As it was published last.

    Raises
    ------
    StudyError
        If there is none, or it can't be read.
    """
    document, token = cube.read_metadata(folder / CUBE)
    attributes = document["attributes"]
    last = attributes["sweeps"][-1]["sweep"]
    sweep = Sweep.from_dict(last, base=folder / INPUTS)
    axes = [axis.name for axis in sweep.ensemble.axes]
    layout = cube.read_layout(folder / CUBE, document, axes, sweep.signal)
    return Study(folder, sweep, _plan(sweep, layout), token, attributes)


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
                yield _prepare(sweep, folder)
        else:
            with lock.hold(folder / f"{LOCK}{share.suffix}"):
                with lock.hold(folder / LOCK, PATIENCE):
                    suffix = f"-of-{share.count}"
                    _refuse_shares(folder, lambda path: not path.name.endswith(suffix))
                    study = _prepare(sweep, folder)
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
    if faults:
        raise InputError(faults)
    return study


def asked_layout(sweep: Sweep) -> Layout:
    """Lay out the study that a sweep alone would make."""
    return fresh_layout(sweep.axes, sweep.signal, sweep.signal_values, sweep.replicates, sweep.record.top)


def _prepare(sweep: Sweep, folder: Path) -> Study:
    study = check(sweep, folder)
    for name, path in sweep.files.items():
        _copy(path, folder / INPUTS / name)
    if study is None:
        plan = _plan(sweep, asked_layout(sweep))
        cube.create(folder / CUBE, plan, _attributes(sweep, {}))
    else:
        plan = _plan(sweep, study.plan.layout.grown(asked_layout(sweep)))
        attributes = _attributes(sweep, study.attributes)
        if plan.layout == study.plan.layout and attributes["sweeps"] == study.attributes["sweeps"]:
            return replace(study, sweep=sweep, plan=plan)
        cube.publish(folder / CUBE, plan, attributes)
    (folder / SWEEP).write_text(to_toml(sweep.to_dict()), encoding="utf-8")
    document, token = cube.read_metadata(folder / CUBE)
    return Study(folder, sweep, plan, token, document["attributes"])


def _plan(sweep: Sweep, layout: Layout) -> cube.Plan:
    levels = tuple(level for level in sweep.ensemble.levels if level.name in sweep.record.levels)
    return cube.Plan(sweep.ensemble, layout, levels, sweep.record.columns)


def _attributes(sweep: Sweep, before: Mapping[str, Any]) -> dict[str, Any]:
    """Put a sweep last among those that the study has seen."""
    stamp = {"first_run": provenance.now(), **provenance.versions(), "machine": provenance.machine()}
    seen = [entry for entry in before.get("sweeps", []) if entry["digest"] != sweep.digest]
    own = [entry for entry in before.get("sweeps", []) if entry["digest"] == sweep.digest]
    entry = own[0] if own else {"digest": sweep.digest, "sweep": sweep.to_dict(), "provenance": stamp}
    kept = {key: value for key, value in before.items() if key not in ("eigensweep_format", "coordinates")}
    return {**kept, "created": before.get("created", provenance.now()), "sweeps": [*seen, entry]}


def _copy(source: Path, target: Path) -> None:
    if source.resolve() == target.resolve():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.copyfile(source, temporary)
    temporary.replace(target)


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _quoted(value: object) -> str:
    text = str(value)
    return f"'{text}'" if any(c in text for c in "() ") else text
