"""The handshake: a worker that runs other code than the driver, or several BLAS threads, is refused.

Dask imports this module in every worker process of a job (``--preload``) and calls :func:`dask_setup` before
the worker meets the scheduler, so no task ever reaches a worker that differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigensweep.pipeline import provenance
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.threads import one_thread_for_good

if TYPE_CHECKING:
    from distributed import Client

FOLDER = "EIGENSWEEP_RUN"
"""Environment variable that names the run's private folder."""
EXPECTED, REFUSED = "expected.json", "refused"
PACKAGES = (*provenance.PACKAGES, "distributed")
EXIT = 78
"""Exit code of a refused worker: the configuration is wrong (``EX_CONFIG``)."""


def report() -> dict[str, Any]:
    """Say what this process would compute with.

    Returns
    -------
    dict
        ``python``, one entry a package, ``eigensweep``, ``code`` (a digest of its sources), ``blas`` (the
        linear algebra libraries) and ``threads`` (the most that any of them uses; put on one here).
    """
    # The libraries load with this import; a limit set before would not be theirs.
    import scipy.linalg  # noqa: F401

    one_thread_for_good()
    pools = provenance.blas()
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "eigensweep": provenance.version(),
        "code": code_digest(),
        "blas": sorted({f"{pool['library']} {pool['version']}" for pool in pools}),
        "threads": max((pool["threads"] for pool in pools), default=1),
    }


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of the sources that decide a result, the same wherever they are installed."""
    here = Path(__file__).resolve().parent
    code = hashlib.sha256()
    for folder in (here, Path(provenance.__file__).resolve().parent):
        for path in sorted(folder.glob("*.py")):
            code.update(path.name.encode() + b"\0" + path.read_bytes())
    return code.hexdigest()[:12]


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Say in which respects a worker differs from the driver.

    Parameters
    ----------
    expected, found : mapping
        Reports of the driver and the worker.

    Returns
    -------
    list of str
        One for each difference; empty if the worker may work.

    Examples
    --------
    >>> differences({"numpy": "2.1.0", "threads": 1}, {"numpy": "2.2.0", "threads": 1})
    ['numpy is 2.2.0 there and 2.1.0 here']
    """
    told = [
        f"{name} is {found.get(name, 'missing')} there and {value} here"
        for name, value in expected.items()
        if name not in ("threads", "blas") and found.get(name) != value
    ]
    # The driver may have loaded more libraries than computing needs, a worker none that the driver lacks.
    if foreign := set(found.get("blas", [])) - set(expected.get("blas", [])):
        told.append(f"its linear algebra is {', '.join(sorted(foreign))}, which is not loaded here")
    threads = found.get("threads", 1)
    if threads != 1:
        told.append(f"its linear algebra runs {threads} threads and ignores the limit of one")
    return told


def write_expected(folder: Path) -> None:
    """Leave this process's report where the workers will compare theirs with it."""
    (folder / EXPECTED).write_text(json.dumps(report()), encoding="utf-8")


def dask_setup(worker: Any) -> None:
    """Prepare a worker process of a job, or end it if it differs from the driver.

    Parameters
    ----------
    worker : distributed.Worker
        The worker, not yet known to its scheduler.
    """
    # A signal to the whole process group is for the nanny to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told = _refusal()
    if told:
        # An exception would be logged by Dask, and the worker would go on.
        print(f"eigensweep: worker {worker.name} is refused: {'; '.join(told)}", file=sys.stderr, flush=True)
        os._exit(EXIT)


def refusals(folder: Path) -> list[str]:
    """List what refused workers said."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{REFUSED}-*"))]


def check_workers(client: Client) -> None:
    """Compare the present workers of an existing cluster with this process.

    Parameters
    ----------
    client : distributed.Client
        The cluster.

    Raises
    ------
    StudyError
        If a worker differs, or can't import eigensweep.
    """
    try:
        reports = client.run(report)
    except ImportError as error:
        raise StudyError(
            f"the workers can't import eigensweep ({error}); install it where they run"
        ) from None
    expected = report()
    for address, found in reports.items():
        if told := differences(expected, found):
            raise StudyError(
                f"worker {address} differs: {'; '.join(told)}; start it in the driver's environment"
            )


def _refusal() -> list[str]:
    folder = os.environ.get(FOLDER)
    if not folder:
        return [f"{FOLDER} is not set there; let the container pass the environment on"]
    try:
        expected = json.loads((Path(folder) / EXPECTED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [f"it can't read the run's folder ({error}); log_directory has to be on a shared filesystem"]
    told = differences(expected, report())
    if told:
        where = Path(folder) / f"{REFUSED}-{platform.node()}-{os.getpid()}"
        where.write_text("; ".join(told), encoding="utf-8")
    return told
