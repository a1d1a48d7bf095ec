"""What a scheduler in this process knows of its workers and tasks; called in its event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Scheduler, SchedulerPlugin

from eigensweep.cluster.roster import Census

DONE = frozenset({"memory", "erred", "released", "forgotten"})
"""States of a task that needs no worker any more."""


class Tally(SchedulerPlugin):
    """Counts finished tasks, and says when a worker comes or goes.

    Parameters
    ----------
    nudge : callable
        Called when one does.
    """

    name = "eigensweep-tally"

    def __init__(self, nudge: Callable[[], None]) -> None:
        self._nudge = nudge
        self.fed = False

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """See a task change."""
        if start == "processing" and finish in ("memory", "erred"):
            self.fed = True

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """See a worker come.

        Whoever submits tasks hears of it when the next one is done. If there were no more tasks than workers
        before, there was nothing left to submit then either.
        """
        before = len(scheduler.workers) - 1
        self.fed = self.fed and _unfinished(scheduler) <= before
        self._nudge()

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """See a worker go."""
        self._nudge()


async def census(scheduler: Scheduler, tally: Tally) -> Census:
    """Count workers and tasks."""
    return Census(
        workers={str(state.name): bool(state.processing) for state in scheduler.workers.values()},
        unfinished=_unfinished(scheduler),
        fed=tally.fed,
    )


def _unfinished(scheduler: Scheduler) -> int:
    return sum(task.state not in DONE for task in scheduler.tasks.values())


async def forget(scheduler: Scheduler, names: list[str]) -> None:
    """Remove workers whose jobs have ended, so that their tasks go to others now.

    A node that lost its power closes no connection; the scheduler would wait for minutes.
    """
    gone = [address for address, state in scheduler.workers.items() if str(state.name) in names]
    for address in gone:
        # Expected: the tasks are not to blame.
        await scheduler.remove_worker(address, stimulus_id="eigensweep-job-ended", expected=True, close=False)
