"""Accuracy of a classifier whose noise is normal: what is left to average is the signs beyond the prefix."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from eigensweep.pipeline.scoring import Array, pooling_weights

ATOMS = 1 << 16
"""So many sums of signed weights are enumerated."""
STEEPEST = 1e4
"""Larger theta count as this one where the sums are too many to enumerate."""
_TIE = 1e-12  # sums this small, relative to the largest possible, are ties


def normal_accuracy(theta: ArrayLike, weights: ArrayLike, length: int) -> Array:
    """Accuracy where the noise of the score is normal.

    Parameters
    ----------
    theta : array_like
        Signal to noise of the margin, not negative, infinity included: the score of a sequence of pooled
        signs b, divided by the deviation of its noise, has mean ``theta b/sqrt(alpha)``.
    weights : (T,) array_like
        Pooling weights.
    length : int
        L, the length of the prefix that shares the label's sign; from 1 to T.

    Returns
    -------
    ndarray or numpy float
        ``E Phi(theta (|p| + sum_{t>L} w_t xi_t)/sqrt(alpha))``, of the shape of `theta`, with p the sum of
        the first L weights, alpha = p^2 + sum_{t>L} w_t^2 and xi_t independent fair signs. At theta =
        infinity it is the share of sequences whose pooled signs agree with the label, ties one half.

    Raises
    ------
    ValueError
        If theta is negative or NaN, the length is outside [1, T], or the weights are not finite or all
        cancel.

    Notes
    -----
    The tail's sums are enumerated, equal weights by the binomial law. Where they exceed `ATOMS` the mean is
    a Fourier integral, by the trapezoidal rule, whose error is below rounding for a normal law smeared by a
    bounded one; theta above `STEEPEST` counts as `STEEPEST` there.

    Examples
    --------
    >>> float(normal_accuracy(np.inf, np.full(16, 1 / 16), 4) * 8192)
    7099.0
    """
    w = pooling_weights(weights, length)
    steep = np.asarray(theta, dtype=np.float64)
    if not np.all(steep >= 0):
        raise ValueError(f"theta = {theta!r}: a signal to noise ratio is not negative; give 0 or more")
    p, tail = abs(float(w[:length].sum())), np.abs(w[length:])
    alpha = p * p + float(tail @ tail)
    if not alpha > 1e-24 * float(w @ w):
        raise ValueError("weights: the prefix's cancel and there is no tail, so alpha = 0; give others")
    size, count = np.unique(np.round(tail / np.abs(w).max(), 12), return_counts=True)
    size, count = size[size > 0] * np.abs(w).max(), count[size > 0]
    flat = steep.ravel()
    if math.prod(int(c) + 1 for c in count) <= ATOMS:
        value, chance = _sign_sums(size, count)
        margin = (p + value) / math.sqrt(alpha)
        margin[np.abs(p + value) <= _TIE * float(np.abs(w).sum())] = 0.0
        with np.errstate(invalid="ignore"):
            result = [float(ndtr(np.where(margin == 0, 0.0, t * margin)) @ chance) for t in flat]
    else:
        unit = math.sqrt(alpha)
        result = [_smeared(min(t, STEEPEST) / unit, p, size, count) for t in flat]
    return np.clip(np.array(result, dtype=np.float64), 0.0, 1.0).reshape(steep.shape)[()]


def _sign_sums(size: Array, count: NDArray[np.intp]) -> tuple[Array, Array]:
    """Values of a sum of signed weights and their probabilities."""
    value, chance = np.zeros(1), np.ones(1)
    for weight, n in zip(size, count.tolist(), strict=True):
        binomial = np.array([math.comb(n, k) / 2**n for k in range(n + 1)])
        value = np.add.outer(value, weight * (2.0 * np.arange(n + 1) - n)).ravel()
        chance = np.multiply.outer(chance, binomial).ravel()
    return value, chance


def _smeared(theta: float, p: float, size: Array, count: NDArray[np.intp]) -> float:
    """``E Phi(theta (p + sum))`` from the characteristic function of a normal plus a bounded variable."""
    period = 2.0 * (theta * (p + float(size @ count)) + 9.0)
    tau = 2.0 * np.pi / period * np.arange(1, 8.7 * period / (2.0 * np.pi) + 3.0, 2.0)
    wave = np.exp(-0.5 * tau * tau) * np.sin(theta * p * tau)
    for weight, n in zip(size, count.tolist(), strict=True):
        wave *= np.cos(theta * weight * tau) ** n
    return float(0.5 + 4.0 / period * np.sum(wave / tau))
