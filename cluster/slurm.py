"""SLURM's commands: submitting, asking and cancelling, with its own words where it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eigensweep.cluster.jobqueue import RefusedError

PATIENCE = 60.0
"""Seconds that a command may take; a controller under load answers slowly."""
WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD"}
)
LIVE = WAITING | {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
"""States of a job that has not ended for good."""

_LIMITS = re.compile(r"submit\s?(job)?\s?limit|MaxSubmit|SubmitJob|MaxJobCount|MaxArraySize", re.IGNORECASE)
_BUSY = re.compile(
    r"temporarily|timed out|unable to contact|connection refused|resource unavailable|try again"
    r"|too many|rate limit|communication",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Found:
    """A job as the queue shows it.

    Parameters
    ----------
    state : str
        Its state, such as ``RUNNING``.
    reason : str
        Why it waits or ended, such as ``Priority``; may be empty.
    """

    state: str
    reason: str

    @property
    def live(self) -> bool:
        """Whether it has not ended for good."""
        return self.state in LIVE

    @property
    def waiting(self) -> bool:
        """Whether it has yet to start."""
        return self.state in WAITING

    def __str__(self) -> str:
        return f"{self.state}, {self.reason}" if self.reason not in ("", "None") else self.state


def submit(script: str, options: Sequence[str] = ()) -> str:
    """Submit a job.

    Parameters
    ----------
    script : str
        Its script.
    options : sequence of str
        More options of sbatch.

    Returns
    -------
    str
        Its id.

    Raises
    ------
    RefusedError
        If sbatch says no, with its words.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        done = _called(["sbatch", "--parsable", *options, file.name])
    # A federation adds its cluster's name: 123;cluster.
    number = done.stdout.strip().partition(";")[0]
    if done.returncode == 0 and number.isdigit():
        return number
    words = refusal(done.stderr) or done.stdout.strip() or f"exit code {done.returncode}"
    raise RefusedError(words, passes(words))


def refusal(text: str) -> str:
    r"""Reduce what sbatch wrote to what it said.

    Examples
    --------
    >>> refusal("sbatch: error: Batch job submission failed: Invalid partition name specified\n")
    'Batch job submission failed: Invalid partition name specified'
    """
    lines = [re.sub(r"^sbatch: (error: |fatal: )?", "", line).strip() for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def passes(words: str) -> bool:
    """Say whether a refusal may pass by waiting.

    Examples
    --------
    >>> passes("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)")
    True
    >>> passes("Invalid partition name specified")
    False
    """
    return bool(_LIMITS.search(words) or _BUSY.search(words))


def states(jobs: Iterable[str]) -> dict[str, Found] | None:
    """Ask for the states of jobs.

    Parameters
    ----------
    jobs : iterable of str
        Their ids.

    Returns
    -------
    dict of str to Found or None
        Those that the queue still knows, ended ones too for some minutes. None if it does not answer: then
        nothing is known, and nothing may be concluded.
    """
    wanted = set(jobs)
    if not wanted:
        return {}
    done = _called(["squeue", "--noheader", f"--user={os.geteuid()}", "--states=all", "--format=%A|%T|%r"])
    if done.returncode != 0:
        return None
    return {key: found for key, found in parse_states(done.stdout).items() if key in wanted}


def parse_states(text: str) -> dict[str, Found]:
    r"""Read squeue's lines of id, state and reason.

    Examples
    --------
    >>> parse_states("12|PENDING|Priority\n13|NODE_FAIL|None\n")["12"].waiting
    True
    """
    found = {}
    for line in text.splitlines():
        job, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if job:
            found[job] = Found(state, reason)
    return found


def cancel(jobs: Sequence[str], name: str = "") -> None:
    """Cancel jobs; those that have ended are no fault.

    Parameters
    ----------
    jobs : sequence of str
        Their ids.
    name : str
        If given, only those of that name: ids are used again after some years.
    """
    if jobs:
        _called(["scancel", "--quiet", *([f"--name={name}"] if name else []), *jobs])


def cancel_named(name: str) -> None:
    """Cancel all of this user's jobs of a name."""
    _called(["scancel", "--quiet", f"--user={os.geteuid()}", f"--name={name}"])


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """Environment of a job that is submitted from within another: without what describes that one.

    Parameters
    ----------
    outer : mapping
        The environment here.

    Returns
    -------
    dict
        Without the variables that would size the new job like the old.
    """
    keep = {"SLURM_CONF", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS"}
    ours = ("SLURM_", "SBATCH_", "SRUN_", "PMI_", "PMIX_")
    return {key: value for key, value in outer.items() if key in keep or not key.startswith(ours)}


def is_here() -> bool:
    """Say whether SLURM's commands can be found."""
    from shutil import which

    return which("sbatch") is not None and which("squeue") is not None


def tail(paths: Iterable[Path], lines: int = 15) -> str:
    """Last lines of logs, indented for a message; a note if there are none."""
    told = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        told += [f"    {line.rstrip()}" for line in text.splitlines() if line.strip()]
    return "\n".join(told[-lines:]) or "    (the log is empty or was never written)"


def _called(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment(os.environ),
            # Ctrl-C is for the driver to answer, and not to lose a job that is being submitted.
            start_new_session=True,
        )
    except FileNotFoundError:
        raise RefusedError(f"there is no {command[0]} on this machine", passing=False) from None
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} timed out after {PATIENCE:.0f} s")
