"""The threshold by continuing the odds of the overlap to zero, dressed for finite size: the default.

Above the threshold the odds ``q/(1 - q)`` of the squared overlap are a smooth function s of rho that passes
through zero at rho_c, where q itself has a corner. At size d the odds of the *mean* overlap bend away from
s over a width ``eps = A d^(-1/3)`` in a way that all real spiked models share:

    y = eps (f0(x) + c1 eps f1(x) + (c1 eps)^2 f2(x)),    x = s/eps + k eps,

with f0, f1, f2 from the spiked GOE (`eigensweep.analysis.dressing`) and k = -0.7, one number for both levels,
scored on cells of (delta, gamma) other than those of the published calibration. The limit s is a
quadratic over a linear function of rho, which is exact or nearly so for every model here; bend and
continuation are fitted jointly over all sizes:

    s = c t (1 + a t)/(1 + b t),   t = (rho (1 + 100 e/d) - rho_c)/rho_1,   rho_1 = rho at odds 1.

No edge of a bulk, no aspect ratio and no theoretical threshold enters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis import estimate as answers
from eigensweep.analysis.dressing import dressed
from eigensweep.analysis.estimate import Estimate, refusal
from eigensweep.analysis.leastsquares import minimise
from eigensweep.analysis.points import ABOVE, FOOT, LARGE, RISE, Points, points_at, screen, starts_high
from eigensweep.analysis.samples import Sample

Array = NDArray[np.float64]

METHOD = "continuation"
HEIGHTS = np.linspace(-3.2, 1.2, 12)
"""Logits of the mean overlaps that are looked at."""
HIGHEST = 0.8
"""Points of larger mean overlap say nothing about the threshold."""
NOISIEST = 0.8
"""Points where the overlap's coefficient of variation over replicates is larger are left out."""
RIDGE = 0.2
"""Raises the diagonal of the points' covariance: few replicates make it nearly singular."""

# ratio rho_c/rho_1, log c, log A, c1, b, a, e: the priors' centres and widths, and the bounds.
# Among spiked Wigner, spiked covariance and attention pooling a is 0.5 to 1.7 and b is 0 to 1.5.
CENTRE = np.array([0.0, 0.0, np.log(1.3), 0.6, 0.5, 1.1, 0.0])
WIDTH = np.array([np.inf, np.inf, 0.35, 0.5, 0.8, 0.35, 0.03])
LOW = np.array([-np.inf, -20.0, -5.0, -np.inf, -0.5, -0.3, -np.inf])
HIGH = np.array([np.inf, 20.0, 5.0, np.inf, np.inf, np.inf, np.inf])
SHIFT = -0.7
"""k: how the transition moves with size, beside the drift, compared with the spiked GOE's."""
FROZEN = 1e-9
"""Width of the drift's prior where one size alone can't tell it."""
STARTS = (0.5, 0.68, 0.85)
"""Values of rho_c/rho_1 to start from; from one alone the fit now and then ends in a wrong minimum."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The dressed continuation of some replicates.

    Parameters
    ----------
    threshold : float
        rho_c.
    spread : float
        Standard deviation of rho_c over resampled replicates.
    prior : float
        Standard deviation that the priors' widths add.
    parameters : (7,) array
        rho_c/rho_1, log c, log A, c1, b, a, e.
    unit : float
        rho_1, where the odds of the largest size are 1.
    resampled : (b,) array
        rho_c of each resampling.
    """

    threshold: float
    spread: float
    prior: float
    parameters: Array
    unit: float
    resampled: Array

    def limit(self, rho: Array) -> Array:
        """Odds in the limit of large d at signal strengths above the threshold; negative below it."""
        odds, _ = _limit(self.parameters[None], np.asarray(rho, dtype=np.float64), np.inf, self.unit)
        return np.asarray(odds[0])


def estimate(
    samples: Sequence[Sample], rng: np.random.Generator, *, resamplings: int = 200, floor: float = 0.01
) -> Estimate:
    """Estimate the threshold from the replicates of several sizes.

    Parameters
    ----------
    samples : sequence of Sample
        One a size.
    rng : numpy.random.Generator
        For resampling replicates.
    resamplings : int
        How often they are resampled, each size within itself.
    floor : float
        Standard deviation, relative to rho_c, of what more replicates do not remove: the method's own bias,
        which varies between models by about a per cent.

    Returns
    -------
    Estimate
        The interval is two standard deviations to either side: resampling, priors and floor together.
    """
    usable, refused = screen(samples, METHOD)
    if refused is not None:
        return refused
    points, unit = choose(usable)
    refused = _insufficient(points, unit, [s.dimension for s in usable])
    if refused is not None:
        if refused.status == answers.NO_FOOT and starts_high(usable[-1]):
            return refusal(answers.ALWAYS_ABOVE, ABOVE, METHOD, refused.dimensions)
        return refused
    fit = continue_odds(points, unit, rng, resamplings)
    dimensions = tuple(p.dimension for p in points)
    if not np.isfinite(fit.threshold) or not np.isfinite(fit.spread):
        words = "the fit did not settle; add replicates, and a larger d under [grid]"
        return refusal(answers.FAILED, words, METHOD, dimensions)
    half = 2.0 * float(np.sqrt(fit.spread**2 + fit.prior**2 + (floor * fit.threshold) ** 2))
    if fit.threshold - half <= 0.0:
        return refusal(answers.ALWAYS_ABOVE, f"the interval reaches rho = 0: {ABOVE}", METHOD, dimensions)
    low, high = fit.threshold - half, fit.threshold + half
    wide = half > 0.25 * fit.threshold
    words = f"d = {', '.join(map(str, dimensions))}; {min(s.replicates for s in usable)} replicates or more"
    if wide:
        words += "; the interval is wide: add replicates, a larger d, or rho up to where the overlap is 0.5"
    return Estimate(fit.threshold, low, high, answers.WIDE if wide else answers.OK, words, METHOD, dimensions)


