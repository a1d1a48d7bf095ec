"""The private folder of a run: whose it is, its jobs, and what its workers need to know."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from eigensweep.pipeline.errors import Fault, InputError

PREFIX = ".eigensweep-"
OWNER, JOBS = "owner.json", "jobs"
STALE = 120.0
"""Seconds without a sign of life after which an owner on another machine counts as dead."""


@dataclass(frozen=True)
class Ledger:
    """The private folder of a run, on a filesystem that driver and workers share.

    Parameters
    ----------
    folder : Path
        The folder, of mode 700.
    """

    folder: Path

    @property
    def token(self) -> str:
        """What tells this run's jobs from others'."""
        return self.folder.name.removeprefix(PREFIX)

    @property
    def job_name(self) -> str:
        """The name that its jobs have in the queue."""
        return f"eigensweep-{self.token}"

    def add(self, job: str) -> None:
        """Note a job before anything else happens to it: whoever comes after a kill -9 will find it."""
        with (self.folder / JOBS).open("a", encoding="utf-8") as file:
            file.write(f"{job}\n")
            file.flush()
            os.fsync(file.fileno())

    def jobs(self) -> list[str]:
        """All jobs that were ever noted."""
        with suppress(FileNotFoundError):
            return (self.folder / JOBS).read_text(encoding="utf-8").split()
        return []

    def beat(self) -> None:
        """Give a sign of life."""
        with suppress(OSError):
            os.utime(self.folder / OWNER)


@contextmanager
def opened(parent: Path, kind: str) -> Iterator[Ledger]:
    """Make a run's private folder, and remove it when the body ends.

    Parameters
    ----------
    parent : Path
        Where; made if it is not there.
    kind : str
        The batch system of its jobs.

    Yields
    ------
    Ledger
        The folder.

    Raises
    ------
    InputError
        If it can't be made, or others could look into it.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        remedy = "name a folder that you can write, on a filesystem that all nodes share"
        raise InputError(Fault("log_directory", str(parent), str(error.strerror or error), remedy)) from None
    try:
        found = folder.stat()
        if stat.S_IMODE(found.st_mode) != 0o700 or found.st_uid != os.geteuid():
            reason = "its filesystem keeps no permissions, and others could read the credentials there"
            raise InputError(Fault("log_directory", str(parent), reason, "name a folder on another one"))
        owner = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "born": _born(os.getpid()),
            "kind": kind,
        }
        (folder / OWNER).write_text(json.dumps(owner), encoding="utf-8")
        yield Ledger(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bury(parent: Path, cancel: Callable[[str, Ledger, list[str]], None]) -> list[str]:
    """Cancel the jobs of runs that were killed, and remove their folders.

    Parameters
    ----------
    parent : Path
        Where the folders are.
    cancel : callable
        Cancels jobs: called with the kind, the ledger and the job ids.

    Returns
    -------
    list of str
        The jobs that were cancelled; some may have ended long before.
    """
    cancelled: list[str] = []
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        kind = _dead_kind(folder)
        if kind is None:
            continue
        ledger = Ledger(folder)
        jobs = ledger.jobs()
        cancel(kind, ledger, jobs)
        shutil.rmtree(folder, ignore_errors=True)
        cancelled += jobs
    return cancelled


def _dead_kind(folder: Path) -> str | None:
    """Kind of a folder whose owner is dead; None while it lives or if that can't be known."""
    try:
        if folder.stat().st_uid != os.geteuid():
            return None
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        kind = str(owner["kind"])
        if owner["host"] == socket.gethostname():
            return None if _born(int(owner["process"])) == owner["born"] != "" else kind
        silent = _filesystem_now(folder.parent) - (folder / OWNER).stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kind if silent > STALE else None


def _born(process: int) -> str:
    """When a process of this machine began, in its own units: tells it from a later one of the same id."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    # A zombie is dead, and only its parent's to bury.
    return "" if fields[0] in "ZX" else fields[19]


def _filesystem_now(folder: Path) -> float:
    # A network filesystem's clock may differ from ours; what counts is its own.
    probe = folder / f".now-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        probe.unlink(missing_ok=True)
