"""Signal to noise of ridge regression in the limit of large d, V, N, and its best ridge.

With omega = M + s, M = max(1, delta, gamma), theta^2 is a ratio of two polynomials in s without negative
coefficients, and lambda grows with s: formulas at `eigensweep.analysis.downstream`.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike

from eigensweep.analysis.edges import FloatArray, not_negative
from eigensweep.analysis.overlaps import table_drift

Polynomial = list[FloatArray]
"""Coefficients in s, from the constant on."""


def ridge_theta2(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    ridge: ArrayLike,
    r: ArrayLike,
    *,
    table: str = "class-centered",
    gain: ArrayLike = 1.0,
) -> FloatArray:
    """Squared signal to noise of the margin of ridge regression.

    Parameters
    ----------
    rho : array_like
        Strength of the signal, finite and not negative.
    delta, gamma : array_like
        Dimension over vocabulary size and over number of training sequences.
    ridge : array_like
        lambda, in units of kappa; from 0, the limit from above (the least-norm solution), to infinity (the
        direction of ``sum_n y_n c_n``).
    r : array_like
        Correlation of the label with the pooled signs, in [-1, 1]; see `downstream.label_correlation`.
    table : {"class-centered", "centered", "raw"}
        What is removed from the noise vectors of the table.
    gain : array_like
        alpha/kappa of the pooling; it matters for "centered" and "raw" alone.

    Returns
    -------
    ndarray or numpy float
        theta^2, of the broadcast shape. It may be infinite at lambda = 0.

    Raises
    ------
    ValueError
        If the table is unknown, or an argument outside its domain.

    Notes
    -----
    With ``c = 1/r^2 - 1`` the limits are

    ==================================  ======================================================
    limit                               theta^2
    ==================================  ======================================================
    lambda -> infinity                  rho^2/(rho + gamma (1 + delta)/r^2)
    lambda -> 0; delta, gamma < 1       rho^2 (1 - gamma)/(rho (1 - delta) + gamma [(1 - delta)^2 +
                                        c (1 - delta + rho)^2])
    lambda -> 0; gamma > 1, delta       rho^2 (gamma - 1)(gamma - delta)/(rho (gamma - delta)^2 + ((1 +
                                        delta) gamma - 2 delta)[(gamma - delta)^2 + c (gamma - delta +
                                        rho)^2])
    lambda -> 0; delta > 1, gamma       (delta - gamma) r^2/(gamma (1 - r^2))
    lambda -> 0; gamma = 1 > delta      0: the peak of double descent
    lambda -> 0; gamma = delta >= 1     0 for r^2 < 1
    lambda -> 0; delta = 1 > gamma      (1 - gamma)/(gamma c), no peak: both sides of delta = 1 agree
    ==================================  ======================================================

    and at r^2 = 1 infinity for delta > 1, gamma <= delta, and 3 rho for delta = gamma = 1. As polynomials
    in omega - M, X and D have no negative coefficient, so nothing cancels near the peak.

    Examples
    --------
    >>> float(ridge_theta2(2.4, 0.5, 0.25, [0.0, np.inf], 1.0)[0].round(9))
    3.421782178
    """
    rho, delta, gamma, lam, r2 = _arguments(rho, delta, gamma, ridge, r, table, gain)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        signal, noise = _signal_and_noise(rho, delta, gamma, r2)
        s = _distance(lam, delta, gamma)
        inner = _evaluate(signal, s) / _evaluate(noise, s)
        # Beyond M the variable is 1/s, so that no power overflows; at infinity the leading terms are left.
        outer = _evaluate(signal[::-1], 1 / s) / _evaluate(noise[::-1], 1 / s)
        ratio = np.where(s > 1, outer, np.where(s > 0, inner, _limit(signal, noise)))
        theta2 = rho * rho * r2 * ratio
    return np.where((rho == 0) | (r2 == 0), 0.0, theta2)[()]


def best_ridge(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    r: ArrayLike,
    *,
    table: str = "class-centered",
    gain: ArrayLike = 1.0,
) -> FloatArray:
    """Ridge lambda of the largest theta^2, hence of the largest accuracy.

    Parameters
    ----------
    rho, delta, gamma, r, table, gain
        As for `ridge_theta2`.

    Returns
    -------
    ndarray or numpy float
        lambda in units of kappa, of the broadcast shape: 0 or infinity where no ridge between them is
        better. NaN where all ridges are equal: rho = 0 or r = 0.

    Raises
    ------
    ValueError
        If the table is unknown, or an argument outside its domain.

    Notes
    -----
    ``X'D = XD'`` is a quartic in omega; the best of its roots above max(1, delta, gamma) and of the two
    limits is taken.

    Examples
    --------
    >>> float(best_ridge(2.4, 0.5, 0.25, 1.0).round(10))
    0.0739632765
    """
    arguments = _arguments(rho, delta, gamma, 0.0, r, table, gain)
    rho, delta, gamma, r2 = (
        np.asarray(a) for a in np.broadcast_arrays(arguments[0], *arguments[1:3], arguments[4])
    )
    result = np.full(rho.shape, np.nan)
    for place in np.ndindex(rho.shape):
        point = tuple(float(a[place]) for a in (rho, delta, gamma, r2))
        if point[0] > 0 and point[3] > 0:
            result[place] = _best(*point)
    return result[()]


def _arguments(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    ridge: ArrayLike,
    r: ArrayLike,
    table: str,
    gain: ArrayLike,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return rho with the table's drift, delta, gamma, lambda and r^2, broadcast."""
    rho, delta, gamma = not_negative(rho=rho, delta=delta, gamma=gamma)
    lam = np.asarray(ridge, dtype=np.float64)
    if np.any(lam < 0):
        raise ValueError(f"ridge = {lam[lam < 0].flat[0]:g}: a ridge is not negative; give 0 or more")
    if np.any(np.isinf(rho)):
        raise ValueError("rho = inf: theta^2 has no bound there; give a finite strength")
    drifted = rho + table_drift(delta, table, gain)
    a, b, c, d, e = np.broadcast_arrays(drifted, delta, gamma, lam, squared_correlation(r))
    return a, b, c, d, e


