"""Overlap of a signal with the eigenvector of its spike, for the three tables.

A finite table's class means add a drift to the signal: the spike is ``rho + drift`` strong, and the part
``rho/(rho + drift)`` of its direction is the signal's own. Without drift these are the overlaps of Seddik,
arXiv:2605.06826, Theorems 2 to 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from eigensweep.analysis.edges import FloatArray, critical_distance, not_negative, quotient
from eigensweep.pipeline.errors import nearest

TABLES = ("class-centered", "centered", "raw")
"""Names of the tables, by what is removed from the noise vectors: each class's mean, the mean of all, or
nothing."""


def table_drift(delta: FloatArray, table: str, gain: ArrayLike) -> FloatArray:
    """Return what the table's own class means add to rho."""
    if table not in TABLES:
        raise ValueError(f"table = {table!r}: no such table; {nearest(table, TABLES)}")
    (gain,) = not_negative(gain=gain)
    added = delta * gain
    return np.zeros_like(added) if table == "class-centered" else added


def overlap_parts(
    rho: ArrayLike, delta: ArrayLike, gamma: ArrayLike, table: str, gain: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return the squared overlap q with u, and ``1 - q`` to its own last digits."""
    rho, delta, gamma = not_negative(rho=rho, delta=delta, gamma=gamma)
    drift, critical = table_drift(delta, table, gain), critical_distance(delta, gamma)
    t = rho + drift - delta
    at = np.maximum(t, critical)
    e2, e3 = delta + gamma + delta * gamma, delta * gamma
    # t^3 - e2 t - 2 e3 = (t - w+)(t^2 + w+ t + 2 e3/w+), each side divided by t^3
    ratio, bend = quotient(critical, at), quotient(quotient(quotient(2 * e3, critical), at), at)
    whole = 1 + quotient(gamma, at)
    kept = (1 - ratio) * (1 + ratio + bend) / whole
    lost = quotient(gamma + quotient(e2 + quotient(2 * e3, at), at), at) / whole
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share, rest = 1 / (1 + drift / rho), 1 / (1 + rho / drift)
    overlap = np.where(rho > 0, share, rho) * kept
    complement = lost + np.where(drift > 0, rest, 0.0) * kept
    below = t <= critical
    return np.where(below, 0.0, overlap), np.where(below, 1.0, complement)


def odds_of(parts: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Divide an overlap by its complement; infinite where that is 0."""
    overlap, rest = parts
    odds = np.full(overlap.shape, np.inf)
    np.divide(overlap, rest, out=odds, where=rest != 0)
    return odds[()]
