"""Which cells belong together: the study's axes as stored, and the blocks that one writer owns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.schema import Signal
from eigensweep.pipeline.seeds import Value

T = TypeVar("T")

RUN_WORK = 1e9
"""Replicates in a chunk times d cubed stays near this: about a second of work at d = 1000."""
LONGEST_RUN = 64
SIGNAL_CHUNK = 256
"""Least length of a chunk along the signal, so that rho values added later fit in without new files."""


@dataclass(frozen=True)
class Layout:
    """The axes of a study as they are stored: in the order in which values came, never reordered.

    Parameters
    ----------
    axes : mapping of str to tuple of Value
        Values of each of the ensemble's axes.
    signal : {"rho", "mu2"}
        The signal dimension.
    signal_values : tuple of float
        Its values.
    replicates : int
        Length of the replicate axis.
    run : int
        Replicates in a chunk; fixed when the study is made.
    signal_chunk : int
        Signal values in a chunk; fixed when the study is made.
    top : int
        Leading eigenpairs kept.
    modes : int
        Length of the mode axis: the largest d.
    """

    axes: Mapping[str, tuple[Value, ...]]
    signal: Signal
    signal_values: tuple[float, ...]
    replicates: int
    run: int
    signal_chunk: int
    top: int
    modes: int

    def grown(self, other: Layout) -> Layout:
        """Add another layout's values that are not there yet, behind those that are.

        Parameters
        ----------
        other : Layout
            What is asked now.

        Returns
        -------
        Layout
            The union, with this one's chunks.
        """
        return Layout(
            axes={name: _union(values, other.axes[name]) for name, values in self.axes.items()},
            signal=self.signal,
            signal_values=_union(self.signal_values, other.signal_values),
            replicates=max(self.replicates, other.replicates),
            run=self.run,
            signal_chunk=self.signal_chunk,
            top=self.top,
            modes=max(self.modes, other.modes),
        )

    def size(self, dim: str) -> int:
        """Length of a dimension of the cube."""
        fixed = {
            "replicate": self.replicates,
            self.signal: len(self.signal_values),
            "top": self.top,
            "mode": self.modes,
        }
        return fixed[dim] if dim in fixed else len(self.axes[dim])


def fresh_layout(
    axes: Mapping[str, Sequence[Value]],
    signal: Signal,
    signal_values: Sequence[float],
    replicates: int,
    top: int,
) -> Layout:
    """Lay out a new study.

    Parameters
    ----------
    axes : mapping of str to sequence of Value
        Values of the ensemble's axes; the first axis is d.
    signal : {"rho", "mu2"}
        The signal dimension.
    signal_values : sequence of float
        Its values.
    replicates : int
        Length of the replicate axis.
    top : int
        Leading eigenpairs kept.

    Returns
    -------
    Layout
        With a run of replicates that keeps a block of the largest d near a second of work, and the runs
        of equal length as far as can be.
    """
    largest = max(int(size) for size in next(iter(axes.values())))
    longest = max(1, min(LONGEST_RUN, round(RUN_WORK / largest**3)))
    runs = math.ceil(replicates / longest)
    return Layout(
        axes={name: tuple(values) for name, values in axes.items()},
        signal=signal,
        signal_values=tuple(signal_values),
        replicates=replicates,
        run=math.ceil(replicates / runs),
        signal_chunk=max(SIGNAL_CHUNK, len(signal_values)),
        top=top,
        modes=largest,
    )


@dataclass(frozen=True)
class Block:
    """The whole chunks of one level, one grid point and one run of replicates: what one writer owns.

    Parameters
    ----------
    level : str
        The level.
    point : tuple of (str, Value)
        The level's axes with their values, d first.
    index : tuple of int
        Where those values are stored along the axes.
    run : int
        Which run of replicates.
    first, stop : int
        The replicates stored in the block: ``range(first, stop)``.
    wanted : int
        The sweep asks for the replicates below this one.
    """

    level: str
    point: tuple[tuple[str, Value], ...]
    index: tuple[int, ...]
    run: int
    first: int
    stop: int
    wanted: int

    @property
    def key(self) -> str:
        """Its chunk's name along the column's dimensions, such as ``0.2.1.5``."""
        return ".".join(str(i) for i in (*self.index, self.run))

    @property
    def selection(self) -> tuple[slice, ...]:
        """What it covers of an array over the column's dimensions."""
        return (*(slice(i, i + 1) for i in self.index), slice(self.first, self.stop))

    def describe(self) -> str:
        """Name it for a human."""
        point = ", ".join(f"{name}={value}" for name, value in self.point)
        return f"{self.level} block at {point}, replicates {self.first} to {self.stop - 1}"


def blocks(
    layout: Layout,
    levels: Sequence[Level],
    axes: Mapping[str, Sequence[Value]],
    replicates: Mapping[Value, int],
) -> Iterator[Block]:
    """List the blocks of a sweep's product, largest d first.

    Parameters
    ----------
    layout : Layout
        The study as stored; it holds every value of the product.
    levels : sequence of Level
        The recorded levels.
    axes : mapping of str to sequence of Value
        The product's values of every axis.
    replicates : mapping of Value to int
        How many replicates each d is asked for.

    Yields
    ------
    Block
        In an order in which neighbours differ in the last axis: they share tables and sequences.
    """
    where = {name: {value: i for i, value in enumerate(values)} for name, values in layout.axes.items()}
    for level in levels:
        size, *others = level.axes
        for d in sorted(axes[size], key=float, reverse=True):
            count = replicates[d]
            outer = itertools.product(*(axes[name] for name in others[:-1]))
            inner = list(itertools.product(*(axes[name] for name in others[-1:])))
            for head, run in itertools.product(outer, range(math.ceil(count / layout.run))):
                for last in inner:
                    point = tuple(zip(level.axes, (d, *head, *last), strict=True))
                    first = run * layout.run
                    yield Block(
                        level=level.name,
                        point=point,
                        index=tuple(where[name][value] for name, value in point),
                        run=run,
                        first=first,
                        stop=min(first + layout.run, layout.replicates),
                        wanted=min(count, first + layout.run),
                    )


def guard(block: Block, layout: Layout) -> None:
    """Refuse a block that is not whole chunks.

    Parameters
    ----------
    block : Block
        What a writer means to own.
    layout : Layout
        The study as stored.

    Raises
    ------
    StudyError
        If another block could hold a part of the same chunks: both would read, change and write them back,
        and one would lose the other's cells in silence.
    """
    first = block.run * layout.run
    whole = (first, min(first + layout.run, layout.replicates))
    if (block.first, block.stop) != whole:
        raise StudyError(
            f"replicate: the {block.describe()} is not a whole chunk, which holds {whole[0]} to "
            f"{whole[1] - 1}; two writers of one chunk lose each other's cells; take blocks from blocks()"
        )
    for (name, value), i in zip(block.point, block.index, strict=True):
        if layout.axes[name][i] != value:
            raise StudyError(
                f"{name}: the {block.describe()} would be stored at {layout.axes[name][i]}, another block's "
                "place; lay the study out for this value first"
            )


def _union(values: tuple[T, ...], more: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*values, *more)))
