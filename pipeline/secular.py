"""Roots of the secular equation of a positive rank-one update, all of them at once.

For poles ``p_0 > p_1 > ...`` and weights ``w_j > 0`` the eigenvalues of ``diag(p) + sqrt(w) sqrt(w)'``
are the roots of ``sum_j w_j / (z - p_j) = 1``: one above the top pole, one in every gap below it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
ROUNDS = 120
"""Bisection alone, which guards every step, needs fewer rounds than this in all but a subnormal gap."""
LAST = 1e-6
"""After a step so small, relative to the offset, the next would change nothing: steps are cubic."""
BLURRED = 4096.0
"""So many times its rounding error may a sum blur an offset before it is formed in twice the precision."""
SHARPENINGS = 3
ELEMENTS = 1 << 16
"""Work on so many (root, pole) pairs at a time: half a megabyte an array, which stays in the cache."""


def solve(poles: Array, weights: Array, count: int) -> tuple[NDArray[np.intp], Array]:
    """Find the leading roots of many secular equations that share their poles.

    Parameters
    ----------
    poles : (n,) array
        Strictly descending.
    weights : (m, n) array
        Positive; one equation a row.
    count : int
        How many roots of each equation, from the top; at most n.

    Returns
    -------
    origin : (m, count) array of int
        The pole nearest to each root.
    offset : (m, count) array
        Root minus that pole, to full relative accuracy: what eigenvectors need. A root depends on its own
        row alone, whatever else is solved beside it.

    Notes
    -----
    Where a root passes by a pole of tiny weight, rounding of the sum would blur the offset from that pole,
    and eigenvectors would not come out orthogonal: there the sum is formed in twice the precision.

    In a gap the sum is replaced by a constant and two poles that agree with it to the second derivative
    (W. B. Gragg's cubically convergent scheme); above the top pole by two poles, one of them free. Every
    step is kept inside a bracket, and a step that leaves it is a bisection.
    """
    rows, n = weights.shape
    origin = np.empty((rows, count), dtype=np.intp)
    offset = np.empty((rows, count))
    flat_row, flat_root = (grid.ravel() for grid in np.indices((rows, count)))
    step = max(1, ELEMENTS // n)
    for start in range(0, rows * count, step):
        part = slice(start, start + step)
        row, root = flat_row[part], flat_root[part]
        o, y = _solve_part(poles, weights[row], root)
        origin[row, root] = o
        offset[row, root] = y
    return origin, offset


def _solve_part(poles: Array, weights: Array, root: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
    """Solve for one root an equation: rows of ``weights``, the ``root``-th from the top."""
    above = np.maximum(root - 1, 0)
    top = root == 0
    total = np.add.reduce(weights, axis=1)
    gap = np.where(top, total, poles[above] - poles[root])
    at_middle = _sums((poles[root][:, None] - poles) + 0.5 * gap[:, None], weights)[0]
    # The root lies in the half of the gap where the sum passes 1; measure it from the pole on that side.
    mirrored = (at_middle > 1.0) & ~top
    origin = np.where(mirrored, above, root)
    side = np.where(mirrored, -1.0, 1.0)
    shift = side[:, None] * (poles[origin][:, None] - poles)
    index = np.arange(root.size)
    near = weights[index, origin]
    far = np.where(top, 0.0, weights[index, np.where(mirrored, root, above)])
    y = _start(gap, side, near, far, at_middle, top, poles, weights, total)
    # A little beyond the middle, since its side was read from a rounded sum; never near the other pole.
    low, high = np.zeros_like(gap), np.where(top, gap * (1.0 + 4.0 * EPS), 0.5078125 * gap)
    y, steep = _iterate(y, low, high, gap, side, top, shift, weights)
    # The sum's terms, which blur it, are bounded by Cauchy's inequality at no cost.
    rough = np.flatnonzero(1.0 + np.sqrt(total * steep) > BLURRED * steep * y)
    offset = side * y
    if rough.size:
        offset[rough] = _sharpen(offset[rough], poles[origin[rough]], poles, weights[rough])
    return origin, offset


def _start(
    gap: Array,
    side: Array,
    near: Array,
    far: Array,
    at_middle: Array,
    top: NDArray[np.bool_],
    poles: Array,
    weights: Array,
    total: Array,
) -> Array:
    """Guess each root from its two poles' own weights and the rest as it is in the middle of the gap."""
    half = 0.5 * gap
    rest = side * (1.0 - at_middle) + near / half - far / half
    inside = _two_poles(gap, near, far, rest)
    # Above the top pole: the Rayleigh quotient of the update's own vector, a lower bound, as is the
    # update of the top mode alone.
    mean = np.add.reduce(weights * (poles - poles[0]), axis=1) / total
    return np.where(top, np.maximum(near, mean + total), inside)


def _iterate(
    y: Array,
    low: Array,
    high: Array,
    gap: Array,
    side: Array,
    top: NDArray[np.bool_],
    shift: Array,
    weights: Array,
) -> tuple[Array, Array]:
    """Improve every root until it moves no more, and return it with the sum's slope.

    A finished root is taken out and never touched again.
    """
    result, steep = y.copy(), np.empty_like(y)
    live = np.arange(y.size)
    y = np.where((y > low) & (y < high), y, 0.5 * (low + high))
    for _ in range(ROUNDS):
        distance = y[:, None] + shift
        s1, s2, s3 = _sums(distance, weights)
        excess = side - s1
        low = np.where(excess < 0.0, y, low)
        high = np.where(excess > 0.0, y, high)
        share = np.clip(y * (s2 + (gap - y) * s3) / gap, 0.0, s2)
        new = np.where(top, _outside(y, s1, s2, s3), _inside(y, gap, excess, s2, share))
        # Below the sum's own rounding error, which grows with its terms, its sign means nothing.
        noise = EPS * (1.0 + np.abs(s1) + np.where(top, 0.0, 2.0 * share * y))
        newton = -excess / s2
        still = (np.abs(excess) <= noise) | (np.abs(newton) <= 4.0 * EPS * y)
        # The last step is a series in the sums themselves, of the same order: the scheme gives a cluster's
        # weight to the far pole, and there loses digits by cancellation.
        last = np.abs(newton) <= LAST * y
        new = np.where(last, y + newton * (1.0 + newton * s3 / s2), new)
        astray = ~still & ~((new > low) & (new < high))
        new = np.where(still, y, np.where(astray, _split(low, high), new))
        done = still | (last & ~astray) | (high - low <= 4.0 * EPS * low)
        result[live], steep[live] = new, s2
        if done.all():
            break
        keep = ~done
        live, y, low, high = live[keep], new[keep], low[keep], high[keep]
        gap, side, top = gap[keep], side[keep], top[keep]
        shift, weights = shift[keep], weights[keep]
    return result, steep


def _sharpen(offset: Array, head: Array, poles: Array, weights: Array) -> Array:
    """Improve offsets from their poles ``head`` that a rounded sum does not fix to the last digits."""
    gap, lost = _two_sum(head[:, None], -poles)
    for _ in range(SHARPENINGS):
        high, low = _two_sum(gap, offset[:, None])
        low += lost
        quotient = weights / high
        product, error = _two_product(quotient, high)
        rest = (((weights - product) - error) - quotient * low) / high
        total, small = _precise_sum(quotient, rest)
        excess = (1.0 - total) - small
        s2 = np.add.reduce(quotient / high, axis=1)
        s3 = np.add.reduce(quotient / high / high, axis=1)
        newton = -excess / s2
        step = newton * (1.0 + newton * s3 / s2)
        # Rounding blurs an offset by less than itself; a larger step is none of ours.
        offset = np.where(np.abs(step) < 0.5 * np.abs(offset), offset + step, offset)
    return offset


def _precise_sum(high: Array, low: Array) -> tuple[Array, Array]:
    """Sum each row of numbers given as two: rounded, and what rounding took."""
    small = np.add.reduce(low, axis=1)
    while high.shape[1] > 1:
        half = high.shape[1] // 2
        odd = high[:, 2 * half :]
        pairs, lost = _two_sum(high[:, :half], high[:, half : 2 * half])
        small += np.add.reduce(lost, axis=1)
        high = np.concatenate([pairs, odd], axis=1)
    return high[:, 0], small


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b rounded, and what rounding took."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a b rounded, and what rounding took (T. J. Dekker)."""
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _halves(a: Array) -> tuple[Array, Array]:
    big = 134217729.0 * a
    high = big - (big - a)
    return high, a - high


def _sums(distance: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return the sums of w/d, w/d^2 and w/d^3 over each row."""
    inverse = 1.0 / distance
    term = weights * inverse
    s1 = np.add.reduce(term, axis=1)
    term *= inverse
    s2 = np.add.reduce(term, axis=1)
    term *= inverse
    return s1, s2, np.add.reduce(term, axis=1)


def _two_poles(gap: Array, near: Array, far: Array, constant: Array) -> Array:
    """Solve ``constant = near/y + far/(y - gap)`` for y in (0, gap), without cancellation."""
    reach = constant * gap
    slope = reach + near + far
    root = np.sqrt((reach - near + far) ** 2 + 4.0 * near * far)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(slope > 0.0, 2.0 * near * gap / (slope + root), 0.5 * (slope - root) / constant)


def _inside(y: Array, gap: Array, excess: Array, s2: Array, share: Array) -> Array:
    """Step inside a gap: a constant and the gap's two poles, matched to the second derivative.

    ``share`` is the nearer pole's part of ``s2``.
    """
    near, far = share * y * y, (s2 - share) * (gap - y) ** 2
    return _two_poles(gap, near, far, excess + share * y - (s2 - share) * (gap - y))


def _outside(y: Array, s1: Array, s2: Array, s3: Array) -> Array:
    """Step above the top pole: that pole and a free one below it, matched to the second derivative."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.clip((s1 * s3 - s2 * s2) / (s3 - 2.0 * s2 / y + s1 / (y * y)), 0.0, s1)
        share = np.where(np.isfinite(share), share, s1)
        spread = (s1 - share) / (s2 - share / y)
        spread = np.where(np.isfinite(spread) & (spread > y), spread, y)
        pole = y - spread
        a, b = share * y, (s1 - share) * spread
        slope = pole + a + b
        root = np.sqrt(slope * slope - 4.0 * a * pole)
        return np.where(slope > 0.0, 0.5 * (slope + root), 2.0 * a * pole / (slope - root))


def _split(low: Array, high: Array) -> Array:
    """Halve a bracket: in the logarithm where it spans more than a factor of ten."""
    wide = (low > 0.0) & (high > 10.0 * low)
    return np.where(wide, np.sqrt(low) * np.sqrt(high), 0.5 * (low + high))
