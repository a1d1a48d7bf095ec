"""Queues: where a run's worker jobs are submitted, asked about and cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from eigensweep.cluster import jobqueue, slurm
from eigensweep.cluster.credentials import Credentials
from eigensweep.cluster.ledger import Ledger
from eigensweep.cluster.profile import Profile
from eigensweep.cluster.slurm import Found


class Queue(Protocol):
    """What watching over worker jobs takes."""

    def submit(self, number: int) -> str:
        """Submit the job of a number and return its id.

        Raises
        ------
        eigensweep.cluster.jobqueue.RefusedError
            If the batch system says no.
        """

    def states(self, jobs: Iterable[str]) -> dict[str, Found] | None:
        """States of jobs, by id; None if they can't be known now."""

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs; those that have ended are no fault."""

    def clear(self) -> None:
        """Cancel every job of this run, one too whose submission was cut off before its id was told."""

    def logs(self, job: str) -> list[Path]:
        """Files that a job wrote its log to."""


@dataclass
class SlurmQueue:
    """Worker jobs of SLURM.

    Parameters
    ----------
    profile : Profile
        The cluster.
    address : str
        The scheduler's.
    ledger : Ledger
        The run's private folder.
    credentials : Credentials
        The run's.
    """

    profile: Profile
    address: str
    ledger: Ledger
    credentials: Credentials

    def submit(self, number: int) -> str:
        """Submit a job and note it."""
        script = jobqueue.job_script(self.profile, number, self.address, self.ledger, self.credentials)
        job = slurm.submit(script)
        self.ledger.add(job)
        return job

    def states(self, jobs: Iterable[str]) -> dict[str, Found] | None:
        """Ask squeue."""
        return slurm.states(jobs)

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs."""
        slurm.cancel(jobs, self.ledger.job_name)

    def clear(self) -> None:
        """Cancel by name."""
        slurm.cancel_named(self.ledger.job_name)

    def logs(self, job: str) -> list[Path]:
        """Its log."""
        return [self.profile.log_directory / f"{self.ledger.job_name}-{job}.log"]


@dataclass
class OtherQueue:
    """Worker jobs of another batch system that dask-jobqueue knows; it is asked for no states.

    Parameters
    ----------
    profile, address, ledger, credentials
        As for :class:`SlurmQueue`.
    """

    profile: Profile
    address: str
    ledger: Ledger
    credentials: Credentials
    submitted: list[str] = field(default_factory=list)

    def submit(self, number: int) -> str:
        """Submit a job and note it."""
        job = jobqueue.submit(self.profile, number, self.address, self.ledger, self.credentials)
        self.submitted.append(job)
        self.ledger.add(job)
        return job

    def states(self, jobs: Iterable[str]) -> dict[str, Found] | None:
        """Nothing is known of them but what their workers show."""
        return None

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs."""
        if jobs:
            jobqueue.cancel(self.profile.kind, list(jobs))

    def clear(self) -> None:
        """Cancel all that were submitted."""
        self.cancel(self.submitted)

    def logs(self, job: str) -> list[Path]:
        """Files whose names hold its id."""
        return sorted(self.profile.log_directory.glob(f"*{job}*"))


def cancel_leftovers(kind: str, ledger: Ledger, jobs: list[str]) -> None:
    """Cancel the jobs that a killed run left behind."""
    if kind == "slurm":
        slurm.cancel_named(ledger.job_name)
    elif kind in jobqueue.CLASSES and jobs:
        jobqueue.cancel(kind, jobs)
