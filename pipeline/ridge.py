"""Classifiers of a sequence's latent sign, trained on pooled vectors at every signal strength and ridge.

One decomposition of the noise serves them all. The pooled vectors are ``c_n = z_n + b_n mu`` with b_n the
pooled signs, so that ``S/kappa = S0 + v v'`` with ``v = h + sqrt(rho) a u`` as in a spectral column, and the
labels' mean ``(1/N) sum_n y_n c_n/sqrt(kappa) = g + sqrt(rho) q u`` is linear in sqrt(rho) too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, lapack

from eigensweep.pipeline import secular

Array = NDArray[np.float64]

EPS = secular.EPS
_REACH = 1e-12  # a vector with less than this of its length in a null space has none there


@dataclass(frozen=True, eq=False)
class Training:
    """Training sequences of one replicate, for every rho and ridge; :func:`train` makes it.

    Parameters
    ----------
    value : (d,) array
        Eigenvalues of S0, descending, in units of kappa; those within rounding of 0 are 0.
    basis : (d, d) array
        Its eigenvectors, one a column.
    signal : (d,) array
        The unit signal direction u, in the eigenbasis.
    noise : (d,) array
        h, in the eigenbasis and in units of sqrt(kappa).
    amplitude : float
        a in ``v = h + sqrt(rho) a u``.
    label_noise : (d,) array
        g, the labels' mean of the noise, in the eigenbasis and in units of sqrt(kappa).
    label_signal : float
        q, the labels' mean of the pooled signs over sqrt(alpha).
    """

    value: Array
    basis: Array
    signal: Array
    noise: Array
    amplitude: float
    label_noise: Array
    label_signal: float

    def ridge(self, rho: ArrayLike, ridge: ArrayLike) -> Array:
        """Coefficients of ridge regression of the labels on the pooled vectors.

        Parameters
        ----------
        rho : (n,) array_like
            Signal strengths, finite and not negative.
        ridge : (m,) array_like
            lambda, in units of kappa: 0, for the limit from above (the solution of least norm), to infinity,
            for the direction of the labels' mean.

        Returns
        -------
        (n, m, d) array
            ``beta = (S + lambda kappa I)^{-1} (1/N) sum_n y_n c_n``, in units of 1/sqrt(kappa); at infinity
            the labels' mean itself, in units of sqrt(kappa), in place of lambda beta.

        Raises
        ------
        ValueError
            If a strength or a ridge is outside its domain.

        Notes
        -----
        By Sherman and Morrison's formula. S is neither centred nor is there an intercept (setting: Seddik,
        arXiv:2605.06826, Section 6).
        """
        strength, lam = np.sqrt(_domain("rho", rho)), _domain("ridge", ridge, infinite=True)
        v = self.noise + self.amplitude * strength[:, None] * self.signal
        mean = self.label_noise + self.label_signal * strength[:, None] * self.signal
        null = self.value == 0.0
        v[:, null] = np.where(self._reaches(v, null)[:, None], v[:, null], 0.0)
        # The mean lies in the range of S: its part in the null space of S0 is along v, at every ridge. With
        # that multiple of v taken out, nothing large cancels as lambda -> 0.
        share = _quotient(_along(v[:, null], mean[:, null]), _along(v[:, null], v[:, null]))
        rest = mean - share[:, None] * v
        rest[:, null] = 0.0
        beta = np.empty((strength.size, lam.size, self.value.size))
        for column, ridge_value in enumerate(lam):
            if np.isinf(ridge_value):
                beta[:, column] = mean
                continue
            resolved = _quotient(rest, self.value + ridge_value)
            weight = share - _along(v, resolved)
            beta[:, column] = resolved + weight[:, None] * self._solve_update(v, float(ridge_value), null)
        return beta @ self.basis.T

    def spectral(self, rho: ArrayLike) -> Array:
        """Leading eigenvector of S, its sign set by the labels.

        Parameters
        ----------
        rho : (n,) array_like
            Signal strengths, finite and not negative.

        Returns
        -------
        (n, d) array
            Unit vectors u_hat with ``u_hat' sum_n y_n c_n >= 0``.

        Raises
        ------
        ValueError
            If a strength is outside its domain.
        """
        strength = np.sqrt(_domain("rho", rho))
        v = self.noise + self.amplitude * strength[:, None] * self.signal
        mean = self.label_noise + self.label_signal * strength[:, None] * self.signal
        length = np.sqrt(_along(v, v) + self.value[0] + np.finfo(np.float64).tiny)
        # A weight below rounding is raised to it, and poles are set apart by as much.
        floor = (EPS * length)[:, None]
        v = np.where(np.abs(v) < floor, np.where(v < 0.0, -floor, floor), v)
        ramp = 8.0 * EPS * float(np.max(length)) ** 2 * np.arange(self.value.size)
        poles = np.minimum.accumulate(self.value + ramp) - ramp
        origin, offset = secular.solve(poles, v * v, 1)
        vector = v / ((poles[origin] - poles) + offset)
        vector /= np.sqrt(_along(vector, vector))[:, None]
        sign = np.where(_along(vector, mean) < 0.0, -1.0, 1.0)
        return np.asarray((sign[:, None] * vector) @ self.basis.T)

    def _reaches(self, v: Array, null: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether v has more than rounding error in the null space of S0."""
        return _along(v[:, null], v[:, null]) > _REACH**2 * _along(v, v)

    def _solve_update(self, v: Array, lam: float, null: NDArray[np.bool_]) -> Array:
        """Return ``(S0 + v v' + lambda)^{-1} v``, or its limit as lambda -> 0."""
        if lam == 0.0:
            outside = np.where(null, v, 0.0)
            size = _along(outside, outside)[:, None]
            inside = _quotient(v, self.value)
            regular = inside / (1.0 + _along(v, inside))[:, None]
            return np.where(size > 0.0, _quotient(outside, size), regular)
        solved = v / (self.value + lam)
        return np.asarray(solved / (1.0 + _along(v, solved))[:, None])


