"""What a worker process does before its first task."""

from __future__ import annotations

import signal
from typing import Any

from eigensweep.pipeline.threads import one_thread_for_good


def dask_setup(worker: Any) -> None:
    """Prepare a worker process; Dask calls it in the process's main thread.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    """
    # Ctrl-C in a terminal reaches every process of the foreground group; it is the run's to answer it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    one_thread_for_good()
