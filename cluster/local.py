"""The local machine as a cluster: one process a core, nothing that listens beyond the loopback."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.provenance import blas
from eigensweep.pipeline.threads import one_thread_for_good

if TYPE_CHECKING:
    from distributed import Client


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity mask, which batch systems and containers set."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@contextmanager
def local_client(workers: int | None = None) -> Iterator[Client]:
    """Start worker processes on this machine.

    Parameters
    ----------
    workers : int, optional
        How many; one for each usable core if not given.

    Yields
    ------
    distributed.Client
        A client of theirs. Scheduler, workers and dashboard listen on 127.0.0.1 only.

    Raises
    ------
    StudyError
        If a worker does not start, or its linear algebra would use more than one thread.
    """
    import dask
    from distributed import Client, LocalCluster

    _refuse_unguarded_script()

    # Dask's scratch folder would otherwise land in the current one, which may be slow or read-only.
    with (
        tempfile.TemporaryDirectory(prefix="eigensweep-") as scratch,
        # A worker that dies here died of its task: there is no walltime, and no other node to try.
        dask.config.set({"distributed.worker.daemon": True, "distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=workers or usable_cores(),
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=scratch,
            preload=["eigensweep.cluster.preload"],
        ) as cluster,
        Client(cluster) as client,
    ):
        check_threads(client)
        yield client


def _refuse_unguarded_script() -> None:
    """Stop a worker that, on its way up, runs the user's script again and would start workers of its own."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(
            "eigensweep: a script that starts local workers is imported by each of them; put what it does "
            'below if __name__ == "__main__":'
        )


def check_threads(client: Client) -> None:
    """Put every worker's linear algebra on one thread and see that it took.

    Parameters
    ----------
    client : distributed.Client
        The cluster.

    Raises
    ------
    StudyError
        If a pool of threads of a worker holds more than one.
    """
    for worker, pools in client.run(_threads).items():
        many = [f"{pool['library']} {pool['threads']}" for pool in pools if pool["threads"] != 1]
        if many:
            raise StudyError(
                f"{worker}: its linear algebra runs several threads ({', '.join(many)}) whatever the limit; "
                "set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before starting it"
            )


def _threads() -> list[dict[str, object]]:
    # The libraries load with this import; a limit set before would not be theirs.
    import scipy.linalg  # noqa: F401

    one_thread_for_good()
    return blas()