@dataclass(frozen=True, eq=False)
class Margin:
    """What a classifier's scores of the tokens amount to; :func:`margin` makes it.

    Parameters
    ----------
    signal : (...) array
        Half the difference of the classes' mean scores: ``mu'beta`` for a class-centered table.
    offset : (...) array
        Half their sum, 0 for tables that are centered.
    noise : (...) array
        Mean of the classes' variances, ``beta'W beta``.
    """

    signal: Array
    offset: Array
    noise: Array

    def theta2(self, gain: float) -> Array:
        """Squared signal to noise of the margin, ``(alpha/kappa) signal^2/noise``.

        Parameters
        ----------
        gain : float
            alpha/kappa of the pooling.

        Returns
        -------
        (...) array
            theta^2, ``rho (u'beta)^2/(beta'W beta)`` for a class-centered table; 0 where there is no signal.
        """
        return _quotient(gain * self.signal**2, self.noise, infinite=True)


def train(
    pooled: Array, signs: Array, labels: ArrayLike, direction: Array, *, alpha: float, kappa: float
) -> Training:
    """Decompose the training sequences of one replicate.

    Parameters
    ----------
    pooled : (N, d) array
        Pooled noise: ``sum_t w_t z`` of each sequence.
    signs : (N,) array
        Pooled signs b: ``sum_t w_t xi_t``.
    labels : (N,) array_like
        Labels y, -1 or +1.
    direction : (d,) array
        Unit signal direction u.
    alpha, kappa : float
        Signal strength w'Rw and noise scale w'w of the pooling.

    Returns
    -------
    Training
        What every rho and ridge need.

    Raises
    ------
    ArithmeticError
        If the noise holds NaN or infinity, or LAPACK does not converge.
    """
    N, d = pooled.shape
    y = np.asarray(labels, dtype=np.float64)
    S0 = blas.dsyrk(1.0 / (N * kappa), pooled.T, lower=1)
    length = float(np.sqrt(signs @ signs))
    h = np.zeros(d)
    if length > 0.0:
        h = pooled.T @ (signs / length) / np.sqrt(N * kappa)
        S0 = blas.dsyr(-1.0, h, a=S0, lower=1, overwrite_a=1)
    if not np.isfinite(np.add.reduce(S0, axis=None)):
        raise ArithmeticError(f"the pooled noise of {N} sequences holds NaN or infinity")
    ascending, basis, info = lapack.dsyevd(S0, lower=1, overwrite_a=1)
    if info != 0:
        raise ArithmeticError(f"LAPACK dsyevd stopped with info = {info} on a matrix of size {d}")
    value, basis = ascending[::-1].copy(), np.ascontiguousarray(basis[:, ::-1])
    value[value <= 8.0 * max(d, N) * EPS * (value[0] + float(h @ h))] = 0.0
    return Training(
        value=value,
        basis=basis,
        signal=basis.T @ direction,
        noise=basis.T @ h,
        amplitude=length / float(np.sqrt(N * alpha)),
        label_noise=basis.T @ (pooled.T @ y) / (N * np.sqrt(kappa)),
        label_signal=float(y @ signs) / (N * float(np.sqrt(alpha))),
    )


