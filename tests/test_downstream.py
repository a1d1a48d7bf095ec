"""Limit accuracy of classifiers against reference values, its own limits and Monte Carlo."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from eigensweep.analysis import downstream
from eigensweep.analysis.downstream import (
    accuracy,
    best_ridge,
    gaussian_accuracy,
    label_correlation,
    offset_noise,
    ridge_theta2,
    spectral_theta2,
)
from eigensweep.analysis.spike import sample_overlap, sample_threshold
from eigensweep.pipeline import ridge
from eigensweep.pipeline.pooling import parse_pooling, scales
from eigensweep.pipeline.signs import parse_signs
from eigensweep.pipeline.table import sample_table

REFERENCE = json.loads((Path(__file__).parent / "reference" / "downstream.json").read_text())
CASES = REFERENCE["cases"]
SOME = settings(deadline=None, derandomize=True, max_examples=100)
ratios, strengths = st.floats(0.02, 20), st.floats(0.01, 20)
correlations = st.floats(0.05, 1.0)
ridges = st.floats(1e-6, 1e6)


def weights_of(pooling, T, L):
    correlation = parse_signs(f"prefix({L})", {}).correlation(T)
    weights = parse_pooling(pooling, {}).weights(T, correlation)
    return weights, scales(weights, correlation).gain


def as_written(rho, delta, gamma, lam, r):
    """theta^2 as the docstring has it, omega from numpy's roots."""
    roots = np.roots([1, -(1 + delta + gamma + lam), delta + gamma + delta * gamma, -delta * gamma])
    omega = max(roots[np.abs(roots.imag) < 1e-9].real)
    X = omega**3 - (delta + gamma + delta * gamma) * omega + 2 * delta * gamma
    b = omega - delta
    spread = b**2 + (1 / r**2 - 1) * (b + rho) ** 2
    return rho**2 * X / (rho * omega * b**2 + gamma * ((1 + delta) * omega - 2 * delta) * spread)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda c: "-".join(str(c[k]) for k in ("delta", "gamma", "lam", "pooling"))
)
def test_reference_values(case):
    delta, gamma = float(case["delta"]), float(case["gamma"])
    weights, gain = weights_of(case["pooling"], case["T"], case["L"])
    rho, r = gain * float(case["mu2"]), label_correlation(weights, case["L"])
    if case["lam"] == "best":
        lam = best_ridge(rho, delta, gamma, r)
        assert lam == pytest.approx(float(case["lam_value"]), rel=1e-12)
    else:
        lam = float(case["lam"])
        assert rho == pytest.approx(float(case["rho"]), rel=1e-12)
        assert r == pytest.approx(float(case["r"]), abs=1e-12)
    theta2 = ridge_theta2(rho, delta, gamma, lam, r)
    assert theta2 == pytest.approx(float(case["theta2"]), rel=1e-12)
    assert accuracy(theta2, weights, case["L"]) == pytest.approx(float(case["acc"]), abs=1e-12)
    if "acc_gauss" in case:
        assert gaussian_accuracy(theta2, r) == pytest.approx(float(case["acc_gauss"]), abs=1e-12)


def test_reference_ceilings():
    example = REFERENCE["ceiling_example"]
    for pooling in ("mean", "causal", "optimal"):
        weights, _ = weights_of(pooling, example["T"], example["L"])
        assert accuracy(np.inf, weights, example["L"]) == pytest.approx(
            float(Fraction(example[pooling])), abs=1e-15
        )


@SOME
@given(strengths, ratios, ratios, ridges, correlations)
def test_theta2_is_the_formula_as_written(rho, delta, gamma, lam, r):
    with np.errstate(all="ignore"):
        expected = as_written(rho, delta, gamma, lam, r)
    # As written X and omega - delta cancel near lambda = 0 and for omega much larger than lambda^(1/3).
    assume(lam > 1e-2 and np.isfinite(expected))
    assert ridge_theta2(rho, delta, gamma, lam, r) == pytest.approx(expected, rel=1e-6)


