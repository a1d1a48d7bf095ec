"""Outlier, overlap and threshold of a spike, at the population and at the sample level.

Conditional on a finite table of V noise vectors in d dimensions, the population covariance is
``Sigma/kappa = W + rho u u'`` with W a Wishart matrix of ratio delta = d/V; N samples of it give S/kappa,
gamma = d/N (Seddik, arXiv:2605.06826, Theorems 2 to 4). With t = rho - delta, e2 = delta + gamma + delta
gamma, e3 = delta gamma, and w+ the positive root of ``t^3 = e2 t + 2 e3``:

=================  =========================  ==========================================
quantity           population                 sample
=================  =========================  ==========================================
threshold          rho > delta + sqrt(delta)  rho > delta + w+
outlier            rho (1 + 1/t)              (t + delta)(t + 1)(t + gamma)/t^2
squared overlap    1 - delta/t^2              (t^3 - e2 t - 2 e3)/(t^2 (t + gamma))
=================  =========================  ==========================================

These are exact for the table "class-centered". The noise means of the two classes of a finite table do
not vanish: half their difference adds delta to the squared norm of the signal. For "centered" and "raw",
rho is therefore replaced by ``rho + delta gain`` (gain = alpha/kappa of the pooling), and only the part
``rho/(rho + delta gain)`` of the squared overlap is with u itself. "raw" keeps the mean of all noise
vectors too, a second spike of strength ``delta (1'w)^2/kappa`` that has nothing to do with u.

The population level is the sample level at gamma = 0. Every function broadcasts its arguments; below
threshold the outlier is the bulk edge and the overlap 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from eigensweep.analysis.edges import (
    FloatArray,
    bulk_edge,
    critical_distance,
    not_negative,
    outlier_position,
    sample_edge,
)
from eigensweep.analysis.overlaps import TABLES, odds_of, overlap_parts, table_drift

__all__ = [
    "TABLES",
    "bulk_edge",
    "population_odds",
    "population_outlier",
    "population_overlap",
    "population_threshold",
    "sample_edge",
    "sample_odds",
    "sample_outlier",
    "sample_overlap",
    "sample_threshold",
    "second_strength",
]


def population_threshold(
    delta: ArrayLike, *, table: str = "class-centered", gain: ArrayLike = 1.0
) -> FloatArray:
    """Strength rho above which the population covariance has an outlier.

    Parameters
    ----------
    delta : array_like
        Dimension over vocabulary size.
    table : {"class-centered", "centered", "raw"}
        What is removed from the noise vectors of the table.
    gain : array_like
        alpha/kappa of the pooling; it matters for "centered" and "raw" alone.

    Returns
    -------
    ndarray or numpy float
        ``delta + sqrt(delta)``, less ``delta gain`` for the tables that keep class means. A negative
        threshold means that the outlier is always there.

    Raises
    ------
    ValueError
        If the table is unknown, or a ratio or gain negative.

    Examples
    --------
    >>> float(population_threshold(0.5).round(10))
    1.2071067812
    """
    return sample_threshold(delta, 0.0, table=table, gain=gain)


def sample_threshold(
    delta: ArrayLike, gamma: ArrayLike, *, table: str = "class-centered", gain: ArrayLike = 1.0
) -> FloatArray:
    """Strength rho above which the sample covariance has an outlier.

    Parameters
    ----------
    delta, gamma : array_like
        Dimension over vocabulary size and over number of samples.
    table, gain
        As for `population_threshold`.

    Returns
    -------
    ndarray or numpy float
        ``delta + w+``, less ``delta gain`` for the tables that keep class means.

    Raises
    ------
    ValueError
        If the table is unknown, or a ratio or gain negative.

    Examples
    --------
    >>> float(sample_threshold(0.5, 0.25).round(10))
    1.5545466756
    """
    delta, gamma = not_negative(delta=delta, gamma=gamma)
    return (delta + critical_distance(delta, gamma) - table_drift(delta, table, gain))[()]


def population_outlier(
    rho: ArrayLike, delta: ArrayLike, *, table: str = "class-centered", gain: ArrayLike = 1.0
) -> FloatArray:
    """Position of the signal's eigenvalue of the population covariance, in units of kappa.

    Parameters
    ----------
    rho : array_like
        Strength of the spike, not negative.
    delta : array_like
        Dimension over vocabulary size.
    table, gain
        As for `population_threshold`.

    Returns
    -------
    ndarray or numpy float
        ``rho (1 + 1/t)`` above threshold, the bulk edge at and below it.

    Raises
    ------
    ValueError
        If the table is unknown, or a strength, ratio or gain negative.

    Examples
    --------
    >>> population_outlier([0.0, 3.0, 5.0], 0.5).round(6).tolist()
    [2.914214, 4.2, 6.111111]
    """
    return sample_outlier(rho, delta, 0.0, table=table, gain=gain)


def sample_outlier(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    *,
    table: str = "class-centered",
    gain: ArrayLike = 1.0,
) -> FloatArray:
    """Position of the signal's eigenvalue of the sample covariance, in units of kappa.

    Parameters
    ----------
    rho : array_like
        Strength of the spike, not negative.
    delta, gamma : array_like
        Dimension over vocabulary size and over number of samples.
    table, gain
        As for `population_threshold`.

    Returns
    -------
    ndarray or numpy float
        ``(t + delta)(t + 1)(t + gamma)/t^2`` above threshold, the bulk edge at and below it.

    Raises
    ------
    ValueError
        If the table is unknown, or a strength, ratio or gain negative.

    Examples
    --------
    >>> float(sample_outlier(3.0, 0.5, 0.25).round(10))
    4.62
    """
    rho, delta, gamma = not_negative(rho=rho, delta=delta, gamma=gamma)
    t = np.maximum(rho + table_drift(delta, table, gain) - delta, critical_distance(delta, gamma))
    return outlier_position(t, delta, gamma)[()]


def population_overlap(
    rho: ArrayLike, delta: ArrayLike, *, table: str = "class-centered", gain: ArrayLike = 1.0
) -> FloatArray:
    """Squared overlap of u with the signal's eigenvector of the population covariance.

    Parameters
    ----------
    rho, delta, table, gain
        As for `population_outlier`.

    Returns
    -------
    ndarray or numpy float
        ``1 - delta/t^2``, times ``rho/(rho + delta gain)`` for the tables that keep class means; 0 at and
        below threshold.

    Raises
    ------
    ValueError
        If the table is unknown, or a strength, ratio or gain negative.

    Examples
    --------
    >>> population_overlap([1.0, 3.0], 0.5).round(10).tolist()
    [0.0, 0.92]
    """
    return overlap_parts(rho, delta, 0.0, table, gain)[0][()]


def sample_overlap(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    *,
    table: str = "class-centered",
    gain: ArrayLike = 1.0,
) -> FloatArray:
    """Squared overlap of u with the signal's eigenvector of the sample covariance.

    Parameters
    ----------
    rho, delta, gamma, table, gain
        As for `sample_outlier`.

    Returns
    -------
    ndarray or numpy float
        ``(t^3 - e2 t - 2 e3)/(t^2 (t + gamma))``, times ``rho/(rho + delta gain)`` for the tables that
        keep class means; 0 at and below threshold.

    Raises
    ------
    ValueError
        If the table is unknown, or a strength, ratio or gain negative.

    Examples
    --------
    >>> float(sample_overlap(3.0, 0.5, 0.25).round(10))
    0.7672727273
    """
    return overlap_parts(rho, delta, gamma, table, gain)[0][()]


def population_odds(
    rho: ArrayLike, delta: ArrayLike, *, table: str = "class-centered", gain: ArrayLike = 1.0
) -> FloatArray:
    """Odds ``q/(1 - q)`` of the population overlap q: ``t^2/delta - 1`` for "class-centered".

    Odds do not saturate as q does, and leave 0 at threshold with a finite slope.

    Parameters
    ----------
    rho, delta, table, gain
        As for `population_outlier`.

    Returns
    -------
    ndarray or numpy float
        Odds, 0 at and below threshold, infinite where q = 1.

    Raises
    ------
    ValueError
        If the table is unknown, or a strength, ratio or gain negative.

    Examples
    --------
    >>> float(population_odds(3.0, 0.5).round(10))
    11.5
    """
    return odds_of(overlap_parts(rho, delta, 0.0, table, gain))


def sample_odds(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    *,
    table: str = "class-centered",
    gain: ArrayLike = 1.0,
) -> FloatArray:
    """Odds ``q/(1 - q)`` of the sample overlap q.

    For "class-centered" they are ``(t^3 - e2 t - 2 e3)/(gamma t^2 + e2 t + 2 e3)``.

    Parameters
    ----------
    rho, delta, gamma, table, gain
        As for `sample_outlier`.

    Returns
    -------
    ndarray or numpy float
        Odds, 0 at and below threshold, infinite where q = 1.

    Raises
    ------
    ValueError
        If the table is unknown, or a strength, ratio or gain negative.

    Examples
    --------
    >>> float(sample_odds(3.0, 0.5, 0.25).round(6))
    3.296875
    """
    return odds_of(overlap_parts(rho, delta, gamma, table, gain))


def second_strength(delta: ArrayLike, gain_sum: ArrayLike) -> FloatArray:
    """Strength of the second spike of a "raw" table: the mean of all its noise vectors.

    It acts as rho does, in a direction of its own: given to `population_outlier` or `sample_outlier` with
    the default table it tells the eigenvalue that it makes. Its overlap with u is 0.

    Parameters
    ----------
    delta : array_like
        Dimension over vocabulary size.
    gain_sum : array_like
        ``(1'w)^2/kappa`` of the pooling: T for mean pooling over T tokens.

    Returns
    -------
    ndarray or numpy float
        ``delta (1'w)^2/kappa``.

    Raises
    ------
    ValueError
        If a ratio or gain is negative.

    Examples
    --------
    >>> float(sample_outlier(second_strength(0.5, 16.0), 0.5, 0.25).round(2))
    9.37
    """
    delta, gain_sum = not_negative(delta=delta, gain_sum=gain_sum)
    return (delta * gain_sum)[()]
