"""What a worker process does before its first task."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from eigensweep.pipeline.threads import one_thread_for_good

GRACE = 3.0
"""Seconds that a worker told to end by SIGTERM may still take for the column in work."""


def dask_setup(worker: Any) -> None:
    """Prepare a worker process; Dask calls it in the process's main thread.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    """
    # Ctrl-C in a terminal reaches every process of the foreground group; it is the run's to answer it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_soon)
    one_thread_for_good()


def _end_soon(number: int, frame: FrameType | None) -> None:
    """End a little later: SIGTERM to all of a run's processes lets the column in work be stored."""
    timer = threading.Timer(GRACE, os._exit, [128 + number])
    timer.daemon = True
    timer.start()