def limit_at_zero(rho, delta, gamma, r):
    """The docstring's table of limits."""
    c = 1 / r**2 - 1
    if max(delta, gamma) < 1:
        return (
            rho**2
            * (1 - gamma)
            / (rho * (1 - delta) + gamma * ((1 - delta) ** 2 + c * (1 - delta + rho) ** 2))
        )
    if gamma > max(1, delta):
        spread = (gamma - delta) ** 2 + c * (gamma - delta + rho) ** 2
        over = rho**2 * (gamma - 1) * (gamma - delta)
        return over / (rho * (gamma - delta) ** 2 + ((1 + delta) * gamma - 2 * delta) * spread)
    return (delta - gamma) / (gamma * c) if c else np.inf


@SOME
@given(strengths, ratios, ratios, correlations)
def test_limits_of_the_ridge(rho, delta, gamma, r):
    first, second = sorted([1.0, delta, gamma])[:0:-1]
    assume(first - second > 1e-3)
    assert ridge_theta2(rho, delta, gamma, 0.0, r) == pytest.approx(
        limit_at_zero(rho, delta, gamma, r), rel=1e-9
    )
    infinite = rho**2 / (rho + gamma * (1 + delta) / r**2)
    assert ridge_theta2(rho, delta, gamma, np.inf, r) == pytest.approx(infinite, rel=1e-12)
    assert ridge_theta2(rho, delta, gamma, 1e14, r) == pytest.approx(infinite, rel=1e-8)
    assert ridge_theta2(rho, delta, gamma, 1e200, r) == pytest.approx(infinite, rel=1e-12)
    if delta < 1 or r < 0.99:
        tiny = ridge_theta2(rho, delta, gamma, 1e-14, r)
        assert tiny == pytest.approx(limit_at_zero(rho, delta, gamma, r), rel=1e-4)


@SOME
@given(strengths, st.floats(0.02, 0.9), st.floats(1.0, 5.0), st.floats(0.05, 0.95))
def test_double_descent_has_its_peak_where_samples_match_the_noise_rank(rho, low, high, r):
    # N = rank of the noise: gamma = 1 for delta < 1, gamma = delta beyond.
    for delta, gamma in ((low, 1.0), (high, high)):
        assert ridge_theta2(rho, delta, gamma, 0.0, r) == 0.0
        beside = ridge_theta2(rho, delta, gamma * np.array([1 - 1e-4, 1 + 1e-4]), 0.0, r)
        assert np.all((beside > 0) & (beside < 1e-2 * rho**2 * (1 + 1 / rho) * max(1, high) ** 2 / (1 - low)))
    # No peak at delta = 1: both sides agree with the value.
    expected = (1 - low) * r**2 / (low * (1 - r**2))
    values = ridge_theta2(rho, np.array([1 - 1e-9, 1.0, 1 + 1e-9]), low, 0.0, r)
    assert values == pytest.approx(expected, rel=1e-5)


def test_limits_with_a_perfect_label():
    assert ridge_theta2(2.0, 1.0, 1.0, 0.0, 1.0) == pytest.approx(6.0)
    assert ridge_theta2(2.0, 1.0, 1.0, 1e-18, 1.0) == pytest.approx(6.0, rel=1e-5)
    assert ridge_theta2(2.0, 2.0, 2.0, 0.0, 1.0) == np.inf
    assert ridge_theta2(2.0, 2.0, 0.5, 0.0, 1.0) == np.inf
    assert ridge_theta2(2.0, 0.5, 1.0, 0.0, 1.0) == 0.0
    assert np.all(ridge_theta2(0.0, 0.5, 0.5, [0.0, 1.0, np.inf], 0.5) == 0.0)
    assert np.all(ridge_theta2(1.0, 0.5, 0.5, [0.0, 1.0, np.inf], 0.0) == 0.0)


