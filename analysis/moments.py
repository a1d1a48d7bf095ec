"""Moments of the free product of two Marchenko-Pastur laws."""

from __future__ import annotations

import math

import numpy as np

_EXACT = 50  # orders whose binomials are whole numbers in a double


def product_moment(k: int, delta: float, gamma: float) -> float:
    """Moment of order k of the free product of the Marchenko-Pastur laws of ratios delta and gamma.

    The moment series s(z) solves ``z = s/((1 + s)(1 + delta s)(1 + gamma s))`` (product of the two
    S-transforms), so by Lagrange inversion the moment is ``1/k`` times the sum over i + j + l = k - 1 of
    ``C(k,i) C(k,j) C(k,l) delta^j gamma^l``. Every term is positive: the sum keeps its digits.

    Parameters
    ----------
    k : int
        Order, zero or positive.
    delta, gamma : float
        Ratios, not negative.

    Returns
    -------
    float
        The moment; infinite where it exceeds the range of a double.

    Examples
    --------
    >>> product_moment(2, 0.5, 0.25)  # 1 + delta + gamma
    1.75
    """
    if k == 0:
        return 1.0
    if k > _EXACT:
        return _large_moment(k, delta, gamma)
    power = np.arange(k)
    binomial = np.array([math.comb(k, j) for j in range(k)], dtype=np.float64)
    product = np.convolve(binomial, binomial * delta**power)[:k]
    return float(product @ (binomial * gamma**power)[::-1]) / k


def _large_moment(k: int, delta: float, gamma: float) -> float:
    """Sum of the same terms by their logarithms, which neither overflow nor vanish."""
    from scipy.special import gammaln, logsumexp, xlogy

    j = np.arange(k)
    log_binomial = gammaln(k + 1) - gammaln(j + 1) - gammaln(k + 1 - j)
    first, second = log_binomial + xlogy(j, delta), log_binomial + xlogy(j, gamma)
    # a row for each power of delta: i + l is then fixed
    rows = [first[m] + logsumexp(second[: k - m] + log_binomial[k - 1 - m :: -1]) for m in range(k)]
    log = float(logsumexp(rows)) - math.log(k)
    return math.exp(log) if log < math.log(np.finfo(np.float64).max) else math.inf
