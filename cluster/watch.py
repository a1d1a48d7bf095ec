"""Watching over worker jobs: a thread that keeps their roster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from eigensweep.cluster.roster import BRISK, Census, Roster
from eigensweep.pipeline.errors import StudyError


class Watch:
    """A thread that keeps a roster.

    Parameters
    ----------
    roster : Roster
        The books.
    census : callable
        Asks the scheduler.
    check : callable
        Called at every look; may raise StudyError.
    abort : callable
        Called when going on is pointless, until the watch is stopped: it ends what waits for workers.
    """

    def __init__(
        self,
        roster: Roster,
        census: Callable[[], Census],
        check: Callable[[], None],
        abort: Callable[[], None],
    ) -> None:
        self.roster, self._census, self._check, self._abort = roster, census, check, abort
        self.error: StudyError | None = None
        self._over = threading.Event()
        self._nudged = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-jobs", daemon=True)

    def start(self) -> None:
        """Submit the first jobs, which may be refused, and begin to watch.

        Raises
        ------
        StudyError
            If the batch system refuses the jobs.
        """
        self.roster.step(time.monotonic(), self._census())
        self._thread.start()

    def wait_for_workers(self) -> None:
        """Wait until the first worker is there.

        Raises
        ------
        StudyError
            If none will come.
        """
        while not self.roster.met:
            if self.error is not None:
                raise self.error
            if self._over.wait(0.1):
                return

    def nudge(self) -> None:
        """Have it look at once: something has changed."""
        self._nudged.set()

    def stop(self) -> None:
        """End the thread; jobs are left as they are."""
        self._over.set()
        self._nudged.set()
        if self._thread.is_alive():
            self._thread.join(timeout=120.0)

    def _run(self) -> None:
        while not self._over.is_set():
            self._nudged.wait(BRISK if self.error else self.roster.next_look(time.monotonic()))
            self._nudged.clear()
            if self._over.wait(0.2):
                return
            if self.error is None:
                self._look()
            if self.error is not None:
                # Again and again: work may have been submitted in the meantime.
                self._abort()

    def _look(self) -> None:
        try:
            self._check()
            self.roster.step(time.monotonic(), self._census())
        except StudyError as error:
            self.error = error
        except Exception as error:
            # Unwatched jobs would be worse than none.
            self.error = StudyError(f"watching over the worker jobs failed: {error!r}")
