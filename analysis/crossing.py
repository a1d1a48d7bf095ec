"""The threshold where the scaled curves of two sizes cross: a check that needs the exponent alone.

At the threshold the mean squared overlap falls as d^(-1/3), faster below it and not at all above. So the
curves of ``d^(1/3) q`` of two sizes cross near rho_c. Nothing is fitted; the price is a wide interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import estimate as answers
from eigensweep.analysis.estimate import Estimate, refusal
from eigensweep.analysis.points import RISE, rho_at, screen
from eigensweep.analysis.samples import Gridded, Sample

Array = NDArray[np.float64]

METHOD = "crossing"
EXPONENT = 1.0 / 3.0
HEIGHTS = np.array([-4.0, 1.2])
"""Logits of the larger size's mean overlap between which a crossing is looked for."""
STEPS = 20
RATIO = 1.5
"""Sizes closer than this cross at too small an angle."""


def estimate(samples: Sequence[Sample], rng: np.random.Generator, *, resamplings: int = 400) -> Estimate:
    """Estimate the threshold from the smallest and the largest size.

    Parameters
    ----------
    samples : sequence of Sample
        One a size.
    rng : numpy.random.Generator
        For resampling replicates.
    resamplings : int
        How often they are resampled, each size within itself.

    Returns
    -------
    Estimate
        The interval holds the central 95% of the resampled crossings, widened where it is lopsided to reach
        as far as two of their standard deviations.
    """
    usable, refused = screen(samples, METHOD)
    if refused is not None:
        return refused
    small, large = usable[0], usable[-1]
    dimensions = (small.dimension, large.dimension)
    if large.dimension < RATIO * small.dimension:
        words = f"the sizes must differ by a factor of {RATIO} at least; add a d under [grid]"
        return refusal(answers.TOO_FEW_SIZES, words, METHOD, dimensions)
    rho = _strengths(small, large)
    first, second = small.overlap(rho), large.overlap(rho)
    if rho.size < 2 or second.mean(axis=0).max() < RISE:
        words = f"the overlap never passes {RISE}; add larger rho under [grid], to where it is above 0.5"
        return refusal(answers.NEVER_RISES, words, METHOD, dimensions)
    lift = EXPONENT * np.log(large.dimension / small.dimension)
    value = crossings(rho, _means(first, None), _means(second, None), lift)[0]
    drawn = crossings(rho, _means(first, (rng, resamplings)), _means(second, (rng, resamplings)), lift)
    held = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or held.size < 0.9 * resamplings:
        words = (
            f"the curves of d^(1/3) q of d = {small.dimension} and {large.dimension} do not cross for "
            "certain; add replicates, sizes farther apart, or rho on both sides of the transition"
        )
        return refusal(answers.NO_CROSSING, words, METHOD, dimensions)
    spread = 2.0 * float(np.std(held))
    low, high = np.quantile(held, [0.025, 0.975])
    low, high = min(float(low), value - spread), max(float(high), value + spread)
    status = answers.WIDE if high - low > 0.5 * value else answers.OK
    words = f"d = {small.dimension} against {large.dimension}; a wide but independent check"
    return Estimate(float(value), low, high, status, words, METHOD, dimensions)


def crossings(rho: Array, first: Array, second: Array, lift: float) -> Array:
    """Find where the scaled curve of a larger size rises above that of a smaller one for good.

    Parameters
    ----------
    rho : (m,) array
        Ascending.
    first, second : (b, m) array
        Mean overlaps of the smaller and of the larger size.
    lift : float
        Logarithm of the ratio of the scale factors.

    Returns
    -------
    (b,) array
        The last upward crossing, by linear interpolation; NaN where there is none.
    """
    excess = np.log(second) - np.log(first) + lift
    below = excess < 0.0
    found = below.any(axis=1) & ~below[:, -1]
    last = below.shape[1] - 1 - np.argmax(below[:, ::-1], axis=1)
    last = np.minimum(last, rho.size - 2)
    row = np.arange(last.size)
    left, right = excess[row, last], excess[row, last + 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        place = rho[last] + (rho[last + 1] - rho[last]) * left / (left - right)
    return np.where(found, place, np.nan)


def _strengths(small: Sample, large: Sample) -> Array:
    """Choose the rho at which both curves are compared."""
    if isinstance(small, Gridded) or isinstance(large, Gridded):
        grids = [s.rho for s in (small, large) if isinstance(s, Gridded)]
        common = np.intersect1d(grids[0], grids[-1])
        mean = large.overlap(common).mean(axis=0)
        return np.asarray(common[mean < 0.8])
    low, high = rho_at(large, HEIGHTS)
    if not np.isfinite(high):
        return np.zeros(0)
    return np.linspace(low if np.isfinite(low) else 0.05 * high, high, STEPS)


def _means(overlap: Array, resampling: tuple[np.random.Generator, int] | None) -> Array:
    n = overlap.shape[0]
    if resampling is None:
        return np.asarray(np.maximum(overlap.mean(axis=0), 1e-300)[None])
    rng, count = resampling
    weights = rng.multinomial(n, np.full(n, 1.0 / n), size=count) / n
    return np.asarray(np.maximum(weights @ overlap, 1e-300))
