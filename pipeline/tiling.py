"""Cutting arrays into regions of whole chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zarr

Region = tuple[slice, ...]


def fit(sizes: Sequence[int], unit: Sequence[int], count: float) -> tuple[int, ...]:
    """Choose the largest box of whole units that holds about a number of cells, last axes first.

    Parameters
    ----------
    sizes : sequence of int
        Lengths of the axes.
    unit : sequence of int
        Lengths of a unit.
    count : float
        Cells in a box; one unit is the least.

    Returns
    -------
    tuple of int
        Lengths of a box. An axis that is not taken whole is cut into parts as equal as can be.

    Examples
    --------
    >>> fit((6, 5, 10), (1, 1, 4), 50), fit((6, 5, 10), (1, 1, 4), 130), fit((6, 5, 10), (1, 1, 4), 1)
    ((1, 3, 12), (2, 5, 12), (1, 1, 4))
    """
    box = list(unit)
    for axis in reversed(range(len(box))):
        units = max(1, int(count // math.prod(box)))
        needed = math.ceil(sizes[axis] / unit[axis])
        parts = math.ceil(needed / units)
        box[axis] = unit[axis] * math.ceil(needed / parts)
        if parts > 1:
            break
    return tuple(box)


def pieces(region: Region, lengths: Sequence[int]) -> Iterator[Region]:
    """Cut a region where the chunks of a grid end.

    Parameters
    ----------
    region : tuple of slice
        The region.
    lengths : sequence of int
        Lengths of the grid's chunks.

    Yields
    ------
    tuple of slice
        Its part in each chunk that it touches.

    Examples
    --------
    >>> [(p[0].start, p[0].stop) for p in pieces((slice(1, 8),), (3,))]
    [(1, 3), (3, 6), (6, 8)]
    """
    cuts = []
    for part, length in zip(region, lengths, strict=True):
        starts = range(part.start // length * length, part.stop, length)
        cuts.append([slice(max(part.start, s), min(part.stop, s + length)) for s in starts])
    yield from itertools.product(*cuts)


def chunk_name(array: zarr.Array[Any], region: Region) -> str:
    """Name the file in which a region of an array begins."""
    lengths = array.shards or array.chunks
    return ".".join(["c", *(str(part.start // size) for part, size in zip(region, lengths, strict=True))])
