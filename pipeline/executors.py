"""Who performs a run's tasks: this process, or a Dask cluster with a window of them in flight."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from eigensweep.pipeline.errors import StoppedError
from eigensweep.pipeline.interrupt import Stop
from eigensweep.pipeline.schema import WORKER_LOST
from eigensweep.pipeline.task import (
    Job,
    Receipt,
    Task,
    mark,
    perform_here,
    perform_isolated,
    perform_on_worker,
)
from eigensweep.pipeline.threads import one_thread

if TYPE_CHECKING:
    from distributed import Client, Future

TICK = 1.0
"""Seconds between two looks at a cluster on which nothing ends."""
WINDOW = 3
"""Tasks in flight for each thread of the cluster: enough that no thread waits, few enough to forget."""

ATTEMPTS = 5
"""Times that a task whose columns run apart may lose its worker, all of them to others' faults."""

Executor = Callable[[Job, Iterator[Task], Stop], Iterator[Receipt]]


def serial(job: Job, tasks: Iterator[Task], stop: Stop) -> Iterator[Receipt]:
    """Perform tasks in this process, one after the other.

    Parameters
    ----------
    job : Job
        What they share.
    tasks : iterator of Task
        The tasks.
    stop : Stop
        Ends the sequence once it is asked for.

    Yields
    ------
    Receipt
        One a task.
    """
    with one_thread():
        for task in tasks:
            if stop.asked:
                return
            yield perform_here(job, task)


def on_cluster(client: Client) -> Executor:
    """Make an executor that performs tasks on a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        The cluster.

    Returns
    -------
    callable
        An executor like :func:`serial`. A task that took its worker down is performed again, block by
        block, with each column in a process of its own.
    """

    def execute(job: Job, tasks: Iterator[Task], stop: Stop) -> Iterator[Receipt]:
        flight = _Flight(client, job)
        try:
            yield from flight.perform(tasks, stop)
        except OSError as error:
            # What has a number comes from a worker's disk; what has none, from the line to the scheduler.
            if error.errno is not None:
                raise
            raise StoppedError(f"the scheduler can't be reached any more ({error}); run again") from None
        finally:
            flight.abandon()

    return execute


class _Flight:
    """The tasks of one run that are on a cluster."""

    def __init__(self, client: Client, job: Job) -> None:
        from distributed import as_completed

        self._client, self._job = client, job
        self._name = f"eigensweep-{time.time_ns():x}"
        self._count = 0
        self._running: Any = as_completed()
        self._tasks: dict[Future[Receipt], tuple[Task, int]] = {}
        """Each with how often its blocks have lost their worker: after the first time columns run apart."""

    def perform(self, tasks: Iterator[Task], stop: Stop) -> Iterator[Receipt]:
        self._refill(tasks, stop)
        while self._tasks:
            if not self._ready():
                if stop.asked and not self._workers():
                    # Nobody is left who could finish what is in flight.
                    return
                self._refill(tasks, stop)
                continue
            future = next(self._running)
            task, losses = self._tasks.pop(future)
            receipt = self._collect(future, task, losses, stop)
            if receipt is not None:
                receipt.workers = self._threads()
                yield receipt
            self._refill(tasks, stop)

    def abandon(self) -> None:
        """Forget what is still in flight: after an end of its own nothing is."""
        # A scheduler that is gone has forgotten them already.
        with contextlib.suppress(OSError):
            if self._tasks:
                self._client.cancel(list(self._tasks), force=True)
        self._tasks.clear()

    def _refill(self, tasks: Iterator[Task], stop: Stop) -> None:
        # Asked anew each time: a cluster that grew deserves a wider window.
        while not stop.asked and len(self._tasks) < WINDOW * self._threads():
            task = next(tasks, None)
            if task is None:
                return
            self._submit(task, losses=0)

    def _submit(self, task: Task, losses: int) -> None:
        perform = perform_isolated if losses else perform_on_worker
        # Equal calls would be one to Dask; the number makes each its own.
        key = f"{self._name}-{self._count}"
        self._count += 1
        # What lost its worker goes first, lest it wait behind another column that will end one.
        future = self._client.submit(perform, self._job, task, key=key, pure=False, priority=losses)
        self._tasks[future] = (task, losses)
        self._running.add(future)

    def _collect(self, future: Future[Receipt], task: Task, losses: int, stop: Stop) -> Receipt | None:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            receipt = future.result()
        except KilledWorker as error:
            if stop.asked:
                # The workers were told to end as well. What they had in work stays pending.
                return None
            # A worker takes down what waits on it as well, so one loss proves little.
            if losses < ATTEMPTS:
                for block in task.blocks:
                    self._submit(Task((block,)), losses + 1)
                return None
            return mark(self._job, task, WORKER_LOST, f"its workers were lost again and again: {error}")
        except (CancelledError, FutureCancelledError):
            raise StoppedError("the scheduler is gone or has dropped the work; run again") from None
        finally:
            future.release()
        return receipt

    def _ready(self) -> bool:
        """Wait for a task to end, but not for long: workers may come, or be asked to stop, meanwhile."""
        with self._running.thread_condition:
            if not self._running.has_ready():
                self._running.thread_condition.wait(timeout=TICK)
        return bool(self._running.has_ready())

    def _workers(self) -> int:
        return sum(int(count) for count in self._client.nthreads().values())

    def _threads(self) -> int:
        return max(1, self._workers())
