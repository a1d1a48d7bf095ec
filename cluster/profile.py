"""A profile: what a user says once about a cluster, read from a TOML file and checked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.grid import shown
from eigensweep.pipeline.sweepfile import missing, validate
from eigensweep.pipeline.tomlfile import key_lines, line_of, parse_toml, read_text

BATCH = ("slurm", "pbs", "sge", "lsf", "htcondor", "oar")
"""Batch systems to which worker jobs are submitted."""
KINDS = (*BATCH, "srun")
PREFIXES = {"slurm": "#SBATCH", "srun": "#SBATCH", "pbs": "#PBS", "sge": "#$", "lsf": "#BSUB", "oar": "#OAR"}
"""What a directive's line starts with; it is not written in a profile."""
MOST = 100_000
"""No profile asks for more jobs or cores: it would be a slip of the pen."""

_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_UNITS |= {f"{unit}iB": size for unit, size in _UNITS.items() if len(unit) == 1 and unit != "B"}
_UNITS |= {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_WALLTIME = re.compile(r"(?:([0-9]+)-)?([0-9]{1,4}):([0-5]?[0-9]):([0-5]?[0-9])")


class ProfileFile(BaseModel):
    """A profile's form: its keys and what they may hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: StrictStr = Field(description="Batch system, or srun: the tasks of this allocation.")
    jobs: StrictInt = Field(default=1, ge=1, le=MOST, description="Worker jobs kept alive; srun: tasks.")
    cores: StrictInt = Field(default=1, ge=1, le=MOST, description="Worker processes of a job, a core each.")
    memory: StrictStr = Field(default="", description="Memory of a job, shared by its worker processes.")
    walltime: StrictStr = Field(default="", description="Time limit of a job, HH:MM:SS.")
    partition: StrictStr = Field(default="", description="Partition or queue.")
    account: StrictStr = Field(default="", description="Account or project that is charged.")
    directives: list[StrictStr] = Field(default_factory=list, description="More options of the job.")
    prologue: list[StrictStr] = Field(default_factory=list, description="Shell lines before the workers.")
    python: StrictStr = Field(default="", description="Python of the workers; it may be a container's.")
    interface: StrictStr = Field(default="", description="Network interface of driver and workers.")
    local_directory: StrictStr = Field(default="${TMPDIR:-/tmp}", description="Scratch folder of a node.")
    log_directory: StrictStr = Field(default="logs", description="Where jobs write their logs.")


@dataclass(frozen=True)
class Profile:
    """A cluster, as its profile describes it.

    Parameters
    ----------
    kind : str
        Batch system (``slurm``, ``pbs``, ``sge``, ``lsf``, ``htcondor``, ``oar``), or ``srun``: the tasks of
        the allocation that the driver runs in.
    jobs : int
        Worker jobs that are kept alive; with ``srun`` the tasks, 0 for all of the allocation.
    cores : int
        Worker processes of a job, of one thread each.
    memory : int
        Bytes of a job, shared evenly by its worker processes; 0 if not said.
    seconds : int
        Time limit of a job; 0 if not said.
    partition, account : str
        Where a job goes and who is charged; empty for the site's defaults.
    directives, prologue : tuple of str
        More options of the job, and shell lines that run before its workers.
    python : str
        Command that starts Python.
    interface : str
        Network interface of the scheduler and the workers; empty for the default route's.
    local_directory : str
        Scratch folder, expanded on the node.
    log_directory : Path
        Absolute folder of the logs, on a filesystem that all nodes share.
    source : str
        The file that it was read from.
    """

    kind: str
    jobs: int
    cores: int
    memory: int
    seconds: int
    partition: str
    account: str
    directives: tuple[str, ...]
    prologue: tuple[str, ...]
    python: str
    interface: str
    local_directory: str
    log_directory: Path
    source: str = ""

    @property
    def walltime(self) -> str:
        """Time limit as ``HH:MM:SS``, with as many hours as it takes; empty if not said."""
        return clock(self.seconds) if self.seconds else ""

    @property
    def worker_memory(self) -> int:
        """Bytes that one worker process may use; 0 if not said."""
        return self.memory // self.cores


def read_profile(path: str | Path) -> Profile:
    """Read a profile.

    Parameters
    ----------
    path : str or Path
        TOML file.

    Returns
    -------
    Profile
        Checked. Its logs' folder is taken from the current one, where it is relative.

    Raises
    ------
    InputError
        With everything that is wrong in it, by line.
    """
    path = Path(path)
    text = read_text(path)
    lines = key_lines(text)
    try:
        return replace(profile_from(parse_toml(text, path)), source=str(path))
    except InputError as error:
        faults = [replace(fault, line=fault.line or line_of(lines, fault.thing)) for fault in error.faults]
        raise InputError(sorted(faults, key=lambda fault: fault.line or 0)) from None


def profile_from(table: Mapping[str, Any]) -> Profile:
    """Make a profile from its keys.

    Parameters
    ----------
    table : mapping
        What the TOML file holds.

    Returns
    -------
    Profile
        Checked.

    Raises
    ------
    InputError
        With everything that is wrong.

    Examples
    --------
    >>> profile = profile_from({"kind": "slurm", "cores": 8, "memory": "32GiB", "walltime": "1-00:00:00"})
    >>> profile.walltime, profile.worker_memory // 2**30
    ('24:00:00', 4)
    >>> profile_from({"kind": "slrum"})
    Traceback (most recent call last):
    eigensweep.pipeline.errors.InputError: kind = "slrum": there is no such kind; did you mean 'slurm'?
    """
    form, faults = validate(ProfileFile, table, "")
    kind = table.get("kind")
    if isinstance(kind, str) and kind not in KINDS:
        faults.append(Fault("kind", shown(kind), "there is no such kind", nearest(kind, KINDS)))
        kind = None
    if isinstance(kind, str):
        faults += _faults_of_kind(kind, table)
    faults += _faults_of_texts(table, PREFIXES.get(kind or "", ""))
    memory = _parsed("memory", table, parse_memory, faults)
    seconds = _parsed("walltime", table, parse_walltime, faults)
    if faults or form is None:
        raise InputError(dict.fromkeys(faults))
    return Profile(
        kind=form.kind,
        jobs=form.jobs if "jobs" in table or form.kind != "srun" else 0,
        cores=form.cores,
        memory=memory,
        seconds=seconds,
        partition=form.partition,
        account=form.account,
        directives=tuple(form.directives),
        prologue=tuple(form.prologue),
        python=form.python or sys.executable,
        interface=form.interface,
        local_directory=form.local_directory,
        log_directory=Path(form.log_directory).expanduser().absolute(),
    )


def parse_memory(text: str) -> int:
    """Read an amount of memory.

    Parameters
    ----------
    text : str
        A number with a unit, such as ``32GiB``, ``32G`` (the same) or ``32GB`` (10^9).

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    ValueError
        If it is none, or so little that no worker fits.

    Examples
    --------
    >>> parse_memory("1.5 GiB"), parse_memory("4000MB")
    (1610612736, 4000000000)
    """
    match = _MEMORY.fullmatch(text)
    if match is None or match.group(2) not in _UNITS or match.group(2) in ("", "B"):
        raise ValueError('it is no amount of memory; write a number and a unit, such as "32GiB"')
    size = int(float(match.group(1)) * _UNITS[match.group(2)])
    if not 2**27 <= size < 2**60:
        raise ValueError("no worker fits in that or no node has it; write at least 256MiB for each core")
    return size


def parse_walltime(text: str) -> int:
    """Read a time limit.

    Parameters
    ----------
    text : str
        ``HH:MM:SS`` or ``D-HH:MM:SS``.

    Returns
    -------
    int
        Seconds.

    Raises
    ------
    ValueError
        If it is none.

    Examples
    --------
    >>> parse_walltime("04:00:00"), parse_walltime("2-12:00:00")
    (14400, 216000)
    """
    match = _WALLTIME.fullmatch(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((24 * days + hours) * 60 + minutes) * 60 + seconds
    if total == 0:
        raise ValueError('it is no time limit; write hours, minutes and seconds, such as "04:00:00"')
    return total


def clock(seconds: int) -> str:
    """Write a time as ``HH:MM:SS``.

    Examples
    --------
    >>> clock(216000)
    '60:00:00'
    """
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _parsed(key: str, table: Mapping[str, Any], parse: Callable[[str], int], faults: list[Fault]) -> int:
    raw = table.get(key, "")
    if not isinstance(raw, str) or key not in table:
        return 0
    try:
        return parse(raw)
    except ValueError as error:
        reason, _, remedy = str(error).partition("; ")
        faults.append(Fault(key, shown(raw), reason, remedy))
        return 0


def _faults_of_kind(kind: str, table: Mapping[str, Any]) -> list[Fault]:
    needed = {"htcondor": ("memory",), "srun": ()}.get(kind, ("memory", "walltime"))
    faults = [missing(key) for key in needed if key not in table]
    if kind == "htcondor":
        # HTCondor has neither; its own attributes say the like.
        for key, instead in (("partition", "requirements"), ("account", "accounting_group")):
            if table.get(key):
                remedy = f"write it as a directive, such as '{instead} = ...'"
                faults.append(Fault(key, shown(table[key]), "htcondor knows no such thing", remedy))
        for line in _texts(table.get("directives")):
            if "=" not in line:
                faults.append(Fault("directives", shown(line), "it sets nothing", "write 'name = value'"))
    return faults


def _faults_of_texts(table: Mapping[str, Any], prefix: str) -> list[Fault]:
    """Faults of texts that go into a job script, where a blank or a new line would change its meaning."""
    faults = []
    for key in ("partition", "account", "interface", "local_directory", "log_directory"):
        text = table.get(key)
        if isinstance(text, str) and re.search(r"\s", text):
            faults.append(Fault(key, shown(text), "it holds a blank", "name one without"))
    for key in ("python", "directives", "prologue"):
        for text in _texts(table.get(key)):
            if "\n" in text:
                faults.append(Fault(key, shown(text), "it holds a line's end", "write one line for each"))
    for text in _texts(table.get("directives")):
        if prefix and text.lstrip().startswith(prefix.split()[0]):
            faults.append(Fault("directives", shown(text), f"it begins with {prefix}", "leave that out"))
    return faults


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
