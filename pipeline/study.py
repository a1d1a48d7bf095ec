"""The study: the folder where a sweep lives, made, checked, grown and told the story of."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline import cube, provenance
from eigensweep.pipeline.blocks import Block, Layout, blocks
from eigensweep.pipeline.chunks import Chunks
from eigensweep.pipeline.ensemble import Ensemble
from eigensweep.pipeline.errors import Fault, InputError
from eigensweep.pipeline.inputs import read_input
from eigensweep.pipeline.kernel import Failure, Recipe
from eigensweep.pipeline.models import ENSEMBLES
from eigensweep.pipeline.schema import DONE, PENDING, Names
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.sweep import Sweep

CUBE, SWEEP, INPUTS = "cube.zarr", "sweep.toml", "inputs"
LOG, FAILURES, LOCK, STOP = "log.jsonl", "failures.jsonl", "lock", "stop"
JOBS = "jobs.json"
"""Worker jobs of the run at work, written by whoever watches over them."""
FIGURES, REPORT = "figures", "report.html"
OWN = frozenset(
    {CUBE, SWEEP, LOG, FAILURES, LOCK, STOP, JOBS, INPUTS, FIGURES, REPORT, "fits.csv", "fits.json"}
)


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
    parameters = [f"{name}={value}" for name, value in failure.point.items()]
    words = ["eigensweep", "column", str(folder), *parameters, f"replicate={failure.replicate}"]
    return shlex.join([*words, "--level", failure.level])


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
    ensemble = joined_ensemble(sweep, seen_inputs(attributes), folder / INPUTS)
    return Study(folder, sweep, cube_plan(sweep, layout, ensemble), token, attributes)


def cube_plan(sweep: Sweep, layout: Layout, ensemble: Ensemble) -> cube.Plan:
    """Say what a sweep's cube holds, with axes as they are stored and the files of all its sweeps."""
    levels = tuple(level for level in sweep.ensemble.levels if level.name in sweep.record.levels)
    return cube.Plan(ensemble, layout, levels, sweep.record.columns)


def seen_inputs(attributes: Mapping[str, Any]) -> dict[str, str]:
    """List the files that any sweep of a study named, with their digests."""
    return {
        name: digest
        for entry in attributes["sweeps"]
        for name, digest in entry["sweep"].get("inputs", {}).items()
    }


def joined_ensemble(last: Sweep, names: Iterable[str], inputs: Path) -> Ensemble:
    """Make the model with the files of all sweeps: the last one may name fewer than the study holds.

    Parameters
    ----------
    last : Sweep
        The last sweep of a study.
    names : iterable of str
        Files that any of its sweeps named.
    inputs : Path
        Where they lie.

    Returns
    -------
    Ensemble
        The model.

    Raises
    ------
    InputError
        If a file can't be read.
    """
    wanted = dict.fromkeys([*names, *last.inputs])
    if set(wanted) == set(last.inputs):
        return last.ensemble
    try:
        arrays = {name: read_input(name, inputs).array for name in wanted}
    except ValueError as error:
        reason, _, remedy = str(error).partition("; ")
        raise InputError(Fault("inputs", str(inputs), reason, remedy)) from None
    return ENSEMBLES[last.ensemble.name](last.to_dict()["model"], arrays)


def _append(path: Path, line: Mapping[str, Any]) -> None:
    # One write a line, so that the lines of several shares do not mix; a line that a kill tore ends first.
    text = json.dumps(line, ensure_ascii=False).encode() + b"\n"
    with path.open("ab+", buffering=0) as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else b"\n" + text
        file.write(text)
