"""What one Dask future does: compute some blocks, store them, and bring back a receipt."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np

from eigensweep.pipeline.blocks import Block
from eigensweep.pipeline.chunks import Chunks
from eigensweep.pipeline.cube import Plan, publication
from eigensweep.pipeline.errors import StoppedError
from eigensweep.pipeline.isolation import Limits, isolated
from eigensweep.pipeline.kernel import (
    Arrays,
    ColumnFailedError,
    Compute,
    Failure,
    Filled,
    Recipe,
    Request,
    carried,
    fail,
    fill,
    in_process,
    lacking,
)
from eigensweep.pipeline.rankone import Column
from eigensweep.pipeline.schema import DONE, PENDING, TIMED_OUT
from eigensweep.pipeline.threads import one_thread_for_good

LOST = 70
"""Exit code of a worker that ends itself because a column has hung."""
MEMORY_SHARE = 0.9
"""Share of a worker's memory limit that a column in a process of its own may take."""


@dataclass(frozen=True)
class Job:
    """What all tasks of a run share.

    Parameters
    ----------
    recipe : Recipe
        What the numbers depend on.
    cube : Path
        Where they go, absolute.
    token : str
        Names the publication of the cube's metadata.
    plan : eigensweep.pipeline.cube.Plan
        What the cube holds.
    retry : bool
        Whether columns that failed before are tried again.
    seconds : float
        What a column may take.
    stop : Path
        Once this file is there, no further column is begun.
    joined : bool
        Whether other runs, which may have grown the study since, share the work.
    """

    recipe: Recipe
    cube: Path
    token: str
    plan: Plan
    retry: bool
    seconds: float
    stop: Path
    joined: bool = False

    def chunks(self) -> Chunks:
        """Open the cube's arrays."""
        self.check()
        levels = {level.name: level for level in self.plan.levels}
        return Chunks(self.cube, self.token, self.plan.layout, levels, self.plan.columns)

    def check(self) -> None:
        """See that the cube is there and still this run's to write.

        Raises
        ------
        StoppedError
            If it has vanished: the store would make its folders anew, and fill a ruin. If it was published
            again: the run of this task is dead, its successor has grown the study, and a block of the old
            size would take back what the new one holds.
        """
        try:
            token = publication(self.cube)
        except FileNotFoundError:
            raise StoppedError(
                f"{self.cube}: the cube has vanished; put it back and run again, or start anew"
            ) from None
        if token != self.token and not self.joined:
            raise StoppedError(f"{self.cube}: another run has taken over and grown it; this one ends")


@dataclass(frozen=True)
class Task:
    """Blocks that one task computes.

    Parameters
    ----------
    blocks : tuple of (Block, bool)
        Each with whether a part of it is stored already.
    """

    blocks: tuple[tuple[Block, bool], ...]


@dataclass
class Receipt:
    """What comes back from a task.

    Parameters
    ----------
    computed : int
        Columns that were sampled or extended.
    seconds : float
        Time that these took.
    failures : list of Failure
        Columns that failed.
    workers : int
        Threads at work when it came.
    """

    computed: int
    seconds: float
    failures: list[Failure] = field(default_factory=list)
    workers: int = 1


def perform(job: Job, task: Task, compute: Compute = in_process) -> Receipt:
    """Compute a task's blocks and store them.

    Parameters
    ----------
    job : Job
        What all tasks share.
    task : Task
        The blocks.
    compute : callable
        How a column is computed.

    Returns
    -------
    Receipt
        Counts and failures; the numbers go to the store only.
    """
    chunks = job.chunks()
    stored, done = _stored(chunks, task)
    blocks = [block for block, _ in task.blocks]
    filled = fill(job.recipe, blocks, stored, job.retry, compute, job.stop.exists)
    for item in filled:
        if item.computed or item.failures:
            _write(job, chunks, item)
    receipt = _receipt(filled)
    receipt.computed += done
    return receipt


def _stored(chunks: Chunks, task: Task) -> tuple[list[Arrays | None], int]:
    """Load what is stored of a task's blocks, and count the columns that nobody heard of.

    A worker may have stored a block and died before the receipt was fetched from it: the task is then
    performed again. What was done is not, and what failed is, so that somebody hears why.
    """
    stored: list[Arrays | None] = []
    done = 0
    for block, present in task.blocks:
        before = chunks.read(block) if present or chunks.holds(block) else None
        if before is not None and not present:
            status = before["column_status"]
            done += int(np.count_nonzero(status == DONE))
            status[status != DONE] = PENDING
        stored.append(before)
    return stored, done


def perform_here(job: Job, task: Task) -> Receipt:
    """Perform a task in this process, its main thread if there is a time limit to hold."""
    return perform(job, task, partial(_alarmed, job.seconds))


def perform_on_worker(job: Job, task: Task) -> Receipt:
    """Perform a task on a Dask worker, which ends itself if a column hangs."""
    one_thread_for_good()
    with _watch(job.seconds) as compute:
        return perform(job, task, compute)


def perform_isolated(job: Job, task: Task) -> Receipt:
    """Perform a task that failed as a whole again, each column in a process of its own."""
    limits = Limits(job.seconds, _memory_limit())
    return perform(job, task, lambda recipe, request: isolated(recipe, request, limits))


def mark(job: Job, task: Task, status: int, reason: str) -> Receipt:
    """Mark all that a task still lacks as failed, without computing anything."""
    chunks = job.chunks()
    filled = []
    for block, present in task.blocks:
        item = carried(job.recipe, block, chunks.read(block) if present or chunks.holds(block) else None)
        for replicate in lacking(job.recipe, item, job.retry):
            item.failures.append(fail(item, replicate, ColumnFailedError(status, reason)))
        if item.failures:
            _write(job, chunks, item)
        filled.append(item)
    return _receipt(filled)


def _write(job: Job, chunks: Chunks, item: Filled) -> None:
    job.check()
    chunks.write(item.block, item.arrays)


def _receipt(filled: Sequence[Filled]) -> Receipt:
    return Receipt(
        computed=sum(item.computed for item in filled),
        seconds=sum(item.seconds for item in filled),
        failures=[failure for item in filled for failure in item.failures],
    )


def _alarmed(seconds: float, recipe: Recipe, request: Request) -> Column:
    """Compute a column under an alarm, where this thread can have one."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return in_process(recipe, request)

    def ring(number: int, frame: FrameType | None) -> None:
        raise ColumnFailedError(TIMED_OUT, f"it ran longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return in_process(recipe, request)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _watch(seconds: float) -> Iterator[Compute]:
    """Watch the columns of one task from a thread of its own.

    A column that hangs in compiled code can't be interrupted. Ending the process gives its task back to
    the scheduler, and the run then performs it anew with every column apart.
    """
    begun = [float("inf")]
    over = threading.Event()

    def compute(recipe: Recipe, request: Request) -> Column:
        begun[0] = time.monotonic()
        try:
            return in_process(recipe, request)
        finally:
            begun[0] = float("inf")

    def watch() -> None:
        while not over.wait(min(1.0, seconds / 4)):
            if time.monotonic() - begun[0] > seconds:
                os._exit(LOST)

    thread = threading.Thread(target=watch, name="column-watch", daemon=True)
    thread.start()
    try:
        yield compute
    finally:
        over.set()


def _memory_limit() -> float:
    from distributed import get_worker

    try:
        limit = get_worker().memory_manager.memory_limit
    except (ValueError, AttributeError):
        return float("inf")
    return MEMORY_SHARE * float(limit) if limit else float("inf")
