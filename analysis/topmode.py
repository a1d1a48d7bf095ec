"""The top eigenpair of many rank-one updates at once: what an estimator asks of its columns.

``S(rho) = S0 + v v'`` with ``v = h + sqrt(rho) a u`` has its top eigenvalue at the root above the top pole
of the secular equation ``1 = sum_j v_j^2/(z - lambda_j)``, and the eigenvector ``v_j/(z - lambda_j)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ELEMENTS = 1 << 16
"""Work on so many (equation, mode) pairs at a time: half a megabyte an array, which stays in the cache."""
ROUNDS = 200


def top_overlap(
    value: Array, signal: Array, noise: Array, amplitude: Array, rho: Array, *, along: str = "signal"
) -> Array:
    """Squared overlap with u, or with v, of the top eigenvector, of every column at every rho.

    Parameters
    ----------
    value : (n, d) array
        Eigenvalues of S0, descending, in units of kappa.
    signal : (n, k, d) array
        Projections on their eigenvectors of k unit directions u for each column.
    noise : (n, d) array
        Projections of h, in units of sqrt(kappa).
    amplitude : (n,) array
        a of each column.
    rho : (m,) array
        Signal strengths, non-negative.
    along : {"signal", "update"}
        Whether the overlap is with the direction of u or with that of v.

    Returns
    -------
    (n, k, m) array
        In [0, 1].
    """
    n, k, d = signal.shape
    result = np.empty((n, k, rho.size))
    strength = amplitude[:, None] * np.sqrt(rho)
    below = value[:, :1] - value
    step = max(1, ELEMENTS // max(1, k * rho.size * d))
    for start in range(0, n, step):
        part = slice(start, start + step)
        u = signal[part, :, None, :]
        v = noise[part, None, None, :] + strength[part, None, :, None] * u
        rows = v.shape[0] * k * rho.size
        shift = np.broadcast_to(below[part, None, None, :], v.shape).reshape(rows, d)
        flat = v.reshape(rows, d)
        y = _root(shift, flat * flat)
        vector = flat / (y[:, None] + shift)
        axis = u if along == "signal" else v
        part_along = np.add.reduce(vector.reshape(v.shape) * axis, axis=-1)
        norm = np.sqrt(np.add.reduce(vector * vector, axis=-1)).reshape(part_along.shape)
        if along == "update":
            norm *= np.sqrt(np.add.reduce(v * v, axis=-1))
        # Without an update, as at rho = 0 and h = 0, the top mode itself is the eigenvector.
        part_along = np.where(norm > 0.0, part_along, np.broadcast_to(u, v.shape)[..., 0])
        result[part] = np.minimum((part_along / np.where(norm > 0.0, norm, 1.0)) ** 2, 1.0)
    return result


def _root(shift: Array, weights: Array) -> Array:
    """Distance y > 0 of each root from its top pole: ``sum_j w_j/(y + shift_j) = 1``.

    The top pole is kept as it is, the others are replaced by one that agrees with their sum and its slope.
    The reciprocal of that sum is concave in y, so the model's root never passes the true one: after one
    step, wherever it starts, the iteration climbs to the root.
    """
    total = np.add.reduce(weights, axis=1)
    tiny = float(np.finfo(np.float64).tiny) ** 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.add.reduce(weights * shift, axis=1) / total
    # The Rayleigh quotients of the update's own vector and of the top mode: lower bounds both.
    y = np.maximum(np.maximum(weights[:, 0], np.nan_to_num(total - mean)), tiny)
    result, live = y.copy(), np.arange(y.size)
    near, weights, shift = weights[:, 0], weights[:, 1:], shift[:, 1:]
    for _ in range(ROUNDS):
        inverse = 1.0 / (y[:, None] + shift)
        term = weights * inverse
        rest = np.add.reduce(term, axis=1)
        term *= inverse
        slope = np.maximum(np.add.reduce(term, axis=1), tiny)
        new = np.maximum(_two_poles(near, rest * rest / slope, np.maximum(rest / slope - y, 0.0)), tiny)
        result[live] = new
        # The iteration is quadratic: after a step this small the next would change nothing.
        keep = np.abs(new - y) > 1e-7 * new
        if not keep.any():
            break
        live, y, near = live[keep], new[keep], near[keep]
        weights, shift = weights[keep], shift[keep]
    return np.asarray(result)


def _two_poles(near: Array, far: Array, distance: Array) -> Array:
    """Solve ``near/y + far/(y + distance) = 1`` for the larger y, without cancellation."""
    b = near + far - distance
    root = np.sqrt(b * b + 4.0 * near * distance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b >= 0.0, 0.5 * (b + root), 2.0 * near * distance / (root - b))
