"""Limit law of a sample covariance whose population covariance is itself of sample kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.analysis import tracy_widom
from eigensweep.analysis.moments import product_moment
from eigensweep.analysis.spectral_curve import ComplexArray, FloatArray, Points, SpectralCurve

_FAR = 1e30  # |z| past which G = 1/z to the last digit


@dataclass(frozen=True)
class ProductLaw:
    """Free multiplicative convolution of the Marchenko-Pastur laws of ratios delta and gamma.

    The law of the noise eigenvalues of S/kappa, for N samples in d dimensions (gamma = d/N) of a
    population covariance that is the covariance of V noise vectors (delta = d/V), as d, V, N grow
    (Seddik, arXiv:2605.06826, Theorem 1). MP_c is the limit law of ``Z Z'/n``, Z p x n with standard
    entries, p/n -> c. With ``w = 1/(z G(z) - 1)``, G the Stieltjes transform,

        (w + 1)(w + delta)(w + gamma) = z w^2,

    and on the support, with ``w = r exp(i theta)``, ``f(x) = sin(theta)/(pi r x)``. Every method is
    vectorised: an array gives an array of its shape, a scalar a numpy scalar.

    Parameters
    ----------
    delta : float
        Dimension over vocabulary size, positive.
    gamma : float
        Dimension over number of samples; 0 gives the Marchenko-Pastur law of ratio delta.

    Raises
    ------
    ValueError
        If delta is not positive, gamma is negative, or either is not finite.

    Examples
    --------
    >>> law = ProductLaw(delta=0.5, gamma=0.25)
    >>> [round(edge, 10) for edge in law.support]
    [0.0559355743, 3.7466902227]
    >>> law.cdf([0.5, 1.0, 2.0]).round(6).tolist()
    [0.390397, 0.612163, 0.847833]
    >>> float(law.ppf(0.5).round(10))
    0.7130155832
    """

    delta: float
    gamma: float

    def __post_init__(self) -> None:
        for name, least in (("delta", "positive"), ("gamma", "zero or positive")):
            value = float(getattr(self, name))
            if not math.isfinite(value) or value < 0 or (value == 0 and name == "delta"):
                raise ValueError(
                    f"{name} = {value:g}: an aspect ratio is finite and {least}; give such a one"
                )
            object.__setattr__(self, name, value)

    @cached_property
    def _curve(self) -> SpectralCurve:
        return SpectralCurve.from_ratios(self.delta, self.gamma)

    @cached_property
    def _edges(self) -> tuple[Points, FloatArray]:
        """Points of the curve at the lower and the upper edge, and their scaled positions."""
        low = np.array([0.0, 1.0])
        points = self._curve.at_angle(low, 1 - low)
        return points, self._curve.position(points)

    @cached_property
    def support(self) -> tuple[float, float]:
        """Lower and upper edge of the continuous part, in units of kappa."""
        lower, upper = self._curve.scale * self._edges[1]
        return float(lower), float(upper)

    @property
    def atom(self) -> float:
        """Mass at 0: ``max(0, 1 - 1/delta, 1 - 1/gamma)``."""
        return max(0.0, self.delta - 1, self.gamma - 1) / self._curve.scale

    @property
    def hard_edge(self) -> bool:
        """Whether the continuous part reaches 0: the two largest of (1, delta, gamma) coincide."""
        return self._curve.b_gap == 0

    @cached_property
    def edge_w(self) -> tuple[float, float]:
        """``w`` at the lower and the upper edge: roots of ``w^3 = e2 w + 2 e3``.

        With e2 = delta + gamma + delta gamma and e3 = delta gamma. A spike of strength rho leaves the
        bulk when ``rho - delta`` exceeds the upper one.
        """
        lower, upper = self._curve.scale * self._curve.radius(self._edges[0])
        return -float(lower), float(upper)

    @cached_property
    def edge_coefficients(self) -> tuple[float, float]:
        """Coefficients A of ``f(x) ~ A |x - edge|^(1/2)`` at the lower and the upper edge.

        The lower one is infinite at a hard edge, where the density diverges.
        """
        points, x = self._edges
        k, gap = self._curve.squeeze(points)
        r = self._curve.radius(points)
        with np.errstate(divide="ignore"):
            lower, upper = 1 / (np.pi * r * x * np.sqrt(r * np.array([gap[0], 1 + k[1]])))
        scale = self._curve.scale**-2.5
        return float(lower * scale), float(upper * scale)

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density of the continuous part.

        Parameters
        ----------
        x : array_like
            Points of any shape, in units of kappa.

        Returns
        -------
        ndarray or numpy float
            Density in units of 1/kappa; 0 outside the support and infinite at a hard edge. It integrates
            to 1 minus `atom`, which it leaves out.
        """
        points = np.asarray(x, dtype=np.float64)
        inside, scaled, on_curve = self._inside(points)
        value = np.where(np.isnan(points), np.nan, 0.0)
        value[inside] = self._curve.density(on_curve, scaled) / self._curve.scale**2
        if self.hard_edge:
            value[points == 0] = np.inf
        return value[()]

    def cdf(self, x: ArrayLike) -> FloatArray:
        """Distribution function, right-continuous, with the atom at 0.

        Parameters
        ----------
        x : array_like
            Points of any shape, in units of kappa.

        Returns
        -------
        ndarray or numpy float
            Mass at or below x; 0 for x < 0.
        """
        points = np.asarray(x, dtype=np.float64)
        inside, _, on_curve = self._inside(points)
        value = np.where(points >= self.support[1], 1.0, np.where(points >= 0, self.atom, 0.0))
        value[np.isnan(points)] = np.nan
        below, _ = self._curve.masses(on_curve)
        value[inside] = self.atom + np.clip(below, 0, 1) / self._curve.scale
        return value[()]

    def _inside(self, x: FloatArray) -> tuple[NDArray[np.bool_], FloatArray, Points]:
        """Mask of the points strictly inside the support, their scaled positions, and the curve there."""
        lower, upper = self.support
        inside = np.asarray((x > lower) & (x < upper))
        scaled = np.maximum(x[inside] / self._curve.scale, np.finfo(np.float64).tiny)
        return inside, scaled, self._curve.at_position(scaled)

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Quantile: the least x whose distribution function reaches q.

        Parameters
        ----------
        q : array_like
            Probabilities in [0, 1], of any shape.

        Returns
        -------
        ndarray or numpy float
            Quantiles in units of kappa: 0 for q at or below the atom, the upper edge at 1, and for a law
            without atom the lower edge at 0.

        Raises
        ------
        ValueError
            If a probability lies outside [0, 1].
        """
        goal = np.asarray(q, dtype=np.float64)
        _refuse_improbable(goal)
        lower, upper = self.support
        scale = self._curve.scale
        value = np.where(goal >= 1, upper, np.where(goal <= self.atom, 0.0 if self.atom > 0 else lower, goal))
        inner = np.asarray((goal > self.atom) & (goal < 1))
        above = np.clip(scale * (1 - goal[inner]), 0.0, 1.0)
        below = scale * (goal[inner] - self.atom)
        solved = (below > 0) & (above > 0)
        points = self._curve.at_masses(below[solved], above[solved])
        edge = np.where(below > 0, upper, lower)
        edge[solved] = np.clip(scale * self._curve.position(points), lower, upper)
        value[inner] = edge
        return value[()]

    def stieltjes(self, z: ArrayLike) -> NDArray[Any]:
        """Stieltjes transform ``G(z)``, the integral of ``dF(x)/(z - x)``, atom included.

        Parameters
        ----------
        z : array_like
            Points of any shape, real ones off the spectrum, complex ones anywhere else.

        Returns
        -------
        ndarray or numpy scalar
            Complex for complex z, real for real z. ``G(conj z) = conj G(z)``.

        Raises
        ------
        ValueError
            If a real point lies inside the support, on a hard edge or on the atom, where the limits from
            the two sides differ or are infinite: approach it as ``x + 1j * eps``, whose limit has
            ``-pi pdf(x)`` as its imaginary part.

        Examples
        --------
        >>> float(ProductLaw(0.5, 0.25).stieltjes(10.0).round(10))
        0.1122840643
        """
        given = np.asarray(z)
        points = given.astype(np.complex128)
        self._refuse_spectrum(points)
        far = np.abs(points) > _FAR
        upper = np.where(far, _FAR, points.real + 1j * np.abs(points.imag)).astype(np.complex128)
        near = self._curve.transform(upper / self._curve.scale) / self._curve.scale
        with np.errstate(invalid="ignore", over="ignore"):
            value = np.where(far, 1 / np.where(far, points, 1), np.where(points.imag < 0, near.conj(), near))
        value = np.where(np.isinf(points), 0, value)
        for edge, limit in zip(self.support, self._curve.edge_transforms(*self._edges), strict=True):
            value = np.where(points == edge, limit / self._curve.scale, value)
        return value[()] if np.iscomplexobj(given) else value.real[()]

    def _refuse_spectrum(self, z: ComplexArray) -> None:
        lower, upper = self.support
        singular = (z.real == 0) & (self.hard_edge or self.atom > 0)
        on = (z.imag == 0) & (((z.real > lower) & (z.real < upper)) | singular)
        if np.any(on):
            raise ValueError(
                f"z = {z[on].real.flat[0]:g}: the Stieltjes transform has no single value on the spectrum "
                f"(support {lower:g} to {upper:g}, atom {self.atom:g} at 0); approach it as x + 1j * eps"
            )

    def moment(self, k: ArrayLike) -> FloatArray:
        """Moment of the law, the integral of ``x^k dF(x)``.

        By Lagrange inversion of ``z = s/((1 + s)(1 + delta s)(1 + gamma s))``, s the moment series, it is
        ``1/k`` times the sum over i + j + l = k - 1 of ``C(k,i) C(k,j) C(k,l) delta^j gamma^l``.

        Parameters
        ----------
        k : array_like of int
            Orders, zero or positive.

        Returns
        -------
        ndarray or numpy float
            Moments in units of kappa^k; infinite where they exceed the range of a double.

        Raises
        ------
        ValueError
            If an order is negative or not whole.

        Examples
        --------
        >>> ProductLaw(1.0, 1.0).moment([0, 1, 2, 3, 4]).tolist()
        [1.0, 1.0, 3.0, 12.0, 55.0]
        """
        orders = np.asarray(k, dtype=np.float64)
        wrong = ~(np.isfinite(orders) & (orders >= 0) & (orders == np.round(orders)))
        if np.any(wrong):
            raise ValueError(
                f"k = {orders[wrong].flat[0]:g}: the order of a moment is a whole number from 0 up"
            )
        distinct, back = np.unique(orders, return_inverse=True)
        values = np.array([product_moment(int(order), self.delta, self.gamma) for order in distinct])
        return values[back].reshape(orders.shape)[()]

    @property
    def tracy_widom_scale(self) -> float:
        """Scale of the top eigenvalue of pure noise: upper edge + scale d^(-2/3) TW1.

        ``(b^2 (w^3 + e3))^(1/3)`` at the upper edge b, in units of kappa.
        """
        return self._edge_scale(1)

    @property
    def tracy_widom_scale_lower(self) -> float:
        """Scale of the least positive eigenvalue of pure noise: lower edge - scale d^(-2/3) TW1.

        NaN at a hard edge, where the fluctuations are not of Tracy-Widom's kind.
        """
        return math.nan if self.hard_edge else self._edge_scale(0)

    def _edge_scale(self, side: int) -> float:
        points, x = self._edges
        k, gap = self._curve.squeeze(points)
        bend = (gap[0], 1 + k[1])[side]  # |w^3 + e3|/r^3
        r = self._curve.radius(points)[side]
        return float(self._curve.scale ** (5 / 3) * r * np.cbrt(x[side] ** 2 * bend))

    def top_quantile(self, q: ArrayLike, d: ArrayLike) -> FloatArray:
        """Quantile of the top eigenvalue of pure noise at dimension d, to leading order in d.

        Parameters
        ----------
        q : array_like
            Probabilities in [0, 1].
        d : array_like
            Dimensions, positive; broadcast against q.

        Returns
        -------
        ndarray or numpy float
            ``upper edge + tracy_widom_scale d^(-2/3) TW1^{-1}(q)``, in units of kappa.

        Raises
        ------
        ValueError
            If a probability lies outside [0, 1] or a dimension is not positive.

        Examples
        --------
        >>> float(ProductLaw(0.5, 0.25).top_quantile(0.95, 400).round(3))
        3.794
        """
        size = np.asarray(d, dtype=np.float64)
        if np.any(~(size > 0)):
            raise ValueError(f"d = {size[~(size > 0)].flat[0]:g}: a dimension is positive")
        quantile = np.asarray(tracy_widom.ppf(q))
        return np.asarray(self.support[1] + self.tracy_widom_scale * size ** (-2 / 3) * quantile)[()]


def _refuse_improbable(q: FloatArray) -> None:
    wrong = (q < 0) | (q > 1)
    if np.any(wrong):
        raise ValueError(f"q = {q[wrong].flat[0]:g}: a probability lies between 0 and 1")