def choose(samples: Sequence[Sample]) -> tuple[list[Points], float]:
    """Choose the points to fit.

    Parameters
    ----------
    samples : sequence of Sample
        By ascending size.

    Returns
    -------
    points : list of Points
        Of each size that has some.
    unit : float
        The signal strength at which the largest size's odds are 1, or the nearest there is.
    """
    found = []
    for sample in samples:
        points = points_at(sample, HEIGHTS)
        mean = points.mean
        noise = np.std(points.overlap, axis=0, ddof=1)
        points = points.where((mean < HIGHEST) & (mean > 0.0) & (noise < NOISIEST * mean))
        if points.rho.size:
            found.append(points)
    if not found:
        return found, float("nan")
    last = found[-1]
    return found, float(np.interp(0.0, np.log(last.mean / (1.0 - last.mean)), last.rho))


def _insufficient(points: Sequence[Points], unit: float, dimensions: Sequence[int]) -> Estimate | None:
    """Say what is missing for a fit, if anything."""
    means = np.concatenate([p.mean for p in points]) if points else np.zeros(0)
    if not np.isfinite(unit) or means.size == 0 or means.max() < RISE:
        words = f"the overlap never passes {RISE}; add larger rho under [grid], to where it is above 0.5"
        return refusal(answers.NEVER_RISES, words, METHOD, dimensions)
    if means.min() > FOOT:
        words = (
            f"no point has an overlap below {FOOT}; add smaller rho under [grid], or more replicates to see "
            "weak overlaps"
        )
        return refusal(answers.NO_FOOT, words, METHOD, dimensions)
    left = [p.dimension for p in points]
    if means.size < 4 or (len(left) < 2 and left[-1] < LARGE):
        words = (
            f"only d = {', '.join(map(str, left))} has points near the transition, {means.size} in all; add "
            "a d, or more rho between overlaps of 0.04 and 0.8"
        )
        return refusal(answers.TOO_FEW_SIZES, words, METHOD, dimensions)
    return None


def continue_odds(
    points: Sequence[Points], unit: float, rng: np.random.Generator, resamplings: int = 200
) -> Fit:
    """Fit the dressed continuation, and fit it again to resampled replicates.

    Parameters
    ----------
    points : sequence of Points
        One a size.
    unit : float
        The rho in whose units the continuation is written.
    rng : numpy.random.Generator
        For resampling replicates within each size.
    resamplings : int
        How often.

    Returns
    -------
    Fit
        The fit.
    """
    problem = _Problem(points, unit)
    whole = [np.ones((1, p.overlap.shape[0])) for p in points]
    parameters, precision = problem.solve(whole, None)
    draws = [_resample(rng, p.overlap.shape[0], resamplings) for p in points]
    again, _ = problem.solve(draws, parameters[0])
    # What the fit would do if the priors' centres were drawn from the priors themselves.
    response = np.linalg.solve(precision[0], problem.prior.T)
    thresholds = again[:, 0] * unit
    middle = np.quantile(thresholds, [0.1587, 0.8413])
    return Fit(
        threshold=float(parameters[0, 0]) * unit,
        # Half the central 68%: a stray minimum among the resampled fits must not widen the interval.
        spread=float(middle[1] - middle[0]) / 2.0,
        prior=float(np.sqrt(np.add.reduce(response[0] ** 2))) * unit,
        parameters=parameters[0],
        unit=unit,
        resampled=thresholds,
    )


def _resample(rng: np.random.Generator, n: int, count: int) -> Array:
    """How often each of n replicates is drawn, in each of many resamplings."""
    return rng.multinomial(n, np.full(n, 1.0 / n), size=count).astype(np.float64)


