"""Pooling: weights w over the T positions of a sequence, and the scales they give a spectrum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.pipeline.errors import Fault
from eigensweep.pipeline.signs import Signs
from eigensweep.pipeline.terms import array_digest, real, real_array, split_term, whole

CANCELLATION = 1e-12
"""A signal strength alpha of at most this many kappa is no signal: the weighted signs cancel."""

LONGEST = 8192
"""Longest sequence: its correlation matrix takes half a gigabyte."""

_THING = "grid.pooling"
_BARE = ("mean", "causal", "optimal", "last")
_REAL = ("causal-inclusive", "exponential")
_KINDS = (*_BARE, *_REAL, "prefix", "file")
# Eigenvalues of R closer than this times the largest span one eigenspace.
_DEGENERATE = 1e-10


@dataclass(frozen=True)
class Pooling:
    """A rule that gives each position of a sequence its weight.

    A picklable value; :func:`parse_pooling` makes it. A spectrum divided by kappa does not depend on
    the weights' scale: those of ``file`` are taken as given, those of ``optimal`` have unit Euclidean
    norm, all others sum to 1.

    Parameters
    ----------
    kind : str
        ``mean``, ``causal``, ``causal-inclusive``, ``optimal``, ``prefix``, ``last``, ``exponential`` or
        ``file``.
    argument : float, int, str or None
        tau, L, r or the file's name; None for kinds that take none.
    vector : ndarray of float64, optional
        The file's weights.
    digest : str
        Names the file's weights by their content.
    """

    kind: str
    argument: float | int | str | None = None
    vector: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    digest: str = ""

    @property
    def name(self) -> str:
        """Canonical term, such as ``exponential(0.5)``; :func:`parse_pooling` reads it back."""
        return self.kind if self.argument is None else f"{self.kind}({self.argument})"

    def check(self, T: int) -> list[Fault]:
        """Say why sequences of length T can't be pooled so, whatever their signs; empty if they can."""
        reason, remedy = "", ""
        if self.kind == "causal" and T == 1:
            reason, remedy = "at T = 1 no position has a predecessor, so kappa = 0", "raise T to 2 or more"
        elif self.kind == "prefix" and isinstance(self.argument, int) and self.argument > T:
            reason = f"a prefix of {self.argument} is longer than the sequence, T = {T}"
            remedy = f"shorten it to at most {T}, or raise T"
        elif self.vector is not None:
            reason, remedy = _vector_fault(self.vector, T)
        return [Fault(_THING, self.name, reason, remedy)] if reason else []

    def weights(self, T: int, R: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights w, shape (T,).

        Parameters
        ----------
        T : int
            Sequence length; :meth:`check` must have passed.
        R : ndarray of float64, shape (T, T)
            Correlation matrix of the signs. Only ``optimal`` depends on it.

        Returns
        -------
        ndarray of float64, shape (T,)
            ``mean``: 1/T. ``causal``: proportional to H_{T-1} - H_{t-1}, strictly causal parameter-free
            self-attention averaged over positions. ``causal-inclusive(tau)``: proportional to
            e^tau/(e^tau + t - 1) + sum_{k>t} 1/(e^tau + k - 1), where a position attends to itself too,
            with score tau. ``optimal``: :func:`optimal_weights`. ``exponential(r)``: proportional to
            r^(t-1). ``prefix(L)``: 1/L on the first L. ``last``: the last position alone. Source of
            causal and optimal: Seddik, arXiv:2605.06826, Theorem 5 and Section 5.
        """
        if self.vector is not None:
            return self.vector.copy()
        if self.kind == "optimal":
            return optimal_weights(R)
        number = float(self.argument) if isinstance(self.argument, (int, float)) else math.nan
        w = _unnormalised(self.kind, number, T)
        total = math.fsum(w)
        return w / total if total else w


@dataclass(frozen=True)
class Scales:
    """What a pooling does to signal and noise.

    Parameters
    ----------
    alpha : float
        Signal strength w'Rw.
    kappa : float
        Noise scale w'w, the unit of every stored spectrum.
    weight_sum : float
        1'w.
    """

    alpha: float
    kappa: float
    weight_sum: float

    @property
    def gain(self) -> float:
        """Signal per unit of squared signal norm, alpha/kappa: rho = gain |mu|^2."""
        return self.alpha / self.kappa


def parse_pooling(text: str, files: Mapping[str, ArrayLike]) -> Pooling:
    """Read a pooling as a sweep file names it.

    Parameters
    ----------
    text : str
        ``"mean"``, ``"causal"``, ``"causal-inclusive(1.0)"``, ``"optimal"``, ``"prefix(4)"``, ``"last"``,
        ``"exponential(0.5)"`` or ``"file(w.npy)"``.
    files : mapping of str to array_like
        The arrays of the files that may be named.

    Returns
    -------
    Pooling
        The pooling; its name is canonical, numbers with 12 significant digits.

    Raises
    ------
    ValueError
        If it can't be read or a number is outside its domain: ``"reason; remedy"``.

    Examples
    --------
    >>> parse_pooling("exponential(0.30000000000000004)", {}).name
    'exponential(0.3)'
    """
    if isinstance(text, str) and "file" not in text:
        return _parse(text)
    kind, argument = split_term(text, _KINDS)
    if kind != "file" or argument is None:
        return _parse(text)
    if argument not in files:
        raise ValueError(f"the file {argument!r} is not there; name an .npy file beside the sweep file")
    vector = real_array(files[argument])
    return Pooling(kind, argument, vector, array_digest(vector))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Pooling:
    """Read a pooling that names no file: those are asked for again at every point of a grid."""
    kind, argument = split_term(text, _KINDS)
    if kind in _BARE:
        if argument is not None:
            raise ValueError(f"{kind!r} takes no argument; write {kind}")
        return Pooling(kind)
    if argument is None:
        raise ValueError(f"{kind!r} lacks its argument; write {kind}(...)")
    if kind == "prefix":
        return Pooling(kind, whole(argument))
    number = real(argument)
    if kind == "exponential" and number <= 0:
        raise ValueError(f"the ratio {number!r} is not positive; write one above 0, or prefix(1) for r = 0")
    return Pooling(kind, number)


def optimal_weights(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of the largest gain w'Rw/w'w: a unit vector of the top eigenspace of R.

    Every vector of that space has the same gain, lambda_max(R) (Seddik, arXiv:2605.06826, Theorem 5).
    Where the space has more than one dimension, see :func:`optimal_dimension`, this one is taken: the
    projection on it of the all-ones vector, or, where that is orthogonal to the space, of the first unit
    vector e_1, e_2, ... that is not. Its largest entry, the first of several, is positive. Entries are
    rounded to 12 decimals of the largest, so that rounding in the eigensolver leaves no trace.

    Parameters
    ----------
    R : ndarray of float64, shape (T, T)
        Correlation matrix, symmetric.

    Returns
    -------
    ndarray of float64, shape (T,)
        The weights, of unit Euclidean norm.

    Examples
    --------
    >>> R = np.eye(4)
    >>> R[:2, :2] = 1
    >>> optimal_weights(R)
    array([0.70710678, 0.70710678, 0.        , 0.        ])
    """
    vectors = _top_eigenspace(R)
    # The longest projection within rounding would depend on the solver; the first one clear of zero
    # does not. Of T unit vectors at least one has a projection of length T^(-1/2) or more.
    floor = 1e-6
    starts = [vectors.sum(axis=0) / math.sqrt(len(R)), *vectors]
    start = next(s for s in starts if np.linalg.norm(s) > floor)
    w = vectors @ start
    w = np.round(w / np.abs(w).max(), 12)
    w /= np.linalg.norm(w)
    sign = 1.0 if w[np.argmax(np.abs(w))] > 0 else -1.0
    return np.asarray(sign * w + 0.0)


def optimal_dimension(R: NDArray[np.float64]) -> int:
    """Dimension of the top eigenspace of R; above 1 the optimal weights are a convention.

    Parameters
    ----------
    R : ndarray of float64, shape (T, T)
        Correlation matrix, symmetric.

    Returns
    -------
    int
        Number of eigenvalues within 1e-10 of the largest, relative.
    """
    return int(_top_eigenspace(R).shape[1])


def scales(w: NDArray[np.float64], R: NDArray[np.float64]) -> Scales:
    """Signal strength, noise scale and sum of pooling weights.

    Parameters
    ----------
    w : ndarray of float64, shape (T,)
        Pooling weights.
    R : ndarray of float64, shape (T, T)
        Correlation matrix of the signs.

    Returns
    -------
    Scales
        alpha = w'Rw, kappa = w'w and 1'w.

    Examples
    --------
    >>> scales(np.full(4, 0.25), np.eye(4))
    Scales(alpha=0.25, kappa=0.25, weight_sum=1.0)
    """
    return Scales(alpha=float(w @ (R @ w)), kappa=float(w @ w), weight_sum=math.fsum(w))


def check_pooling(pooling: Pooling, signs: Signs, T: int) -> list[Fault]:
    """Say why signs of length T can't be pooled so; empty if they can.

    Parameters
    ----------
    pooling : Pooling
        The pooling.
    signs : Signs
        The signs.
    T : int
        Sequence length.

    Returns
    -------
    list of Fault
        The faults of either; where there are none, whether kappa = 0, or alpha = 0 since the weighted
        signs cancel.
    """
    return list(_refusals(pooling, signs, T))


@lru_cache(maxsize=4096)
def _refusals(pooling: Pooling, signs: Signs, T: int) -> tuple[Fault, ...]:
    # Kept, since a grid asks again for each of its sizes.
    if T > LONGEST:
        reason = f"it is above {LONGEST}, where R of T x T numbers is too large"
        return (Fault("grid.T", str(T), reason, "shorten the sequences"),)
    faults = (*signs.check(T), *pooling.check(T))
    if faults:
        return faults
    R = signs.correlation(T)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = scales(pooling.weights(T, R), R)
    if not 0 < found.kappa < math.inf:
        reason = f"at T = {T} its kappa is {found.kappa!r}"
        return (Fault(_THING, pooling.name, reason, "give finite weights that do not all vanish"),)
    if not found.alpha > CANCELLATION * found.kappa:
        reason = f"with {signs.name} at T = {T} the weighted signs cancel, so alpha = 0"
        return (Fault(_THING, pooling.name, reason, "take another pooling, other signs or another T"),)
    return ()


def _unnormalised(kind: str, number: float, T: int) -> NDArray[np.float64]:
    t = np.arange(1, T + 1, dtype=np.float64)
    if kind == "mean":
        return np.ones(T)
    if kind == "last":
        return np.where(t == T, 1.0, 0.0)
    if kind == "prefix":
        return np.where(t <= number, 1.0, 0.0)
    if kind == "exponential":
        # Counted from the largest weight, so that nothing overflows.
        powers: NDArray[np.float64] = np.power(number, t - 1 if number <= 1 else t - T)
        return powers
    if kind == "causal":
        return _sums_beyond(np.divide(1.0, t - 1, out=np.zeros(T), where=t > 1))
    if kind == "causal-inclusive":
        # In logarithms, so that no tau overflows: log(e^tau + t - 1).
        others = np.log(t - 1, out=np.full(T, -np.inf), where=t > 1)
        total = np.logaddexp(number, others)
        rest = np.where(t > 1, np.exp(-np.where(t > 1, total, 0.0)), 0.0)
        inclusive: NDArray[np.float64] = np.exp(number - total) + _sums_beyond(rest)
        return inclusive
    raise ValueError(f"there is no pooling {kind!r}; make poolings with parse_pooling")


def _sums_beyond(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over k > t of terms_k, for each t, the smallest terms first."""
    backwards = np.cumsum(terms[::-1])[::-1]
    return np.append(backwards[1:], 0.0)


def _top_eigenspace(R: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(R)
    top: NDArray[np.float64] = vectors[:, values > values[-1] * (1 - _DEGENERATE)]
    return top


def _vector_fault(vector: NDArray[np.float64], T: int) -> tuple[str, str]:
    if vector.ndim != 1:
        return f"its shape {vector.shape} is not that of a vector", "save a one-dimensional array"
    if not np.isfinite(vector).all():
        first = int(np.argmin(np.isfinite(vector)))
        return f"its entry [{first}] = {vector[first]!s} is not finite", "give finite weights"
    if len(vector) != T:
        return (
            f"it has {len(vector)} weights where T = {T} needs {T}",
            f"give that many or set T = {len(vector)}",
        )
    return "", ""
