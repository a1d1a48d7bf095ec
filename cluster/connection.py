"""A Dask client for what a user calls a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import Fault, InputError

if TYPE_CHECKING:
    from distributed import Client

SCHEMES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
PATIENCE = 30.0
"""Seconds to wait for a scheduler that is said to run already."""


@contextmanager
def connect(
    target: str = "local", *, workers: int | None = None, study: str | Path | None = None
) -> Iterator[Client]:
    """Connect to a cluster, and start it first where it is this machine.

    Parameters
    ----------
    target : str
        ``"local"``: processes of this machine, one a core, one linear algebra thread each. An address
        such as ``tcp://host:8786``, or a scheduler file (``.json``): a scheduler that runs already. A
        profile (``.toml``): workers as jobs of a batch system, or the tasks of this allocation.
    workers : int, optional
        How many local processes; as many as this process may use cores if not given.
    study : str or Path, optional
        The study that will be run, where worker jobs are then written down for ``eigensweep status``.

    Yields
    ------
    distributed.Client
        The client. What was started is stopped when the body ends.

    Raises
    ------
    InputError
        If the target is unknown, can't be reached, or takes no number of workers.
    StudyError
        If the batch system refuses the jobs or they bring no worker, or if a worker runs other code.

    Examples
    --------
    >>> from eigensweep.cluster import connect
    >>> with connect("local", workers=1) as client:
    ...     client.submit(sum, [1, 2]).result()
    3
    """
    if workers is not None and workers < 1:
        reason = "a sweep needs at least one worker"
        raise InputError(Fault("workers", str(workers), reason, "give 1 or more, or leave it out"))
    if target == "local":
        from eigensweep.cluster.local import local_client

        with local_client(workers) as client:
            yield client
        return
    profiled = target.endswith(".toml")
    if workers is not None:
        reason = f"the workers of {target} are not numbered here"
        remedy = "set jobs and cores in the profile" if profiled else "leave it out"
        raise InputError(Fault("workers", str(workers), reason, remedy))
    with _profiled(target, study) if profiled else _existing(target) as client:
        yield client


@contextmanager
def _profiled(target: str, study: str | Path | None) -> Iterator[Client]:
    from eigensweep.cluster.profile import read_profile

    profile = read_profile(target)
    from eigensweep.cluster.batch import batch_client

    with batch_client(profile, study=None if study is None else Path(study)) as client:
        yield client


@contextmanager
def _existing(target: str) -> Iterator[Client]:
    from distributed import Client

    is_file = target.endswith(".json")
    if is_file and not Path(target).is_file():
        reason, remedy = "there is no such scheduler file", "start the scheduler with --scheduler-file first"
        raise InputError(Fault("cluster", target, reason, remedy))
    if not is_file and not target.startswith(SCHEMES):
        reason = "it is neither 'local', nor a profile, nor the address or file of a scheduler"
        remedy = "write local, profile.toml, tcp://host:port or scheduler.json"
        raise InputError(Fault("cluster", target, reason, remedy))
    try:
        client = Client(**({"scheduler_file": target} if is_file else {"address": target}), timeout=PATIENCE)
    except (OSError, ValueError) as error:
        reason = f"no scheduler answers there ({type(error).__name__}: {error})"
        raise InputError(Fault("cluster", target, reason, "check the address and that it runs")) from None
    with client:
        from eigensweep.cluster.handshake import check_workers

        check_workers(client)
        yield client
