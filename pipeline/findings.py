"""What a check of a cube found: damage, what is merely not there yet, and what lies about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.seeds import Value

LISTED = 1000
"""Columns that are not done and are listed one by one; the counts hold them all."""


@dataclass(frozen=True)
class Finding:
    """A piece of damage.

    Parameters
    ----------
    array : str
        The array that it is in, or ``zarr.json``.
    chunk : str
        The file within the array's folder.
    level : str
        The level; empty for coordinates and metadata.
    point : mapping
        The grid point; without the axes along which the damage extends.
    replicates : tuple of int
        The replicates that it spoils.
    problem : str
        What is wrong.
    remedy : str
        What to do about it.
    """

    array: str
    chunk: str
    level: str
    point: Mapping[str, Value]
    replicates: tuple[int, ...]
    problem: str
    remedy: str

    def __str__(self) -> str:
        where = ", ".join(f"{name}={value}" for name, value in self.point.items())
        who = f" ({self.level} level, {where}, {_ranges(self.replicates)})" if self.level else ""
        return f"{self.array}/{self.chunk}{who}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class Lacking:
    """A column that a sweep asks for and that is not done: information, not damage.

    Parameters
    ----------
    level : str
        Its level.
    point : mapping
        Its parameters.
    replicate : int
        Its replicate.
    status : int
        Its ``column_status``.
    unfinished : bool
        Whether some of it is stored: a run was stopped while it wrote the block.
    """

    level: str
    point: Mapping[str, Value]
    replicate: int
    status: int
    unfinished: bool


@dataclass
class Report:
    """What a check of a cube found.

    Parameters
    ----------
    cube : Path
        What was checked.
    packed : bool
        Whether it is a packed cube.
    arrays, chunks : int
        Arrays, and files of theirs, that were read.
    columns : int
        Columns that are done and were checked.
    recomputed : int
        Of these, how many were computed again from their seeds.
    rounded : int
        Comparisons that hold to 1e-10 and not in every bit: another machine computed the column.
    states : dict of str to (6,) array
        Columns that its sweeps ask for, by level and ``column_status``.
    short : int
        Columns that are done and lack signal strengths which the study has been given since.
    findings : list of Finding
        Damage.
    lacking : list of Lacking
        Columns that are not done, the first thousand of them.
    leftovers : list of Path
        Files that belong to nothing, left by writers that were killed.
    repaired : int
        Columns that were marked pending, so that the next run computes them again.
    elsewhere : int
        Of these, how many the last sweep does not ask for: an earlier sweep file brings them back.
    """

    cube: Path
    packed: bool
    arrays: int = 0
    chunks: int = 0
    columns: int = 0
    recomputed: int = 0
    rounded: int = 0
    states: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    short: int = 0
    findings: list[Finding] = field(default_factory=list)
    lacking: list[Lacking] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    repaired: int = 0
    elsewhere: int = 0

    @property
    def sound(self) -> bool:
        """Whether no damage was found."""
        return not self.findings


def _ranges(numbers: tuple[int, ...]) -> str:
    """Write replicates for a human."""
    if len(numbers) == 1:
        return f"replicate {numbers[0]}"
    if numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"replicates {numbers[0]} to {numbers[-1]}"
    return "replicates " + ", ".join(map(str, numbers))
