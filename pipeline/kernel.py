"""What a task computes: the columns of some blocks, each from its own seeds, as arrays ready to store."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.blocks import Block
from eigensweep.pipeline.ensemble import Ensemble, Point
from eigensweep.pipeline.errors import EigensweepError
from eigensweep.pipeline.rankone import Column
from eigensweep.pipeline.schema import DONE, FAILED, OUT_OF_MEMORY, PENDING, Signal
from eigensweep.pipeline.seeds import identity

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[np.generic]]

LOG_TAIL = 20
"""Lines of a traceback that are kept with a failure."""


@dataclass(frozen=True)
class Recipe:
    """All that a column's numbers depend on besides its point and replicate.

    Parameters
    ----------
    ensemble : Ensemble
        The model.
    seed : int
        The sweep's seed.
    signal : {"rho", "mu2"}
        What ``signal_values`` are.
    signal_values : tuple of float
        In storage order.
    top : int
        Leading eigenpairs kept.
    columns : bool
        Whether spectral columns are kept.
    modes : int
        Length of the stored mode axis.
    """

    ensemble: Ensemble
    seed: int
    signal: Signal
    signal_values: tuple[float, ...]
    top: int
    columns: bool
    modes: int

    def rho(self, point: Point) -> Array:
        """Signal strengths at a point, in storage order."""
        values = np.asarray(self.signal_values, dtype=np.float64)
        return values if self.signal == "rho" else self.ensemble.gain(point) * values


@dataclass(frozen=True)
class Request:
    """Which column is meant.

    Parameters
    ----------
    level : str
        Its level.
    point : dict
        Its parameters.
    replicate : int
        Its replicate.
    """

    level: str
    point: dict[str, float | int | str]
    replicate: int


class ColumnFailedError(EigensweepError):
    """A column could not be computed, for a reason other than an exception of its own.

    Parameters
    ----------
    status : int
        What its ``column_status`` will say.
    reason : str
        Why, in one line.
    log : str
        The last lines of what led there.
    """

    def __init__(self, status: int, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.log = status, reason, log

    def __reduce__(self) -> tuple[type[ColumnFailedError], tuple[int, str, str]]:
        return ColumnFailedError, (self.status, self.reason, self.log)


Compute = Callable[[Recipe, Request], Column]
"""How a column is computed: here, under a watch, or in a process of its own."""


def in_process(recipe: Recipe, request: Request) -> Column:
    """Compute a column in this process."""
    return recipe.ensemble.column(request.level, request.point, recipe.seed, request.replicate)


def never() -> bool:
    """Never ask to stop."""
    return False


@dataclass(frozen=True)
class Failure:
    """A column that could not be computed.

    Parameters
    ----------
    level : str
        Its level.
    point : dict
        Its parameters.
    replicate : int
        Its replicate.
    status : int
        What its ``column_status`` says.
    reason : str
        The exception, in one line.
    log : str
        The last lines of what led there.
    """

    level: str
    point: dict[str, float | int | str]
    replicate: int
    status: int
    reason: str
    log: str


@dataclass
class Filled:
    """A block ready to be stored.

    Parameters
    ----------
    block : Block
        The block.
    arrays : dict of str to array
        By role, over the block's replicates.
    computed : int
        Columns that were sampled or extended now.
    seconds : float
        Time that these took.
    failures : list of Failure
        Columns that failed now.
    """

    block: Block
    arrays: Arrays
    computed: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def digest(level: str, point: Point, replicate: int, parts: Sequence[NDArray[np.generic]]) -> int:
    """Hash a column's coordinates and stored numbers: its receipt.

    Parameters
    ----------
    level : str
        Its level.
    point : mapping
        Its coordinates.
    replicate : int
        Its replicate.
    parts : sequence of array
        Its stored numbers.

    Returns
    -------
    int
        64 bits; never 0, which stands for an unwritten cell.
    """
    words = identity(f"column:{level}", {**point, "replicate": replicate})
    state = hashlib.blake2b(np.asarray(words, dtype="<u4").tobytes(), digest_size=8)
    for part in parts:
        state.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
    return int.from_bytes(state.digest(), "little") or 1


def pair_parts(
    recipe: Recipe, eigenvalue: NDArray[np.generic], overlap: NDArray[np.generic]
) -> list[NDArray[np.generic]]:
    """Put a column's pairs in the order of their signal, in which a digest does not tell when they came.

    Parameters
    ----------
    recipe : Recipe
        Holds the signal values in storage order.
    eigenvalue, overlap : (n, top) array
        The pairs at the first n of these values.

    Returns
    -------
    list of array
        What the digest of a column without its spectral column is taken of.
    """
    order = np.argsort(recipe.signal_values[: len(eigenvalue)], kind="stable")
    return [eigenvalue[order], overlap[order]]


def empty(recipe: Recipe, block: Block) -> Filled:
    """Make a block's arrays with nothing in them."""
    n, rho, top = block.stop - block.first, len(recipe.signal_values), recipe.top
    nan = np.nan
    arrays: Arrays = {"eigenvalue": np.full((n, rho, top), nan), "overlap": np.full((n, rho, top), nan)}
    if recipe.columns:
        arrays |= {
            role: np.full((n, recipe.modes), nan) for role in ("mode_value", "mode_signal", "mode_noise")
        }
        arrays["signal_amplitude"] = np.full(n, nan)
    arrays |= {
        "column_digest": np.zeros(n, dtype=np.uint64),
        "column_rho_count": np.zeros(n, dtype=np.uint32),
        "seconds": np.full(n, nan),
        "column_status": np.full(n, PENDING, dtype=np.uint8),
    }
    return Filled(block, arrays)


