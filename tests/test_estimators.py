"""The estimators of the transition, on spiked Wigner matrices whose threshold is 1, and on made-up curves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.analysis import collapse, continuation, crossing, departure
from eigensweep.analysis import estimate as answers
from eigensweep.analysis.cube_samples import companions
from eigensweep.analysis.dressing import dressed, functions
from eigensweep.analysis.leastsquares import minimise
from eigensweep.analysis.points import Points, points_at, rho_at
from eigensweep.analysis.samples import Columns, Gridded
from eigensweep.analysis.topmode import top_overlap
from eigensweep.pipeline.rankone import Column

QUICK = settings(deadline=None, derandomize=True, max_examples=40)


def wigner(d, replicates, seed=0, directions=3, scale=1.0):
    """Columns of S0 = GOE with spectrum [-2, 2]: threshold 1, squared overlap 1 - 1/rho^2."""
    rng = np.random.default_rng([seed, d])
    matrices = rng.standard_normal((replicates, d, d))
    values = np.linalg.eigvalsh((matrices + matrices.swapaxes(1, 2)) / np.sqrt(2.0 * d))[:, ::-1].copy()
    u = rng.standard_normal((replicates, directions, d))
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    return Columns(scale * values, u, np.zeros((replicates, d)), np.ones(replicates))


@pytest.fixture(scope="module")
def sizes():
    return [wigner(d, 40) for d in (60, 120, 240)]


@pytest.mark.parametrize("along", ["signal", "update"])
@given(
    d=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 1e-8, 1.0]),
    strength=st.floats(1e-4, 1e3),
)
@QUICK
def test_top_overlap_is_that_of_the_dense_matrix(along, d, seed, spread, strength):
    rng = np.random.default_rng(seed)
    value = np.sort(1.0 + spread * rng.random((2, d)), axis=1)[:, ::-1].copy()
    u = rng.standard_normal((2, 2, d))
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    h = rng.standard_normal((2, d)) * rng.choice([0.0, 0.3])
    rho = np.array([strength, 2.0 * strength])
    found = top_overlap(value, u, h, np.array([1.0, 0.7]), rho, along=along)
    for r, a in enumerate((1.0, 0.7)):
        for k in range(2):
            for i, x in enumerate(rho):
                v = h[r] + a * np.sqrt(x) * u[r, k]
                w, vectors = np.linalg.eigh(np.diag(value[r]) + np.outer(v, v))
                gap = w[-1] - w[-2] if d > 1 else np.inf
                axis = u[r, k] if along == "signal" else v / np.linalg.norm(v)
                expected = (vectors[:, -1] @ axis) ** 2
                assert abs(found[r, k, i] - expected) < 1e-9 + 1e-13 / gap


def test_top_overlap_without_an_update_is_the_top_modes():
    u = np.array([[[0.6, 0.8]]])
    found = top_overlap(np.array([[2.0, 1.0]]), u, np.zeros((1, 2)), np.ones(1), np.zeros(1))
    assert found[0, 0, 0] == pytest.approx(0.36)


def test_minimise_solves_linear_problems_and_respects_bounds():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((5, 9, 3)), rng.standard_normal((5, 9))

    def residual(p, which):
        return np.einsum("bmp,bp->bm", A[which], p) - b[which], A[which]

    free = np.full(3, np.inf)
    found, cost = minimise(residual, np.zeros((5, 3)), -free, free)
    for i in range(5):
        exact, squares, _, _ = np.linalg.lstsq(A[i], b[i], rcond=None)
        np.testing.assert_allclose(found[i], exact, atol=1e-6)
        assert cost[i] == pytest.approx(float(squares[0]))
    low = np.array([0.1, -np.inf, -np.inf])
    held, _ = minimise(residual, np.full((5, 3), 0.2), low, free)
    below = found[:, 0] < 0.1
    assert below.any()
    np.testing.assert_allclose(held[below, 0], 0.1)
    np.testing.assert_allclose(held[~below], found[~below], atol=1e-6)
    # With the first parameter on its bound the others are those of the smaller problem.
    i = int(np.flatnonzero(below)[0])
    rest = np.linalg.lstsq(A[i][:, 1:], b[i] - 0.1 * A[i][:, 0], rcond=None)[0]
    np.testing.assert_allclose(held[i, 1:], rest, atol=1e-6)


def test_minimise_follows_a_curved_valley():
    def residual(p, which):
        x, y = p[:, 0], p[:, 1]
        r = np.stack([10.0 * (y - x * x), 1.0 - x], axis=1)
        zero, one = np.zeros_like(x), np.ones_like(x)
        return r, np.stack([np.stack([-20.0 * x, 10.0 * one], 1), np.stack([-one, zero], 1)], axis=1)

    free = np.full(2, np.inf)
    found, _ = minimise(residual, np.array([[-1.2, 1.0], [2.0, -3.0]]), -free, free)
    np.testing.assert_allclose(found, 1.0, atol=1e-6)


def test_universal_functions_have_their_limits_and_slopes():
    x = np.linspace(-8.0, 80.0, 400)
    value, slope = functions(x)
    step = 1e-6
    numeric = (functions(x + step)[0] - functions(x - step)[0]) / (2.0 * step)
    np.testing.assert_allclose(slope, numeric, atol=2e-4)
    far = x > 12.0
    np.testing.assert_allclose(value[far, 0], x[far], rtol=2e-3)
    assert (np.diff(value[:, 0]) > 0.0).all()
    assert functions(np.array(0.0))[0][0] == pytest.approx(0.84, abs=0.02)


@given(st.floats(-1.5, 6.0), st.floats(0.05, 0.4), st.floats(0.1, 1.2))
@QUICK
def test_dressed_odds_have_their_derivatives(s, scale, bend):
    s, scale, bend = (np.array([v]) for v in (s, scale, bend))
    _, by_s, by_log, by_bend = dressed(s, scale, bend)
    h = 1e-6

    def slope(change):
        return (change(h) - change(-h)) / (2.0 * h)

    np.testing.assert_allclose(by_s, slope(lambda e: dressed(s + e, scale, bend)[0]), atol=1e-4)
    np.testing.assert_allclose(by_log, slope(lambda e: dressed(s, scale * np.exp(e), bend)[0]), atol=1e-4)
    np.testing.assert_allclose(by_bend, slope(lambda e: dressed(s, scale, bend + e)[0]), atol=1e-4)


def test_universal_functions_are_those_of_dense_spiked_goe_matrices():
    x, eps = np.array([-2.0, 0.0, 2.0, 6.0]), 60 ** (-1 / 3)
    overlap = wigner(60, 1500, seed=4, directions=8).overlap(np.sqrt(1.0 + x * eps))
    mean, error = overlap.mean(axis=0), overlap.std(axis=0) / np.sqrt(1500)
    expected = dressed(x * eps, np.full(4, eps), np.ones(4))[0]
    assert (error / mean < 0.02).all()
    assert (np.abs(mean / (1.0 - mean) - expected) < 3.0 * error / (1.0 - mean) ** 2).all()


def test_points_lie_where_they_are_asked_for(sizes):
    heights = np.linspace(-2.5, 1.2, 8)
    points = points_at(sizes[1], heights)
    logit = np.log(points.mean / (1.0 - points.mean))
    np.testing.assert_allclose(logit, heights, atol=0.25)
    r, k = 3, 0
    column = Column(sizes[1].value[r], sizes[1].signal[r, k], sizes[1].noise[r], 1.0)
    alone = Columns(column.value[None], column.signal[None, None], column.noise[None], np.ones(1))
    exact = column.eigenpairs(points.rho, 1)[1][:, 0]
    np.testing.assert_allclose(alone.overlap(points.rho)[0], exact, atol=1e-10)


def test_continuation_finds_the_wigner_threshold(sizes):
    found = continuation.estimate(sizes, np.random.default_rng(0))
    assert found.status == answers.OK
    assert found.low < 1.0 < found.high
    assert found.half_width < 0.07
    assert found.dimensions == (60, 120, 240)
    assert abs(found.value - 1.15) > 2.0 * found.error, "a theory off by 15% is rejected"


def test_continuation_speaks_the_units_of_its_columns(sizes):
    plain = continuation.estimate(sizes, np.random.default_rng(0))
    scaled = [Columns(5.0 * s.value, s.signal, s.noise, s.amplitude) for s in sizes]
    found = continuation.estimate(scaled, np.random.default_rng(0))
    for name in ("value", "low", "high"):
        assert getattr(found, name) == pytest.approx(5.0 * getattr(plain, name), rel=1e-5)


def test_continuation_of_exact_odds_returns_their_zero():
    d = np.array([100, 200, 400])
    rho = np.linspace(0.7, 2.2, 14)
    t = (rho - 1.3) / 2.0
    points = []
    rng = np.random.default_rng(1)
    for size in d:
        scale = np.array([1.4 * size ** (-1 / 3)])
        s = 3.2 * t * (1.0 + 1.1 * t) / (1.0 + 0.4 * t) + continuation.SHIFT * scale**2
        odds = dressed(s, scale, np.array([0.7]))[0]
        mean = odds / (1.0 + odds)
        wiggle = rng.standard_normal((40, 1)) * 0.02
        points.append(Points(int(size), rho, mean * (1.0 + wiggle - wiggle.mean())))
    fit = continuation.continue_odds(points, 2.0, rng, 40)
    assert fit.threshold == pytest.approx(1.3, rel=2e-3)
    np.testing.assert_allclose(fit.limit(np.array([1.3])), 0.0, atol=0.02)


def test_wider_data_give_wider_intervals(sizes):
    few = [Columns(s.value[:10], s.signal[:10, :1], s.noise[:10], s.amplitude[:10]) for s in sizes]
    rng = np.random.default_rng
    assert (
        continuation.estimate(few, rng(0)).half_width > 1.4 * continuation.estimate(sizes, rng(0)).half_width
    )


def test_crossing_finds_the_wigner_threshold(sizes):
    found = crossing.estimate(sizes, np.random.default_rng(0))
    assert found.low < 1.0 < found.high
    assert found.half_width < 0.3


def test_crossings_are_exact_on_straight_curves():
    rho = np.linspace(0.0, 2.0, 9)
    first = np.exp(np.ones((2, 9)))
    second = np.exp(np.array([1.0 + (rho - 1.1), 1.0 - (rho - 1.1)]))
    found = crossing.crossings(rho, first, second, 0.25)
    assert found[0] == pytest.approx(0.85)
    assert np.isnan(found[1]), "a curve that falls below does not cross upwards"


def _grid(sample, rho):
    return Gridded(sample.dimension, rho, sample.overlap(rho))


def test_a_grid_serves_where_there_are_no_columns(sizes):
    grids = [_grid(s, np.linspace(0.5, 2.6, 40)) for s in sizes]
    found = continuation.estimate(grids, np.random.default_rng(0))
    assert found.status == answers.OK
    assert found.low < 1.0 < found.high
    assert crossing.estimate(grids, np.random.default_rng(0)).low < 1.0


@pytest.mark.parametrize("estimator", [continuation, crossing])
def test_what_is_missing_is_said(estimator, sizes):
    def status(samples):
        found = estimator.estimate(samples, np.random.default_rng(0))
        assert np.isnan([found.value, found.low, found.high]).all()
        assert found.message
        return found.status, found.message

    empty = Gridded(100, np.zeros(0), np.zeros((0, 0)))
    assert status([]) == status([empty])
    assert status([empty])[0] == answers.NO_DATA
    one = [Columns(s.value[:1], s.signal[:1], s.noise[:1], s.amplitude[:1]) for s in sizes]
    assert status(one)[0] == answers.TOO_FEW_REPLICATES
    assert "replicates under [grid]" in status(one)[1]
    assert status(sizes[:1])[0] == answers.TOO_FEW_SIZES
    low = [_grid(s, np.linspace(0.05, 0.5, 10)) for s in sizes]
    assert status(low)[0] == answers.NEVER_RISES
    dead = [Columns(s.value, s.signal, s.noise, 0.0 * s.amplitude) for s in sizes]
    assert status(dead)[0] == answers.NEVER_RISES


def test_a_grid_without_its_foot_is_refused(sizes):
    high = [_grid(s, np.linspace(1.6, 2.6, 10)) for s in sizes]
    found = continuation.estimate(high, np.random.default_rng(0))
    assert found.status == answers.NO_FOOT
    assert "smaller rho" in found.message


def test_an_outlier_without_signal_has_no_threshold(sizes):
    above = []
    for s in sizes:
        h = np.sqrt(2.0) * s.signal[:, 1]
        above.append(Columns(s.value, s.signal[:, :1], h, s.amplitude, "update"))
    for estimator in (continuation, crossing):
        found = estimator.estimate(above, np.random.default_rng(0))
        assert found.status == answers.ALWAYS_ABOVE
        assert np.isnan(found.value)
    weak = [Columns(s.value, s.signal[:, :1], 0.3 * s.signal[:, 1], s.amplitude) for s in sizes]
    assert continuation.estimate(weak, np.random.default_rng(0)).status == answers.OK


def test_departure_is_where_the_top_eigenvalue_passes():
    sample = wigner(40, 5)
    rho = departure.departures(sample, 2.1)
    assert rho.shape == (5, 3)
    for r in range(5):
        for k in range(3):
            column = Column(sample.value[r], sample.signal[r, k], sample.noise[r], 1.0)
            if rho[r, k] > 0.0:
                top = column.eigenpairs([rho[r, k]], 1)[0][0, 0]
                assert top == pytest.approx(2.1, abs=1e-10)
            else:
                assert sample.value[r, 0] >= 2.1


def test_detection_is_the_distribution_of_departures():
    sample = wigner(60, 30)
    grid = np.linspace(0.0, 4.0, 9)
    p, low, high = departure.detection(sample, 2.05, grid)
    tops = np.array(
        [
            [
                Column(sample.value[r], sample.signal[r, k], sample.noise[r], 1.0).eigenpairs(grid, 1)[0][
                    :, 0
                ]
                for k in range(3)
            ]
            for r in range(30)
        ]
    )
    np.testing.assert_allclose(p, (tops >= 2.05).mean(axis=(0, 1)), atol=1e-12)
    assert (np.diff(p) >= 0.0).all()
    assert ((low <= p) & (p <= high) & (low >= 0.0) & (high <= 1.0)).all()
    assert p[-1] == 1.0
    assert low[-1] == pytest.approx(30 / (30 + 1.96**2))


def test_departure_is_extrapolated_along_its_own_scale():
    d = np.array([64, 216, 512])
    samples = []
    for size in d:
        # A single mode at 0 with u on it departs where rho equals the level.
        n = 41
        value = np.zeros((n, size)) - np.arange(size)
        u = np.zeros((n, 1, size))
        u[:, :, 0] = 1.0
        samples.append(Columns(value, u, np.zeros((n, size)), np.random.default_rng(1).normal(1, 0.02, n)))
    levels = {int(size): 1.5 + 2.0 * size ** (-1 / 3) for size in d}
    found = departure.estimate(samples, levels, np.random.default_rng(0))
    assert found.low < 1.5 < found.high
    assert found.half_width < 0.1


def _scaled(threshold, rng):
    points = []
    for d in (100, 200, 400):
        rho = np.linspace(0.6, 1.4, 30)
        x = (rho - threshold) * d ** (1 / 3)
        mean = d ** (-1 / 3) * np.log1p(np.exp(x))
        points.append(Points(d, rho, mean * (1.0 + 0.3 * rng.standard_normal((40, 30)))))
    return points


def test_collapse_is_perfect_where_scaling_is():
    points = _scaled(1.1, np.random.default_rng(2))
    right = collapse.quality(collapse.collapse(points, 1.1))
    assert 0.4 < right < 2.0
    assert collapse.quality(collapse.collapse(points, 1.3)) > 4.0 * right
    found = collapse.estimate(points)
    assert found.value == pytest.approx(1.1, rel=0.05)
    curve = collapse.collapse(points, 1.1)[2]
    np.testing.assert_allclose(curve.x, (points[2].rho - 1.1) * 400 ** (1 / 3))
    np.testing.assert_allclose(
        curve.error, np.std(points[2].overlap, axis=0, ddof=1) * (400 ** (1 / 3)) / 40**0.5
    )


def test_companions_are_the_noises_own_outliers(sizes):
    value = sizes[1].value
    assert companions(value) == 0
    one = np.sort(np.concatenate([value, np.full((40, 1), 3.5)], axis=1), axis=1)[:, ::-1]
    assert companions(one) == 1
    two = np.sort(np.concatenate([one, np.full((40, 1), 3.0)], axis=1), axis=1)[:, ::-1]
    assert companions(two) == 2


def test_leaving_out_a_mode_restricts_the_matrix():
    rng = np.random.default_rng(3)
    value = np.sort(rng.random((1, 8)))[:, ::-1].copy()
    u = rng.standard_normal((1, 1, 8))
    u /= np.linalg.norm(u)
    h = 0.2 * rng.standard_normal((1, 8))
    found = Columns(value, u, h, np.array([1.0])).without(1)
    rest = u[0, 0, 1:] / np.linalg.norm(u[0, 0, 1:])
    v = h[0, 1:] + np.sqrt(2.0) * rest
    _, vectors = np.linalg.eigh(np.diag(value[0, 1:]) + np.outer(v, v))
    assert found.overlap(np.array([2.0]))[0, 0] == pytest.approx((vectors[:, -1] @ rest) ** 2)


def test_a_height_that_is_not_reached_is_left_out(sizes):
    assert np.isnan(rho_at(_grid(sizes[0], np.linspace(0.1, 0.4, 5)), np.array([1.0]))).all()
