"""The spectral column: one decomposition that answers every signal strength.

A spiked matrix is ``S(rho) = S0 + v v'`` with ``v = h + sqrt(rho) a u``: a positive rank-one update of a
fixed noise matrix, linear in sqrt(rho). The eigenvalues of S0 and the projections of the signal direction
u and of the noise part h on its eigenvectors determine the whole spectrum and every overlap at any rho.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from eigensweep.pipeline import secular

Array = NDArray[np.float64]

EPS = secular.EPS


@dataclass(frozen=True, eq=False)
class Column:
    """One replicate of a spiked model, for every rho.

    Parameters
    ----------
    value : (d,) array
        Eigenvalues of S0, descending, in units of kappa.
    signal : (d,) array
        Projections of the unit signal direction u on its eigenvectors, made non-negative.
    noise : (d,) array
        Projections of h on the same eigenvectors, in units of sqrt(kappa). Inside a degenerate
        eigenspace the basis is chosen such that at most two modes have a nonzero projection.
    amplitude : float
        a in ``v = h + sqrt(rho) a u``.

    Notes
    -----
    Eigenvalues are roots of the secular equation ``1 = sum_j v_j^2 / (z - lambda_j)``, one in every gap;
    the eigenvector of the root z has the components ``v_j / (z - lambda_j)``.
    """

    value: Array
    signal: Array
    noise: Array
    amplitude: float

    @property
    def dimension(self) -> int:
        """The matrix's size d."""
        return int(self.value.size)

    def update(self, rho: ArrayLike) -> Array:
        """Return the rank-one update's vector v at each rho.

        Parameters
        ----------
        rho : (n,) array
            Signal strengths, non-negative.

        Returns
        -------
        (n, d) array
            v in the eigenbasis of S0.
        """
        strength = self.amplitude * np.sqrt(_strengths(rho))
        return self.noise + strength[:, None] * self.signal

    def eigenpairs(self, rho: ArrayLike, top: int | None = None) -> tuple[Array, Array]:
        """Return leading eigenvalues and their squared overlaps with u, at each rho.

        Parameters
        ----------
        rho : (n,) array
            Signal strengths, non-negative.
        top : int, optional
            How many leading pairs; all d of them if not given. Beyond d they are NaN.

        Returns
        -------
        eigenvalue : (n, top) array
            Descending, in units of kappa.
        overlap : (n, top) array
            Squared overlap of each eigenvector with u, in [0, 1].
        """
        count = self.dimension if top is None else min(top, self.dimension)
        # A mode that neither u nor h touches is an eigenvector at every rho.
        active = (self.signal != 0.0) | (self.noise != 0.0)
        idle = self.value[~active][:count]
        # In rows of memory: numpy sums the rows of a transposed array in another order.
        v = np.ascontiguousarray(self.update(rho)[:, active])
        value, overlap = self._active_pairs(v, active, count)
        if idle.size:
            value, overlap = _merge(value, overlap, idle, count)
        if top is not None and top > count:
            pad = ((0, 0), (0, top - count))
            value = np.pad(value, pad, constant_values=np.nan)
            overlap = np.pad(overlap, pad, constant_values=np.nan)
        return value, overlap

    def _active_pairs(self, v: Array, active: NDArray[np.bool_], count: int) -> tuple[Array, Array]:
        signal = self.signal[active]
        count = min(count, signal.size)
        if count == 0:
            return np.empty((v.shape[0], 0)), np.empty((v.shape[0], 0))
        poles, scale = self._poles(active)
        length = np.sqrt(np.maximum(np.add.reduce(v * v, axis=1), scale))
        # A weight below rounding is raised to it: the matrix moves by less than its own rounding error,
        # and every gap then holds exactly one root.
        floor = (EPS * length)[:, None]
        v = np.where(np.abs(v) < floor, np.where(v < 0.0, -floor, floor), v)
        origin, offset = secular.solve(poles, v * v, count)
        return poles[origin] + offset, _overlaps(poles, v, signal, origin, offset)

    def _poles(self, active: NDArray[np.bool_]) -> tuple[Array, float]:
        """Return the active modes' eigenvalues, strictly apart, and the matrix's scale."""
        value = self.value[active]
        energy = float(np.max(np.abs(self.value))) + float(np.add.reduce(self.noise**2))
        scale = max(energy, self.amplitude**2, float(np.finfo(np.float64).tiny) ** 0.25)
        apart = 8.0 * EPS * scale
        ramp = apart * np.arange(value.size)
        return np.minimum.accumulate(value + ramp) - ramp, scale

    def forms(self, rho: ArrayLike, z: ArrayLike) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
        """Return the resolvent's trace and its quadratic form in u.

        Parameters
        ----------
        rho : (n,) array
            Signal strengths, non-negative.
        z : (m,) array
            Complex points off the spectrum, in units of kappa.

        Returns
        -------
        trace : (n, m) array
            ``tr (z - S(rho))^-1``. Divided by d it is the Stieltjes transform of the spectrum.
        signal : (n, m) array
            ``u' (z - S(rho))^-1 u``.

        Notes
        -----
        By Sherman and Morrison's formula, from six sums over the modes that do not depend on rho.
        """
        strength = (self.amplitude * np.sqrt(_strengths(rho)))[:, None]
        points = np.atleast_1d(np.asarray(z, dtype=np.complex128))
        r = 1.0 / (points[:, None] - self.value)
        uu, uh, hh = self.signal**2, self.signal * self.noise, self.noise**2
        u1, x1, h1 = (np.add.reduce(r * weight, axis=1) for weight in (uu, uh, hh))
        u2, x2, h2 = (np.add.reduce(r * r * weight, axis=1) for weight in (uu, uh, hh))
        rest = 1.0 - (h1 + 2.0 * strength * x1 + strength**2 * u1)
        trace = np.add.reduce(r, axis=1) + (h2 + 2.0 * strength * x2 + strength**2 * u2) / rest
        return trace, u1 + (x1 + strength * u1) ** 2 / rest

    def passing(self, level: ArrayLike) -> Array:
        """Return the rho at which the top eigenvalue passes a level.

        Parameters
        ----------
        level : (m,) array
            Values in units of kappa.

        Returns
        -------
        (m,) array
            The smallest rho from which on the top eigenvalue exceeds each level for good: 0 where it
            always does, inf where no rho lifts it there (u has no weight, or a = 0).

        Notes
        -----
        Above the top eigenvalue of S0 the secular equation is quadratic in sqrt(rho), so this is a
        closed form. S(rho) need not grow monotonically when u and h point apart; the larger root counts.
        """
        points = np.atleast_1d(np.asarray(level, dtype=np.float64))
        result = np.zeros(points.shape)
        above = points > self.value[0]
        r = 1.0 / (points[above][:, None] - self.value)
        a = self.amplitude
        quadratic = a * a * np.add.reduce(r * self.signal**2, axis=1)
        linear = a * np.add.reduce(r * (self.signal * self.noise), axis=1)
        constant = np.add.reduce(r * self.noise**2, axis=1) - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = linear**2 - quadratic * constant
            root = (np.sqrt(np.maximum(inside, 0.0)) - linear) / quadratic
        # Where a u = 0 the root is no number, and the level is passed at every rho or at none.
        always = (inside < 0.0) | ~(root > 0.0)
        never = (quadratic == 0.0) & (constant < 0.0)
        result[above] = np.where(never, np.inf, np.where(always, 0.0, root**2))
        return result


