"""Running a sweep: blocks bundled into tasks, tasks through an executor, receipts into the study."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigensweep.pipeline import provenance
from eigensweep.pipeline.blocks import Block
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.kernel import Failure
from eigensweep.pipeline.study import Study, prepared
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.task import Job, Receipt, Task, one_thread, perform, perform_on_worker

if TYPE_CHECKING:
    from distributed import Client

BUNDLE_SECONDS = 1.0
"""Small blocks are bundled into tasks of about this length, so that scheduling costs next to nothing."""
WINDOW = 3
"""Tasks in flight for each thread of the cluster: enough that no thread waits, few enough to forget."""
SYSTEMATIC = 20
"""If this many columns have failed alike and none has succeeded, all will."""

Executor = Callable[[Job, Iterator[Task]], Iterator[Receipt]]


@dataclass
class Progress:
    """How far a run is.

    Parameters
    ----------
    total : int
        Columns that this run has to compute or extend.
    done, failed : int
        Of these, how many are and how many failed.
    seconds : float
        Time since the run began.
    compute_seconds : float
        Time spent in columns, summed over workers.
    workers : int
        Threads at work.
    dashboard : str
        Address of Dask's dashboard; empty where there is none.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    compute_seconds: float = 0.0
    workers: int = 1
    dashboard: str = ""


@dataclass
class Outcome:
    """What a run did.

    Parameters
    ----------
    study : Path
        The study.
    progress : Progress
        The final counts.
    failures : list of Failure
        Columns that failed in this run.
    """

    study: Path
    progress: Progress
    failures: list[Failure] = field(default_factory=list)


