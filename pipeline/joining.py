"""Joining columns of several cubes of one sweep: equal where they meet, whole at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import Fault, InputError, StudyError
from eigensweep.pipeline.evidence import (
    Difference,
    Stacked,
    compare_columns,
    compare_pairs,
    dimension,
    receipt_holds,
    restored,
)
from eigensweep.pipeline.kernel import Recipe, digest, pair_parts
from eigensweep.pipeline.recovery import point_at
from eigensweep.pipeline.schema import DONE, PENDING, level_variables
from eigensweep.pipeline.stored import Stored
from eigensweep.pipeline.tiling import Region

PAIRS = ("eigenvalue", "overlap")
CHECK = "eigensweep verify it"


@dataclass(frozen=True)
class Source:
    """A cube that is joined with others.

    Parameters
    ----------
    stored : Stored
        The cube.
    layout : Layout
        Its axes in storage order.
    """

    stored: Stored
    layout: Layout

    @property
    def name(self) -> str:
        """What the user calls it."""
        return str(self.stored.folder or self.stored.path)


@dataclass
class Tally:
    """How the cubes that are joined compare.

    Parameters
    ----------
    columns : int
        Columns that are done in any of them.
    shared : int
        Columns that are done in more than one.
    rounded : int
        Of these, how many agree to 1e-10 and not bit for bit: another machine computed them.
    """

    columns: int = 0
    shared: int = 0
    rounded: int = 0


class Joiner:
    """Joins the columns of a level.

    Parameters
    ----------
    sources : sequence of Source
        The cubes, of sweeps that don't contradict each other. Where several hold a column, the first one's
        is kept.
    level : Level
        The level.
    layout : Layout
        The joined axes.
    recipe : Recipe
        What the columns depend on, on the joined axes.
    tally : Tally
        Where the comparison is counted.
    """

    def __init__(
        self, sources: Sequence[Source], level: Level, layout: Layout, recipe: Recipe, tally: Tally
    ) -> None:
        self._sources, self._level, self._layout, self._recipe = sources, level, layout, recipe
        self._tally = tally
        self._variables = level_variables(level, layout.signal, recipe.columns)
        places = {value: i for i, value in enumerate(layout.signal_values)}
        self._signals = [
            np.array([places[v] for v in source.layout.signal_values], dtype=np.intp) for source in sources
        ]

    def join(self, region: Region) -> dict[str, NDArray[Any]]:
        """Join a region.

        Parameters
        ----------
        region : tuple of slice
            Along the column's dimensions of the joined cube.

        Returns
        -------
        dict of str to array
            By role, over the region: what is done anywhere, with every signal strength filled.

        Raises
        ------
        InputError
            If two cubes differ in a column, or a column lacks signal strengths that can't be derived.
        StudyError
            If a cube is damaged.
        """
        shape = tuple(part.stop - part.start for part in region)
        arrays: dict[str, NDArray[Any]] = {}
        for role, variable in self._variables.items():
            trailing = tuple(self._layout.size(dim) for dim in variable.dims[len(shape) :])
            arrays[role] = np.full(shape + trailing, variable.fill, dtype=variable.dtype)
        filled = np.zeros((*shape, len(self._layout.signal_values)), dtype=bool)
        owner = np.zeros(shape, dtype=np.int32)
        for number in range(len(self._sources)):
            self._merge(number, region, arrays, filled, owner)
        for place in np.argwhere(arrays["column_status"] == DONE):
            self._complete(region, tuple(place), arrays, filled)
        return arrays

    def _merge(
        self,
        number: int,
        region: Region,
        arrays: Mapping[str, NDArray[Any]],
        filled: NDArray[np.bool_],
        owner: NDArray[np.int32],
    ) -> None:
        """Add what one cube holds of a region."""
        source = self._sources[number]
        targets, origins = self._overlap(source.layout, region)
        if any(len(places) == 0 for places in targets):
            return
        names = source.stored.roles(self._level)
        held = {role: source.stored.take(name, origins) for role, name in names.items()}
        for place in np.argwhere(held["column_status"] != PENDING):
            at = tuple(int(places[i]) for places, i in zip(targets, place, strict=True))
            parts = {role: array[tuple(place)] for role, array in held.items()}
            if parts["column_status"] != DONE:
                if arrays["column_status"][at] == PENDING:
                    arrays["column_status"][at] = parts["column_status"]
                continue
            self._refuse_damaged(source, region, at, parts)
            if arrays["column_status"][at] == DONE:
                self._compare(number, int(owner[at]), region, at, parts, arrays, filled)
            else:
                owner[at] = number
                self._tally.columns += 1
                for role in set(arrays) - set(PAIRS):
                    # A source of smaller matrices has fewer modes.
                    corner: Any = (*at, *(slice(0, size) for size in np.shape(parts[role])))
                    arrays[role][corner] = parts[role]
            self._place_pairs(number, at, parts, arrays, filled)

    def _overlap(
        self, layout: Layout, region: Region
    ) -> tuple[list[NDArray[np.intp]], list[NDArray[np.intp]]]:
        """Say which places of a region a cube has, and where it keeps them."""
        targets, origins = [], []
        for axis, part in zip(self._level.axes, region, strict=False):
            where = {value: i for i, value in enumerate(layout.axes[axis])}
            shared = [(i, where[v]) for i, v in enumerate(self._layout.axes[axis][part]) if v in where]
            targets.append(np.array([i for i, _ in shared], dtype=np.intp))
            origins.append(np.array([i for _, i in shared], dtype=np.intp))
        part = region[-1]
        replicates = np.arange(part.start, min(part.stop, layout.replicates), dtype=np.intp)
        return [*targets, replicates - part.start], [*origins, replicates]

    def _place_pairs(
        self,
        number: int,
        at: tuple[int, ...],
        parts: Stacked,
        arrays: Mapping[str, NDArray[Any]],
        filled: NDArray[np.bool_],
    ) -> None:
        stored = self._signals[number][: int(parts["column_rho_count"])]
        new = ~filled[at][stored]
        for role in PAIRS:
            arrays[role][at][stored[new]] = parts[role][: stored.size][new]
        filled[at][stored] = True

    def _compare(
        self,
        number: int,
        first: int,
        region: Region,
        at: tuple[int, ...],
        parts: Stacked,
        arrays: Mapping[str, NDArray[Any]],
        filled: NDArray[np.bool_],
    ) -> None:
        """Compare a column with that of an earlier cube."""
        point, replicate = self._where(region, at)
        d = dimension(self._recipe, point)
        mine = {role: array[at] for role, array in arrays.items()}
        stored = self._signals[number][: int(parts["column_rho_count"])]
        common = filled[at][stored]
        differences = [
            compare_pairs(
                {role: mine[role][stored[common]] for role in PAIRS},
                {role: parts[role][: stored.size][common] for role in PAIRS},
                d,
            )
        ]
        if self._recipe.columns:
            differences.append(compare_columns(restored(mine, d), restored(parts, d)))
        worst = max(differences, key=lambda difference: difference.size)
        if not worst.tolerable:
            self._refuse(self._sources[first], self._sources[number], point, replicate, worst)
        self._tally.shared += 1
        self._tally.rounded += not all(difference.same_bits for difference in differences)

    def _complete(
        self,
        region: Region,
        at: tuple[int, ...],
        arrays: Mapping[str, NDArray[Any]],
        filled: NDArray[np.bool_],
    ) -> None:
        """Fill the signal strengths that no cube holds of a column, from the column itself."""
        point, replicate = self._where(region, at)
        missing = ~filled[at]
        if missing.any():
            if not self._recipe.columns:
                values = [v for v, gone in zip(self._layout.signal_values, missing, strict=True) if gone]
                reason = f"it is done, but not at {self._layout.signal} = {', '.join(map(str, values[:5]))}"
                remedy = "run the sweep to its end on the study that holds it, then pack"
                raise InputError(Fault(self._describe(point, replicate), "", reason, remedy))
            column = restored({role: a[at] for role, a in arrays.items()}, dimension(self._recipe, point))
            rho = self._recipe.rho(point)[missing]
            pairs = column.eigenpairs(rho, self._recipe.top)
            for role, found in zip(PAIRS, pairs, strict=True):
                arrays[role][at][missing] = found
        arrays["column_rho_count"][at] = missing.size
        if not self._recipe.columns:
            numbers = pair_parts(self._recipe, *(arrays[role][at] for role in PAIRS))
            arrays["column_digest"][at] = digest(self._level.name, point, replicate, numbers)

    def _refuse_damaged(self, source: Source, region: Region, at: tuple[int, ...], parts: Stacked) -> None:
        point, replicate = self._where(region, at)
        # A receipt without columns depends on the order in which the source stores its signal.
        recipe = replace(self._recipe, signal_values=source.layout.signal_values)
        if not receipt_holds(recipe, self._level.name, point, replicate, parts):
            raise StudyError(
                f"{source.name}: the digest of the {self._describe(point, replicate)} does not belong to its "
                f"numbers; {CHECK}"
            )

    def _refuse(
        self, first: Source, second: Source, point: Mapping[str, Any], replicate: int, worst: Difference
    ) -> None:
        by = f"by up to {worst.size:.1e}" if np.isfinite(worst.size) else "in what is there at all"
        reason = f"{first.name} and {second.name} differ in its {worst.array} {by}"
        remedy = "run eigensweep verify on both, and pack what holds"
        raise InputError(Fault(self._describe(point, replicate), "", reason, remedy))

    def _where(self, region: Region, at: tuple[int, ...]) -> tuple[dict[str, Any], int]:
        index = [part.start + i for part, i in zip(region, at, strict=True)]
        return point_at(self._level, self._layout, index), int(index[-1])

    def _describe(self, point: Mapping[str, Any], replicate: int) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in point.items())
        return f"{self._level.name} column at {shown}, replicate {replicate}"
