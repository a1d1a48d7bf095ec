"""Make the universal functions of the transition, ``analysis/dressing.json``, from spiked GOE tridiagonals.

Run ``python benchmarks/dressing.py -o analysis/dressing.json`` (about a quarter of an hour on one core).

The spiked Gaussian orthogonal ensemble, ``W + theta u u'`` with the semicircle on [-2, 2], is the simplest
matrix with the transition: above theta = 1 the squared overlap is ``q = 1 - 1/theta^2``, so that the odds
``q/(1 - q)`` are ``s = theta^2 - 1``. At size n, with eps = n^(-1/3) and x = s/eps, the odds of the mean
overlap are

    eps (f0(x) + eps f1(x) + eps^2 f2(x) + ...),

f0 the limit (shared by every real spiked model at its threshold; Bloemendal and Virag, "Limits of spiked
random matrices I", 2013), f1 and f2 the corrections of this ensemble. In the basis that starts with u, W is
tridiagonal with independent entries (Dumitriu and Edelman, "Matrix models for beta ensembles", 2002), and
the top eigenvector lives in its first few n^(1/3) entries, so sizes of 10^6 cost a thousand entries.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SIZES = (30, 60, 100, 200, 400, 800, 2000, 6000, 1_000_000)
REACH = 16.0
"""Entries kept, in units of n^(1/3): the eigenvector's tail beyond is exp(-2/3 16^(3/2)), about e^-43."""
GRID = np.concatenate(
    [np.arange(-6.0, 6.0, 0.5), np.arange(6.0, 16.0, 1.0), [16, 18, 20, 24, 30, 36, 44, 52, 60]]
)
"""Values of x."""
TOLERANCE = 1e-3
"""What the powers of eps beyond the second may amount to, relative to the odds."""


def sample_tridiagonal(rng: np.random.Generator, n: int, count: int) -> tuple[Array, Array]:
    """Draw the leading entries of GOE tridiagonals: diagonals and squared off-diagonals, (entries, count)."""
    entries = min(n, int(np.ceil(REACH * n ** (1 / 3))) + 8)
    diagonal = rng.normal(0.0, np.sqrt(2.0 / n), size=(entries, count))
    freedom = n - np.arange(1, entries)
    beside = rng.chisquare(freedom[:, None], size=(entries - 1, count)) / n
    return diagonal, beside


def pivots(z: Array, diagonal: Array, beside: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Eliminate ``z - W`` from its end: the first pivot, its derivative in z, and whether z is above all.

    z is (x, count); the first pivot is 1 over the resolvent's corner element.
    """
    p, slope = z - diagonal[-1], np.ones_like(z)
    above = np.ones(z.shape, dtype=bool)
    for a, b in zip(diagonal[-2::-1], beside[::-1], strict=True):
        above &= p > 0.0
        ratio = b / p
        slope = 1.0 + ratio * slope / p
        p = (z - a) - ratio
    return p, slope, above


def overlaps(theta: Array, diagonal: Array, beside: Array) -> Array:
    """Squared overlap with u of the top eigenvector at each theta, (theta, count)."""
    shape = (theta.size, diagonal.shape[1])
    target = np.broadcast_to(theta[:, None], shape)
    low = np.full(shape, 0.0)
    high = np.maximum(target, 0.0) + 6.0
    strong = np.maximum(target, 1.0)
    z = strong + 1.0 / strong
    result = np.full(shape, np.nan)
    for _ in range(80):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            p, slope, above = pivots(z, diagonal, beside)
            step = (p - target) / slope
        excess = np.where(above, p - target, -1.0)
        low, high = np.where(excess < 0.0, z, low), np.where(excess >= 0.0, z, high)
        result = np.where(above, 1.0 / slope, result)
        new = np.where(above, z - step, np.nan)
        astray = ~((new > low) & (new < high))
        new = np.where(astray, 0.5 * (low + high), new)
        if np.all(above & (np.abs(step) < 1e-11)):
            return result
        z = np.where(above & (np.abs(step) < 1e-11), z, new)
    raise ArithmeticError("a root did not settle in 80 steps")


def scaled_odds(rng: np.random.Generator, n: int, count: int, batch: int) -> tuple[Array, Array]:
    """Odds of the mean overlap times n^(1/3) on the grid of x, and the covariance of their errors."""
    eps = n ** (-1 / 3)
    theta_squared = 1.0 + GRID * eps
    theta = np.sqrt(np.where(theta_squared > 0.0, theta_squared, 1.0))
    total, square, done = np.zeros(GRID.size), np.zeros((GRID.size, GRID.size)), 0
    while done < count:
        q = overlaps(theta, *sample_tridiagonal(rng, n, batch))
        total += q.sum(axis=1)
        square += q @ q.T
        done += batch
    mean = total / done
    slope = 1.0 / (eps * (1.0 - mean) ** 2)
    covariance = (square / done - np.outer(mean, mean)) / done * np.outer(slope, slope)
    odds = np.where(theta_squared > 0.0, mean / (1.0 - mean) / eps, np.nan)
    return odds, covariance


def expand(odds: Array, variance: Array) -> Array:
    """Regress each x's odds on 1, eps and eps^2 over the sizes: (3, x).

    The largest size fixes the limit; the two corrections are those that describe sizes 30 to 6000 best, not
    the first terms of a series.
    """
    eps = np.array(SIZES, dtype=float) ** (-1 / 3)
    result = np.empty((3, GRID.size))
    for k in range(GRID.size):
        # In the small sizes a large x is a spike far above threshold, which no low power of eps describes.
        use = np.isfinite(odds[:, k]) & (GRID[k] * eps < 6.0) & (GRID[k] * eps > -0.9)
        design = eps[use][:, None] ** np.arange(3)
        weight = 1.0 / np.sqrt(variance[use, k] + (TOLERANCE * odds[use, k]) ** 2)
        result[:, k] = np.linalg.lstsq(design * weight[:, None], odds[use, k] * weight, rcond=None)[0]
    return result


def smooth(values: Array) -> Array:
    """Smooth a correction over x by a penalised spline of the grid's points."""
    from scipy.interpolate import make_smoothing_spline

    scale = np.arcsinh(GRID / 4.0)
    return np.asarray(make_smoothing_spline(scale, values, lam=2e-4)(scale))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=30_000, help="matrices of each size")
    parser.add_argument("--raw", type=Path, help="keep the odds and their variances here, as .npz")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--seed", type=int, default=20260507)
    options = parser.parse_args()
    odds, variance = np.empty((len(SIZES), GRID.size)), np.empty((len(SIZES), GRID.size))
    for i, n in enumerate(SIZES):
        start = time.perf_counter()
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(options.seed, spawn_key=(n,))))
        odds[i], covariance = scaled_odds(rng, n, options.count, options.batch)
        variance[i] = np.diag(covariance)
        print(f"n = {n}: {time.perf_counter() - start:.0f} s", flush=True)
    if options.raw:
        np.savez(options.raw, x=GRID, sizes=SIZES, odds=odds, variance=variance)
    f = expand(odds, variance)
    document = {
        "source": "python benchmarks/dressing.py -o analysis/dressing.json",
        "seed": options.seed,
        "count": options.count,
        "sizes": list(SIZES),
        "x": GRID.tolist(),
        "f0": np.round(f[0], 5).tolist(),
        "f1": np.round(smooth(f[1]), 5).tolist(),
        "f2": np.round(smooth(f[2]), 5).tolist(),
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
