"""The roster of worker jobs: those that are lost are replaced, those that never work are told of.

The books are kept here rather than by dask-jobqueue: every job's state is asked of the queue, and its workers
of the scheduler, so that a job which ends before its workers come, or whose node falls silent, is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from eigensweep.cluster.jobqueue import RefusedError, job_number
from eigensweep.cluster.queues import Queue
from eigensweep.cluster.slurm import Found, tail
from eigensweep.pipeline.errors import StudyError

SILENT = 600.0
"""Seconds that a running job may take until its first worker comes."""
STILLBORN = 3
"""Jobs in a row that may end before a worker came, before the first worker of the run; later twice that."""
DRY = 4.0
"""Seconds for which there were no more tasks than workers before jobs are released."""
VANISHED = 90.0
"""Seconds without a worker after which a job counts as lost where the queue can't be asked."""
BRISK, CALM = 1.0, 15.0
"""Seconds between two looks, while jobs come and go and while nothing changes."""
YOUNG = 60.0
"""Seconds for which a job is expected to start, or to fail."""
PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds to wait after a refusal that may pass, doubled each time."""

GONE = Found("GONE", "")


@dataclass(frozen=True)
class Census:
    """What the scheduler knows.

    Parameters
    ----------
    workers : dict of str to bool
        Whether each worker, by name, holds tasks.
    unfinished : int
        Tasks that are not done.
    fed : bool
        Whether a task was done since the last worker came: whoever submits tasks has seen all workers.
    """

    workers: dict[str, bool] = field(default_factory=dict)
    unfinished: int = 0
    fed: bool = False


@dataclass
class WorkerJob:
    """A job that was submitted for this run.

    Parameters
    ----------
    number : int
        Its number in the run.
    id : str
        Its id in the queue.
    born : float
        When it was submitted.
    found : Found
        As the queue showed it last.
    seen : float
        When a worker of it was there last; 0 if none ever was.
    started : float
        When it was seen running first; 0 if it was not.
    released : bool
        Whether it was cancelled because it is not needed any more.
    """

    number: int
    id: str
    born: float
    found: Found = field(default_factory=lambda: Found("PENDING", ""))
    seen: float = 0.0
    started: float = 0.0
    released: bool = False


@dataclass
class Counts:
    """What happened to jobs so far: submitted, lost and replaced, ended before a worker came."""

    submitted: int = 0
    lost: int = 0
    stillborn: int = 0


class Roster:
    """The books: what is there, what should be, and what is to be done about it.

    Parameters
    ----------
    queue : Queue
        Where jobs are submitted.
    jobs : int
        How many are kept alive.
    cores : int
        Threads of each.
    token : str
        Begins the names of the run's workers.
    tell : callable
        Called with what the user should know.
    forget : callable
        Called with the names of workers whose job has ended: the scheduler may not have noticed.
    """

    def __init__(
        self,
        queue: Queue,
        jobs: int,
        cores: int,
        token: str,
        tell: Callable[[str], None],
        forget: Callable[[list[str]], None],
    ) -> None:
        self._queue, self._wanted, self._cores, self._token = queue, jobs, cores, token
        self._tell, self._forget = tell, forget
        self.jobs: dict[int, WorkerJob] = {}
        self.counts = Counts()
        self.met = False
        self._number = 0
        self._in_a_row = 0
        self._not_before = -math.inf
        self._pause = PAUSE
        self._dry_since: float | None = None
        self._told: set[str] = set()

    def next_look(self, now: float) -> float:
        """Seconds until looking again is worth it."""
        jobs = self.jobs.values()
        young = any(now - job.born < YOUNG or job.released for job in jobs)
        if young or any(not job.seen and not job.found.waiting for job in jobs):
            return BRISK
        if len(jobs) < self._wanted and self._dry_since is None:
            return min(CALM, max(BRISK, self._not_before - now))
        return CALM

    def describe(self) -> dict[str, Any]:
        """Describe what is there and what happened, as JSON values."""
        jobs = [
            {"id": job.id, "state": job.found.state, "reason": job.found.reason, "works": bool(job.seen)}
            for job in self.jobs.values()
        ]
        return {"jobs": jobs, **asdict(self.counts)}

    def step(self, now: float, census: Census) -> None:
        """Look once: bury what ended, and submit or release what is lacking or too much.

        Parameters
        ----------
        now : float
            Time in seconds.
        census : Census
            What the scheduler knows.

        Raises
        ------
        StudyError
            If going on is pointless: jobs are refused for good, or never bring a worker.
        """
        self._meet(now, census)
        found = self._queue.states([job.id for job in self.jobs.values()])
        if found is None:
            found = self._guess(now)
        for job in list(self.jobs.values()):
            self._follow(job, found.get(job.id, GONE), now, census)
        self._tell_waiting(now)
        self._resize(now, census)

    def _meet(self, now: float, census: Census) -> None:
        for name in census.workers:
            job = self.jobs.get(number) if (number := job_number(self._token, name)) is not None else None
            if job is None:
                continue
            if not job.seen:
                self._in_a_row, self._pause = 0, PAUSE
                self.met = True
            job.seen = now

    def _guess(self, now: float) -> dict[str, Found]:
        """States where the queue does not tell: a job lives until its workers have been away for long."""
        states = {}
        for job in self.jobs.values():
            lost = job.seen and now - job.seen > VANISHED
            states[job.id] = GONE if lost else Found("RUNNING" if job.seen else "PENDING", "")
        return states

    def _follow(self, job: WorkerJob, found: Found, now: float, census: Census) -> None:
        if found is GONE and now - job.born < 10.0:
            return
        job.found = found
        if found.state == "RUNNING":
            job.started = job.started or now
        if found.waiting and job.seen:
            # Requeued: what it held is lost, its place is not.
            job.seen = job.started = 0.0
            self._forget_workers(job, census)
            self._tell(f"job {job.id} was requeued ({found})")
        if found.live and not (found.state == "RUNNING" and not job.seen and now - job.started > SILENT):
            return
        del self.jobs[job.number]
        if found.live or found is GONE:
            self._queue.cancel([job.id])
        self._forget_workers(job, census)
        if job.released:
            return
        if job.seen:
            self.counts.lost += 1
            self._tell(f"job {job.id} was lost ({found}); another one takes its place")
        else:
            self._stillborn(job, found, now)

    def _forget_workers(self, job: WorkerJob, census: Census) -> None:
        self._forget([name for name in census.workers if job_number(self._token, name) == job.number])

    def _stillborn(self, job: WorkerJob, found: Found, now: float) -> None:
        self.counts.stillborn += 1
        self._in_a_row += 1
        logs = self._queue.logs(job.id)
        what = f"none of its workers came in {SILENT:.0f} s" if found.live else f"it ended ({found})"
        story = (
            f"job {job.id} brought no worker: {what}; the last lines of its log, "
            f"{', '.join(str(path) for path in logs)}:\n{tail(logs)}"
        )
        # Somebody else ended it; that says little about the next one.
        foreign = found.state in ("CANCELLED", "NODE_FAIL", "PREEMPTED")
        limit = 2 * STILLBORN if foreign or self.met else min(STILLBORN, self._wanted)
        if self._in_a_row >= limit:
            raise StudyError(
                f"{story}\n  mend that (docs/clusters.md: workers that never come) and run again"
            )
        self._tell(story)
        if self.met:
            self._not_before = now + PAUSE * 2.0**self._in_a_row

    def _tell_waiting(self, now: float) -> None:
        if self.met or not self.jobs or not all(job.found.waiting for job in self.jobs.values()):
            return
        reasons = sorted({job.found.reason for job in self.jobs.values()} - {"", "None"})
        if reasons:
            self._tell_once(f"waiting in the queue: {len(self.jobs)} job(s), {', '.join(reasons)}")
        elif now - min(job.born for job in self.jobs.values()) > SILENT:
            self._tell_once(f"no worker after {SILENT:.0f} s; look at the queue, and at the logs of the jobs")

    def _resize(self, now: float, census: Census) -> None:
        alive = [job for job in self.jobs.values() if not job.released]
        target = self._target(now, census, len(alive))
        if len(alive) > target:
            self._release(alive, len(alive) - target, census)
        for _ in range(target - len(alive)):
            if now < self._not_before or not self._submit(now):
                return

    def _target(self, now: float, census: Census, alive: int) -> int:
        """How many jobs the work that is left deserves."""
        # Whoever submits tasks keeps more in flight than there are workers, as long as there are more.
        if not census.fed or census.unfinished > len(census.workers):
            self._dry_since = None
            return self._wanted
        self._dry_since = now if self._dry_since is None else self._dry_since
        if census.unfinished == 0:
            # Between two sweeps, or after the last: nothing is released, nothing is replaced.
            return min(alive, self._wanted)
        if now - self._dry_since < DRY:
            return alive
        return min(self._wanted, math.ceil(census.unfinished / self._cores))

    def _release(self, alive: list[WorkerJob], count: int, census: Census) -> None:
        busy = {job_number(self._token, name) for name, works in census.workers.items() if works}
        idle = [job for job in alive if job.number not in busy]
        # Those that still wait first: they have never been of use.
        idle.sort(key=lambda job: (bool(job.seen), -job.number))
        for job in idle[:count]:
            job.released = True
            self._queue.cancel([job.id])
        if idle:
            self._tell_once("the last blocks are in work: jobs without work are released")

    def _submit(self, now: float) -> bool:
        self._number += 1
        try:
            job = self._queue.submit(self._number)
        except RefusedError as refused:
            self._refused(refused, now)
            return False
        self.jobs[self._number] = WorkerJob(self._number, job, now)
        self.counts.submitted += 1
        return True

    def _refused(self, refused: RefusedError, now: float) -> None:
        if not refused.passing and not self.jobs:
            raise StudyError(f"the batch system refuses the job: {refused.words}")
        self._not_before = now + self._pause
        self._pause = min(2.0 * self._pause, LONGEST_PAUSE)
        alive = f"{len(self.jobs)} of {self._wanted} jobs are there"
        self._tell_once(f"no further job now: {refused.words} ({alive}; tried again later)")

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)
