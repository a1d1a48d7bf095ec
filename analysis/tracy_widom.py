"""Tracy-Widom laws of the largest eigenvalue, for real (beta = 1) and complex (beta = 2) matrices.

``F1(s) = det(1 - A)`` and ``F2(s) = det(1 - A) det(1 + A)``, where A acts on L2(0, inf) with kernel
``Ai(x + y + s)`` (Ferrari and Spohn, J. Phys. A 38 (2005) L557). Both determinants are evaluated by
Gauss-Legendre quadrature (Bornemann, Math. Comp. 79 (2010) 871) and carried by one Chebyshev expansion
each: absolute error below 1e-14.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_NODES = 64
_DOMAIN = (-11.0, 13.0)  # beyond it both laws are 0 and 1 to within 1e-15
_DEGREE = {1: 116, 2: 144}
_REACH = 16.0  # Ai is below 1e-19 past it


def fredholm_cdf(s: float, beta: int = 1) -> float:
    """Distribution function at one point, directly from the Fredholm determinant.

    Parameters
    ----------
    s : float
        Point, in units of the fluctuation's scale.
    beta : {1, 2}
        Symmetry class.

    Returns
    -------
    float
        F1(s) or F2(s), to 1e-14 absolute for s in [-11, 13].

    Examples
    --------
    >>> round(fredholm_cdf(-1.0), 12)
    0.58378989552
    """
    from scipy.special import airy

    _check_beta(beta)
    nodes, weights = _rule()
    length = max(_REACH - s, 6.0)
    x, root = (nodes + 1) * length / 2, np.sqrt(weights * length / 2)
    row, column = np.triu_indices(_NODES)  # the kernel is symmetric, and Ai is what costs
    kernel = np.empty((_NODES, _NODES))
    kernel[row, column] = root[row] * airy(x[row] + x[column] + s)[0] * root[column]
    kernel[column, row] = kernel[row, column]
    one = np.eye(_NODES)
    value = float(np.linalg.det(one - kernel))
    return value if beta == 1 else value * float(np.linalg.det(one + kernel))


@lru_cache(maxsize=1)
def _rule() -> tuple[FloatArray, FloatArray]:
    return np.polynomial.legendre.leggauss(_NODES)


def _check_beta(beta: int) -> None:
    if beta not in (1, 2):
        raise ValueError(f"beta = {beta}: only the real (1) and complex (2) laws are known here; give 1 or 2")


@lru_cache(maxsize=2)
def _expansion(beta: int) -> tuple[Chebyshev, Chebyshev]:
    """Chebyshev expansions of the distribution function and of the density."""
    _check_beta(beta)

    def values(points: FloatArray) -> FloatArray:
        return np.array([fredholm_cdf(float(s), beta) for s in points])

    law = Chebyshev.interpolate(values, _DEGREE[beta], domain=list(_DOMAIN))
    return law, law.deriv()


def cdf(s: ArrayLike, beta: int = 1) -> FloatArray:
    """Distribution function of the Tracy-Widom law.

    Parameters
    ----------
    s : array_like
        Points of any shape, in units of the fluctuation's scale.
    beta : {1, 2}
        Symmetry class.

    Returns
    -------
    ndarray or numpy float
        Of the shape of `s`; absolute error below 1e-13.

    Raises
    ------
    ValueError
        If `beta` is neither 1 nor 2.

    Examples
    --------
    >>> cdf([-3.0, -1.0, 1.0]).round(6).tolist()
    [0.0696, 0.58379, 0.951421]
    """
    points = np.asarray(s, dtype=np.float64)
    value = np.clip(_expansion(beta)[0](np.clip(points, *_DOMAIN)), 0.0, 1.0)
    value = np.where(points <= _DOMAIN[0], 0.0, np.where(points >= _DOMAIN[1], 1.0, value))
    return value[()]


def pdf(s: ArrayLike, beta: int = 1) -> FloatArray:
    """Density of the Tracy-Widom law.

    Parameters
    ----------
    s : array_like
        Points of any shape.
    beta : {1, 2}
        Symmetry class.

    Returns
    -------
    ndarray or numpy float
        Of the shape of `s`; absolute error below 1e-11.

    Raises
    ------
    ValueError
        If `beta` is neither 1 nor 2.

    Examples
    --------
    >>> float(pdf(-1.2).round(4))
    0.3155
    """
    points = np.asarray(s, dtype=np.float64)
    value = np.maximum(_expansion(beta)[1](np.clip(points, *_DOMAIN)), 0.0)
    return np.where((points <= _DOMAIN[0]) | (points >= _DOMAIN[1]), 0.0, value)[()]


def ppf(q: ArrayLike, beta: int = 1) -> FloatArray:
    """Quantile of the Tracy-Widom law.

    Parameters
    ----------
    q : array_like
        Probabilities in [0, 1], of any shape.
    beta : {1, 2}
        Symmetry class.

    Returns
    -------
    ndarray or numpy float
        Of the shape of `q`; -inf at 0 and inf at 1. ``cdf(ppf(q)) = q`` to 1e-13, so that quantiles of
        probabilities within 1e-12 of 0 or 1 mean little.

    Raises
    ------
    ValueError
        If a probability lies outside [0, 1], or `beta` is neither 1 nor 2.

    Examples
    --------
    >>> ppf([0.5, 0.95]).round(4).tolist()
    [-1.2686, 0.9793]
    """
    goal = np.asarray(q, dtype=np.float64)
    if np.any((goal < 0) | (goal > 1)):
        bad = goal[(goal < 0) | (goal > 1)].flat[0]
        raise ValueError(f"q = {bad}: a probability lies between 0 and 1")
    law, density = _expansion(beta)
    grid = np.linspace(*_DOMAIN, 481)
    values = np.maximum.accumulate(np.clip(law(grid), 0, 1))
    place = np.clip(np.searchsorted(values, goal, side="left"), 1, grid.size - 1)
    left, right = grid[place - 1], grid[place]
    at = (left + right) / 2
    for _ in range(60):
        error = law(at) - goal
        left, right = np.where(error < 0, at, left), np.where(error < 0, right, at)
        after = at - error / np.maximum(density(at), 1e-300)
        after = np.where((after > left) & (after < right), after, (left + right) / 2)
        done = np.abs(after - at) <= 4e-16 * np.maximum(1.0, np.abs(at))
        at = after
        if np.all(done | np.isnan(goal)):
            break
    at = np.where(goal <= 0, -np.inf, np.where(goal >= 1, np.inf, at))
    return np.where(np.isnan(goal), np.nan, at)[()]


def mean(beta: int = 1) -> float:
    """Mean of the Tracy-Widom law.

    Parameters
    ----------
    beta : {1, 2}
        Symmetry class.

    Returns
    -------
    float
        Its mean.

    Examples
    --------
    >>> round(mean(), 10)
    -1.2065335746
    """
    # E s = upper end - integral of F over the domain
    integral = _expansion(beta)[0].integ(lbnd=_DOMAIN[0])
    return _DOMAIN[1] - float(integral(_DOMAIN[1]))


def std(beta: int = 1) -> float:
    """Spread (standard deviation) of the Tracy-Widom law.

    Parameters
    ----------
    beta : {1, 2}
        Symmetry class.

    Returns
    -------
    float
        Its standard deviation.

    Examples
    --------
    >>> round(std() ** 2, 9)
    1.607781035
    """
    # E (s - upper)^2 = 2 integral of the integral of F
    twice = _expansion(beta)[0].integ(m=2, lbnd=_DOMAIN[0])
    return float(np.sqrt(2 * float(twice(_DOMAIN[1])) - (mean(beta) - _DOMAIN[1]) ** 2))
