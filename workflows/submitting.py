"""``eigensweep submit``: the driver as a SLURM job of its own, and a successor until the sweep is done.

A driver submits its successor before it begins, to start when it has ended for whatever reason: a walltime, a
node that fails, a kill. A driver that comes to an end of its own, good or bad, cancels its successor.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import Fault, InputError, StudyError
from eigensweep.workflows import catalog, console

if TYPE_CHECKING:
    from eigensweep.cluster.profile import Profile

FRUITLESS = 3
"""Drivers in a row that finish no column; there is no further one."""
MEMORY = "2G"
"""Memory of a driver: scheduler, client and a window of tasks, whatever the sweep's size."""
WARNING = 120
"""Seconds before its walltime at which a driver is told to end, a tenth of it if that is less."""


@dataclass(frozen=True)
class Chain:
    """What a driver job has to know.

    Parameters
    ----------
    sweep : str
        The sweep, as the command line takes it, by its absolute path where it is a file.
    study : Path
        Absolute folder of the study.
    cluster : Path
        Absolute path of the profile.
    fruitless : int
        Drivers in a row, up to the one before, that finished no column.
    done : int
        Columns that were done when the one before began; -1 for the first.
    """

    sweep: str
    study: Path
    cluster: Path
    fruitless: int = 0
    done: int = -1

    @property
    def name(self) -> str:
        """Name of all its jobs: the study's, and what tells it from another of that name elsewhere."""
        digest = hashlib.sha256(str(self.study).encode()).hexdigest()[:6]
        return f"eigensweep-{re.sub(r'[^A-Za-z0-9._-]', '_', self.study.name)}-{digest}"

    def after(self, done: int) -> Chain:
        """Return what the driver is told that begins when so many columns are done.

        Examples
        --------
        >>> chain = Chain("s.toml", Path("/s"), Path("/p.toml")).after(0).after(0)
        >>> chain.fruitless, chain.after(5).fruitless
        (1, 0)
        """
        return replace(self, fruitless=self.fruitless + 1 if done <= self.done else 0, done=done)


def submit(written: str, study: Path | None, cluster: str, as_json: bool) -> None:
    """Submit a driver and say how to watch and cancel it."""
    from eigensweep.cluster import slurm
    from eigensweep.cluster.jobqueue import RefusedError
    from eigensweep.cluster.profile import read_profile
    from eigensweep.pipeline.preparation import check

    profile = read_profile(cluster)
    _check(profile, cluster)
    sweep, folder = catalog.resolve(written, study)
    check(sweep, folder)
    path = Path(written)
    chain = Chain(
        str(path.absolute()) if path.exists() else written, folder.absolute(), Path(cluster).absolute()
    )
    profile.log_directory.mkdir(parents=True, exist_ok=True)
    try:
        job = slurm.submit(driver_script(profile, chain))
    except RefusedError as refused:
        raise StudyError(f"SLURM refuses the driver's job: {refused.words}") from None
    log, cancel = profile.log_directory / f"{chain.name}-{job}.log", f"scancel --name={chain.name}"
    if as_json:
        told = {"job": job, "name": chain.name, "study": chain.study, "log": log, "cancel": cancel}
        console.print_json(told)
        return
    print(f"job {job} drives {sweep.name}")
    print(f"  watch:  eigensweep status {folder}")
    print(f"          tail -f {log}")
    print(f"  cancel: {cancel}")


