"""Checking a level of a cube: every chunk read, every column against its receipt, its pairs and its seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.evidence import (
    MODE_ROLES,
    Difference,
    Stacked,
    compare_columns,
    compare_pairs,
    dimension,
    receipt_holds,
    restored,
)
from eigensweep.pipeline.findings import LISTED, Finding, Lacking, Report
from eigensweep.pipeline.kernel import Recipe
from eigensweep.pipeline.recovery import asked_columns, point_at
from eigensweep.pipeline.schema import DONE, PENDING, STATUS_NAMES, Names
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.stored import Broken, Stored
from eigensweep.pipeline.tiling import Region, chunk_name

TILE = 1 << 25
"""Bytes that are read at a time."""

Place = tuple[int, ...]


@dataclass
class Inspector:
    """Checks a level of a cube and writes what it finds into a report.

    Parameters
    ----------
    stored : Stored
        The cube.
    level : Level
        The level.
    layout : Layout
        The axes as the columns were computed.
    recipe : Recipe
        What the columns depend on.
    report : Report
        Where findings go.
    """

    stored: Stored
    level: Level
    layout: Layout
    recipe: Recipe
    report: Report
    good: NDArray[np.bool_] = field(init=False)
    _groups: dict[tuple[str, str, Place, str], tuple[list[int], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.good = np.zeros(self.stored.shape(self.level), dtype=bool)

    def inspect(self, watch: Callable[[int], None]) -> None:
        """Check every chunk and every column that is done.

        Parameters
        ----------
        watch : callable
            Told how many columns, done or not, are behind.
        """
        layout = self.layout
        width = 8 * (2 * len(layout.signal_values) * layout.top + 3 * layout.modes * self.recipe.columns + 4)
        asked = asked_columns(self.stored, self.level, layout, self.stored.sweeps)
        counts = np.zeros(len(STATUS_NAMES), dtype=np.int64)
        for region in self.stored.tiles(self.level, max(1, TILE // width)):
            arrays, lost = self._load(region)
            self._check_states(region, arrays, lost)
            self._check_columns(region, arrays, lost)
            status = arrays["column_status"]
            counts += np.bincount(status[asked[region] & (status < counts.size)], minlength=counts.size)
            self._list_lacking(region, arrays, asked[region])
            watch(math.prod(part.stop - part.start for part in region))
        self.report.states[self.level.name] = counts
        self._flush()

    def recompute(self, index: Place) -> None:
        """Compute a column again from its seed and compare.

        Parameters
        ----------
        index : tuple of int
            Where it is stored.
        """
        point, replicate = point_at(self.level, self.layout, index), index[-1]
        region = tuple(slice(i, i + 1) for i in index)
        parts = {
            role: self.stored.load(name, region)[0][(0,) * len(index)]
            for role, name in self.stored.roles(self.level).items()
        }
        self.report.recomputed += 1
        try:
            column = self.recipe.ensemble.column(self.level.name, point, self.recipe.seed, replicate)
        except Exception as error:
            # It was computed once: whatever stops it now is as telling as a wrong number.
            self._group("column_digest", index, f"its seed does not give it: {type(error).__name__}: {error}")
        else:
            if self.recipe.columns:
                difference = compare_columns(column, restored(parts, dimension(self.recipe, point)))
            else:
                difference = self._pairs_differ(column.eigenpairs, parts, point)
            self._judge(index, difference, "it is not what its seed gives")
        self._flush()

    def _load(self, region: Region) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        arrays = {}
        lost = np.zeros([part.stop - part.start for part in region], dtype=bool)
        for role, name in self.stored.roles(self.level).items():
            arrays[role], broken = self.stored.load(name, region)
            for piece in broken:
                self._note_broken(name, piece)
                cut = zip(piece.region, region, strict=False)
                lost[tuple(slice(p.start - r.start, p.stop - r.start) for p, r in cut)] = True
        return arrays, lost

    def _note_broken(self, name: str, piece: Broken) -> None:
        *axes, replicates = piece.region[: len(self.level.axes) + 1]
        point = {
            axis: self.layout.axes[axis][part.start]
            for axis, part in zip(self.level.axes, axes, strict=True)
            if part.stop - part.start == 1
        }
        problem = f"it can't be read ({piece.reason})"
        self._add(name, piece.chunk, point, range(replicates.start, replicates.stop), problem)

    def _check_states(
        self, region: Region, arrays: Mapping[str, NDArray[Any]], lost: NDArray[np.bool_]
    ) -> None:
        """Find states that contradict what is stored."""
        status, held = arrays["column_status"], arrays["column_digest"] != 0
        contradicts = (status > DONE) & held
        if self.stored.packed:
            # A packed cube is there whole or not at all: nothing in it can be half written.
            held |= np.isfinite(arrays["eigenvalue"]).any(axis=(-2, -1))
            contradicts |= (status == PENDING) & held
        for place in np.argwhere(contradicts & ~lost & (status < len(STATUS_NAMES))):
            said = STATUS_NAMES[int(status[tuple(place)])]
            self._group(
                "column_status", _absolute(region, place), f"it says {said} of a column that is stored"
            )
        for place in np.argwhere(~lost & (status >= len(STATUS_NAMES))):
            self._group("column_status", _absolute(region, place), "it is no state of a column")

    def _check_columns(
        self, region: Region, arrays: Mapping[str, NDArray[Any]], lost: NDArray[np.bool_]
    ) -> None:
        for place in np.argwhere((arrays["column_status"] == DONE) & ~lost):
            index = _absolute(region, place)
            parts = {role: array[tuple(place)] for role, array in arrays.items()}
            self.report.columns += 1
            self.report.short += int(parts["column_rho_count"]) < len(self.layout.signal_values)
            self.good[index] = self._check_column(index, parts)

    def _check_column(self, index: Place, parts: Stacked) -> bool:
        point = point_at(self.level, self.layout, index)
        gap = self._gap(parts, dimension(self.recipe, point))
        if gap is not None:
            self._group(gap[0], index, gap[1])
            return False
        if not receipt_holds(self.recipe, self.level.name, point, index[-1], parts):
            covered = (*MODE_ROLES, "signal_amplitude") if self.recipe.columns else ("eigenvalue", "overlap")
            names = ", ".join(Names(self.level)[role] for role in covered)
            self._group(
                "column_digest", index, f"it does not belong to the column: it or one of {names} changed"
            )
            return False
        if not self.recipe.columns:
            return True
        column = restored(parts, dimension(self.recipe, point))
        difference = self._pairs_differ(column.eigenpairs, parts, point)
        return self._judge(index, difference, "it is not what the stored column gives")

    def _gap(self, parts: Stacked, d: int) -> tuple[str, str] | None:
        """Name an array of a done column that lacks numbers, or has some where none belong."""
        count = int(parts["column_rho_count"])
        if not 1 <= count <= len(self.recipe.signal_values):
            return "column_rho_count", f"it is {count} of {len(self.recipe.signal_values)}"
        expected = {role: parts[role][:count, :d] for role in ("eigenvalue", "overlap")}
        if self.recipe.columns:
            expected |= {role: parts[role][:d] for role in MODE_ROLES}
            expected["signal_amplitude"] = parts["signal_amplitude"]
        expected["seconds"] = parts["seconds"]
        for role, numbers in expected.items():
            if not np.isfinite(numbers).all():
                return role, "numbers are missing where the status says done"
        if parts["column_digest"] == 0:
            return "column_digest", "numbers are missing where the status says done"
        for role in MODE_ROLES if self.recipe.columns else ():
            if not np.isnan(parts[role][d:]).all():
                return role, f"it has numbers beyond the matrix's size {d}"
        return None

    def _pairs_differ(self, eigenpairs: Any, parts: Stacked, point: Mapping[str, Value]) -> Difference:
        count = int(parts["column_rho_count"])
        value, overlap = eigenpairs(self.recipe.rho(point)[:count], self.recipe.top)
        stored = {role: parts[role][:count] for role in ("eigenvalue", "overlap")}
        return compare_pairs({"eigenvalue": value, "overlap": overlap}, stored, dimension(self.recipe, point))

    def _judge(self, index: Place, difference: Difference, problem: str) -> bool:
        if not difference.tolerable:
            self._group(difference.array, index, problem, difference.size)
            return False
        self.report.rounded += not difference.same_bits
        return True

    def _list_lacking(
        self, region: Region, arrays: Mapping[str, NDArray[Any]], asked: NDArray[np.bool_]
    ) -> None:
        status = arrays["column_status"]
        for place in np.argwhere(asked & (status != DONE)):
            if len(self.report.lacking) >= LISTED:
                return
            index, where = _absolute(region, place), tuple(place)
            point = point_at(self.level, self.layout, index)
            unfinished = bool(arrays["column_digest"][where] != 0)
            self.report.lacking.append(
                Lacking(self.level.name, point, index[-1], int(status[where]), unfinished)
            )

    def _group(self, role: str, index: Place, problem: str, size: float = 0.0) -> None:
        """Hold damage of a column until that of its neighbours in the chunk is known."""
        key = (role, self._chunk(role, index), index[:-1], problem)
        replicates, worst = self._groups.get(key, ([], 0.0))
        self._groups[key] = ([*replicates, index[-1]], max(worst, size))

    def _flush(self) -> None:
        for (role, chunk, place, problem), (replicates, size) in self._groups.items():
            name = Names(self.level)[role]
            gone = not (self.stored.path / name / chunk).exists()
            by = f" (off by up to {size:.1e})" if size else ""
            text = "the chunk is missing where the status says done" if gone else problem + by
            self._add(name, chunk, point_at(self.level, self.layout, place), replicates, text)
        self._groups.clear()

    def _chunk(self, role: str, index: Place) -> str:
        array = self.stored.array(Names(self.level)[role])
        rest = array.ndim - len(index)
        return chunk_name(array, tuple(slice(i, i + 1) for i in (*index, *(0,) * rest)))

    def _add(
        self, name: str, chunk: str, point: Mapping[str, Value], replicates: Sequence[int], problem: str
    ) -> None:
        finding = Finding(
            name, chunk, self.level.name, point, tuple(replicates), problem, remedy_of(self.stored)
        )
        self.report.findings.append(finding)


def remedy_of(stored: Stored) -> str:
    """Say what to do about damage."""
    if stored.packed:
        return "restore the file from a copy, or pack the studies again"
    return f"eigensweep verify {stored.folder} --repair, then run the sweep again"


def _absolute(region: Region, place: Iterable[int]) -> Place:
    return tuple(int(part.start + i) for part, i in zip(region, place, strict=True))
