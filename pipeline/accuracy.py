"""Exact accuracy of a linear classifier of a sequence's latent sign, given what it scores each token.

The label is the sign shared by the first L positions; a sequence's score is ``sum_t w_t f(token_t)``. Given
the table and the classifier the T terms are independent: tokens of the prefix are uniform over the label's
class, tokens beyond it over a class of fair sign. The score's distribution is therefore a product of
characteristic functions, and no test sequences are needed. A score of 0 counts one half.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.pipeline.score_lattice import lattice_accuracy
from eigensweep.pipeline.scoring import Array, Group, Scoring, scoring

ATOMS = 1 << 16
"""A half of the positions with up to so many outcomes can be enumerated."""
FEW_ATOMS = 1 << 12
"""With up to so many it is enumerated at once."""
HARMONICS = 1 << 12
"""The series stops at this harmonic at the latest."""

Halves = tuple[list[int], list[int]]

_ROUNDING = 1e-14
_SETTLED = 1e-6  # a series with a larger error than this one has not settled
_TIE = 1e-12  # scores this small, relative to the largest possible, are ties
_ELEMENTS = 1 << 17  # entries of phases that are held at a time
_BATCH = 16  # harmonics between two looks at the error


def conditional_accuracy(
    plus: ArrayLike, minus: ArrayLike, weights: ArrayLike, length: int, *, tolerance: float = 1e-10
) -> tuple[Array, Array]:
    """Accuracy of linear classifiers on fresh sequences from the same table, with its numerical error.

    Parameters
    ----------
    plus, minus : (..., n) array_like
        Score of each token of the class +1 and of the class -1; leading axes are classifiers.
    weights : (T,) array_like
        Pooling weights.
    length : int
        L, the length of the prefix that shares the label's sign; from 1 to T.
    tolerance : float
        Absolute error that is good enough. With few tokens of nonzero weight 1e-6 is many times faster.

    Returns
    -------
    accuracy : (...) array
        Probability that the score has the label's sign, ties one half.
    error : (...) array
        Estimated absolute error of `accuracy`: rounding where the outcomes are few enough for
        `enumerated_accuracy`, else that of `series_accuracy`, or the bound of `lattice_accuracy` where the
        series does not settle and that bound is lower.

    Raises
    ------
    ValueError
        If shapes do not agree, the length is outside [1, T], or a number is not finite.

    Notes
    -----
    The setting is that of Seddik, arXiv:2605.06826, Section 6, for a table and a classifier that are given.

    Examples
    --------
    >>> accuracy, error = conditional_accuracy(
    ...     [1.3, 0.4, -0.2, 0.9], [-1.1, -0.3, 0.25, -0.7], [0.5, 0.3, 0.2], 2
    ... )
    >>> float((accuracy * 512).round(9))
    451.0
    """
    given = scoring(plus, minus, weights, length)
    halves = _halves(given, FEW_ATOMS)
    if halves is not None:
        accuracy = np.array([_enumerated(given, row, halves) for row in range(given.plus.shape[0])])
        error = np.full(accuracy.shape, _ROUNDING)
    else:
        accuracy, error = _series(given, tolerance)
        halves = _halves(given, ATOMS)
        for row in np.flatnonzero(error > max(tolerance, 0.0 if halves else _SETTLED)):
            if halves is not None:
                value, bound = _enumerated(given, int(row), halves), _ROUNDING
            else:
                value, bound = lattice_accuracy(
                    given.plus[row], given.minus[row], given.weights, length, points=1 << 18
                )
            if bound < error[row]:
                accuracy[row], error[row] = value, bound
    shape = np.shape(plus)[:-1]
    return accuracy.reshape(shape), error.reshape(shape)


def enumerated_accuracy(plus: ArrayLike, minus: ArrayLike, weights: ArrayLike, length: int) -> float:
    """Accuracy of one linear classifier, by counting every outcome.

    Parameters
    ----------
    plus, minus : (n,) array_like
        Score of each token of the class +1 and of the class -1.
    weights, length
        As for `conditional_accuracy`.

    Returns
    -------
    float
        The accuracy. Scores within 1e-12 of the largest possible one are ties.

    Raises
    ------
    ValueError
        As for `conditional_accuracy`, or if the outcomes of half the positions exceed `ATOMS`.

    Notes
    -----
    The positions are split in two halves; the outcomes of one are looked up among the sorted ones of the
    other, so that counting costs the square root of their number.

    Examples
    --------
    >>> enumerated_accuracy([1.0, -1.0], [-1.0, -1.0], [1.0], 1)
    0.75
    """
    given = scoring(plus, minus, weights, length)
    halves = _halves(given, ATOMS)
    if halves is None:
        msg = (
            f"weights: {np.count_nonzero(given.weights)} positions of {given.plus.shape[1]} + "
            f"{given.minus.shape[1]} tokens have too many outcomes to enumerate; take series_accuracy"
        )
        raise ValueError(msg)
    return _enumerated(given, 0, halves)


def series_accuracy(
    plus: ArrayLike, minus: ArrayLike, weights: ArrayLike, length: int, *, tolerance: float = 1e-10
) -> tuple[Array, Array]:
    """Accuracy of linear classifiers, from the score's characteristic function phi.

    Parameters
    ----------
    plus, minus, weights, length
        As for `conditional_accuracy`.
    tolerance : float
        Estimated error at which the series stops; it stops at `HARMONICS` at the latest.

    Returns
    -------
    accuracy, error : (...) array
        As for `conditional_accuracy`.

    Raises
    ------
    ValueError
        As for `conditional_accuracy`.

    Notes
    -----
    A score s lies within a half period P/2 of 0, where the sign is a square wave: ``E sign(s) = (4/pi)
    sum_{k odd} Im phi(2 pi k/P)/k``, without discretisation. What is left out beyond a harmonic K is
    estimated from the size of phi at the last ones, as a sum of terms in random phase. That holds for
    scores in general position; where they lie on a lattice phi comes back, and `lattice_accuracy` is exact.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> plus, minus = rng.normal(1.0, 1.0, 400), rng.normal(-1.0, 1.0, 400)
    >>> accuracy, error = series_accuracy(plus, minus, np.full(16, 1 / 16), 4)
    >>> bool(0.70 < accuracy < 0.80), bool(error < 1e-9)
    (True, True)
    """
    accuracy, error = _series(scoring(plus, minus, weights, length), tolerance)
    shape = np.shape(plus)[:-1]
    return accuracy.reshape(shape), error.reshape(shape)


def _enumerated(given: Scoring, row: int, halves: Halves) -> float:
    plus, minus, weights = given.plus[row], given.minus[row], given.weights
    tie = _TIE * float(given.largest[row])
    both = np.concatenate([plus, minus])
    fair = np.repeat([0.5 / plus.size, 0.5 / minus.size], [plus.size, minus.size])
    right = 0.0
    for sign, own in ((1.0, plus), (-1.0, minus)):
        tables = (own, np.full(own.size, 1.0 / own.size)), (both, fair)
        (a, chance_a), (b, chance_b) = (
            _outcomes([(sign * weights[t], *tables[t >= given.length]) for t in half], tie) for half in halves
        )
        order = np.argsort(b)
        below = np.concatenate([[0.0], np.cumsum(chance_b[order])])
        not_above = np.searchsorted(b[order], -a + tie, side="right")
        less = np.searchsorted(b[order], -a - tie, side="left")
        right += 0.5 * float(chance_a @ (1.0 - 0.5 * (below[not_above] + below[less])))
    return min(right, 1.0)


def _halves(given: Scoring, most: int) -> Halves | None:
    """Split the positions in two that both have few outcomes; None where they don't."""
    plus, minus = given.plus.shape[1], given.minus.shape[1]
    halves: Halves = ([], [])
    outcomes = [1, 1]
    for t in reversed(np.flatnonzero(given.weights).tolist()):
        lighter = outcomes.index(min(outcomes))
        halves[lighter].append(t)
        outcomes[lighter] *= max(plus, minus) if t < given.length else plus + minus
        if outcomes[lighter] > most:
            return None
    return halves


