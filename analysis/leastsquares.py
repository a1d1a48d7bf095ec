"""Many small non-linear least-squares problems at once, by Levenberg and Marquardt's method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Residual = Callable[[Array, NDArray[np.intp]], tuple[Array, Array]]

ROUNDS = 100


def minimise(residual: Residual, start: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Minimise the sums of squared residuals of many problems of one shape.

    Parameters
    ----------
    residual : callable
        From parameters, (b, p), and which problems they belong to, (b,), to the residuals, (b, m), and
        their derivatives, (b, m, p).
    start : (n, p) array
        Where each problem starts.
    low, high : (p,) array
        Bounds; infinite where there are none.

    Returns
    -------
    parameters : (n, p) array
        Where each problem ended: a local minimum within the bounds, or the best point after 100 rounds.
    cost : (n,) array
        The sums of squares there.
    """
    parameters = np.clip(start, low, high)
    live = np.arange(len(start))
    r, J = residual(parameters, live)
    cost = np.einsum("bm,bm->b", r, r)
    damping = np.full(len(start), 1e-2)
    for _ in range(ROUNDS):
        here = parameters[live]
        step = _step(here, r, J, damping[live], low, high)
        trial = np.clip(here + step, low, high)
        new_r, new_J = residual(trial, live)
        new_cost = np.einsum("bm,bm->b", new_r, new_r)
        better = new_cost <= cost[live]
        gain = np.where(better, cost[live] - new_cost, np.inf)
        settled = (gain <= 1e-10 * (cost[live] + 1e-300)) | (damping[live] > 1e12)
        parameters[live[better]] = trial[better]
        cost[live[better]] = new_cost[better]
        r = np.where(better[:, None], new_r, r)
        J = np.where(better[:, None, None], new_J, J)
        damping[live] *= np.where(better, 0.2, 8.0)
        keep = ~settled
        if not keep.any():
            break
        live, r, J = live[keep], r[keep], J[keep]
    return parameters, cost


def _step(here: Array, r: Array, J: Array, damping: Array, low: Array, high: Array) -> Array:
    """Solve the damped normal equations, without the parameters that a bound holds."""
    gradient = np.einsum("bmp,bm->bp", J, r)
    held = ((here <= low) & (gradient > 0.0)) | ((here >= high) & (gradient < 0.0))
    J = np.where(held[:, None, :], 0.0, J)
    normal = np.einsum("bmp,bmq->bpq", J, J)
    diagonal = np.einsum("bpp->bp", normal)
    index = np.arange(here.shape[1])
    normal[:, index, index] += damping[:, None] * diagonal + np.where(diagonal > 0.0, 1e-12, 1.0)
    return -np.linalg.solve(normal, np.where(held, 0.0, gradient)[..., None])[..., 0]