def driver_script(profile: Profile, chain: Chain) -> str:
    """Write the script of a driver job.

    Parameters
    ----------
    profile : Profile
        The cluster, of kind ``slurm`` or ``srun``: with the latter the job holds the workers too.
    chain : Chain
        What the driver has to know.

    Returns
    -------
    str
        The script.
    """
    if profile.kind == "srun":
        share = max(1, profile.worker_memory // 2**20)
        size = [f"-n {profile.jobs}", f"--cpus-per-task={profile.cores}", f"--mem-per-cpu={share}M"]
    else:
        size = ["-n 1", "--cpus-per-task=1", f"--mem={MEMORY}"]
    options = [f"-J {chain.name}", f"-o {profile.log_directory}/{chain.name}-%j.log", *size]
    options += [f"-t {profile.walltime}", *([f"-p {profile.partition}"] if profile.partition else [])]
    options += [f"-A {profile.account}"] if profile.account else []
    # Requeued, it would wait for minutes; its successor does not.
    options += ["--no-requeue", f"--signal=B:TERM@{min(WARNING, max(1, profile.seconds // 10))}"]
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH {option}" for option in (*options, *profile.directives))]
    # Python takes the place of the shell, which would not pass the signal on.
    command = f"exec {profile.python} -m eigensweep.workflows.submitting"
    return "\n".join([*lines, *profile.prologue, f"{command} {shlex.join(_arguments(chain))}", ""])


def drive(chain: Chain) -> int:
    """Do what a driver job does.

    Parameters
    ----------
    chain : Chain
        What it has to know.

    Returns
    -------
    int
        The exit code of the command line.
    """
    from eigensweep.cluster import slurm
    from eigensweep.cluster.profile import read_profile

    chain = chain.after(_columns_done(chain.study))
    if chain.fruitless >= FRUITLESS:
        console.say(
            f"eigensweep: {FRUITLESS} drivers in a row finished no column: there is no further one; see "
            "their logs, and give jobs a walltime that the longest column fits in"
        )
        return console.WRONG_INPUT
    profile = read_profile(chain.cluster)
    successor = _succeed(profile, chain)
    _wait_for_lock(chain.study)
    code = _run(chain)
    if code == console.INTERRUPTED:
        successor = successor or _succeed(profile, chain)
        console.say(f"eigensweep: job {successor} goes on" if successor else "eigensweep: no job goes on")
    elif successor:
        slurm.cancel([successor], chain.name)
    return code


def _check(profile: Profile, cluster: str) -> None:
    if profile.kind not in ("slurm", "srun"):
        reason = "eigensweep submits its driver to SLURM only"
        remedy = f"put eigensweep run --cluster {cluster} into a job of your own"
        raise InputError(Fault("kind", f'"{profile.kind}"', reason, remedy))
    needed = {"walltime": profile.seconds, "memory": profile.memory, "jobs": profile.jobs}
    lacking = [key for key, value in needed.items() if not value]
    if lacking:
        raise InputError(
            Fault(key, "", "it is missing", f"add {key}, the job's own size is made of it") for key in lacking
        )


def _succeed(profile: Profile, chain: Chain) -> str | None:
    """Submit the driver that follows this one; None if SLURM refuses it now."""
    from eigensweep.cluster import slurm
    from eigensweep.cluster.jobqueue import RefusedError

    own = os.environ.get("SLURM_JOB_ID")
    after = [f"--dependency=afterany:{own}"] if own else []
    try:
        return slurm.submit(driver_script(profile, chain), after)
    except RefusedError as refused:
        console.say(f"eigensweep: no successor now: {refused.words}")
        return None


def _run(chain: Chain) -> int:
    """Run the sweep as the command line does and return its exit code."""
    from eigensweep.workflows import running

    options = running.Options(
        cluster=str(chain.cluster),
        workers=None,
        retry=False,
        share="",
        quick=False,
        figures=True,
        as_json=False,
    )
    try:
        with console.reporting():
            running.run(chain.sweep, chain.study, options)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else console.WRONG_INPUT
    return console.DONE


def _columns_done(study: Path) -> int:
    from eigensweep.pipeline.schema import PENDING
    from eigensweep.pipeline.study import CUBE, load

    if not (study / CUBE).exists():
        return 0
    return sum(int(counts.sum() - counts[PENDING]) for counts in load(study).tally().values())


def _wait_for_lock(study: Path) -> None:
    """Give a predecessor that was killed on another node the time to count as dead."""
    from eigensweep.pipeline import lock
    from eigensweep.pipeline.study import LOCK

    end = time.monotonic() + lock.STALE + 30.0
    while time.monotonic() < end:
        holder = lock.read(study / LOCK)
        if holder is None or not lock.is_alive(study / LOCK, holder):
            return
        time.sleep(1.0)


def _arguments(chain: Chain) -> list[str]:
    named = {"--sweep": chain.sweep, "--study": chain.study, "--cluster": chain.cluster}
    counted = {"--fruitless": chain.fruitless, "--done": chain.done}
    return [f"{name}={value}" for name, value in {**named, **counted}.items()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as a driver job: ``python -m eigensweep.workflows.submitting``."""
    parser = argparse.ArgumentParser(prog="eigensweep.workflows.submitting", description="A driver job.")
    parser.add_argument("--sweep", required=True)
    parser.add_argument("--study", required=True, type=Path)
    parser.add_argument("--cluster", required=True, type=Path)
    parser.add_argument("--fruitless", default=0, type=int)
    parser.add_argument("--done", default=-1, type=int)
    found = parser.parse_args(arguments)
    chain = Chain(found.sweep, found.study, found.cluster, found.fruitless, found.done)
    code = console.WRONG_INPUT
    with contextlib.ExitStack() as stack:
        stack.enter_context(console.reporting())
        code = drive(chain)
    console.leave(code)


if __name__ == "__main__":
    main()
