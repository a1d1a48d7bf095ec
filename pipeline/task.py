"""What one Dask future does: compute some blocks, store them, and bring back a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from threadpoolctl import ThreadpoolController, threadpool_limits

from eigensweep.pipeline.blocks import Block
from eigensweep.pipeline.chunks import Chunks
from eigensweep.pipeline.cube import Plan
from eigensweep.pipeline.kernel import Failure, Filled, Recipe, fill


@dataclass(frozen=True)
class Job:
    """What all tasks of a run share.

    Parameters
    ----------
    recipe : Recipe
        What the numbers depend on.
    cube : Path
        Where they go.
    token : str
        Names the publication of the cube's metadata.
    plan : eigensweep.pipeline.cube.Plan
        What the cube holds.
    retry : bool
        Whether columns that failed before are tried again.
    """

    recipe: Recipe
    cube: Path
    token: str
    plan: Plan
    retry: bool


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


def perform(job: Job, task: Task) -> Receipt:
    """Compute a task's blocks and store them.

    Parameters
    ----------
    job : Job
        What all tasks share.
    task : Task
        The blocks.

    Returns
    -------
    Receipt
        Counts and failures; the numbers go to the store only.
    """
    plan = job.plan
    levels = {level.name: level for level in plan.levels}
    chunks = Chunks(job.cube, job.token, plan.layout, levels, plan.columns)
    stored = [chunks.read(block) if present else None for block, present in task.blocks]
    filled = fill(job.recipe, [block for block, _ in task.blocks], stored, job.retry)
    for item in filled:
        chunks.write(item.block, item.arrays)
    return _receipt(filled)


def perform_on_worker(job: Job, task: Task) -> Receipt:
    """Perform a task in a process that does nothing else: on a Dask worker."""
    one_thread_for_good()
    return perform(job, task)


@lru_cache(maxsize=1)
def one_thread_for_good() -> None:
    """Put this process's linear algebra on one thread.

    More threads would fight with the other workers', and the last digits of results would depend on their
    number. A worker's own threads may not do this each for a while: the first to end would undo it for all.
    """
    threadpool_limits(limits=1)


def one_thread() -> AbstractContextManager[object]:
    """Put this process's linear algebra on one thread for a while, for the same bits as on a worker."""
    limit: AbstractContextManager[object] = ThreadpoolController().limit(limits=1)
    return limit


def _receipt(filled: Sequence[Filled]) -> Receipt:
    return Receipt(
        computed=sum(item.computed for item in filled),
        seconds=sum(item.seconds for item in filled),
        failures=[failure for item in filled for failure in item.failures],
    )