def _strengths(rho: ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(rho, dtype=np.float64))
    if values.ndim != 1 or not np.all(values >= 0.0) or not np.all(np.isfinite(values)):
        msg = f"rho = {rho!r}: a signal strength is finite and not negative; give a one-dimensional array"
        raise ValueError(msg)
    return values


def _overlaps(poles: Array, v: Array, signal: Array, origin: NDArray[np.intp], offset: Array) -> Array:
    """Squared overlaps with u, from roots given as offsets from their nearest poles."""
    rows, count = origin.shape
    result = np.empty((rows, count))
    step = max(1, secular.ELEMENTS // poles.size)
    row, root = (grid.ravel() for grid in np.indices((rows, count)))
    for start in range(0, row.size, step):
        i, k = row[start : start + step], root[start : start + step]
        distance = (poles[origin[i, k]][:, None] - poles) + offset[i, k][:, None]
        vector = v[i] / distance
        along = np.add.reduce(vector * signal, axis=1)
        # Two divisions rather than a square: the vector's norm may exceed 1e160 beside a pole.
        norm = np.sqrt(np.add.reduce(vector * vector, axis=1))
        result[i, k] = np.minimum((along / norm) ** 2, 1.0)
    return result


def _merge(value: Array, overlap: Array, idle: Array, count: int) -> tuple[Array, Array]:
    """Sort the untouched modes' eigenvalues, whose overlap is 0, in among the roots."""
    rows = value.shape[0]
    value = np.concatenate([value, np.broadcast_to(idle, (rows, idle.size))], axis=1)
    overlap = np.concatenate([overlap, np.zeros((rows, idle.size))], axis=1)
    order = np.argsort(-value, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(value, order, axis=1), np.take_along_axis(overlap, order, axis=1)


def decompose(matrix: Array, signal: Array, noise: Array, amplitude: float) -> Column:
    """Decompose a noise matrix into a spectral column.

    Parameters
    ----------
    matrix : (d, d) array
        S0; only its lower triangle is read.
    signal : (d,) array
        Unit vector u.
    noise : (d,) array
        h.
    amplitude : float
        a.

    Returns
    -------
    Column
        The spectral column, in its canonical signs and bases.

    Raises
    ------
    ArithmeticError
        If the matrix holds NaN or infinity, or LAPACK does not converge.

    Notes
    -----
    The matrix is brought to tridiagonal form once and u and h are carried through the reflectors, so the
    eigenvectors of the tridiagonal matrix are all that is formed.
    """
    diagonal, beside, vectors = _tridiagonal(matrix, np.column_stack([signal, noise]))
    ascending, basis, info = lapack.dstevd(diagonal, beside, compute_v=1)
    if info != 0:
        msg = f"LAPACK dstevd stopped with info = {info} on a matrix of size {diagonal.size}"
        raise ArithmeticError(msg)
    # One vector at a time: a product with two would not round like a product with one.
    u, h = (np.ascontiguousarray((basis.T @ np.ascontiguousarray(x))[::-1]) for x in vectors.T)
    value, u, h = _canonical(np.ascontiguousarray(ascending[::-1]), u, h)
    return Column(value, u, h, float(amplitude))


def _tridiagonal(matrix: Array, vectors: Array) -> tuple[Array, Array, Array]:
    """Return Q' matrix Q as two diagonals, and Q' vectors."""
    d = matrix.shape[0]
    if not np.isfinite(np.add.reduce(matrix, axis=None)):
        msg = f"the noise matrix of size {d} holds NaN or infinity"
        raise ArithmeticError(msg)
    if d == 1:
        return matrix[0].copy(), np.zeros(1), vectors  # LAPACK's wrapper wants one element beside it
    work, _ = lapack.dsytrd_lwork(d, lower=1)
    reflectors, diagonal, beside, tau, info = lapack.dsytrd(matrix, lower=1, lwork=int(work))
    if info != 0:
        msg = f"LAPACK dsytrd stopped with info = {info} on a matrix of size {d}"
        raise ArithmeticError(msg)
    # With lower=1 the reflectors are those of a QR factorisation of the matrix below its first row.
    below = np.asfortranarray(reflectors[1:, : d - 1])
    carried, _, info = lapack.dormqr("L", "T", below, tau, vectors[1:], lwork=64 * vectors.shape[1])
    if info != 0:
        msg = f"LAPACK dormqr stopped with info = {info} on a matrix of size {d}"
        raise ArithmeticError(msg)
    return diagonal, beside, np.concatenate([vectors[:1], carried])


def _canonical(value: Array, signal: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Fix what a decomposition leaves open: signs, and bases of degenerate eigenspaces."""
    d = value.size
    resolution = d * EPS * max(float(np.max(np.abs(value))), float(np.finfo(np.float64).tiny))
    joined = value[:-1] - value[1:] <= resolution
    edges = np.flatnonzero(np.diff(np.concatenate([[False], joined, [False]]).astype(np.int8)))
    for first, last in zip(edges[::2], edges[1::2] + 1, strict=True):
        group = slice(first, last)
        mean = float(np.mean(value[group]))
        value[group] = 0.0 if abs(mean) <= resolution else mean
        u, h = signal[group], noise[group]
        along = float(np.sqrt(np.add.reduce(u * u)))
        first_axis = u / along if along > 0.0 else np.zeros_like(u)
        part = float(np.add.reduce(first_axis * h))
        rest = h - part * first_axis
        across = float(np.sqrt(np.add.reduce(rest * rest)))
        signal[group], noise[group] = 0.0, 0.0
        signal[first], noise[first], noise[first + 1] = along, part, across
    flip = np.where(signal < 0.0, -1.0, 1.0)
    return value, signal * flip + 0.0, noise * flip + 0.0
