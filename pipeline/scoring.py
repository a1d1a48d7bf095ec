"""What a linear classifier scores: each token of a two-class table, and sequences by their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Positions of one weight.

    Parameters
    ----------
    weight : float
        The weight, not 0.
    prefix, tail : int
        How many of them lie in the prefix, and how many beyond.
    """

    weight: float
    prefix: int
    tail: int


@dataclass(frozen=True)
class Scoring:
    """Classifiers of sequences by the sum of ``w_t f(token_t)``; :func:`scoring` makes it from checked input.

    Parameters
    ----------
    plus : (k, n) array
        Score f of each token of the class +1, a row a classifier.
    minus : (k, m) array
        That of each token of the class -1.
    weights : (T,) array
        Pooling weights.
    length : int
        Positions that share the label's sign: the first ones.
    """

    plus: Array
    minus: Array
    weights: Array
    length: int

    @property
    def largest(self) -> Array:
        """Bound on the absolute score of any sequence, shape (k,)."""
        top = np.maximum(np.abs(self.plus).max(axis=-1), np.abs(self.minus).max(axis=-1))
        return np.asarray(top * np.abs(self.weights).sum())

    @property
    def groups(self) -> list[Group]:
        """Positions of nonzero weight, by their weight."""
        inside, beyond = self.weights[: self.length], self.weights[self.length :]
        held = [float(w) for w in np.unique(self.weights[self.weights != 0])]
        return [Group(w, int(np.sum(inside == w)), int(np.sum(beyond == w))) for w in held]


def scoring(plus: ArrayLike, minus: ArrayLike, weights: ArrayLike, length: int) -> Scoring:
    """Check scores, weights and length, and gather leading axes in one.

    Parameters
    ----------
    plus, minus : (..., n) array_like
        Score of each token of the class +1 and of the class -1; leading axes are classifiers.
    weights : (T,) array_like
        Pooling weights.
    length : int
        From 1 to T.

    Returns
    -------
    Scoring
        The classifiers.

    Raises
    ------
    ValueError
        If shapes do not agree, the length is outside [1, T], or a number is not finite.
    """
    w = pooling_weights(weights, length)
    f, g = (np.asarray(scores, dtype=np.float64) for scores in (plus, minus))
    if f.ndim == 0 or f.shape[:-1] != g.shape[:-1] or not f.shape[-1] or not g.shape[-1]:
        msg = (
            f"plus, minus: shapes {f.shape} and {g.shape} differ in more than the number of tokens, or have "
            "none; give (..., n) and (..., m) scores"
        )
        raise ValueError(msg)
    if not (np.all(np.isfinite(f)) and np.all(np.isfinite(g))):
        raise ValueError("plus, minus: a score is not finite; give finite scores")
    return Scoring(f.reshape(-1, f.shape[-1]), g.reshape(-1, g.shape[-1]), w, length)


def pooling_weights(weights: ArrayLike, length: int) -> Array:
    """Check weights and the length of the prefix.

    Parameters
    ----------
    weights : (T,) array_like
        Pooling weights.
    length : int
        From 1 to T.

    Returns
    -------
    (T,) array
        The weights.

    Raises
    ------
    ValueError
        If the weights are no vector, not finite or all 0, or the length is outside [1, T].
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not np.all(np.isfinite(w)) or not np.any(w):
        raise ValueError("weights: pooling takes a vector of finite weights, not all 0; give such a one")
    if not 1 <= length <= w.size:
        raise ValueError(
            f"length = {length}: the prefix has from 1 to T = {w.size} positions; give such a one"
        )
    return w