class _Problem:
    """The least-squares problem of some points, for any weighting of their replicates."""

    def __init__(self, points: Sequence[Points], unit: float) -> None:
        self.points = points
        self.unit = unit
        self.rho = np.concatenate([p.rho for p in points])
        self.dimension = np.concatenate([np.full(p.rho.size, float(p.dimension)) for p in points])
        width = WIDTH.copy()
        if len(points) == 1:
            width[6] = FROZEN
        self.prior = np.diag(1.0 / width)[np.isfinite(width)]

    def solve(self, counts: Sequence[Array], start: Array | None) -> tuple[Array, Array]:
        """Fit; return the parameters and the normal matrices."""
        odds, whitening = self._data(counts)

        def residual(p: Array, which: NDArray[np.intp]) -> tuple[Array, Array]:
            model, slope = _model(p, self.rho, self.dimension, self.unit)
            misfit = np.einsum("bij,bj->bi", whitening[which], model - odds[which])
            held = np.broadcast_to(self.prior, (p.shape[0], *self.prior.shape))
            return (
                np.concatenate([misfit, (p - CENTRE) @ self.prior.T], axis=1),
                np.concatenate([whitening[which] @ slope, held], axis=1),
            )

        starts = [start] if start is not None else [_start(ratio) for ratio in STARTS]
        shape = (odds.shape[0], CENTRE.size)
        found = [minimise(residual, np.broadcast_to(s, shape).copy(), LOW, HIGH) for s in starts]
        best = np.argmin([cost for _, cost in found], axis=0)
        parameters = np.array([p for p, _ in found])[best, np.arange(shape[0])]
        _, slope = residual(parameters, np.arange(shape[0]))
        return parameters, np.einsum("bmp,bmq->bpq", slope, slope)

    def _data(self, counts: Sequence[Array]) -> tuple[Array, Array]:
        """Odds of the mean overlaps, (b, m), and what makes their errors white, (b, m, m)."""
        odds, size = [], self.rho.size
        whitening = np.zeros((counts[0].shape[0], size, size))
        place = 0
        for p, weight in zip(self.points, counts, strict=True):
            mean, white = _whitening(p.overlap, weight)
            odds.append(mean)
            part = slice(place, place + p.rho.size)
            whitening[:, part, part] = white
            place += p.rho.size
        return np.concatenate(odds, axis=1), whitening


def _start(ratio: float) -> Array:
    return np.array([ratio, -np.log1p(-ratio), *CENTRE[2:]])


def _whitening(overlap: Array, counts: Array) -> tuple[Array, Array]:
    """Odds of the mean overlap for each weighting of the replicates, and their whitening matrices."""
    n = np.add.reduce(counts, axis=1)[:, None]
    mean = counts @ overlap / n
    slope = (1.0 - mean) ** -2.0
    second = np.array([(overlap * row[:, None]).T @ overlap for row in counts]) / n[..., None]
    spread = second - mean[:, :, None] * mean[:, None, :]
    spread *= slope[:, :, None] * slope[:, None, :] / (n[..., None] - 1.0)
    k = np.arange(mean.shape[1])
    # The floor keeps a resampling that drew one replicate only from a singular matrix.
    spread[:, k, k] = spread[:, k, k] * (1.0 + RIDGE) + 1e-12
    return mean / (1.0 - mean), np.linalg.inv(np.linalg.cholesky(spread))


def _limit(p: Array, rho: Array, dimension: Array | float, unit: float) -> tuple[Array, Array]:
    """Odds in the limit, (b, m), and their derivatives by ratio, log c, b, a and e, (b, m, 5)."""
    ratio, log_slope, _, _, down, up, drift = (p[:, k, None] for k in range(7))
    t = rho * (1.0 + 100.0 * drift / dimension) / unit - ratio
    slope = np.exp(log_slope)
    # Far below the threshold the linear function may vanish; no datum says anything there.
    lower = np.maximum(1.0 + down * t, 0.05)
    upper = 1.0 + up * t
    s = slope * t * upper / lower
    by_t = slope * ((1.0 + 2.0 * up * t) * lower - down * t * upper) / lower**2
    by_drift = by_t * 100.0 * rho / (np.asarray(dimension) * unit)
    return s, np.stack([-by_t, s, -s * t / lower, slope * t * t / lower, by_drift], axis=-1)


def _model(p: Array, rho: Array, dimension: Array, unit: float) -> tuple[Array, Array]:
    """Finite-size odds, (b, m), and their derivatives by the parameters, (b, m, 7)."""
    s, slope = _limit(p, rho, dimension, unit)
    scale = np.exp(p[:, 2, None]) * dimension ** (-1.0 / 3.0)
    odds, by_s, by_scale, by_bend = dressed(s + SHIFT * scale**2, scale, p[:, 3, None])
    by_scale = by_scale + 2.0 * SHIFT * scale**2 * by_s
    slope = slope * by_s[..., None]
    parts = [slope[..., :2], by_scale[..., None], by_bend[..., None], slope[..., 2:]]
    return odds, np.concatenate(parts, axis=-1)
