"""Signs of a sequence: T fair signs whose correlation matrix R is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.pipeline.copula import TOLERANCE, latent_root, matrix_fault, tidy
from eigensweep.pipeline.errors import Fault, nearest
from eigensweep.pipeline.terms import array_digest, real, real_array, split_term, whole

_THING = "model.correlation"
_KEYS = {
    "prefix": ("length", "fraction"),
    "equicorrelated": ("correlation",),
    "markov": ("correlation",),
    "file": ("path",),
}
_TERMS = ("prefix", "prefix-fraction", "equicorrelated", "markov", "file")


class Signs(ABC):
    """A distribution of sign sequences xi in {-1, +1}^T with E[xi] = 0 and E[xi xi'] = R.

    A frozen, picklable value, as :func:`parse_signs` makes it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Canonical term; :func:`parse_signs` reads it back."""

    @abstractmethod
    def check(self, T: int) -> list[Fault]:
        """Say why sequences of length T can't be drawn; empty if they can."""

    @abstractmethod
    def correlation(self, T: int) -> NDArray[np.float64]:
        """Correlation matrix R, shape (T, T), symmetric with unit diagonal."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, N: int, T: int) -> NDArray[np.int8]:
        """Draw N sequences: an array of shape (N, T) in {-1, +1}."""

    def realised(self, T: int) -> str:
        """Name the distribution at this T by its content, for seeds: equal iff nothing differs."""
        return self.name


@dataclass(frozen=True)
class Prefix(Signs):
    """One shared fair sign on the first ``length`` positions, independent fair signs beyond.

    Parameters
    ----------
    length : int
        L, from 1 to T.

    Examples
    --------
    >>> Prefix(2).correlation(3)
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """

    length: int

    @property
    def name(self) -> str:
        """Canonical term, such as ``prefix(8)``."""
        return f"prefix({self.length})"

    def check(self, T: int) -> list[Fault]:
        """Refuse a prefix longer than the sequence."""
        if self.length <= T:
            return []
        reason = f"a prefix of {self.length} is longer than the sequence, T = {T}"
        return [Fault(_THING, self.name, reason, f"shorten it to at most {T}, raise T or give a fraction")]

    def correlation(self, T: int) -> NDArray[np.float64]:
        """R: ones within the prefix, the identity elsewhere; shape (T, T)."""
        R = np.eye(T)
        R[: self.length, : self.length] = 1.0
        return R

    def sample(self, rng: np.random.Generator, N: int, T: int) -> NDArray[np.int8]:
        """Draw N sequences: an array of shape (N, T) in {-1, +1}."""
        bits = rng.integers(0, 2, size=(N, T - self.length + 1), dtype=np.int8)
        signs = np.empty((N, T), dtype=np.int8)
        signs[:, : self.length] = bits[:, :1]
        signs[:, self.length :] = bits[:, 1:]
        return _from_bits(signs)


@dataclass(frozen=True)
class PrefixFraction(Signs):
    """A prefix that covers a given fraction of every sequence length.

    Parameters
    ----------
    fraction : float
        In (0, 1]. The length is fraction times T rounded to the nearest (ties to even), at least 1.
    """

    fraction: float

    @property
    def name(self) -> str:
        """Canonical term, such as ``prefix-fraction(0.5)``."""
        return f"prefix-fraction({self.fraction!r})"

    def at(self, T: int) -> Prefix:
        """Return the prefix that this is for sequences of length T."""
        return Prefix(max(1, round(real(self.fraction * T))))

    def check(self, T: int) -> list[Fault]:
        """Find nothing to refuse: the length lies in [1, T] for every T."""
        return self.at(T).check(T)

    def correlation(self, T: int) -> NDArray[np.float64]:
        """R of the prefix at this T; shape (T, T)."""
        return self.at(T).correlation(T)

    def sample(self, rng: np.random.Generator, N: int, T: int) -> NDArray[np.int8]:
        """Draw N sequences: an array of shape (N, T) in {-1, +1}."""
        return self.at(T).sample(rng, N, T)

    def realised(self, T: int) -> str:
        """Name the prefix by its length, since a length given outright is the same distribution."""
        return self.at(T).realised(T)


@dataclass(frozen=True)
class Equicorrelated(Signs):
    """Signs of equicorrelated Gaussians: R_ts = c for all t != s.

    Parameters
    ----------
    coefficient : float
        c in [-1, 1]. The Gaussians' correlation is sin(pi c/2) (the arcsine law of two Gaussian signs),
        which must be at least -1/(T - 1).
    """

    coefficient: float

    @property
    def name(self) -> str:
        """Canonical term, such as ``equicorrelated(0.3)``."""
        return f"equicorrelated({self.coefficient!r})"

    @property
    def _latent(self) -> float:
        return float(np.sin(np.pi * self.coefficient / 2))

    def check(self, T: int) -> list[Fault]:
        """Refuse a negative correlation that the copula can't make at this T."""
        if 1 + (T - 1) * self._latent >= -TOLERANCE * T:
            return []
        least = float(np.ceil(-2e4 / np.pi * np.arcsin(1 / (T - 1))) / 1e4)
        reason = f"at T = {T} the Gaussian copula cannot make it"
        return [Fault(_THING, self.name, reason, f"raise the correlation to {least} or above, or shorten T")]

    def correlation(self, T: int) -> NDArray[np.float64]:
        """R: 1 on the diagonal and c elsewhere; shape (T, T)."""
        R = np.full((T, T), self.coefficient)
        np.fill_diagonal(R, 1.0)
        return R

    def sample(self, rng: np.random.Generator, N: int, T: int) -> NDArray[np.int8]:
        """Draw N sequences: an array of shape (N, T) in {-1, +1}."""
        # The latent covariance has two eigenspaces only, so its square root needs no matrix product.
        normals = rng.standard_normal((N, T))
        mean = normals.mean(axis=1, keepdims=True)
        normals -= mean
        normals *= np.sqrt(max(0.0, 1 - self._latent))
        normals += mean * np.sqrt(max(0.0, 1 + (T - 1) * self._latent))
        return _from_bits((normals >= 0).view(np.int8))


@dataclass(frozen=True)
class Markov(Signs):
    """Stationary two-state Markov chain of signs: R_ts = phi^|t-s|.

    Parameters
    ----------
    coefficient : float
        phi in [-1, 1]; a sign flips at each step with probability (1 - phi)/2.
    """

    coefficient: float

    @property
    def name(self) -> str:
        """Canonical term, such as ``markov(0.5)``."""
        return f"markov({self.coefficient!r})"

    def check(self, T: int) -> list[Fault]:
        """Find nothing to refuse: the chain exists for every T."""
        return []

    def correlation(self, T: int) -> NDArray[np.float64]:
        """R_ts = phi^|t-s|; shape (T, T)."""
        t = np.arange(T)
        powers: NDArray[np.float64] = np.power(float(self.coefficient), t)
        R: NDArray[np.float64] = powers[np.abs(t[:, None] - t[None, :])]
        return R

    def sample(self, rng: np.random.Generator, N: int, T: int) -> NDArray[np.int8]:
        """Draw N sequences: an array of shape (N, T) in {-1, +1}."""
        flips = (rng.random((N, T)) < (1 - self.coefficient) / 2).view(np.int8)
        flips[:, 0] = rng.integers(0, 2, size=N, dtype=np.int8)
        np.bitwise_xor.accumulate(flips, axis=1, out=flips)
        return _from_bits(flips)


@dataclass(frozen=True)
class Copula(Signs):
    """Signs of Gaussians with any correlation matrix R that a Gaussian copula can make.

    Parameters
    ----------
    path : str
        The file's name as the sweep file writes it.
    matrix : ndarray of float64, shape (T, T)
        R. The Gaussians' correlation is sin(pi R/2), elementwise (the arcsine law of two Gaussian
        signs), which must be positive semidefinite.
    digest : str
        Names the matrix by its content.
    """

    path: str
    matrix: NDArray[np.float64] = field(compare=False, repr=False)
    digest: str

    @property
    def name(self) -> str:
        """Canonical term, such as ``file(R.npy)``."""
        return f"file({self.path})"

    def check(self, T: int) -> list[Fault]:
        """Refuse what is no correlation matrix of size T or what the copula can't make."""
        size = len(self.matrix) if self.matrix.ndim else 0
        reason, remedy = matrix_fault(self.matrix)
        if not reason and size != T:
            reason = f"it is {size} x {size} where T = {T} needs {T} x {T}"
            remedy = f"give a matrix of that size or set T = {size}"
        return [Fault(_THING, self.name, reason, remedy)] if reason else []

    def correlation(self, T: int) -> NDArray[np.float64]:
        """R, exactly symmetric with exactly unit diagonal; shape (T, T)."""
        return tidy(self.matrix)

    def sample(self, rng: np.random.Generator, N: int, T: int) -> NDArray[np.int8]:
        """Draw N sequences: an array of shape (N, T) in {-1, +1}."""
        root = latent_root(self.matrix)
        latent = rng.standard_normal((N, root.shape[1])) @ root.T
        return _from_bits((latent >= 0).view(np.int8))

    def realised(self, T: int) -> str:
        """Name the matrix by its content, since a file can be renamed or changed."""
        return f"file({self.digest})"


def parse_signs(spec: str | Mapping[str, Any], files: Mapping[str, ArrayLike]) -> Signs:
    """Read what a sweep file says about the signs.

    Parameters
    ----------
    spec : mapping or str
        A table, ``{"kind": "prefix", "length": 8}``, ``{"kind": "prefix", "fraction": 0.5}``,
        ``{"kind": "equicorrelated", "correlation": 0.3}``, ``{"kind": "markov", "correlation": 0.5}`` or
        ``{"kind": "file", "path": "R.npy"}``, or the canonical term of one, such as ``"prefix(8)"``,
        ``"prefix-fraction(0.5)"``, ``"equicorrelated(0.3)"``, ``"markov(0.5)"`` or ``"file(R.npy)"``.
    files : mapping of str to array_like
        The arrays of the files that may be named.

    Returns
    -------
    Signs
        The distribution; ``parse_signs(signs.name, files)`` gives it back.

    Raises
    ------
    ValueError
        If it can't be read or a number is outside its domain: ``"reason; remedy"``.

    Examples
    --------
    >>> parse_signs({"kind": "prefix", "fraction": 0.5}, {}).name
    'prefix-fraction(0.5)'
    """
    if isinstance(spec, str) and "file" not in spec:
        return _parse(spec)
    term, argument = _from_table(spec) if isinstance(spec, Mapping) else split_term(spec, _TERMS)
    if term != "file" or argument is None:
        return _make(term, argument)
    if not isinstance(argument, str) or argument not in files:
        raise ValueError(f"the file {argument!r} is not there; name an .npy file beside the sweep file")
    matrix = real_array(files[argument])
    return Copula(argument, matrix, array_digest(matrix))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Signs:
    """Read a term that names no file: those are asked for again at every point of a grid."""
    return _make(*split_term(text, _TERMS))


def _make(term: str, argument: Any) -> Signs:
    if argument is None:
        raise ValueError(f"{term!r} lacks its argument; write {term}(...)")
    if term == "prefix":
        return Prefix(whole(argument))
    number = real(argument)
    if term == "prefix-fraction":
        if not 0 < number <= 1:
            raise ValueError(f"the fraction {number!r} is not in (0, 1]; write one above 0 and up to 1")
        return PrefixFraction(number)
    if not -1 <= number <= 1:
        raise ValueError(f"the correlation {number!r} is not in [-1, 1]; write one within")
    return Markov(number) if term == "markov" else Equicorrelated(number)


def _from_table(table: Mapping[str, Any]) -> tuple[str, Any]:
    kind = table.get("kind")
    if not isinstance(kind, str):
        raise ValueError(f"it has no kind; write kind = one of {', '.join(_KEYS)}")
    if kind not in _KEYS:
        raise ValueError(f"there is no kind {kind!r}; {nearest(kind, _KEYS)}")
    given = [key for key in table if key != "kind"]
    for key in given:
        if key not in _KEYS[kind]:
            raise ValueError(f"the kind {kind!r} has no key {key!r}; {nearest(key, _KEYS[kind])}")
    if len(given) != 1:
        raise ValueError(f"the kind {kind!r} takes exactly one key; write {' or '.join(_KEYS[kind])}")
    (key,) = given
    return ("prefix-fraction" if key == "fraction" else kind), table[key]


def _from_bits(bits: NDArray[np.int8]) -> NDArray[np.int8]:
    bits *= 2
    bits -= 1
    return bits
