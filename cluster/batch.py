"""A cluster of worker jobs: a scheduler in this process, its workers in the jobs of a batch system."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from eigensweep.cluster import handshake
from eigensweep.cluster.credentials import Credentials, hand_over
from eigensweep.cluster.ledger import Ledger, bury, opened
from eigensweep.cluster.profile import Profile
from eigensweep.cluster.queues import OtherQueue, Queue, SlurmQueue, cancel_leftovers
from eigensweep.cluster.roster import Roster
from eigensweep.cluster.watch import Watch
from eigensweep.pipeline.errors import EigensweepError, Fault, InputError, StudyError
from eigensweep.pipeline.provenance import now
from eigensweep.pipeline.study import CUBE, JOBS

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.spec import SpecCluster

EMPTY = 60.0
"""Seconds to wait at the end until the queue holds no job of the run."""


def say(line: str) -> None:
    """Tell the user a line, on standard error."""
    print(f"eigensweep: {line}", file=sys.stderr, flush=True)


@contextmanager
def batch_client(
    profile: Profile, tell: Callable[[str], None] = say, study: Path | None = None
) -> Iterator[Client]:
    """Start a scheduler here and workers as jobs, and watch over them.

    Parameters
    ----------
    profile : Profile
        The cluster.
    tell : callable
        Called with what the user should know: jobs that wait, are lost or never work.
    study : Path, optional
        A study, whose file ``jobs.json`` then tells of the jobs, from wherever it is read.

    Yields
    ------
    distributed.Client
        The client, once the first worker is there. At the end, however it comes, no job is left.

    Raises
    ------
    InputError
        If this machine can't serve the profile.
    StudyError
        If the batch system refuses the jobs, they never bring a worker, or a worker differs.
    """
    if profile.kind == "srun":
        from eigensweep.cluster.srun import check_allocation

        check_allocation(os.environ)
    _tell_of_leftovers(profile, tell)
    with terminable(), opened(profile.log_directory, profile.kind) as ledger:
        handshake.write_expected(ledger.folder)
        security, credentials = hand_over(ledger.folder)
        with _scheduler(profile, security) as cluster:
            queue = _queue(profile, cluster.scheduler_address, ledger, credentials)
            keep = _recorder(study, profile)
            with _watched(cluster, queue, profile, ledger, tell, keep) as (watch, client):
                watch.start()
                ids = ", ".join(job.id for job in watch.roster.jobs.values())
                tell(f"worker jobs {ids or '(none yet)'}; logs in {profile.log_directory}")
                watch.wait_for_workers()
                yield client


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM, which batch systems send, unwind the body as Ctrl-C does; its default leaves jobs."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _queue(profile: Profile, address: str, ledger: Ledger, credentials: Credentials) -> Queue:
    if profile.kind == "srun":
        from eigensweep.cluster.srun import StepQueue

        return StepQueue(profile, address, ledger, credentials)
    kind = SlurmQueue if profile.kind == "slurm" else OtherQueue
    return kind(profile, address, ledger, credentials)


@contextmanager
def _scheduler(profile: Profile, security: Any) -> Iterator[SpecCluster]:
    """Start a scheduler that listens on one address, encrypted, with its dashboard on the loopback."""
    import dask
    from distributed import Scheduler
    from distributed.deploy.spec import SpecCluster
    from distributed.utils import get_ip

    where = {"interface": profile.interface} if profile.interface else {"host": get_ip()}
    options = {
        **where,
        "protocol": "tls://",
        "security": security,
        "dashboard_address": "127.0.0.1:0",
        "dashboard": True,
    }
    spec = {"cls": Scheduler, "options": options}
    # A task may lose its worker to a walltime, through no fault of its own, before it is run apart.
    settings = {
        "distributed.scheduler.allowed-failures": 3,
        "distributed.dashboard.link": "http://127.0.0.1:{port}/status",
    }
    with dask.config.set(settings):
        try:
            cluster = SpecCluster(scheduler=spec, security=security, silence_logs=logging.CRITICAL)
        except (RuntimeError, OSError, ValueError) as error:
            reason = f"no scheduler can listen there ({error})"
            remedy = "name an interface that driver and nodes share (ip address lists them)"
            raise InputError(Fault("interface", profile.interface or get_ip(), reason, remedy)) from None
        with cluster:
            yield cluster


@contextmanager
def _watched(
    cluster: SpecCluster,
    queue: Queue,
    profile: Profile,
    ledger: Ledger,
    tell: Callable[[str], None],
    keep: Callable[[Roster], None],
) -> Iterator[tuple[Watch, Client]]:
    """Keep watch while the body runs, and leave an empty queue."""
    from distributed import Client

    from eigensweep.cluster.census import Tally, census, forget

    scheduler = cluster.scheduler
    assert scheduler is not None
    with Client(cluster) as client:
        roster = Roster(
            queue,
            jobs=1 if profile.kind == "srun" else profile.jobs,
            cores=profile.cores,
            token=ledger.token,
            tell=tell,
            forget=lambda names: cluster.sync(forget, scheduler, names) if names else None,
        )

        def check() -> None:
            ledger.beat()
            keep(roster)
            if told := handshake.refusals(ledger.folder):
                raise StudyError(f"a worker differs from the driver: {told[0]}; let both run the same")

        tally = Tally(lambda: watch.nudge())
        watch = Watch(
            roster,
            census=lambda: cluster.sync(census, scheduler, tally),
            check=check,
            abort=lambda: _abandon(client),
        )
        scheduler.loop.add_callback(scheduler.add_plugin, tally)
        try:
            yield watch, client
        except EigensweepError:
            # What the body saw, its work cancelled, is the consequence; this is the cause.
            if watch.error is not None:
                raise watch.error from None
            raise
        finally:
            watch.stop()
            _empty(queue, watch, tell)
            roster.jobs.clear()
            keep(roster)


def _recorder(study: Path | None, profile: Profile) -> Callable[[Roster], None]:
    """Make what writes the jobs down in a study."""

    def keep(roster: Roster) -> None:
        # The study is made by the run, after the first worker has come.
        if study is None or not (study / CUBE).is_dir():
            return
        text = json.dumps({"time": now(), "logs": str(profile.log_directory), **roster.describe()})
        with contextlib.suppress(OSError):
            temporary = study / f".{JOBS}"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(study / JOBS)

    return keep


def _abandon(client: Client) -> None:
    """Cancel all that is under way, so that nobody waits for workers that will not come."""
    from distributed import Future

    # The client may be closing at this moment, which ends the waiting too.
    with contextlib.suppress(Exception):
        client.cancel([Future(key, client) for key in list(client.futures)], force=True)


def _empty(queue: Queue, watch: Watch, tell: Callable[[str], None]) -> None:
    """Cancel the jobs that are left and see that they go."""
    queue.clear()
    jobs = [job.id for job in watch.roster.jobs.values()]
    end = time.monotonic() + EMPTY
    while jobs and time.monotonic() < end:
        found = queue.states(jobs)
        if found is None:
            break
        jobs = [job for job in jobs if job in found and found[job].live]
        if jobs:
            time.sleep(0.3)
    else:
        if jobs:
            tell(f"still in the queue after {EMPTY:.0f} s, though cancelled: {', '.join(jobs)}")
    counts = watch.roster.counts
    if counts.lost or counts.stillborn:
        tell(f"{counts.submitted} jobs in all, {counts.lost} lost, {counts.stillborn} without a worker")


def _tell_of_leftovers(profile: Profile, tell: Callable[[str], None]) -> None:
    if jobs := bury(profile.log_directory, cancel_leftovers):
        tell(f"a run that was killed left jobs behind, cancelled now: {', '.join(jobs)}")
