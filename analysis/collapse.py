"""Curves of several sizes on one another: a picture of the scaling, with its quality.

Near the threshold the mean squared overlap is ``q = d^(-1/3) F((rho - rho_c) d^(1/3))`` for one function F.
With the exponents fixed and rho_c from the continuation, curves of all sizes fall together up to
corrections that fade as d^(-1/3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import estimate as answers
from eigensweep.analysis.estimate import Estimate, refusal
from eigensweep.analysis.points import Points

Array = NDArray[np.float64]

METHOD = "collapse"
EXPONENT = 1.0 / 3.0


@dataclass(frozen=True, eq=False)
class Collapsed:
    """The curve of one size in scaled variables.

    Parameters
    ----------
    dimension : int
        The matrices' size d.
    x : (m,) array
        ``(rho - rho_c) d^(1/3)``.
    y : (m,) array
        ``d^(1/3)`` times the mean overlap.
    error : (m,) array
        Standard error of y.
    """

    dimension: int
    x: Array
    y: Array
    error: Array


def collapse(points: Sequence[Points], threshold: float) -> list[Collapsed]:
    """Scale the curves of several sizes.

    Parameters
    ----------
    points : sequence of Points
        One a size.
    threshold : float
        rho_c.

    Returns
    -------
    list of Collapsed
        One a size.
    """
    result = []
    for p in points:
        factor = p.dimension**EXPONENT
        error = np.std(p.overlap, axis=0, ddof=1) / np.sqrt(p.overlap.shape[0])
        result.append(
            Collapsed(p.dimension, (p.rho - threshold) * factor, p.mean * factor, np.asarray(error * factor))
        )
    return result


def quality(curves: Sequence[Collapsed]) -> float:
    """Measure how far scaled curves lie apart, in their own errors.

    Parameters
    ----------
    curves : sequence of Collapsed
        At least two sizes.

    Returns
    -------
    float
        Mean squared distance of each point from the line through its neighbours on the other curves, in
        standard errors: about 1 for a perfect collapse (Houdayer and Hartmann, Phys. Rev. B 70, 014418
        (2004)); infinite where no two curves overlap.
    """
    squares = []
    for mine in curves:
        for other in curves:
            if other is mine:
                continue
            inside = (mine.x > other.x[0]) & (mine.x < other.x[-1])
            right = np.clip(np.searchsorted(other.x, mine.x[inside]), 1, other.x.size - 1)
            share = (mine.x[inside] - other.x[right - 1]) / (other.x[right] - other.x[right - 1])
            level = (1.0 - share) * other.y[right - 1] + share * other.y[right]
            error = np.hypot((1.0 - share) * other.error[right - 1], share * other.error[right])
            squares.append((mine.y[inside] - level) ** 2 / (mine.error[inside] ** 2 + error**2))
    joined = np.concatenate(squares) if squares else np.zeros(0)
    return float(joined.mean()) if joined.size else float("inf")


def estimate(points: Sequence[Points], span: tuple[float, float] = (0.4, 1.6)) -> Estimate:
    """Find the threshold of the best collapse, for comparison: corrections to scaling bias it.

    Parameters
    ----------
    points : sequence of Points
        One a size.
    span : tuple of two float
        Where to look, relative to the middle of the points of the largest size.

    Returns
    -------
    Estimate
        Its interval is where the quality stays within 1 of the best.
    """
    dimensions = tuple(p.dimension for p in points)
    if len(points) < 2:
        return refusal(answers.TOO_FEW_SIZES, "add a second d under [grid]", METHOD, dimensions)
    middle = float(np.median(points[-1].rho))
    trial = np.linspace(span[0] * middle, span[1] * middle, 241)
    found = np.array([quality(collapse(points, float(rho))) for rho in trial])
    best = int(np.argmin(found))
    near = trial[found <= found[best] + 1.0]
    words = f"best collapse at fixed exponents, quality {found[best]:.2g}; biased, for comparison only"
    return Estimate(
        float(trial[best]), float(near[0]), float(near[-1]), answers.OK, words, METHOD, dimensions
    )
