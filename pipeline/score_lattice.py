"""Distribution of a classifier's score on a lattice, by FFT, and the accuracy that it gives with a bound."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.pipeline.scoring import Array, Group, scoring


def lattice_accuracy(
    plus: ArrayLike,
    minus: ArrayLike,
    weights: ArrayLike,
    length: int,
    *,
    step: float | None = None,
    points: int = 1 << 16,
) -> tuple[float, float]:
    """Accuracy of one linear classifier, with the whole distribution of the score on a lattice, by FFT.

    Parameters
    ----------
    plus, minus : (n,) array_like
        Score of each token of the class +1 and of the class -1.
    weights : (T,) array_like
        Pooling weights.
    length : int
        L, the length of the prefix that shares the label's sign; from 1 to T.
    step : float, optional
        Spacing of the lattice; the coarsest one that holds every ``w_t f`` makes the result exact.
    points : int
        Number of lattice points where no step is given: a power of two, above 4 (T + 2).

    Returns
    -------
    accuracy : float
        The accuracy.
    bound : float
        Bound on its error: the mass that the lattice puts so near 0 that its sign may be wrong.

    Raises
    ------
    ValueError
        If the scores or weights can't be read (see `scoring`), or if the step is not
        positive or the points are too few.

    Notes
    -----
    Each term's mass is split between the two lattice points beside it, in the proportion that keeps its
    mean. No outcome moves by more than one step a position, so only outcomes that close to 0 can change
    their sign. For smooth distributions the error falls with the square of the step, far below the bound.

    Examples
    --------
    >>> lattice_accuracy([1.0, -1.0], [-1.0, -1.0], [1.0], 1, step=1.0)[0]
    0.75
    """
    given = scoring(plus, minus, weights, length)
    held, T = int(np.count_nonzero(given.weights)), given.weights.size
    largest = float(given.largest[0])
    if step is None:
        if points & (points - 1) or points <= 4 * (T + 2):
            msg = f"points = {points}: the lattice needs a power of two above {4 * (T + 2)}"
            raise ValueError(msg)
        step = max(largest, np.finfo(np.float64).tiny) / (points // 2 - held - 1)
    elif not 0 < step < math.inf:
        raise ValueError(f"step = {step:g}: the lattice's spacing is positive and finite; give such a one")
    else:
        points = 1 << math.ceil(math.log2(2 * (largest / step + held + 2)))
    return _on_lattice(given.plus[0], given.minus[0], given.groups, step, points)


def _on_lattice(
    plus: Array, minus: Array, groups: list[Group], step: float, points: int
) -> tuple[float, float]:
    shape = points // 2 + 1
    phi = [np.ones(shape, dtype=np.complex128), np.ones(shape, dtype=np.complex128)]
    moved = 0
    for group in groups:
        (up, split_up), (down, split_down) = (
            _split(group.weight * scores / step, points) for scores in (plus, minus)
        )
        moved += (group.prefix + group.tail) * (split_up or split_down)
        beyond = (0.5 * (up + down)) ** group.tail
        phi[0] *= up**group.prefix * beyond
        phi[1] *= down**group.prefix * beyond
    right, bound = 0.0, 1e-15 * math.log2(points)
    for sign, transform in zip((1, -1), phi, strict=True):
        mass = np.fft.irfft(transform, points)
        positive, negative = float(mass[1 : points // 2].sum()), float(mass[points // 2 :].sum())
        right += 0.5 * ((positive if sign > 0 else negative) + 0.5 * float(mass[0]))
        if moved:
            near = float(mass[:moved].sum() + mass[points - moved + 1 :].sum())
            bound += 0.5 * max(near, 0.0)
    return min(max(right, 0.0), 1.0), bound


def _split(scores: Array, points: int) -> tuple[NDArray[np.complex128], bool]:
    """Transform of scores in lattice steps, and whether any lies between two points."""
    floor = np.floor(scores + 1e-9)
    part = np.where(scores - floor < 1e-9, 0.0, scores - floor)
    place = floor.astype(np.int64)
    mass = np.bincount(place % points, weights=1.0 - part, minlength=points)
    mass += np.bincount((place + 1) % points, weights=part, minlength=points)
    return np.fft.rfft(mass / scores.size), bool(np.any(part > 0))
