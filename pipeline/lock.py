"""One writer of a study's metadata: a lock file that tells who holds it and shows that they live."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from eigensweep.pipeline.errors import StudyError

HEARTBEAT = 5.0
"""Seconds between two signs of life."""
ATTEMPTS, PAUSE = 200, 0.02
"""How often a lock that changes hands is tried for, and the seconds between two attempts."""
STALE = 60.0
"""Seconds without one after which a holder on another machine counts as dead."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Parameters
    ----------
    host : str
        Its machine.
    process : int
        Its process id.
    job : str
        Its job id on the cluster; empty outside one.
    started : str
        When it took the lock, in UTC.
    identity : str
        Tells two holders apart whatever their process ids.
    born : str
        When its process began, as its machine counts: a later process may have been given the same id.
        Empty where the system does not tell.
    """

    host: str
    process: int
    job: str
    started: str
    identity: str
    born: str = ""

    def describe(self) -> str:
        """Name it for a human."""
        job = f", job {self.job}" if self.job else ""
        return f"process {self.process} on {self.host}{job}, since {self.started}"


@contextmanager
def hold(path: Path, patience: float = 0.0) -> Iterator[Holder]:
    """Hold a lock while the body runs.

    Parameters
    ----------
    path : Path
        The lock file.
    patience : float
        Seconds to wait for a living holder to let go.

    Yields
    ------
    Holder
        Who holds it: this process.

    Raises
    ------
    StudyError
        If another living process holds it.
    """
    holder = Holder(
        host=socket.gethostname(),
        process=os.getpid(),
        job=os.environ.get("SLURM_JOB_ID", ""),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        identity=uuid.uuid4().hex,
        born=_born(os.getpid()),
    )
    _wait(path, holder, patience)
    over = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, over), name="study-lock", daemon=True)
    beat.start()
    try:
        yield holder
    finally:
        over.set()
        beat.join()
        if read(path) == holder:
            path.unlink(missing_ok=True)


def read(path: Path) -> Holder | None:
    """Return who a lock file names; None where there is no lock."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, OSError):
        return Holder("unknown host", 0, "", "an unknown time", "unreadable")


def is_alive(path: Path, holder: Holder) -> bool:
    """Say whether a lock's holder still runs.

    Parameters
    ----------
    path : Path
        The lock file.
    holder : Holder
        Whom it names.

    Returns
    -------
    bool
        On this machine: whether the process exists, the very one. Elsewhere: whether its heartbeat is
        fresh, by the clock of the filesystem that both write to.
    """
    if holder.host == socket.gethostname() and holder.process > 0:
        born = _born(holder.process)
        return born == holder.born if born and holder.born else _signalled(holder.process)
    try:
        return _filesystem_now(path) - path.stat().st_mtime < STALE
    except FileNotFoundError:
        return False


def living(folder: Path, pattern: str) -> list[tuple[Path, Holder]]:
    """List the locks of a folder, by a pattern of their names, whose holders live.

    Parameters
    ----------
    folder : Path
        The folder.
    pattern : str
        As for :meth:`pathlib.Path.glob`.

    Returns
    -------
    list of (Path, Holder)
        Sorted by name.
    """
    found = [(path, read(path)) for path in sorted(folder.glob(pattern))]
    return [(path, holder) for path, holder in found if holder is not None and is_alive(path, holder)]


def _wait(path: Path, holder: Holder, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            _acquire(path, holder)
        except StudyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _acquire(path: Path, holder: Holder) -> None:
    text = json.dumps(asdict(holder))
    own = path.with_name(f"{path.name}.{holder.identity}")
    own.write_text(text, encoding="utf-8")
    try:
        for _ in range(ATTEMPTS):
            try:
                # A link appears with its content; a file that is created first could be read empty.
                os.link(own, path)
            except FileExistsError:
                if _succeed(path, own):
                    return
            else:
                return
    finally:
        own.unlink(missing_ok=True)
    raise StudyError(f"{path}: the lock keeps changing hands; try again")


def _succeed(path: Path, own: Path) -> bool:
    """Put our own lock in a dead holder's place; say whether we did.

    Several may see the same dead holder. One of them claims the succession, by a file that only one can
    link, and only a claimant replaces the dead holder's lock: so none can replace a fresh one.
    """
    found = read(path)
    if found is None:
        return False
    if is_alive(path, found):
        raise StudyError(
            f"{path.parent}: another run is at work here ({found.describe()}); wait for it or stop it"
        )
    mark = hashlib.blake2b(found.identity.encode(), digest_size=8).hexdigest()
    claim = path.with_name(f"{path.name}.{mark}.claim")
    try:
        os.link(own, claim)
    except FileExistsError:
        claimant = read(claim)
        # One that died in between must not bar the way for ever.
        if claimant is not None and not is_alive(claim, claimant):
            claim.unlink(missing_ok=True)
        time.sleep(PAUSE)
        return False
    try:
        if read(path) != found:
            return False
        own.replace(path)
        return True
    finally:
        claim.unlink(missing_ok=True)


def _beat(path: Path, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT):
        with suppress(OSError):
            os.utime(path)


def _born(process: int) -> str:
    """Tell when a process of this machine began: the boot, and the ticks since."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field is the program's name, which may hold anything.
    fields = text.rpartition(")")[2].split()
    # A process that has ended stays listed until its parent asks after it, which may never be.
    return "ended" if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def _filesystem_now(path: Path) -> float:
    probe = path.with_name(f"{path.name}.{uuid.uuid4().hex}.now")
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _signalled(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