def run(
    sweep: Sweep,
    study: str | Path | None = None,
    client: Client | None = None,
    *,
    retry_failed: bool = False,
    watch: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Compute what a study lacks of a sweep.

    Parameters
    ----------
    sweep : Sweep
        What is asked.
    study : str or Path, optional
        The study's folder; the sweep's name in the current folder if not given. It is made if it is not
        there and grown if the sweep asks for more than it holds.
    client : distributed.Client, optional
        The cluster that computes; this process if not given. The cube is the same bit for bit.
    retry_failed : bool
        Whether columns that failed before are tried again.
    watch : callable, optional
        Called with the progress after every task.

    Returns
    -------
    Outcome
        What was done and what failed.

    Raises
    ------
    InputError
        If the sweep contradicts the study or the folder holds something else: nothing was touched.
    StudyError
        If the study is held by another run or can't be written. What was done stays done.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from eigensweep.pipeline import Sweep, open_cube, run
    >>> sweep = Sweep.from_dict({
    ...     "name": "small",
    ...     "grid": {"d": 20, "delta": 0.5, "gamma": 0.25, "rho": [1, 3], "T": 4, "pooling": "mean",
    ...              "replicates": 2},
    ...     "model": {"ensemble": "attention-pooling", "correlation": {"kind": "prefix", "length": 2}},
    ... })
    >>> with TemporaryDirectory() as folder:
    ...     outcome = run(sweep, folder + "/small")
    ...     again = run(sweep, folder + "/small")
    ...     shape = open_cube(folder + "/small").eigenvalue.shape
    >>> outcome.progress.done, again.progress.total, shape
    (4, 0, (1, 1, 1, 1, 1, 2, 2, 3))
    """
    folder = Path(study if study is not None else sweep.name)
    executor = serial if client is None else dask_executor(client)
    with prepared(sweep, folder) as held:
        return _run_held(held, executor, retry_failed, watch or (lambda progress: None), client)


def _run_held(
    study: Study,
    executor: Executor,
    retry: bool,
    watch: Callable[[Progress], None],
    client: Client | None,
) -> Outcome:
    pending = list(study.pending(retry))
    progress = Progress(total=sum(block.wanted - block.first for block, _ in pending))
    if client is not None:
        progress.dashboard = client.dashboard_link or ""
    outcome = Outcome(study.folder, progress)
    study.note("start", columns=progress.total, versions=provenance.versions(), machine=provenance.machine())
    start = time.monotonic()
    ending = "interrupted"
    try:
        watch(progress)
        job = Job(study.recipe, study.cube, study.token, study.plan, retry)
        for receipt in executor(job, bundle(study, pending)):
            _account(study, outcome, receipt)
            progress.seconds = time.monotonic() - start
            progress.workers = receipt.workers
            watch(progress)
            _stop_if_systematic(outcome)
        ending = "end"
    except StudyError as error:
        ending = f"stopped: {error}"
        raise
    finally:
        progress.seconds = time.monotonic() - start
        study.note(
            ending,
            done=progress.done,
            failed=progress.failed,
            seconds=round(progress.seconds, 3),
            compute_seconds=round(progress.compute_seconds, 3),
        )
    return outcome


def _account(study: Study, outcome: Outcome, receipt: Receipt) -> None:
    progress = outcome.progress
    progress.done += receipt.computed
    progress.failed += len(receipt.failures)
    progress.compute_seconds += receipt.seconds
    for failure in receipt.failures:
        study.note_failure(failure)
        outcome.failures.append(failure)


def _stop_if_systematic(outcome: Outcome) -> None:
    reasons = {failure.reason for failure in outcome.failures}
    if outcome.progress.done == 0 and len(outcome.failures) >= SYSTEMATIC and len(reasons) == 1:
        raise StudyError(
            f"{outcome.study}: the first {len(outcome.failures)} columns all failed alike ({reasons.pop()}); "
            f"see the log in {outcome.study}/failures.jsonl, mend it, and run with --retry-failed"
        )


def bundle(study: Study, pending: Iterable[tuple[Block, bool]]) -> Iterator[Task]:
    """Join blocks into tasks of about a second.

    Parameters
    ----------
    study : Study
        The study.
    pending : iterable of (Block, bool)
        Blocks that lack something, and whether a part of them is stored.

    Yields
    ------
    Task
        In order.
    """
    held: list[tuple[Block, bool]] = []
    load = 0.0
    for block, stored in pending:
        work = study.plan.ensemble.work(block.level, dict(block.point)).seconds
        load += work * (block.wanted - block.first)
        held.append((block, stored))
        if load >= BUNDLE_SECONDS:
            yield Task(tuple(held))
            held, load = [], 0.0
    if held:
        yield Task(tuple(held))


def serial(job: Job, tasks: Iterator[Task]) -> Iterator[Receipt]:
    """Perform tasks in this process, one after the other."""
    with one_thread():
        for task in tasks:
            yield perform(job, task)


def dask_executor(client: Client) -> Executor:
    """Make an executor that performs tasks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        The cluster.

    Returns
    -------
    callable
        An executor. Only a window of tasks is in flight, whatever their number.
    """

    def execute(job: Job, tasks: Iterator[Task]) -> Iterator[Receipt]:
        from distributed import as_completed

        name = f"eigensweep-{time.time_ns():x}"
        numbered = enumerate(tasks)

        def submit() -> Any:
            number, task = next(numbered, (0, None))
            if task is None:
                return None
            # Equal calls would be one to Dask; the number makes each its own.
            return client.submit(perform_on_worker, job, task, key=f"{name}-{number}", pure=False)

        def threads() -> int:
            return max(1, sum(int(count) for count in client.nthreads().values()))

        running = as_completed()
        for _ in range(WINDOW * threads()):
            if (future := submit()) is not None:
                running.add(future)
        for finished in running:
            receipt: Receipt = finished.result()
            receipt.workers = threads()
            finished.release()
            # A cluster that grew in the meantime deserves a wider window.
            while running.count() < WINDOW * receipt.workers and (future := submit()) is not None:
                running.add(future)
            yield receipt

    return execute
