"""The tasks of one allocation as workers: for sites that let a job start no others."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eigensweep.cluster import jobqueue
from eigensweep.cluster.credentials import Credentials
from eigensweep.cluster.ledger import Ledger
from eigensweep.cluster.profile import Profile
from eigensweep.cluster.slurm import Found
from eigensweep.pipeline.errors import Fault, InputError

GRACE = 10.0
"""Seconds that a step may take to end when it is asked to."""


def check_allocation(environment: Mapping[str, str]) -> None:
    """See that this process runs within an allocation of SLURM.

    Raises
    ------
    InputError
        If it does not.
    """
    if not environment.get("SLURM_JOB_ID"):
        reason = "it uses the tasks of an allocation, and this is none"
        raise InputError(
            Fault("kind", '"srun"', reason, "start within sbatch or salloc, or eigensweep submit")
        )


def step_name(environment: Mapping[str, str]) -> str:
    """Name of this allocation's logs; another for each time that the job was requeued.

    Examples
    --------
    >>> step_name({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"})
    '12-r1'
    """
    return f"{environment.get('SLURM_JOB_ID', '0')}-r{environment.get('SLURM_RESTART_COUNT', '0')}"


def step_command(
    profile: Profile,
    number: int,
    address: str,
    ledger: Ledger,
    credentials: Credentials,
    environment: Mapping[str, str],
) -> list[str]:
    """Command that starts the workers of an allocation.

    Parameters
    ----------
    profile : Profile
        The cluster, of kind ``srun``.
    number : int
        Tells steps apart that follow each other.
    address : str
        The scheduler's. It is handed over here rather than by a file, which a requeued job would find stale.
    ledger : Ledger
        The run's private folder.
    credentials : Credentials
        The run's.
    environment : mapping
        The allocation's variables.

    Returns
    -------
    list of str
        For ``srun``: a task that fails ends the step, which is then started again as a whole.
    """
    tasks = profile.jobs or int(environment.get("SLURM_NTASKS", "1"))
    log = profile.log_directory / f"eigensweep-{step_name(environment)}-{number}-%t.log"
    worker = [profile.python, "-m", "distributed.cli.dask_worker", address]
    worker += ["--name", f"{jobqueue.worker_name(ledger, number, 'srun')}-${{SLURM_PROCID}}"]
    worker += ["--nthreads", "1", "--nworkers", str(profile.cores), "--nanny"]
    worker += ["--death-timeout", str(jobqueue.PATIENCE), "--local-directory", profile.local_directory]
    if profile.worker_memory:
        worker += ["--memory-limit", f"{profile.worker_memory}B"]
    if profile.interface:
        worker += ["--interface", profile.interface]
    worker += [shlex.quote(option) for option in jobqueue.worker_options(credentials)]
    script = "\n".join([*jobqueue.prologue(profile, ledger), " ".join(["exec", *worker])])
    options = [f"--ntasks={tasks}", f"--cpus-per-task={profile.cores}", "--kill-on-bad-exit=1"]
    options += ["--export=ALL", "--input=none", f"--output={log}", "--open-mode=append"]
    return ["srun", *options, *profile.directives, "bash", "-c", script]


@dataclass
class StepQueue:
    """The allocation as a queue that holds one job: the step of all its workers.

    Parameters
    ----------
    profile, address, ledger, credentials
        As for :class:`eigensweep.cluster.queues.SlurmQueue`.
    """

    profile: Profile
    address: str
    ledger: Ledger
    credentials: Credentials
    steps: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def submit(self, number: int) -> str:
        """Start the step."""
        command = step_command(self.profile, number, self.address, self.ledger, self.credentials, os.environ)
        job = f"{step_name(os.environ)}-{number}"
        with self._own_log(job).open("a", encoding="utf-8") as log:
            try:
                # Ctrl-C in an interactive allocation is for the driver to answer.
                self.steps[job] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise jobqueue.RefusedError("there is no srun on this machine", passing=False) from None
        return job

    def states(self, jobs: Iterable[str]) -> dict[str, Found] | None:
        """Whether a step still runs."""
        found = {}
        for job in jobs:
            code = self.steps[job].poll()
            ended = Found("ENDED", f"srun exited with {code}")
            found[job] = Found("RUNNING", "") if code is None else ended
        return found

    def cancel(self, jobs: Sequence[str]) -> None:
        """End steps."""
        for job in jobs:
            step = self.steps[job]
            if step.poll() is not None:
                continue
            # srun passes it on to the tasks.
            step.send_signal(signal.SIGTERM)
            try:
                step.wait(GRACE)
            except subprocess.TimeoutExpired:
                step.kill()
                step.wait(GRACE)

    def clear(self) -> None:
        """End all steps."""
        self.cancel(list(self.steps))

    def logs(self, job: str) -> list[Path]:
        """Name the logs of the step and of its tasks."""
        return [self._own_log(job), *sorted(self.profile.log_directory.glob(f"eigensweep-{job}-*.log"))]

    def _own_log(self, job: str) -> Path:
        return self.profile.log_directory / f"eigensweep-{job}.log"