def squared_correlation(r: ArrayLike) -> FloatArray:
    """Check correlations of the label with the pooled signs, and square them.

    Parameters
    ----------
    r : array_like
        Correlations in [-1, 1].

    Returns
    -------
    ndarray
        r^2.

    Raises
    ------
    ValueError
        If one lies outside.
    """
    array = np.asarray(r, dtype=np.float64)
    if np.any(np.abs(array) > 1 + 1e-12):
        wrong = array[np.abs(array) > 1 + 1e-12].flat[0]
        raise ValueError(f"r = {wrong:g}: a correlation lies in [-1, 1]; give one of label_correlation")
    return np.minimum(array * array, 1.0)


def _shifts(delta: FloatArray, gamma: FloatArray) -> tuple[FloatArray, ...]:
    """Return M = max(1, delta, gamma) and ``M - 1``, ``M - delta``, ``M - gamma``."""
    M = np.maximum(np.maximum(delta, gamma), 1.0)
    return M, M - 1, M - delta, M - gamma


def _signal_and_noise(
    rho: FloatArray, delta: FloatArray, gamma: FloatArray, r2: FloatArray
) -> tuple[Polynomial, Polynomial]:
    """Return X and r^2 D as polynomials in s.

    With f = (omega-1)(omega-delta)(omega-gamma), ``X = omega f' - 2 f = gamma (omega-1)(omega-delta) +
    (omega-delta)(omega-gamma) + omega (omega-gamma)(omega-1)``, and ``(1+delta) omega - 2 delta =
    (omega-delta) + delta (omega-1)``.
    """
    M, A, B, C = _shifts(delta, gamma)
    one = np.ones_like(M)
    omega, a, b, c = [M, one], [A, one], [B, one], [C, one]
    signal = _sum(_times([gamma], a, b), _times(b, c), _times(omega, c, a))
    slope = _sum(b, _times([delta], a))
    spread = _sum(_times([r2], b, b), _times([1 - r2], _sum(b, [rho]), _sum(b, [rho])))
    noise = _sum(_times([r2 * rho], omega, b, b), _times([gamma], slope, spread))
    return signal, noise