def token_scores(beta: Array, noise: Array, direction: Array, length: ArrayLike) -> tuple[Array, Array]:
    """Score of each token by linear classifiers.

    Parameters
    ----------
    beta : (n, ..., d) array
        Classifiers, the first axis over signal strengths.
    noise : (V, d) array
        Noise of each token; the first half of the vocabulary is the class +1.
    direction : (d,) array
        Unit signal direction u.
    length : (n,) array_like
        |mu| at each strength: ``sqrt(rho kappa/alpha)``.

    Returns
    -------
    plus, minus : (n, ..., V/2) array
        ``beta'e_v`` of the tokens of the class +1 and of the class -1.
    """
    half = noise.shape[0] // 2
    along = np.asarray(length, dtype=np.float64).reshape(-1, *[1] * (beta.ndim - 2)) * (beta @ direction)
    scores = beta @ noise.T
    return scores[..., :half] + along[..., None], scores[..., half:] - along[..., None]


def margin(plus: Array, minus: Array) -> Margin:
    """Signal, offset and noise of classifiers, from their scores of the tokens.

    Parameters
    ----------
    plus, minus : (..., n) array
        Score of each token of the class +1 and of the class -1.

    Returns
    -------
    Margin
        Their means and variances.
    """
    up, down = plus.mean(axis=-1), minus.mean(axis=-1)
    spread = plus.var(axis=-1) + minus.var(axis=-1)
    return Margin(signal=0.5 * (up - down), offset=0.5 * (up + down), noise=0.5 * spread)


def gaussian_pooled(rng: np.random.Generator, within: Array, N: int, kappa: float) -> Array:
    """Draw pooled noise as if token counts were normal: the control for the finite number of tokens.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    within : (V, d) array
        Noise of each token about the mean noise of its class.
    N : int
        Number of sequences.
    kappa : float
        Noise scale w'w of the pooling.

    Returns
    -------
    (N, d) array
        Independent normal rows of covariance ``kappa W``, W the within-class covariance: the first two
        moments of pooled noise given its signs, for a class-centered table and any weights.
    """
    V = within.shape[0]
    return np.asarray(np.sqrt(kappa / V) * (rng.standard_normal((N, V)) @ within))


def _along(a: Array, b: Array) -> Array:
    return np.asarray(np.add.reduce(a * b, axis=-1))


def _quotient(a: Array, b: Array, *, infinite: bool = False) -> Array:
    """Divide, with 0 where b is 0; or infinity, where a is not 0 and that is asked for."""
    a, b = np.broadcast_arrays(a, b)
    empty = np.where(a > 0.0, np.inf, 0.0) if infinite else np.zeros(a.shape)
    return np.divide(a, b, out=empty, where=b != 0.0)


def _domain(name: str, values: ArrayLike, *, infinite: bool = False) -> Array:
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    wrong = ~(array >= 0.0) | (np.isinf(array) & (not infinite))
    if array.ndim != 1 or np.any(wrong):
        last = "to infinity" if infinite else "and finite"
        raise ValueError(f"{name} = {values!r}: it is a number or vector, from 0 {last}; give such a one")
    return array