@SOME
@given(strengths, ratios, ratios, st.floats(0.05, 0.98))
def test_best_ridge_beats_every_other(rho, delta, gamma, r):
    best = best_ridge(rho, delta, gamma, r)
    top = ridge_theta2(rho, delta, gamma, best, r)
    others = np.concatenate([[0.0, np.inf], np.geomspace(1e-8, 1e8, 400)])
    assert np.all(ridge_theta2(rho, delta, gamma, others, r) <= top * (1 + 1e-12))
    if 0 < best < np.inf:
        beside = ridge_theta2(rho, delta, gamma, best * np.array([0.8, 1.25]), r)
        assert np.all(beside < top)


@SOME
@given(strengths, ratios, ratios, ridges, st.floats(0.05, 0.95))
def test_theta2_grows_with_signal_samples_and_label(rho, delta, gamma, lam, r):
    here = ridge_theta2(rho, delta, gamma, lam, r)
    assert 0 < here
    assert ridge_theta2(rho, delta, gamma, lam, r * 1.02) > here
    # More samples help at the best ridge; at a fixed one they need not (double descent).
    best = ridge_theta2(rho, delta, gamma, best_ridge(rho, delta, gamma, r), r)
    more = ridge_theta2(rho, delta, 0.9 * gamma, best_ridge(rho, delta, 0.9 * gamma, r), r)
    assert more > best
    # Where the best ridge is 0 the signal's strength may not matter at all (delta above 1 and gamma).
    stronger = ridge_theta2(1.1 * rho, delta, gamma, best_ridge(1.1 * rho, delta, gamma, r), r)
    assert stronger >= best * (1 - 1e-12)


def test_best_ridge_at_an_end_and_without_signal():
    assert best_ridge(2.0, 2.0, 0.5, 1.0) == 0.0
    assert np.isnan(best_ridge(0.0, 0.5, 0.5, 1.0))
    assert np.isnan(best_ridge(1.0, 0.5, 0.5, 0.0))


@SOME
@given(strengths, ratios, ratios, st.floats(0.5, 8.0))
def test_spectral_classifier(rho, delta, gamma, gain):
    theta2, threshold = spectral_theta2(rho, delta, gamma), sample_threshold(delta, gamma)
    assert (theta2 > 0) == (rho > threshold)
    t = rho - delta
    if rho > threshold * (1 + 1e-6):
        X = t**3 - (delta + gamma + delta * gamma) * t - 2 * delta * gamma
        expected = X / (t * rho + gamma * ((1 + delta) * t + 2 * delta))
        assert theta2 == pytest.approx(expected, rel=1e-6)
        # rho q/(u_hat'W u_hat), and u_hat'W u_hat is at most the edge of W.
        assert theta2 >= rho * sample_overlap(rho, delta, gamma) / (1 + np.sqrt(delta)) ** 2
    drifted = spectral_theta2(rho + delta * gain, delta, gamma)
    assert spectral_theta2(rho, delta, gamma, table="centered", gain=gain) == drifted
    second = (rho / delta + gain) * np.array([0.9, 1.1])
    raw = spectral_theta2(rho, delta, gamma, table="raw", gain=gain, gain_sum=second)
    assert np.all(raw == [drifted, 0.0])
    assert ridge_theta2(rho, delta, gamma, 1.0, 0.5, table="raw", gain=gain) == pytest.approx(
        ridge_theta2(rho + delta * gain, delta, gamma, 1.0, 0.5)
    )


@SOME
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9), st.data(), st.floats(0, 100))
def test_accuracy_is_the_mean_over_signs(weights, data, theta2):
    w, L = np.array(weights), data.draw(st.integers(1, len(weights)))
    p, tail = abs(w[:L].sum()), w[L:]
    alpha = p**2 + tail @ tail
    assume(alpha > 1e-6)
    signs = np.array(list(product([-1, 1], repeat=tail.size))).reshape(2**tail.size, tail.size)
    margins = np.sqrt(theta2 / alpha) * (p + signs @ tail)
    value = accuracy(theta2, w, L)
    assert value == pytest.approx(ndtr(margins).mean(), abs=1e-11)
    assert 0.5 - 1e-12 <= value <= 1.0
    if np.abs(tail).sum() <= p:  # no sequence's pooled signs contradict its label
        assert value <= accuracy(1.1 * theta2 + 0.01, w, L) + 1e-12
    assert accuracy(0.0, w, L) == pytest.approx(0.5)


