"""Where along rho an estimator looks: the overlaps of a size at chosen heights, and whether they suffice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import estimate as answers
from eigensweep.analysis.dressing import functions
from eigensweep.analysis.estimate import Estimate, refusal
from eigensweep.analysis.samples import Columns, Gridded, Sample

Array = NDArray[np.float64]

LEAST_REPLICATES = 8
"""Fewer say too little about the covariance of the points."""
LARGE = 400
"""From this size on, one size alone can be continued."""
RISE = 0.12
"""The mean overlap must pass this."""
FOOT = 0.25
"""A point of smaller mean overlap is needed."""
SKETCH = 16
"""Replicates that tell roughly where the transition is."""
SCALE = 1.3
"""Typical width of the transition in the odds, times d^(1/3): 1 for the spiked GOE."""


@dataclass(frozen=True, eq=False)
class Points:
    """The overlaps of one size at some signal strengths.

    Parameters
    ----------
    dimension : int
        The matrices' size d.
    rho : (m,) array
        Signal strengths, ascending.
    overlap : (n, m) array
        Squared overlaps, one row a replicate.
    """

    dimension: int
    rho: Array
    overlap: Array

    @property
    def mean(self) -> Array:
        """Mean overlap at each rho: (m,)."""
        return np.asarray(self.overlap.mean(axis=0))

    def where(self, keep: NDArray[np.bool_]) -> Points:
        """Return a part of the points."""
        return Points(self.dimension, self.rho[keep], self.overlap[:, keep])


def points_at(sample: Sample, heights: Array) -> Points:
    """Look at a sample where its mean overlap has given heights.

    Parameters
    ----------
    sample : Sample
        The replicates of one size.
    heights : (m,) array
        Logits of mean overlaps, ascending.

    Returns
    -------
    Points
        At those heights to within a few percent, evaluated exactly. Heights that are not reached are left
        out; a sample on a grid gives its own values of rho nearest to the heights.
    """
    rho = rho_at(sample, heights)
    rho = np.unique(rho[np.isfinite(rho)])
    return Points(sample.dimension, rho, sample.overlap(rho))


def rho_at(sample: Sample, heights: Array) -> Array:
    """Find the signal strengths of given mean overlaps; NaN where a height is not reached.

    Parameters
    ----------
    sample : Sample
        The replicates of one size.
    heights : (m,) array
        Logits of mean overlaps, ascending.

    Returns
    -------
    (m,) array
        For a sample on a grid its nearest values, NaN for those farther than a logit of 0.7.
    """
    if isinstance(sample, Gridded):
        level = _logit(sample.overlap(sample.rho))
        nearest = np.argmin(np.abs(level[None, :] - heights[:, None]), axis=1)
        return np.where(np.abs(level[nearest] - heights) < 0.7, sample.rho[nearest], np.nan)
    first = sample.sketch() if isinstance(sample, Columns) else sample
    few = first.sketch(SKETCH) if isinstance(first, Columns) else first
    rho = sample.scale * np.geomspace(1e-5, 1e2, 36)
    level = _logit(few.overlap(rho))
    # Twice: between coarse values the curve is too bent to be read off.
    fine = _crossings(rho, level, np.arange(heights[0] - 0.8, heights[-1] + 0.81, 0.4))
    fine = np.unique(fine[np.isfinite(fine)])
    if fine.size < 2:
        return np.full(heights.size, np.nan)
    return _crossings(fine, _logit(first.overlap(fine)), heights)


def _logit(overlap: Array) -> Array:
    mean = np.clip(overlap.mean(axis=0), 1e-12, 1.0 - 1e-12)
    return np.asarray(np.log(mean / (1.0 - mean)))


def _crossings(rho: Array, level: Array, heights: Array) -> Array:
    rising = np.maximum.accumulate(level)
    keep = np.concatenate([[True], np.diff(rising) > 0.0])
    logs = np.interp(heights, rising[keep], np.log(rho[keep]), left=np.nan, right=np.nan)
    return np.asarray(np.exp(logs))


def screen(samples: Sequence[Sample], method: str) -> tuple[list[Sample], Estimate | None]:
    """Drop the sizes that can't be used, and say so if too few are left.

    Parameters
    ----------
    samples : sequence of Sample
        One a size.
    method : str
        The estimator that asks.

    Returns
    -------
    usable : list of Sample
        By ascending size.
    refused : Estimate or None
        Why no threshold can be given, if so.
    """
    given = sorted((s for s in samples if s.replicates > 0), key=lambda s: s.dimension)
    if not given:
        words = "no column of this cell is done; run the sweep, or eigensweep run --retry-failed"
        return [], refusal(answers.NO_DATA, words, method)
    usable = [s for s in given if s.replicates >= LEAST_REPLICATES]
    dimensions = [s.dimension for s in usable]
    if not usable:
        most = max(s.replicates for s in given)
        words = (
            f"{most} replicates are done at most and {LEAST_REPLICATES} are needed; raise replicates under "
            "[grid] (40 make a good interval)"
        )
        return [], refusal(answers.TOO_FEW_REPLICATES, words, method)
    standing = [s for s in usable if isinstance(s, Columns)]
    if standing and _stands(standing[-1]):
        return usable, refusal(answers.ALWAYS_ABOVE, ABOVE, method, dimensions)
    if len(usable) < 2 and dimensions[-1] < LARGE:
        words = (
            f"the one size with enough replicates is d = {dimensions[-1]}; add a second d under [grid], or "
            f"one of at least {LARGE}"
        )
        return usable, refusal(answers.TOO_FEW_SIZES, words, method, dimensions)
    return usable, None


ABOVE = (
    "the matrix has the signal's outlier at rho = 0 already, so that no rho > 0 is a threshold; "
    'set table = "class-centered" under [model] to see a transition'
)


def starts_high(sample: Sample) -> bool:
    """Whether the overlap is not small even at rho = 0, which columns can be asked for.

    Parameters
    ----------
    sample : Sample
        The replicates of one size.

    Returns
    -------
    bool
        False for a sample on a grid, which can't tell.
    """
    return isinstance(sample, Columns) and bool(sample.overlap(np.zeros(1)).mean() > FOOT / 2.0)


def _stands(sample: Columns) -> bool:
    """Whether the top eigenvector follows h at rho = 0 more than it does in a matrix at its threshold."""
    q = float(sample.standing.mean())
    width = SCALE * sample.dimension ** (-1.0 / 3.0)
    return bool(q / (1.0 - q) > width * functions(np.array(0.5))[0][0])