def fill(
    recipe: Recipe,
    blocks: Sequence[Block],
    stored: Sequence[Mapping[str, NDArray[np.generic]] | None],
    retry: bool,
    compute: Compute = in_process,
    stop: Callable[[], bool] = never,
) -> list[Filled]:
    """Compute what some blocks lack.

    Parameters
    ----------
    recipe : Recipe
        What the numbers depend on.
    blocks : sequence of Block
        The blocks. Replicate by replicate all of them are served, so that those which share a table or
        sequences draw them once.
    stored : sequence of mapping or None
        What is stored of each block already, by role.
    retry : bool
        Whether columns that failed before are tried again.
    compute : callable
        How a column is computed.
    stop : callable
        Asked before every column; once it says so, the rest stays pending.

    Returns
    -------
    list of Filled
        One a block, with what was stored kept bit for bit.
    """
    filled = [carried(recipe, block, before) for block, before in zip(blocks, stored, strict=True)]
    for replicate in sorted({r for block in blocks for r in range(block.first, block.wanted)}):
        for target in filled:
            if target.block.first <= replicate < target.block.wanted:
                if stop():
                    return filled
                _fill_column(recipe, target, replicate, retry, compute)
    return filled


def carried(recipe: Recipe, block: Block, before: Mapping[str, NDArray[np.generic]] | None) -> Filled:
    """Make a block's arrays with what is stored of it already."""
    filled = empty(recipe, block)
    if before is not None:
        for role, array in before.items():
            # Axes only ever grow at their ends: what was stored is a corner of what is stored now.
            corner = tuple(slice(0, size) for size in array.shape)
            filled.arrays[role][corner] = array
    return filled


def _fill_column(recipe: Recipe, target: Filled, replicate: int, retry: bool, compute: Compute) -> None:
    arrays, row = target.arrays, replicate - target.block.first
    status, count = int(arrays["column_status"][row]), int(arrays["column_rho_count"][row])
    if not _lacks(recipe, status, count, retry):
        return
    level, point = target.block.level, dict(target.block.point)
    start = time.perf_counter()
    try:
        column = _restored(recipe, arrays, row, point) if status == DONE and recipe.columns else None
        first = count if column is not None else 0
        if column is None:
            column = compute(recipe, Request(level, point, replicate))
        _store(recipe, target, replicate, column, first)
    except Exception as error:
        target.failures.append(fail(target, replicate, error))
        return
    elapsed = time.perf_counter() - start
    if status != DONE:
        arrays["seconds"][row] = elapsed
    target.computed += 1
    target.seconds += elapsed


def fail(target: Filled, replicate: int, error: Exception) -> Failure:
    """Mark a column of a block as failed and say why.

    Parameters
    ----------
    target : Filled
        The block.
    replicate : int
        The column's replicate.
    error : Exception
        What went wrong.

    Returns
    -------
    Failure
        The same for the list of failures.

    Notes
    -----
    A column that is done, and could not be extended to signal values that are new, keeps what it has.
    """
    row = replicate - target.block.first
    if isinstance(error, ColumnFailedError):
        status, reason, log = error.status, error.reason, error.log
    else:
        status = OUT_OF_MEMORY if isinstance(error, MemoryError) else FAILED
        reason = f"{type(error).__name__}: {error}"
        log = "".join(traceback.format_exception(error))
    if target.arrays["column_status"][row] != DONE:
        for role, array in target.arrays.items():
            target.arrays[role][row] = np.nan if np.issubdtype(array.dtype, np.floating) else 0
        target.arrays["column_status"][row] = status
    tail = "\n".join(log.strip().splitlines()[-LOG_TAIL:])
    return Failure(target.block.level, dict(target.block.point), replicate, status, reason, tail)


def lacking(recipe: Recipe, target: Filled, retry: bool) -> list[int]:
    """List the replicates of a block that are still to compute."""
    block, status = target.block, target.arrays["column_status"]
    count = target.arrays["column_rho_count"]
    return [
        replicate
        for replicate in range(block.first, block.wanted)
        if _lacks(recipe, int(status[replicate - block.first]), int(count[replicate - block.first]), retry)
    ]


def _lacks(recipe: Recipe, status: int, count: int, retry: bool) -> bool:
    if status == DONE:
        return count < len(recipe.signal_values)
    return status == PENDING or retry


def _store(recipe: Recipe, target: Filled, replicate: int, column: Column, first: int) -> None:
    """Put a column's pairs from the ``first`` signal value on, and the column itself, into the arrays."""
    arrays, row = target.arrays, replicate - target.block.first
    point = dict(target.block.point)
    rho = recipe.rho(point)
    value, overlap = column.eigenpairs(rho[first:], recipe.top)
    arrays["eigenvalue"][row, first:] = value
    arrays["overlap"][row, first:] = overlap
    parts = pair_parts(recipe, arrays["eigenvalue"][row], arrays["overlap"][row])
    if recipe.columns:
        d = column.dimension
        parts = [column.value, column.signal, column.noise, np.asarray([column.amplitude])]
        for role, part in zip(("mode_value", "mode_signal", "mode_noise"), parts, strict=False):
            arrays[role][row, :d] = part
        arrays["signal_amplitude"][row] = column.amplitude
    arrays["column_digest"][row] = digest(target.block.level, point, replicate, parts)
    arrays["column_rho_count"][row] = rho.size
    arrays["column_status"][row] = DONE


def _restored(recipe: Recipe, arrays: Arrays, row: int, point: Point) -> Column:
    """Take a column out of stored arrays."""
    size = recipe.ensemble.axes[0].name
    d = int(point[size])
    value, signal, noise = (
        np.ascontiguousarray(arrays[role][row, :d], dtype=np.float64)
        for role in ("mode_value", "mode_signal", "mode_noise")
    )
    return Column(value, signal, noise, float(arrays["signal_amplitude"][row]))
