"""Upper edges of the two bulks, and where a spike at a given distance from them puts its eigenvalue.

With e2 = delta + gamma + delta gamma and e3 = delta gamma, a spike whose strength exceeds delta by t makes
an eigenvalue at ``(t + 1)(t + delta)(t + gamma)/t^2`` (Seddik, arXiv:2605.06826, Theorems 2 to 4). That map
turns at ``t^3 = e2 t + 2 e3``, where the spike is lost, and its value there is the bulk's edge. gamma = 0 is
the population level.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def not_negative(**values: ArrayLike) -> Iterator[FloatArray]:
    """Yield the named values as arrays of doubles; NaN passes, and only rho may be infinite."""
    for name, value in values.items():
        array = np.asarray(value, dtype=np.float64)
        wrong = (array < 0) | (np.isinf(array) & (name != "rho"))
        if np.any(wrong):
            raise ValueError(
                f"{name} = {array[wrong].flat[0]:g}: a ratio, strength or gain is finite and not negative; "
                "give 0 or more"
            )
        yield array


def critical_distance(delta: FloatArray, gamma: FloatArray) -> FloatArray:
    """Return the positive root of ``t^3 = e2 t + 2 e3``, by its trigonometric form."""
    e2, e3 = delta + gamma + delta * gamma, delta * gamma
    third = np.maximum(e2 / 3, np.finfo(np.float64).tiny)
    cosine = np.minimum(e3 / third / np.sqrt(third), 1.0)  # at most 1 by the inequality of means
    return np.where(e3 > 0, 2 * np.sqrt(third) * np.cos(np.arccos(cosine) / 3), np.sqrt(e2))


def quotient(numerator: FloatArray, t: FloatArray) -> FloatArray:
    """Divide, with 0 where the numerator is 0, even at t = 0."""
    numerator, t = np.broadcast_arrays(numerator, t)
    return np.divide(numerator, t, out=np.zeros(t.shape), where=numerator != 0)


def outlier_position(t: FloatArray, delta: FloatArray, gamma: FloatArray) -> FloatArray:
    """Return ``(t + 1)(t + delta)(t + gamma)/t^2``."""
    e2, e3 = delta + gamma + delta * gamma, delta * gamma
    return np.asarray(t + (1 + delta + gamma) + quotient(e2 + quotient(e3, t), t))


def bulk_edge(delta: ArrayLike) -> FloatArray:
    """Upper edge of the population bulk, ``(1 + sqrt(delta))^2`` in units of kappa.

    Parameters
    ----------
    delta : array_like
        Dimension over vocabulary size.

    Returns
    -------
    ndarray or numpy float
        Of the shape of `delta`.

    Raises
    ------
    ValueError
        If a ratio is negative.

    Examples
    --------
    >>> float(bulk_edge(0.5).round(6))
    2.914214
    """
    return sample_edge(delta, 0.0)


def sample_edge(delta: ArrayLike, gamma: ArrayLike) -> FloatArray:
    """Upper edge of the sample bulk, in units of kappa.

    Parameters
    ----------
    delta, gamma : array_like
        Dimension over vocabulary size and over number of samples.

    Returns
    -------
    ndarray or numpy float
        ``(w+ + 1)(w+ + delta)(w+ + gamma)/w+^2``, of the broadcast shape.

    Raises
    ------
    ValueError
        If a ratio is negative.

    Examples
    --------
    >>> float(sample_edge(0.5, 0.25).round(10))
    3.7466902227
    """
    delta, gamma = not_negative(delta=delta, gamma=gamma)
    return outlier_position(critical_distance(delta, gamma), delta, gamma)[()]
