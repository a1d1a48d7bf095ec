"""Accuracy of classifiers of a sequence's latent sign, in the limit of large d, V, N.

The label y of a sequence is the sign that its prefix shares, and the features are its pooled vector c
(setting: Seddik, arXiv:2605.06826, Section 6). Given the pooled signs b, the score ``beta'c`` of a linear
classifier is normal in the limit, with squared signal to noise ``theta^2 = rho (u'beta)^2/(beta'W beta)``, W
the within-class covariance of the tokens, so that

    accuracy = E Phi(theta y b/sqrt(alpha)).

For the ridge ``beta = (S + lambda kappa I)^{-1} (1/N) sum_n y_n c_n`` (S not centred, no intercept) the
deterministic equivalents of u'beta and beta'W beta give, with omega > M = max(1, delta, gamma) the root of
``(omega - 1)(omega - delta)(omega - gamma) = lambda omega^2`` and r = E[y b]/sqrt(alpha),

    theta^2 = rho^2 X/D,   X = omega^3 - e2 omega + 2 e3,
    D = rho omega (omega - delta)^2
        + gamma ((1 + delta) omega - 2 delta) [(omega - delta)^2 + (1/r^2 - 1)(omega - delta + rho)^2],

e2 = delta + gamma + delta gamma, e3 = delta gamma. The spectral classifier sign(u_hat'c), u_hat the signal's
eigenvector of S with its sign set by the labels, has above its threshold, with t = rho - delta,

    theta^2 = (t^3 - e2 t - 2 e3)/(t rho + gamma ((1 + delta) t + 2 delta)).

These are derived for this package without a rigorous proof, and agree with simulation. They claim many
tokens a sequence: for T_eff = (w'w)^2/sum w^4 of a few, accuracies lie up to .005 below. They hold for the
table "class-centered"; "centered" and "raw" have ``rho + delta gain`` in place of rho (gain = alpha/kappa),
since fresh sequences carry the same class means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from eigensweep.analysis.edges import FloatArray, critical_distance, not_negative
from eigensweep.analysis.overlaps import TABLES, table_drift
from eigensweep.analysis.ridge_theory import best_ridge, ridge_theta2, squared_correlation
from eigensweep.pipeline.normal_accuracy import normal_accuracy
from eigensweep.pipeline.scoring import pooling_weights

__all__ = [
    "TABLES",
    "accuracy",
    "best_ridge",
    "gaussian_accuracy",
    "label_correlation",
    "offset_noise",
    "ridge_theta2",
    "spectral_theta2",
]


def label_correlation(weights: ArrayLike, length: int) -> float:
    """Correlation r of the label with the pooled signs: ``sum_{t<=L} w_t/sqrt(alpha)``.

    Parameters
    ----------
    weights : (T,) array_like
        Pooling weights.
    length : int
        L, the length of the prefix that shares the label's sign; from 1 to T.

    Returns
    -------
    float
        In [-1, 1]; negative where the prefix's weights are, on balance. Only its square matters to theta^2.

    Raises
    ------
    ValueError
        If the weights are not finite or all cancel, or the length is outside [1, T].

    Examples
    --------
    >>> round(label_correlation(np.full(16, 1 / 16), 4) ** 2, 12)
    0.571428571429
    """
    w = pooling_weights(weights, length)
    p, tail = float(w[:length].sum()), float(w[length:] @ w[length:])
    alpha = p * p + tail
    if not alpha > 1e-24 * float(w @ w):
        raise ValueError("weights: the prefix's cancel and there is no tail, so alpha = 0; give others")
    return p / float(np.sqrt(alpha))


def spectral_theta2(
    rho: ArrayLike,
    delta: ArrayLike,
    gamma: ArrayLike,
    *,
    table: str = "class-centered",
    gain: ArrayLike = 1.0,
    gain_sum: ArrayLike = 0.0,
) -> FloatArray:
    """Squared signal to noise of the margin of the spectral classifier.

    Parameters
    ----------
    rho, delta, gamma, table, gain
        As for `ridge_theta2`.
    gain_sum : array_like
        ``(1'w)^2/kappa`` of the pooling; it matters for "raw" alone.

    Returns
    -------
    ndarray or numpy float
        theta^2 of the broadcast shape, 0 at and below the sample threshold. For "raw" it is 0 also where the
        mean of all noise vectors, a spike of strength ``delta gain_sum``, is the stronger one: the leading
        eigenvector then has nothing to do with u.

    Raises
    ------
    ValueError
        If the table is unknown, or an argument outside its domain.

    Examples
    --------
    >>> spectral_theta2([1.0, 3.0], 0.5, 0.25).round(6).tolist()
    [0.0, 1.517986]
    """
    rho, delta, gamma, gain_sum = not_negative(rho=rho, delta=delta, gamma=gamma, gain_sum=gain_sum)
    strength = rho + table_drift(delta, table, gain)
    critical = critical_distance(delta, gamma)
    t = np.maximum(strength - delta, critical)
    e3 = delta * gamma
    with np.errstate(divide="ignore", invalid="ignore"):
        # t^3 - e2 t - 2 e3 = (t - w+)(t^2 + w+ t + 2 e3/w+), w+ its root.
        bend = np.where(e3 > 0, 2 * e3 / critical, 0.0)
        over = (t - critical) * (t * t + critical * t + bend)
        theta2 = over / (t * (t + delta) + gamma * ((1 + delta) * t + 2 * delta))
    misled = delta * gain_sum > strength if table == "raw" else np.zeros(np.shape(strength), dtype=bool)
    return np.where((strength - delta <= critical) | misled, 0.0, theta2)[()]


def accuracy(theta2: ArrayLike, weights: ArrayLike, length: int) -> FloatArray:
    """Limit accuracy of a classifier from the squared signal to noise of its margin.

    Parameters
    ----------
    theta2 : array_like
        theta^2, not negative, infinity included.
    weights : (T,) array_like
        Pooling weights.
    length : int
        L, the length of the prefix that shares the label's sign; from 1 to T.

    Returns
    -------
    ndarray or numpy float
        ``E Phi(theta (|p| + sum_{t>L} w_t xi_t)/sqrt(alpha))`` over independent fair signs xi_t, p the sum
        of the first L weights; of the shape of `theta2`. At infinity it is the largest accuracy that the
        pooling allows: ``P(y b > 0) + P(y b = 0)/2``.

    Raises
    ------
    ValueError
        If theta^2 is negative, the weights are not finite or all cancel, or the length is outside [1, T].

    Examples
    --------
    >>> float(accuracy(ridge_theta2(2.4, 0.5, 0.25, 0.0, 1.0), np.full(4, 0.5), 4).round(10))
    0.967829241
    """
    value = np.asarray(theta2, dtype=np.float64)
    if not np.all(value >= 0):
        raise ValueError(f"theta2 = {theta2!r}: a squared ratio is not negative; give 0 or more")
    return np.asarray(normal_accuracy(np.sqrt(value), weights, length))[()]


def gaussian_accuracy(theta2: ArrayLike, r: ArrayLike) -> FloatArray:
    """Limit accuracy where the signs beyond the prefix are so many that their sum is normal.

    Parameters
    ----------
    theta2 : array_like
        theta^2, not negative, infinity included.
    r : array_like
        Correlation of the label with the pooled signs, in [-1, 1].

    Returns
    -------
    ndarray or numpy float
        ``Phi(theta |r|/sqrt(1 + theta^2 (1 - r^2)))``, of the broadcast shape.

    Raises
    ------
    ValueError
        If an argument is outside its domain.

    Examples
    --------
    >>> float(gaussian_accuracy(0.796628029504742, 0.755928946018454).round(12))
    0.719899363836
    """
    value, r2 = np.broadcast_arrays(np.asarray(theta2, dtype=np.float64), squared_correlation(r))
    if not np.all(value >= 0):
        raise ValueError(f"theta2 = {theta2!r}: a squared ratio is not negative; give 0 or more")
    with np.errstate(divide="ignore", over="ignore"):
        spread = np.sqrt(1 / value + (1 - r2))
        return np.asarray(ndtr(np.where(r2 > 0, np.sqrt(r2) / spread, 0.0)))[()]


def offset_noise(delta: ArrayLike, gain_sum: ArrayLike, N: ArrayLike) -> FloatArray:
    """Return what the mean of a "raw" table adds to the noise of the classifier of infinite ridge.

    The tokens' overall mean m enters every sequence alike, with the weight 1'w. Training labels that do not
    balance leave a trace of it in ``beta = (1/N) sum_n y_n c_n``; fresh sequences meet it as an offset and
    as noise along m. It is of order 1/N, but its square grows with ``(1'w)^2``.

    Parameters
    ----------
    delta : array_like
        Dimension over vocabulary size.
    gain_sum : array_like
        ``(1'w)^2/kappa`` of the pooling: T for mean pooling over T tokens.
    N : array_like
        Number of training sequences.

    Returns
    -------
    ndarray or numpy float
        ``(nu^2 + 2 nu)/N`` with ``nu = delta (1'w)^2/kappa``: the mean of ``beta'W beta + (1'w)^2
        (m'beta)^2/kappa``, in units of kappa, less what it is for "centered". theta^2 at infinite ridge is
        then ``rho^2/(rho + [gamma (1 + delta) + (nu^2 + 2 nu)/N]/r^2)``, rho with its drift.

    Raises
    ------
    ValueError
        If an argument is negative.

    Examples
    --------
    >>> float(offset_noise(0.5, 16.0, 400))
    0.2
    """
    delta, gain_sum, count = not_negative(delta=delta, gain_sum=gain_sum, N=N)
    nu = delta * gain_sum
    return np.asarray((nu * nu + 2 * nu) / count)[()]
