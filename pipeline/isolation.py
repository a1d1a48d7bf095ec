"""One column in a process of its own, under limits: whatever it does, only it fails."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import cloudpickle

from eigensweep.pipeline.kernel import LOG_TAIL, ColumnFailedError, Recipe, Request, in_process
from eigensweep.pipeline.rankone import Column
from eigensweep.pipeline.schema import FAILED, OUT_OF_MEMORY, TIMED_OUT, WORKER_LOST

START_UP = 60.0
"""Seconds that a process may take to load Python and its libraries, on a busy machine or a slow disk."""
POLL = 0.05
"""Seconds between two looks at a column's process."""

PR_SET_PDEATHSIG = 1
"""From Linux's ``sys/prctl.h``."""


@dataclass(frozen=True)
class Limits:
    """What a column may take.

    Parameters
    ----------
    seconds : float
        Wall time.
    memory : float
        Resident bytes of its process; infinite for no limit.
    """

    seconds: float
    memory: float = float("inf")


def isolated(recipe: Recipe, request: Request, limits: Limits) -> Column:
    """Compute a column in a process of its own.

    Parameters
    ----------
    recipe : Recipe
        What its numbers depend on.
    request : Request
        Which column.
    limits : Limits
        What it may take.

    Returns
    -------
    Column
        The same bits as in this process.

    Raises
    ------
    ColumnFailedError
        If it raised, took too long, took too much memory, or its process ended in any other way.
    """
    # The child must find what this process found, and nothing that merely lies in the current folder.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    ready, begun = os.pipe()
    with os.fdopen(ready, "rb"), tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "eigensweep.pipeline.isolation", str(begun), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=log,
            env=environment,
            pass_fds=(begun,),
            start_new_session=True,
        )
        os.close(begun)
        try:
            _ask(child, cloudpickle.dumps((recipe, request)))
            # Its time counts from when it has loaded all it needs, and tells so by closing the pipe.
            _wait(child, replace(limits, seconds=limits.seconds + START_UP), log, ready)
            _wait(child, limits, log)
        finally:
            _end(child)
        return _read(child, answer, log)


def _ask(child: subprocess.Popen[bytes], question: bytes) -> None:
    assert child.stdin is not None
    # A child that is gone already tells more by its exit than by the broken pipe.
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(question)
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()


def _wait(child: subprocess.Popen[bytes], limits: Limits, log: IO[bytes], ready: int | None = None) -> None:
    """Wait for the child's end, or for the pipe ``ready`` to tell of its beginning."""
    start = time.monotonic()
    while child.poll() is None and not (ready is not None and select.select([ready], [], [], 0)[0]):
        if time.monotonic() - start > limits.seconds:
            raise ColumnFailedError(TIMED_OUT, f"it ran longer than {limits.seconds:g} s", _tail(log))
        if (used := resident_bytes(child.pid)) > limits.memory:
            reason = f"it took {used / 2**20:.0f} MiB and may take {limits.memory / 2**20:.0f} MiB"
            raise ColumnFailedError(OUT_OF_MEMORY, reason, _tail(log))
        time.sleep(POLL)


def _read(child: subprocess.Popen[bytes], answer: IO[bytes], log: IO[bytes]) -> Column:
    code = child.returncode
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
        # Nobody but the kernel, out of memory, sends an unannounced SIGKILL to such a process.
        status = OUT_OF_MEMORY if -code == signal.SIGKILL else WORKER_LOST
        raise ColumnFailedError(status, f"its process was killed by {name}", _tail(log))
    if code > 0:
        raise ColumnFailedError(WORKER_LOST, f"its process ended with code {code}", _tail(log))
    answer.seek(0)
    found: Column | tuple[int, str, str] = pickle.load(answer)
    if isinstance(found, Column):
        return found
    raise ColumnFailedError(*found)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        # Its own session: what it started goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").strip().splitlines()[-LOG_TAIL:])


def resident_bytes(process: int) -> float:
    """Memory that a process holds, in bytes; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    return float(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _die_with(parent: int) -> None:
    """Have this process killed when its parent ends, however either of them ends, where Linux can do that."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # It may have ended before it could be watched.
        if os.getppid() != parent:
            os._exit(1)


def main() -> None:
    """Serve one column: the question on standard input, the answer on standard output."""
    from eigensweep.pipeline.threads import one_thread_for_good

    _die_with(int(sys.argv[2]))
    # Whatever a model prints must not mix with the answer.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    recipe, request = pickle.loads(sys.stdin.buffer.read())
    import scipy.linalg  # noqa: F401 (loaded before the limit, which holds for what is loaded)

    one_thread_for_good()
    os.close(int(sys.argv[1]))
    answer: Any
    try:
        answer = in_process(recipe, request)
    except MemoryError as error:
        answer = (OUT_OF_MEMORY, f"MemoryError: {error}", traceback.format_exc())
    except Exception as error:
        answer = (FAILED, f"{type(error).__name__}: {error}", traceback.format_exc())
    with output:
        pickle.dump(answer, output)


if __name__ == "__main__":
    main()