def _times(*factors: Polynomial) -> Polynomial:
    product = factors[0]
    for factor in factors[1:]:
        terms: Polynomial = [np.zeros(())] * (len(product) + len(factor) - 1)
        for i, x in enumerate(product):
            for j, y in enumerate(factor):
                terms[i + j] = terms[i + j] + x * y
        product = terms
    return product


def _sum(*terms: Polynomial) -> Polynomial:
    return [np.asarray(sum(same)) for same in zip_longest(*terms, fillvalue=np.zeros(()))]


def _evaluate(polynomial: Polynomial, s: FloatArray) -> FloatArray:
    value = polynomial[-1]
    for coefficient in polynomial[-2::-1]:
        value = value * s + coefficient
    return np.asarray(value)


def _limit(signal: Polynomial, noise: Polynomial) -> FloatArray:
    """Ratio as s -> 0: of the first coefficients that do not both vanish."""
    ratio = np.asarray(signal[-1] / noise[-1])
    for over, under in zip(signal[-2::-1], noise[-2::-1], strict=True):
        ratio = np.where((over > 0) | (under > 0), over / under, ratio)
    return ratio


def _distance(lam: FloatArray, delta: FloatArray, gamma: FloatArray) -> FloatArray:
    """Solve ``(s + A)(s + B)(s + C) = lambda (s + M)^2`` for s > 0, by Newton's method in log s.

    The logarithm of the sides' ratio has a slope between 1 and 3 in log s, which brackets the root from any
    point; a step that leaves the bracket is a bisection.
    """
    M, A, B, C = _shifts(delta, gamma)
    M, A, B, C, lam = np.broadcast_arrays(M, A, B, C, lam)
    inside = (lam > 0) & (lam < np.inf)
    target = np.log(np.where(inside, lam, 1.0))
    x = np.where(target > 0, target, target / 3)
    low, high = np.full(x.shape, -np.inf), np.full(x.shape, np.inf)
    for _ in range(80):
        s = np.exp(x)
        excess = np.log(s + A) + np.log(s + B) + np.log(s + C) - 2 * np.log(s + M) - target
        slope = s / (s + A) + s / (s + B) + s / (s + C) - 2 * s / (s + M)
        low = np.maximum(low, np.minimum(x - excess, x - excess / 3))
        high = np.minimum(high, np.maximum(x - excess, x - excess / 3))
        step = x - excess / slope
        step = np.where((step < low) | (step > high), 0.5 * (low + high), step)
        settled = np.abs(step - x) <= 1e-15 * (1 + np.abs(x))
        x = np.where(inside, step, x)
        if np.all(settled | ~inside):
            break
    return np.where(inside, np.exp(x), np.where(lam > 0, lam, 0.0))


def _best(rho: float, delta: float, gamma: float, r2: float) -> float:
    """Best ridge at one point: a positive root of ``X'D - XD'`` in s, or a limit."""
    signal, noise = (
        np.polynomial.Polynomial([float(c) for c in p])
        for p in _signal_and_noise(*(np.asarray(v) for v in (rho, delta, gamma, r2)))
    )
    balance = signal.deriv() * noise - signal * noise.deriv()
    bend = balance.deriv()
    roots = balance.trim().roots()
    s = roots.real[(roots.real > 0) & (np.abs(roots.imag) <= 1e-6 * np.abs(roots))]
    for _ in range(3):
        with np.errstate(divide="ignore", invalid="ignore"):
            polished = s - balance(s) / bend(s)
        s = np.where(np.isfinite(polished) & (np.abs(polished - s) < 1e-3 * s), polished, s)
    M, A, B, C = (float(v) for v in _shifts(np.asarray(delta), np.asarray(gamma)))
    candidates = np.concatenate([(s + A) * (s + B) * (s + C) / (s + M) ** 2, [0.0, np.inf]])
    theta2 = np.asarray(ridge_theta2(rho, delta, gamma, candidates, np.sqrt(r2)))
    return float(candidates[np.argmax(theta2)])
