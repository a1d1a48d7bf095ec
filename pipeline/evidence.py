"""What stored columns say of themselves: their receipts, what follows from them, and whether two agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.ensemble import Point
from eigensweep.pipeline.kernel import Recipe, digest, pair_parts
from eigensweep.pipeline.rankone import EPS, Column
from eigensweep.pipeline.schema import PAIRS

Array = NDArray[np.float64]
Stacked = Mapping[str, NDArray[Any]]
"""A column's arrays by role, without the column's own dimensions."""

TOLERANCE = 1e-10
"""Two machines' numbers may differ by this much, in units of the matrix's norm."""
MODE_ROLES = ("mode_value", "mode_signal", "mode_noise")


@dataclass(frozen=True)
class Difference:
    """How two versions of the same column compare.

    Parameters
    ----------
    array : str
        The role in which they differ most; empty if nowhere.
    size : float
        By how much, beyond what rounding may do.
    """

    array: str = ""
    size: float = 0.0

    @property
    def same_bits(self) -> bool:
        """Whether they are equal bit for bit."""
        return self.array == ""

    @property
    def tolerable(self) -> bool:
        """Whether two machines may differ like that."""
        return self.size <= TOLERANCE


def dimension(recipe: Recipe, point: Point) -> int:
    """Size d of the matrices at a point."""
    return int(point[recipe.ensemble.axes[0].name])


def restored(parts: Stacked, d: int) -> Column:
    """Make the spectral column out of its stored arrays."""
    value, signal, noise = (np.ascontiguousarray(parts[role][:d], dtype=np.float64) for role in MODE_ROLES)
    return Column(value, signal, noise, float(parts["signal_amplitude"]))


def receipt_holds(recipe: Recipe, level: str, point: Point, replicate: int, parts: Stacked) -> bool:
    """Say whether a column's digest belongs to its coordinates and its stored numbers.

    Parameters
    ----------
    recipe : Recipe
        Says whether spectral columns are kept; without them the digest is that of the pairs.
    level, point, replicate
        The column's coordinates.
    parts : mapping of str to array
        Its arrays.

    Returns
    -------
    bool
        Whether it does.
    """
    stored = int(parts["column_digest"])
    if recipe.columns:
        numbers = [
            *(parts[role][: dimension(recipe, point)] for role in MODE_ROLES),
            np.atleast_1d(parts["signal_amplitude"]),
        ]
        return digest(level, point, replicate, numbers) == stored
    # A run that was killed while it added rho values has written the pairs and perhaps the digest, but not
    # the count: the digest may be that of the old length or of the new one.
    filled = int(np.count_nonzero(np.isfinite(parts["eigenvalue"][:, 0])))
    return any(
        digest(level, point, replicate, pair_parts(recipe, *(parts[role][:length] for role in PAIRS)))
        == stored
        for length in {int(parts["column_rho_count"]), filled}
    )


def compare_columns(one: Column, other: Column) -> Difference:
    """Compare two spectral columns of the same matrix.

    Parameters
    ----------
    one, other : Column
        Decomposed by different runs, perhaps on different machines.

    Returns
    -------
    Difference
        Largest over the four arrays, in units of the matrix's norm.

    Notes
    -----
    A projection on an eigenvector is determined up to rounding over the gap to the next eigenvalue (Davis
    and Kahan); that much is not counted.
    """
    scale = max(1.0, float(np.max(np.abs(one.value))))
    slack = _slack(one.value, scale, one.dimension)
    length = max(1.0, float(np.max(np.abs(one.noise))))
    pairs = {
        "mode_value": (one.value, other.value, scale, 0.0),
        "mode_signal": (one.signal, other.signal, 1.0, slack),
        "mode_noise": (one.noise, other.noise, length, slack),
        "signal_amplitude": (np.asarray(one.amplitude), np.asarray(other.amplitude), scale, 0.0),
    }
    return _largest(pairs)


def compare_pairs(one: Stacked, other: Stacked, d: int) -> Difference:
    """Compare eigenvalues and overlaps of the same matrices.

    Parameters
    ----------
    one, other : mapping of str to array
        ``eigenvalue`` and ``overlap`` of shape (n, top) at the same signal strengths.
    d : int
        Size of the matrices.

    Returns
    -------
    Difference
        Largest over both arrays; for overlaps beyond rounding over the gap to the next stored eigenvalue.
    """
    value = np.asarray(one["eigenvalue"])
    finite = value[np.isfinite(value)]
    scale = max(1.0, float(np.max(np.abs(finite), initial=0.0)))
    pairs = {
        "eigenvalue": (value, other["eigenvalue"], scale, 0.0),
        "overlap": (one["overlap"], other["overlap"], 1.0, _slack(value, scale, d)),
    }
    return _largest(pairs)


def _slack(value: Array, scale: float, d: int) -> Array:
    gap = np.full(value.shape, np.inf)
    beside = np.abs(np.diff(value, axis=-1))
    gap[..., :-1] = beside
    gap[..., 1:] = np.fmin(gap[..., 1:], beside)
    return np.asarray(8.0 * d * EPS * scale / np.maximum(gap, np.finfo(np.float64).tiny))


def _largest(pairs: Mapping[str, tuple[Any, Any, float, Any]]) -> Difference:
    worst = Difference()
    for role, (one, other, scale, slack) in pairs.items():
        first, second = np.asarray(one), np.asarray(other)
        if first.tobytes() == second.tobytes():
            continue
        if first.shape != second.shape or not np.array_equal(np.isnan(first), np.isnan(second)):
            return Difference(role, float("inf"))
        beyond = np.abs(first - second) / scale - slack
        size = float(np.max(beyond[np.isfinite(beyond)], initial=0.0))
        if worst.same_bits or size > worst.size:
            worst = Difference(role, size)
    return worst
