"""Stopping a run: the first request lets columns in work finish, the second ends it at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """A request to stop, seen here and, through a file, by every worker.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = False

    def ask(self) -> None:
        """Ask: no further column is begun."""
        self.asked = True
        # Without the file workers finish the tasks they hold, which is slower and no less right.
        with contextlib.suppress(OSError):
            self.path.touch()


@contextmanager
def stopping(path: Path) -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request to stop while the body runs, and a second one into an end.

    Parameters
    ----------
    path : Path
        A file that tells workers; it is removed before and after.

    Yields
    ------
    Stop
        The request. Outside a main thread, which alone can handle signals, nobody makes it.
    """
    stop = Stop(path)
    path.unlink(missing_ok=True)

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()

    mine = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handle) for number in SIGNALS} if mine else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
