"""The signal strength at which a replicate's top eigenvalue leaves the noise: a description, no estimate.

Each replicate departs where its top eigenvalue passes a level, such as the Tracy-Widom 95% point of pure
noise at its size. On a spectral column that strength is the root of a quadratic in sqrt(rho). Departures
tend to rho_c as d grows, but slowly: their median is a sixth to a quarter above it at d = 400, and what
extrapolation makes of them lies below it. Their distribution function is the probability of detection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigensweep.analysis import estimate as answers
from eigensweep.analysis.estimate import Estimate, refusal
from eigensweep.analysis.samples import Columns

Array = NDArray[np.float64]

METHOD = "departure"


def departures(sample: Columns, level: float) -> Array:
    """Signal strengths from which on the top eigenvalue exceeds a level.

    Parameters
    ----------
    sample : Columns
        The replicates of one size.
    level : float
        In units of kappa.

    Returns
    -------
    (n, k) array
        For each replicate and direction u. 0 where the top eigenvalue always exceeds the level, as it does
        in one replicate of 20 if the level is the 95% point; infinite where it never does.
    """
    return np.asarray(sample.passing(np.array([level]))[:, :, 0])


def detection(sample: Columns, level: float, rho: ArrayLike) -> tuple[Array, Array, Array]:
    """Probability that the top eigenvalue exceeds a level: detection at the level's false-alarm rate.

    Parameters
    ----------
    sample : Columns
        The replicates of one size.
    level : float
        In units of kappa; the (1 - p) quantile of the top eigenvalue of pure noise for false alarms at p.
    rho : (m,) array_like
        Signal strengths.

    Returns
    -------
    probability, low, high : (m,) array
        Averaged over the directions u, and Wilson's 95% interval for the number of replicates.
    """
    passed = departures(sample, level)[:, :, None] <= np.asarray(rho, dtype=np.float64)
    p = np.asarray(passed.mean(axis=(0, 1)))
    n, z = sample.replicates, 1.96
    centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z * np.sqrt(p * (1.0 - p) / n + (z / (2.0 * n)) ** 2) / (1.0 + z * z / n)
    # Rounding may leave an end of the interval just beside p where p is 0 or 1.
    return p, np.minimum(centre - half, p), np.maximum(centre + half, p)


def estimate(
    samples: Sequence[Columns],
    levels: Mapping[int, float],
    rng: np.random.Generator,
    *,
    resamplings: int = 400,
) -> Estimate:
    """Extrapolate the median departure to infinite size, for comparison: its bias is larger than its error.

    Parameters
    ----------
    samples : sequence of Columns
        One a size.
    levels : mapping of int to float
        The level of each size, in units of kappa.
    rng : numpy.random.Generator
        For resampling replicates.
    resamplings : int
        How often.

    Returns
    -------
    Estimate
        The intercept of the medians over d^(-1/3), with two standard deviations to either side.
    """
    dimensions = tuple(s.dimension for s in samples)
    if len(samples) < 2:
        return refusal(answers.TOO_FEW_SIZES, "add a second d under [grid]", METHOD, dimensions)
    whole, drawn = [], []
    for sample in samples:
        rho = departures(sample, levels[sample.dimension])
        picks = rng.integers(0, sample.replicates, size=(resamplings, sample.replicates))
        whole.append(np.median(rho))
        drawn.append(np.median(rho[picks], axis=(1, 2)))
    medians = np.column_stack([whole[k] for k in range(len(whole))])
    spread = np.std(np.array(drawn), axis=1)
    if not np.isfinite(medians).all() or not np.isfinite(spread).all():
        words = "some replicates never depart; the signal does not reach the columns"
        return refusal(answers.NEVER_RISES, words, METHOD, dimensions)
    x = np.array(dimensions, dtype=np.float64) ** (-1.0 / 3.0)
    design = np.column_stack([np.ones_like(x), x]) / spread[:, None]
    intercept = np.linalg.pinv(design)[0] / spread
    value = float(intercept @ medians[0])
    half = 2.0 * float(np.std(intercept @ np.array(drawn)))
    words = "extrapolated median departure; biased, for comparison only"
    return Estimate(value, value - half, value + half, answers.OK, words, METHOD, dimensions)
