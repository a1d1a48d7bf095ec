"""dask-jobqueue: the job scripts of batch systems, and submitting to those other than SLURM.

The only module that imports dask_jobqueue, which replaces the handler of Ctrl-C and can't be imported outside
the main thread: :func:`library` undoes the one and allows the other. Its clusters are not used. They never
notice a lost job whose processes are several, count a job that ended before it registered for ever, and only
log a refused submission; :mod:`eigensweep.cluster.roster` keeps the books instead.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import signal
import subprocess
import warnings
from pathlib import Path
from typing import Any

from eigensweep.cluster.credentials import Credentials
from eigensweep.cluster.handshake import FOLDER
from eigensweep.cluster.ledger import Ledger
from eigensweep.cluster.profile import Profile

CLASSES = {
    "slurm": "SLURMJob",
    "pbs": "PBSJob",
    "sge": "SGEJob",
    "lsf": "LSFJob",
    "htcondor": "HTCondorJob",
    "oar": "OARJob",
}
PATIENCE = 60
"""Seconds for which a worker looks for its scheduler before it gives up."""
PRELOAD = ("--preload", "eigensweep.cluster.handshake")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class RefusedError(Exception):
    """The batch system refused a job, in its own words.

    Parameters
    ----------
    words : str
        What it said.
    passing : bool
        Whether trying again later may help: a limit on the number of jobs, or a busy controller.
    """

    def __init__(self, words: str, passing: bool) -> None:
        super().__init__(words)
        self.words, self.passing = words, passing


def library() -> Any:
    """Import dask_jobqueue, and leave Ctrl-C as it was.

    Returns
    -------
    module
        dask_jobqueue.
    """
    install = signal.signal
    # Its import installs a handler that turns Ctrl-C into exit code 0.
    signal.signal = lambda number, handler: signal.getsignal(number)  # type: ignore[assignment]
    try:
        return importlib.import_module("dask_jobqueue")
    finally:
        signal.signal = install


def worker_options(credentials: Credentials) -> list[str]:
    """Options of ``dask worker`` for one job, beside those that dask-jobqueue writes itself.

    Parameters
    ----------
    credentials : Credentials
        The run's.

    Returns
    -------
    list of str
        With nothing but loopback addresses for what is not encrypted.
    """
    options = ["--protocol", "tls", *credentials.options, *PRELOAD, "--dashboard-address", "127.0.0.1:0"]
    return [*options, "--no-dashboard"]


def job_script(profile: Profile, number: int, address: str, ledger: Ledger, credentials: Credentials) -> str:
    """Write the script of a worker job.

    Parameters
    ----------
    profile : Profile
        The cluster; any kind but ``srun``.
    number : int
        Tells the run's jobs apart; their workers are named by it.
    address : str
        The scheduler's.
    ledger : Ledger
        The run's private folder.
    credentials : Credentials
        The run's.

    Returns
    -------
    str
        The script.
    """
    script: str = _job(profile, number, address, ledger, credentials).job_script()
    return script


def submit(profile: Profile, number: int, address: str, ledger: Ledger, credentials: Credentials) -> str:
    """Submit a worker job to a batch system other than SLURM.

    Parameters
    ----------
    profile, number, address, ledger, credentials
        As for :func:`job_script`.

    Returns
    -------
    str
        The job's id.

    Raises
    ------
    RefusedError
        If the batch system says no.
    """
    job = _job(profile, number, address, ledger, credentials)
    try:
        asyncio.run(job.start())
    except (RuntimeError, ValueError, OSError) as error:
        words = re.sub(r"(?s)^.*?stderr:\s*", "", str(error)).strip() or str(error)
        raise RefusedError(words, passing=False) from None
    return str(job.job_id)


def cancel(kind: str, jobs: list[str]) -> None:
    """Cancel jobs of a batch system other than SLURM; those that have ended are no fault."""
    command = shlex.split(getattr(library(), CLASSES[kind].replace("Job", "Cluster")).job_cls.cancel_command)
    subprocess.run([*command, *jobs], capture_output=True, check=False, timeout=60)


def worker_name(ledger: Ledger, number: int, kind: str) -> str:
    """Name of a job's workers; a requeued job's are new ones, since the old may not be forgotten yet."""
    return f"{ledger.token}-{number}-r{'${SLURM_RESTART_COUNT:-0}' if kind in ('slurm', 'srun') else 0}"


def job_number(token: str, worker: str) -> int | None:
    """Return the number of the job that a worker belongs to; None if it is not of this run.

    Examples
    --------
    >>> job_number("abc", "abc-12-r0-3"), job_number("abc", "xyz-12-r0")
    (12, None)
    """
    match = re.match(rf"{re.escape(token)}-([0-9]+)-r", worker)
    return int(match.group(1)) if match else None


def prologue(profile: Profile, ledger: Ledger) -> list[str]:
    """Shell lines before the workers: the user's, then ours, which have the last word."""
    own = [f"export {FOLDER}={shlex.quote(str(ledger.folder))}", *(f"export {name}=1" for name in THREADS)]
    return [*profile.prologue, *own]


def _job(profile: Profile, number: int, address: str, ledger: Ledger, credentials: Credentials) -> Any:
    import dask

    package = library()
    cls = getattr(package, CLASSES[profile.kind].replace("Job", "Cluster")).job_cls
    options: dict[str, Any] = {
        "cores": profile.cores,
        "processes": profile.cores,
        "memory": f"{profile.memory}B",
        "name": worker_name(ledger, number, profile.kind),
        "job_name": ledger.job_name,
        "python": profile.python,
        "interface": profile.interface or None,
        "local_directory": profile.local_directory,
        "log_directory": str(profile.log_directory),
        "death_timeout": PATIENCE,
        "worker_extra_args": worker_options(credentials),
        "job_script_prologue": prologue(profile, ledger),
        "job_extra_directives": list(profile.directives),
    }
    options |= _of_kind(profile, ledger)
    # What the user keeps in ~/.config/dask for other purposes must not change a script silently.
    [packaged] = dask.config.collect_yaml([str(Path(package.__file__).parent / "jobqueue.yaml")])
    with dask.config.set(packaged), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "OAR Job memory reserved", UserWarning)
        return cls(address, **options)


def _of_kind(profile: Profile, ledger: Ledger) -> dict[str, Any]:
    """Options that batch systems call by different names."""
    kind = profile.kind
    if kind == "htcondor":
        directives = dict(line.split("=", 1) for line in profile.directives)
        pairs = {key.strip(): value.strip() for key, value in directives.items()}
        return {"disk": "2GiB", "job_extra_directives": pairs}
    named: dict[str, Any] = {"queue": profile.partition or None, "walltime": profile.walltime}
    named["account" if kind in ("slurm", "pbs") else "project"] = profile.account or None
    if kind == "lsf":
        named["walltime"] = profile.walltime.rpartition(":")[0]
    if kind == "slurm":
        # One log a job. A job that is lost is replaced at once: requeued, it would wait for minutes.
        named["log_directory"] = None
        log = f"-o {profile.log_directory}/{ledger.job_name}-%j.log"
        named["job_extra_directives"] = [log, "--open-mode=append", "--no-requeue", *profile.directives]
    return named