def test_accuracy_of_long_tails():
    # Distinct weights, too many to enumerate: the Fourier integral against random signs and the normal tail.
    w, _ = weights_of("causal", 64, 8)
    theta2, rng = np.array([0.25, 4.0, 100.0]), np.random.default_rng(3)
    r, alpha = label_correlation(w, 8), (w[:8].sum()) ** 2 + w[8:] @ w[8:]
    signs = rng.choice([-1.0, 1.0], size=(20000, 56))
    drawn = ndtr(np.sqrt(theta2 / alpha)[:, None] * (w[:8].sum() + signs @ w[8:]))
    error = drawn.std(axis=1) / np.sqrt(20000)
    value = accuracy(theta2, w, 8)
    assert np.all(np.abs(value - drawn.mean(axis=1)) < 4 * error)
    assert value == pytest.approx(gaussian_accuracy(theta2, r), abs=2e-3)
    # One weight moved by 1e-7 makes the binomial tail of mean pooling such a case.
    equal = np.full(41, 1 / 41)
    near = equal * (1 + 1e-9 * np.arange(41))
    assert accuracy(theta2, near, 8) == pytest.approx(accuracy(theta2, equal, 8), abs=1e-7)
    assert accuracy(np.inf, w, 8) <= 1.0


@SOME
@given(st.floats(0, 1e6), st.floats(-1, 1))
def test_gaussian_accuracy(theta2, r):
    value = gaussian_accuracy(theta2, r)
    assert 0.5 <= value <= 1.0
    assert value <= gaussian_accuracy(theta2 * 1.1, r)
    assert gaussian_accuracy(np.inf, 0.6) == pytest.approx(ndtr(0.75))


def monte_carlo(delta, gamma, r, rho, ridges, replicates, d=60):
    """Mean of theta^2 at finite d with normal counts, its relative standard error, and the limit.

    Given S0 and the noise u is uniform, so eight of them serve each replicate; the pooled signs have their
    label correlation exactly. The mean within-class covariance has V - 2 degrees of freedom: with W of
    ratio d/(V - 2) and rho, lambda in its units, what is left at d = 60 is below 0.5%.
    """
    V, N = 2 * round(d / delta / 2), round(d / gamma)
    signals, noises = [], []
    for replicate in range(replicates):
        rng = np.random.default_rng([7, replicate])
        table = sample_table(rng, d, V)
        y, e = rng.choice([-1.0, 1.0], N), rng.standard_normal(N)
        e -= y * (y @ e) / N
        b = r * y + np.sqrt(1 - r**2) * e * np.sqrt(N) / np.linalg.norm(e)
        pooled = ridge.gaussian_pooled(rng, table.within, N, 1.0)
        training = ridge.train(pooled, b, y, table.direction, alpha=1.0, kappa=1.0)
        u = rng.standard_normal((8, d))
        u /= np.linalg.norm(u, axis=1)[:, None]
        beta = np.array([replace(training, signal=training.basis.T @ x).ridge(rho, ridges)[0] for x in u])
        signals.append(np.einsum("kld,kd->l", beta, u) / 8)
        noises.append(np.sum((beta @ table.within.T) ** 2, axis=-1).mean(axis=0) / V)
    signal, noise = np.array(signals), np.array(noises)
    influence = 2 * signal / signal.mean(axis=0) - noise / noise.mean(axis=0)
    error = influence.std(axis=0, ddof=1) / np.sqrt(replicates)
    x = V / (V - 2)
    limit = ridge_theta2(rho * x, d / (V - 2), d / N, np.array(ridges) * x, r)
    return rho * signal.mean(axis=0) ** 2 / noise.mean(axis=0), error, limit


