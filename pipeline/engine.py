"""Running a sweep: blocks bundled into tasks, tasks through an executor, receipts into the study."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.pipeline import provenance
from eigensweep.pipeline.blocks import Block
from eigensweep.pipeline.errors import EigensweepError, Fault, InputError, StudyError
from eigensweep.pipeline.executors import Executor, on_cluster, serial
from eigensweep.pipeline.interrupt import Stop, stopping
from eigensweep.pipeline.kernel import Failure
from eigensweep.pipeline.preparation import Share, prepared
from eigensweep.pipeline.schema import FAILED
from eigensweep.pipeline.study import FAILURES, STOP, Pending, Study
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.task import Job, Receipt, Task

if TYPE_CHECKING:
    from distributed import Client

BUNDLE_SECONDS = 1.0
"""Small blocks are bundled into tasks of about this length, so that scheduling costs next to nothing."""
EXTENSION = 0.9
"""Share of a column's work that is spared where its spectral column is stored."""
SYSTEMATIC = 20
"""If this many columns have failed alike and none has succeeded, all will."""


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
    failed_before : int
        Columns of the sweep that failed in earlier runs and were not tried again.
    """

    study: Path
    progress: Progress
    failures: list[Failure] = field(default_factory=list)
    failed_before: int = 0


def run(
    sweep: Sweep,
    study: str | Path | None = None,
    client: Client | None = None,
    *,
    retry_failed: bool = False,
    share: tuple[int, int] | None = None,
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
    share : (int, int), optional
        ``(K, N)``: compute the K-th of N shares of the blocks only, beside the runs of the other shares.
        They need neither a scheduler nor each other.
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
        If the study is held by another run or can't be written, or if every column fails alike. What was
        done stays done.
    KeyboardInterrupt
        After Ctrl-C or SIGTERM, once the columns in work are done and stored. A second one stops at once.

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
    executor = serial if client is None else on_cluster(client)
    part = None if share is None else _checked(share)
    stop_file = folder / (STOP if part is None else f"{STOP}{part.suffix}")
    with prepared(sweep, folder, part) as held, stopping(stop_file) as stop:
        dashboard = "" if client is None else client.dashboard_link or ""
        run_ = _Run(held, executor, stop, watch or (lambda progress: None), Progress(dashboard=dashboard))
        return run_(retry_failed, part)


def _checked(share: tuple[int, int]) -> Share:
    number, count = share
    if not 1 <= number <= count:
        reason = f"there are shares 1 to {count}" if count >= 1 else "there is at least one share"
        raise InputError(Fault("share", f"{number}/{count}", reason, "write K/N with K from 1 to N"))
    return Share(number, count)


@dataclass
class _Run:
    """One run of a study that is held."""

    study: Study
    executor: Executor
    stop: Stop
    watch: Callable[[Progress], None]
    progress: Progress
    failures: list[Failure] = field(default_factory=list)

    def __call__(self, retry: bool, share: Share | None) -> Outcome:
        study, progress = self.study, self.progress
        # Listed twice, counted and then served: a list of 10^5 blocks would stay in memory to the end.
        progress.total = sum(item.columns for item in self._pending(retry, share))
        versions, machine = provenance.versions(), provenance.machine()
        part = {} if share is None else {"share": f"{share.number}/{share.count}"}
        study.note("start", columns=progress.total, **part, versions=versions, machine=machine)
        start, ending = time.monotonic(), "interrupted"
        try:
            self.watch(progress)
            job, tasks = self._job(retry, share is not None), bundle(study, self._pending(retry, share))
            for receipt in self.executor(job, tasks, self.stop):
                self._account(receipt)
                progress.seconds = time.monotonic() - start
                self.watch(progress)
            ending = "interrupted" if self.stop.asked else "end"
        except EigensweepError as error:
            ending = f"stopped: {error}"
            raise
        except OSError as error:
            ending = f"stopped: {error}"
            raise
        finally:
            progress.seconds = time.monotonic() - start
            self._note_end(ending)
        if self.stop.asked:
            raise KeyboardInterrupt
        failed = sum(int(counts[FAILED:].sum()) for counts in study.tally().values())
        return Outcome(study.folder, progress, self.failures, max(0, failed - len(self.failures)))

    def _pending(self, retry: bool, share: Share | None) -> Iterator[Pending]:
        return (item for item in self.study.pending(retry) if share is None or share.owns(item.block))

    def _job(self, retry: bool, joined: bool) -> Job:
        study = self.study
        return Job(
            recipe=study.recipe,
            cube=study.cube.absolute(),
            token=study.token,
            plan=study.plan,
            retry=retry,
            seconds=study.sweep.limits.seconds_per_column,
            stop=self.stop.path.absolute(),
            joined=joined,
        )

    def _account(self, receipt: Receipt) -> None:
        progress = self.progress
        progress.done += receipt.computed
        progress.failed += len(receipt.failures)
        progress.compute_seconds += receipt.seconds
        progress.workers = receipt.workers
        for failure in receipt.failures:
            self.study.note_failure(failure)
            self.failures.append(failure)
        if progress.done == 0 and len(self.failures) >= SYSTEMATIC and self._all_alike():
            raise StudyError(
                f"{self.study.folder}: the first {len(self.failures)} columns all failed alike "
                f"({self.failures[0].reason}); see {self.study.folder / FAILURES}, mend it, and run with "
                "--retry-failed"
            )

    def _all_alike(self) -> bool:
        return len({failure.reason.partition(":")[0] for failure in self.failures}) == 1

    def _note_end(self, ending: str) -> None:
        progress = self.progress
        # A full disk, which ends runs, must not hide why this one ended.
        with contextlib.suppress(OSError):
            self.study.note(
                ending,
                done=progress.done,
                failed=progress.failed,
                seconds=round(progress.seconds, 3),
                compute_seconds=round(progress.compute_seconds, 3),
            )


def bundle(study: Study, pending: Iterable[Pending]) -> Iterator[Task]:
    """Join blocks into tasks of about a second.

    Parameters
    ----------
    study : Study
        The study.
    pending : iterable of Pending
        Blocks that lack something.

    Yields
    ------
    Task
        In order.
    """
    held: list[tuple[Block, bool]] = []
    load = 0.0
    for item in pending:
        block = item.block
        # A column that is only extended, from what is stored, costs next to nothing.
        columns = item.columns - EXTENSION * item.extended
        load += study.plan.ensemble.work(block.level, dict(block.point)).seconds * columns
        held.append((block, item.stored))
        if load >= BUNDLE_SECONDS:
            yield Task(tuple(held))
            held, load = [], 0.0
    if held:
        yield Task(tuple(held))