def _outcomes(terms: list[tuple[float, Array, Array]], tie: float) -> tuple[Array, Array]:
    """Values of a sum of independent draws and their probabilities, ties merged."""
    value, chance = np.zeros(1), np.ones(1)
    for weight, scores, probability in terms:
        value = np.add.outer(value, weight * scores).ravel()
        chance = np.multiply.outer(chance, probability).ravel()
        rounded = np.round(value / (tie or 1.0), 1)
        _, first, back = np.unique(rounded, return_index=True, return_inverse=True)
        value, chance = value[first], np.asarray(np.bincount(back, weights=chance), dtype=np.float64)
    return value, chance


def _series(given: Scoring, tolerance: float) -> tuple[Array, Array]:
    plus, minus, groups, largest = given.plus, given.minus, given.groups, given.largest
    accuracy, error = np.full(largest.shape, 0.5), np.zeros(largest.shape)
    live = np.flatnonzero(largest > 0)
    rows = max(1, _ELEMENTS // (len(groups) * (plus.shape[1] + minus.shape[1])))
    for start in range(0, live.size, rows):
        part = live[start : start + rows]
        # A little over half a period on either side: at its end the square wave is no sign.
        base = np.pi / 1.01 / largest[part]
        harmonics = _harmonics(base, plus[part], minus[part], groups)
        accuracy[part], error[part] = _sum_of(harmonics, part.size, tolerance)
    return np.clip(accuracy, 0.0, 1.0), error


def _harmonics(
    base: Array, plus: Array, minus: Array, groups: list[Group]
) -> Iterator[tuple[NDArray[np.complex128], NDArray[np.complex128]]]:
    """Yield phi at the odd multiples of a base frequency, for either label."""
    weight = np.array([group.weight for group in groups])
    prefix = np.array([group.prefix for group in groups])
    tail = np.array([group.tail for group in groups])
    frequency = (base[:, None] * weight)[:, :, None]
    waves = [np.exp(1j * frequency * scores[:, None, :]) for scores in (plus, minus)]
    steps = [wave * wave for wave in waves]
    while True:
        up, down = (wave.mean(axis=-1) for wave in waves)
        beyond = np.multiply.reduce((0.5 * (up + down)) ** tail, axis=-1)
        yield (
            np.multiply.reduce(up**prefix, axis=-1) * beyond,
            np.multiply.reduce(down**prefix, axis=-1) * beyond,
        )
        for wave, step in zip(waves, steps, strict=True):
            wave *= step


def _sum_of(
    harmonics: Iterator[tuple[NDArray[np.complex128], NDArray[np.complex128]]], rows: int, tolerance: float
) -> tuple[Array, Array]:
    """Sum the square wave's series until what is left out is small."""
    total, error = np.zeros(rows), np.full(rows, np.inf)
    powers: list[Array] = []
    for k in range(1, HARMONICS, 2 * _BATCH):
        power = np.zeros(rows)
        for harmonic in range(k, k + 2 * _BATCH, 2):
            up, down = next(harmonics)
            total += (up.imag - down.imag) / harmonic
            power += (up * up.conj() + down * down.conj()).real / (2 * _BATCH)
        # Imaginary parts of random phase: steps of variance power/harmonic^2, in a walk whose variance is
        # power/(2 k). Five deviations of it, with the mean power of the later half of what was summed.
        powers.append(power)
        later = np.mean(powers[len(powers) // 2 :], axis=0)
        error = 5.0 / np.pi * np.sqrt(later / (2.0 * (k + 2 * _BATCH))) + 1e-14
        if np.all(error <= tolerance):
            break
    return 0.5 + total / np.pi, error