def test_monte_carlo():
    finite, off, weight = 0.005, [], []
    cells = [
        (0.5, 0.25, 1.0, 1.9),
        (0.5, 0.5, 0.7, 2.0),
        (0.5, 2.0, 0.75, 2.0),
        (2.0, 0.5, 0.75, 2.0),
        (1.0, 0.5, 0.75, 2.0),
    ]
    for delta, gamma, r, rho in cells:
        mean, error, limit = monte_carlo(delta, gamma, r, rho, [0.0, 0.1, 1.0, np.inf], 120)
        assert np.all(np.abs(mean / limit - 1) < 4 * error + finite), (delta, gamma)
        off.append((mean / limit - 1)[2:])
        weight.append(error[2:] ** -2)
    # All cells together, the two ridges of one cell counted as one: so precise that a formula 3% off fails.
    together, error = np.average(off, weights=weight), (np.sum(weight) / 2) ** -0.5
    assert abs(together) < 4 * error + finite < 0.03


def test_offset_of_a_raw_table():
    # T = 16, mean pooling: nu = delta 16. m is drawn here, of squared norm delta (1 + noise), W = MP.
    d, V, N, T, reps = 40, 80, 40, 16, 400
    rng, added = np.random.default_rng(3), np.empty(400)
    for k in range(reps):
        table = sample_table(rng, d, V)
        y = np.repeat([-1.0, 1.0], N // 2)[rng.permutation(N)]
        # Unbalanced labels leave m: their mean is what is random, so draw it; its square has mean 1/N.
        slope = np.mean(rng.choice([-1.0, 1.0], N))
        noise = ridge.gaussian_pooled(rng, table.within, N, 1 / T).T @ y / N * np.sqrt(T)
        m = table.midpoint
        beta = noise + np.sqrt(T) * slope * m
        both = [
            np.sum((table.within @ x) ** 2) / V + s * T * (m @ x) ** 2 for x, s in ((beta, 1), (noise, 0))
        ]
        added[k] = both[0] - both[1]
    nu = d / V * T
    # E|m|^4 = delta^2 (1 + 2/d) makes up the difference from the limit.
    expected = offset_noise(d / V, T, N) + 2 * nu**2 / (d * N)
    assert added.mean() == pytest.approx(expected, abs=4 * added.std() / np.sqrt(reps))
    assert offset_noise(0.5, 16.0, 400) == pytest.approx((64 + 16) / 400)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: ridge_theta2(-1.0, 0.5, 0.5, 1.0, 1.0), "rho"),
        (lambda: ridge_theta2(np.inf, 0.5, 0.5, 1.0, 1.0), "rho"),
        (lambda: ridge_theta2(1.0, 0.5, 0.5, -1.0, 1.0), "ridge"),
        (lambda: ridge_theta2(1.0, 0.5, 0.5, 1.0, 1.1), "r ="),
        (lambda: ridge_theta2(1.0, 0.5, 0.5, 1.0, 1.0, table="class"), "table"),
        (lambda: spectral_theta2(1.0, -0.5, 0.5), "delta"),
        (lambda: accuracy(-1.0, [1.0], 1), "theta2"),
        (lambda: gaussian_accuracy(-1.0, 1.0), "theta2"),
        (lambda: accuracy(1.0, [1.0], 2), "length"),
        (lambda: accuracy(1.0, [1.0, -1.0], 2), "weights"),
        (lambda: label_correlation([1.0, -1.0], 2), "weights"),
    ],
)
def test_refusals(call, word):
    with pytest.raises(ValueError, match=word):
        call()


def test_broadcasting():
    rho, lam = np.array([0.5, 1.0, 2.0])[:, None], np.array([0.0, 0.1, 1.0, np.inf])
    grid = ridge_theta2(rho, 0.5, 0.25, lam, 0.9)
    assert grid.shape == (3, 4)
    assert grid[1, 2] == ridge_theta2(1.0, 0.5, 0.25, 1.0, 0.9)
    assert best_ridge(rho[:, 0], 0.5, 0.25, 0.9)[1] == best_ridge(1.0, 0.5, 0.25, 0.9)
    assert set(downstream.__all__) <= set(dir(downstream))
