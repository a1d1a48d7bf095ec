"""The curve that parametrises the free product of two Marchenko-Pastur laws.

With ``w = 1/(z G(z) - 1)``, G the Stieltjes transform, the law of ratios (delta, gamma) solves

    (w + 1)(w + delta)(w + gamma) = z w^2,

which is symmetric and homogeneous in (1, delta, gamma). Dividing by the largest of the three leaves
ratios 1 >= b >= c without an atom, so one set of formulas serves every regime. On the support
``w = r exp(i theta)``, theta from pi (lower edge) to 0 (upper edge), and the third root is real. Every
quantity below is a sum of terms of one sign wherever that is possible: it keeps its *relative* accuracy
at a hard edge, where x and the mass below it vanish.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

_TINY = float(np.finfo(np.float64).tiny)
_SMALL_RATIO = 1e-3  # below it the arguments of the distribution function are summed as series
_LOWEST_LOG_ANGLE = -300.0  # log tan of half an angle; its square is still a normal number


@dataclass(frozen=True)
class Points:
    """Points of the curve above the support.

    Parameters
    ----------
    low, high : ndarray
        ``cos^2(theta/2)`` and ``sin^2(theta/2)``: they vanish at the lower and at the upper edge, and
        each is accurate to its own last digits there.
    excess : ndarray
        ``r/sqrt(b) - 1``, never negative and at most 1.
    """

    low: FloatArray
    high: FloatArray
    excess: FloatArray


@dataclass(frozen=True)
class SpectralCurve:
    """The curve of the scaled ratios ``1 >= b >= c``; x and z here are divided by `scale`.

    Parameters
    ----------
    scale : float
        The largest of (1, delta, gamma); ``1/scale`` is the mass of the continuous part.
    b, c : float
        The two smaller ones over `scale`.
    b_gap, c_gap, ratio_gap : float
        ``1 - b``, ``1 - c`` and ``1 - c/b``, taken before the division so that no digit cancels.
    """

    scale: float
    b: float
    c: float
    b_gap: float
    c_gap: float
    ratio_gap: float

    @classmethod
    def from_ratios(cls, delta: float, gamma: float) -> SpectralCurve:
        """Sort and scale the ratios of a law."""
        least, middle, most = sorted((1.0, delta, gamma))
        return cls(
            scale=most,
            b=middle / most,
            c=least / most,
            b_gap=(most - middle) / most,
            c_gap=(most - least) / most,
            ratio_gap=(middle - least) / middle,
        )

    @property
    def root_b(self) -> float:
        """Square root of b."""
        return float(np.sqrt(self.b))

    @property
    def root_b_gap(self) -> float:
        """``1 - sqrt(b)``."""
        return self.b_gap / (1 + self.root_b)

    @property
    def ratio(self) -> float:
        """``c/b``."""
        return self.c / self.b

    def at_angle(self, low: FloatArray, high: FloatArray) -> Points:
        """Find the points at given angles.

        The modulus solves ``r^3 - e2 r = 2 e3 cos(theta)``; in the excess all its coefficients are
        positive, so Newton's steps from the quadratic's root, which lies above, descend to the root.
        """
        linear = self.ratio_gap + self.c_gap
        mean = np.sqrt(self.ratio * self.c)
        constant = self.ratio * self.root_b_gap**2 + 4 * mean * low
        excess = 2 * constant / (linear + np.sqrt(linear**2 + 12 * constant) + _TINY)
        for _ in range(5):
            value = ((excess + 3) * excess + linear) * excess - constant
            excess = excess - value / ((3 * excess + 6) * excess + linear + _TINY)
        return Points(low, high, excess)

    def at_position(self, x: FloatArray) -> Points:
        """Find the points above x, strictly inside the scaled support."""
        zeta = self._real_root(x)
        q = np.sqrt(1 - zeta)
        excess = zeta / (q * (1 + q))
        four_r = 4 * self.root_b * (1 + excess)
        # 4 r cos^2(theta/2) = x - e1 - w3 + 2 r, with w3 = -c (1 - zeta) the real root
        # x - (1 - sqrt b)^2, through x - 1 for narrow laws about 1 and through x where 0 can be an edge
        offset = (x - 1) + (2 * self.root_b - self.b) if self.root_b < 0.25 else x - self.root_b_gap**2
        low = offset + (self.root_b - self.c) * zeta + self.root_b * zeta**2 * (2 + q) / (q * (1 + q) ** 2)
        high = (1 - x) + (2 * self.root_b + self.b) + 2 * self.root_b * excess + self.c * zeta
        return Points(np.maximum(low, 0) / four_r, np.maximum(high, 0) / four_r, excess)

    def _real_root(self, x: FloatArray) -> FloatArray:
        """Solve for zeta in (0, 3/4), where ``w = -c (1 - zeta)`` is the real root above x.

        ``zeta (1 - c + c zeta)(1 - c/b + zeta c/b)/(1 - zeta)^2 = x c/b``, whose left side is convex and
        increasing in log-log scale: Newton's steps in log zeta from an upper bound descend to the root.
        """
        if self.c == 0:
            return np.zeros_like(x)
        right = np.maximum(x * self.ratio, _TINY)
        zeta = np.full_like(x, 0.75)
        coefficients = (
            self.c_gap * self.ratio_gap,
            self.c * self.ratio_gap + self.c_gap * self.ratio,
            self.c * self.ratio,
        )
        with np.errstate(over="ignore"):
            for coefficient, root in zip(coefficients, (np.positive, np.sqrt, np.cbrt), strict=True):
                if coefficient > 0:
                    zeta = np.minimum(zeta, root(right / coefficient))
        done = np.zeros(x.shape, dtype=bool)
        for _ in range(30):
            first = self.c_gap + self.c * zeta
            second = self.ratio_gap + self.ratio * zeta
            rest = 1 - zeta
            slope = 1 + zeta * (self.c / first + self.ratio / second + 2 / rest)
            step = np.log(zeta * first * second / (rest * rest * right)) / slope
            zeta = np.where(done, zeta, zeta * np.exp(-step))
            done |= np.abs(step) < 1e-9  # quadratic: the step after would be 1e-17; each point by itself
            if np.all(done):
                break
        return zeta

    def radius(self, points: Points) -> FloatArray:
        """Modulus of w."""
        return self.root_b * (1 + points.excess)

    def _gaps(self, points: Points) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``1 - r``, ``r - b`` and ``r - c``."""
        over_b = self.root_b * (points.excess + self.root_b_gap)
        return (
            self.root_b_gap - self.root_b * points.excess,
            over_b,
            over_b + self.b * self.ratio_gap,
        )

    def position(self, points: Points) -> FloatArray:
        """``x = |w + 1| |w + b| |w + c|/r^2``."""
        r = self.radius(points)
        one, over_b, over_c = self._gaps(points)
        x = np.hypot(one, 2 * np.sqrt(r * points.low))
        x = x * np.hypot(over_b, 2 * np.sqrt(r * self.b * points.low))
        return np.asarray(x * np.hypot(over_c, 2 * np.sqrt(r * self.c * points.low)) / r**2)

    def density(self, points: Points, x: FloatArray) -> FloatArray:
        """``sin(theta)/(pi r x)``; x is the points' position."""
        return 2 * np.sqrt(points.low * points.high) / (np.pi * self.radius(points) * x)

    def squeeze(self, points: Points) -> tuple[FloatArray, FloatArray]:
        """``k = b c/r^3`` and ``1 - k``, where ``dx/dtheta = -2 r sin |1 + k e^(i theta)|^2/(1 + k cos)``."""
        mean = float(np.sqrt(self.ratio * self.c))
        mean_gap = (self.ratio_gap + self.ratio * self.c_gap) / (1 + mean)
        cube = (1 + points.excess) ** 3
        gap = (((points.excess + 3) * points.excess + 3) * points.excess + mean_gap) / cube
        return mean / cube, gap

    def masses(self, points: Points) -> tuple[FloatArray, FloatArray]:
        """Mass of the scaled law, which has total 1, below and above the points.

        With psi = pi - theta, ``pi F = psi + 2 sin(psi)/r - (1/b - 1) A(b) - (1/c - 1) A(c)`` and
        ``A(b) = arg(r - b e^(-i psi))``.
        """
        sine = 2 * np.sqrt(points.low * points.high)
        r = self.radius(points)
        _, over_b, over_c = self._gaps(points)
        turned = self._argument(self.b, self.b_gap, over_b, points, r, sine)
        turned = turned + self._argument(self.c, self.c_gap, over_c, points, r, sine)
        root_low, root_high = np.sqrt(points.low), np.sqrt(points.high)
        below = (2 * np.arctan2(root_low, root_high) - turned) / np.pi
        above = (2 * np.arctan2(root_high, root_low) + turned) / np.pi
        return below, above

    @staticmethod
    def _argument(
        ratio: float, gap: float, over: FloatArray, points: Points, r: FloatArray, sine: FloatArray
    ) -> FloatArray:
        """``(1/ratio - 1) A(ratio) - sin(psi)/r``; ``over`` is r - ratio."""
        argument = np.arctan2(ratio * sine, over + 2 * ratio * points.low)
        if ratio > _SMALL_RATIO:
            return np.asarray(gap / ratio * argument - sine / r)
        # A = sum of |z|^n sin(n psi)/n with z = ratio e^(i psi)/r, |z| <= sqrt(ratio): its first term
        # over the ratio is sin(psi)/r, large and cancelled, so it is left out
        turn = (points.high - points.low) + 1j * sine
        z = ratio / r * turn
        series = np.zeros_like(z)
        for n in range(12, 1, -1):
            series = series * z + 1 / n
        return np.asarray(ratio / r**2 * (turn * turn * series).imag - argument)

    def at_masses(self, below: FloatArray, above: FloatArray) -> Points:
        """Find the points with given masses on both sides (positive, of sum 1).

        The smaller mass is matched in logarithms against ``log tan`` of half the angle from its edge,
        where both a soft (slope 3) and a hard edge (slope 1) are straight lines.
        """
        half = np.array([0.5])
        middle = np.array(self.masses(self.at_angle(half, half)))
        upper = below > middle[0]
        goal = np.log(np.where(upper, above, below))
        # where the whole way down has the slope of a soft edge; elsewhere the root lies to the left
        at = np.maximum((goal - np.log(np.where(upper, middle[1], middle[0]))) / 3, _LOWEST_LOG_ANGLE)
        left, right = np.full_like(goal, _LOWEST_LOG_ANGLE), np.zeros_like(goal)
        active = np.arange(goal.size)
        for _ in range(80):
            here = at[active]
            _, value, slope = self._log_mass(here, upper[active])
            error = value - goal[active]
            left[active] = np.where(error <= 0, here, left[active])
            right[active] = np.where(error >= 0, here, right[active])
            after = here - error / slope
            astray = (after < left[active]) | (after > right[active])
            after = np.where(astray, (left[active] + right[active]) / 2, after)
            at[active] = after
            # quadratic: the step after would be 1e-18; a point stops for itself alone
            active = active[np.abs(after - here) > 1e-9 * np.maximum(1, np.abs(after))]
            if active.size == 0:
                break
        return self._log_mass(at, upper)[0]

    def _log_mass(
        self, log_angle: FloatArray, upper: NDArray[np.bool_]
    ) -> tuple[Points, FloatArray, FloatArray]:
        """Points, log of the mass beyond them, and its derivative by log tan of the half angle."""
        square = np.exp(2 * log_angle)
        near, far = square / (1 + square), 1 / (1 + square)
        points = self.at_angle(np.where(upper, far, near), np.where(upper, near, far))
        mass = np.maximum(np.where(upper, *self.masses(points)[::-1]), _TINY)
        k, gap = self.squeeze(points)
        chord = gap**2 + 4 * k * points.low
        jacobian = chord / (gap + 2 * k * points.low + _TINY)
        cube = (2 * np.sqrt(points.low * points.high)) ** 3
        derivative = 2 * cube * jacobian / (np.pi * np.maximum(self.position(points), _TINY))
        # the slope is at most 3; the mass is lost to rounding very near a soft edge, and the slope with it
        return points, np.log(mass), np.clip(derivative / mass, 1e-3, 4.0)

    def transform(self, z: ComplexArray) -> ComplexArray:
        """Stieltjes transform at Im z >= 0, times `scale`, by whichever form does not cancel near 0."""
        w, shifted = self.root(z)
        if self.scale == 1:  # w/((w + b)(w + c)) is finite at z = 0
            tight = np.abs(shifted) > 0.5
            over_b = np.where(tight, w + self.b, shifted - self.b_gap)
            over_c = np.where(tight, w + self.c, shifted - self.c_gap)
            return np.asarray(w / (over_b * over_c))
        return np.asarray((self.scale * shifted - (self.scale - 1)) / (self.scale * w * z))

    def edge_transforms(self, edges: Points, x: FloatArray) -> tuple[float, float]:
        """`transform` at the lower and the upper edge; from z alone half of the digits would be lost."""
        short = self._gaps(edges)[0][0]
        below, above = self.scale * self.radius(edges)
        lower = ((self.scale - 1) - self.scale * short) / (below * x[0]) if self.b_gap > 0 else np.nan
        return float(lower), float((above + 1) / (above * x[1]))

    def root(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """``w`` and ``w + 1`` at z with Im z >= 0, on the branch of the law's Stieltjes transform.

        Of the three roots it is the one of largest modulus of w; on the support, where two tie, the one
        with Im w > 0. The sign of Im w alone is not enough: the third root can share it.
        """
        linear = self.b_gap * self.c_gap + 2 * z
        largest = self._polish(_largest_cubic_root(-(self.b_gap + self.c_gap + z), linear, -z), z)
        safe = np.where(largest == 0, 1, largest)
        product = z / safe
        total = (linear - product) / safe  # of the two roots left
        root = np.sqrt(total**2 - 4 * product)
        root = np.where((total.conjugate() * root).real < 0, -root, root)
        second = (total + root) / 2
        third = product / np.where(second == 0, 1, second)
        roots = np.stack([largest, self._polish(second, z), self._polish(third, z)])
        # |w|^2 - 1 without the 1, and a little of Im w for the tie
        rank = roots.real**2 + roots.imag**2 - 2 * roots.real + 1e-3 * roots.imag
        shifted = np.take_along_axis(roots, np.argmax(rank, axis=0)[None], axis=0)[0]
        w = shifted - 1
        tight = np.abs(shifted) > 0.5  # there w can be the small one of the two
        e2, e3 = self.b + self.c + self.b * self.c, self.b * self.c
        square = (1 - z) + (self.b + self.c)
        for _ in range(3):
            value = ((w + square) * w + e2) * w + e3
            slope = (3 * w + 2 * square) * w + e2
            w = np.where(tight, w - value / np.where(slope == 0, 1, slope), w)
        return w, np.where(tight, 1 + w, shifted)

    def _polish(self, root: ComplexArray, z: ComplexArray) -> ComplexArray:
        """Newton's steps on ``e (e - 1 + b)(e - 1 + c) = z (1 - e)^2``, relatively exact for small e."""
        for _ in range(4):
            first, second, rest = root - self.b_gap, root - self.c_gap, 1 - root
            value = root * first * second - z * rest * rest
            slope = first * second + root * (first + second) + 2 * z * rest
            root = root - value / np.where(slope == 0, 1, slope)
        return root


def _largest_cubic_root(square: ComplexArray, linear: ComplexArray, constant: ComplexArray) -> ComplexArray:
    """Root of largest modulus of ``e^3 + square e^2 + linear e + constant``, by Cardano's formula."""
    q = (square**2 - 3 * linear) / 9
    r = (2 * square**3 - 9 * square * linear + 27 * constant) / 54
    root = np.sqrt(r**2 - q**3)
    root = np.where((r.conjugate() * root).real < 0, -root, root)
    cube = -((r + root) ** (1 / 3))
    turns = np.exp(2j * np.pi * np.arange(3) / 3).reshape((3,) + (1,) * q.ndim)
    first = cube * turns
    roots = first + np.where(first == 0, 0, q / np.where(first == 0, 1, first)) - square / 3
    return np.asarray(np.take_along_axis(roots, np.argmax(np.abs(roots), axis=0)[None], axis=0)[0])
