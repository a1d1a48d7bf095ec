"""Roots of the secular equation, judged in exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline import secular

EPS = secular.EPS
RANDOM = settings(deadline=None, derandomize=True, max_examples=300)


@st.composite
def equations(draw, largest=9):
    """Poles strictly apart, from a few ulps to many decades, and weights over as many."""
    n = draw(st.integers(1, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["even", "decades", "ulps", "pairs"]))
    if kind == "decades":
        gaps = 10.0 ** rng.uniform(-12, 2, n)
    elif kind == "ulps":
        gaps = EPS * rng.integers(8, 40, n)
    elif kind == "pairs":
        gaps = np.where(np.arange(n) % 2, 1e-14, 1.0) * rng.uniform(0.5, 1.5, n)
    else:
        gaps = rng.uniform(0.5, 1.5, n)
    poles = draw(st.sampled_from([0.0, 1.0, -0.5])) - np.cumsum(gaps)
    poles = np.unique(poles)[::-1].copy()
    size = draw(st.sampled_from([0.0, 4.0, 16.0]))
    rows = draw(st.integers(1, 3))
    weights = 10.0 ** rng.uniform(-size, size / 4, (rows, poles.size))
    return poles, weights


def total(poles, weights, origin, offset):
    """Value of ``sum w/(z - p) - 1`` at ``z = p_origin + offset``, exactly."""
    exact = [Fraction(float(pole)) for pole in poles]
    z = exact[origin] + Fraction(float(offset))
    return sum(Fraction(float(w)) / (z - pole) for w, pole in zip(weights, exact, strict=True)) - 1


def slope(poles, weights, origin, offset):
    distance = (poles[origin] - poles) + offset
    return float(np.sum(weights / distance**2)), float(np.sum(np.abs(weights / distance)))


@RANDOM
@given(equations())
def test_every_root_is_one_in_its_gap_to_the_last_digits(case):
    poles, weights = case
    count = poles.size
    origin, offset = secular.solve(poles, weights, count)
    assert origin.shape == offset.shape == weights.shape
    for row, k in np.ndindex(weights.shape):
        o, y = int(origin[row, k]), float(offset[row, k])
        assert o in (k, k - 1)
        assert y > 0.0 if o == k else y < 0.0
        if k > 0:
            assert abs(y) <= 0.5000001 * (poles[k - 1] - poles[k])
        # The sum falls in every gap, so a change of sign across y (1 -+ tolerance) holds the root. What
        # rounding of the sum can move it, the tolerance allows: the terms' size over the slope.
        steep, terms = slope(poles, weights[row], o, y)
        tolerance = min(0.5, 16 * EPS * (1 + (1 + terms) / (steep * abs(y))))
        near, far = (total(poles, weights[row], o, y * (1 + s * tolerance)) for s in (-1, 1))
        assert (near > 0 > far) if y > 0 else (near < 0 < far)


@RANDOM
@given(equations())
def test_the_offset_has_full_relative_accuracy_where_the_problem_has(case):
    poles, _ = case
    # Equal weights: every root is well conditioned, however near two poles are.
    weights = np.full((1, poles.size), max(1e-3, float(poles[0] - poles[-1])))
    origin, offset = secular.solve(poles, weights, poles.size)
    for k in range(poles.size):
        o, y = int(origin[0, k]), float(offset[0, k])
        signs = [total(poles, weights[0], o, y * (1 + s * 200 * EPS)) > 0 for s in (-1, 1)]
        assert signs == ([True, False] if y > 0 else [False, True])


@RANDOM
@given(equations(), st.integers(0, 2**32))
def test_a_row_does_not_know_the_others_nor_how_many_roots_are_asked(case, seed):
    poles, weights = case
    others = 10.0 ** np.random.default_rng(seed).uniform(-8, 2, (7, poles.size))
    origin, offset = secular.solve(poles, weights, poles.size)
    company = np.concatenate([others[:4], weights, others[4:]])
    o, y = secular.solve(poles, company, poles.size)
    assert np.array_equal(o[4 : 4 + len(weights)], origin)
    assert y[4 : 4 + len(weights)].tobytes() == offset.tobytes()
    for row in range(len(weights)):
        for count in (1, (poles.size + 1) // 2):
            o, y = secular.solve(poles, weights[row : row + 1], count)
            assert np.array_equal(o[0], origin[row, :count])
            assert y[0].tobytes() == offset[row, :count].tobytes()


@pytest.mark.parametrize("seed", range(40))
def test_a_root_far_from_the_pole_whose_weight_vanishes(seed):
    # The nearer pole's own weight puts the first guess beside it, and the next step beside the other.
    rng = np.random.default_rng(seed)
    poles = np.sort(10.0 ** rng.uniform(-14, 3, 15))[::-1].copy()
    weights = 10.0 ** rng.uniform(-30, 1, (20, 15))
    origin, offset = secular.solve(poles, weights, 15)
    for row in range(20):
        matrix = np.diag(poles) + np.sqrt(np.outer(weights[row], weights[row]))
        expected = np.linalg.eigvalsh(matrix)[::-1]
        assert np.max(np.abs(poles[origin[row]] + offset[row] - expected)) < 1e-13 * expected[0]


def test_parts_do_not_show(monkeypatch):
    rng = np.random.default_rng(3)
    poles = np.sort(rng.standard_normal(40))[::-1].copy()
    weights = rng.chisquare(1, (5, 40)) / 40
    whole = secular.solve(poles, weights, 40)
    for elements in (1, 40, 130):
        monkeypatch.setattr(secular, "ELEMENTS", elements)
        parts = secular.solve(poles, weights, 40)
        assert np.array_equal(whole[0], parts[0])
        assert whole[1].tobytes() == parts[1].tobytes()


def test_one_pole_and_two_are_closed_forms():
    origin, offset = secular.solve(np.array([2.0]), np.array([[0.25], [1e-30], [1e30]]), 1)
    assert not origin.any()
    assert offset[:, 0] == pytest.approx([0.25, 1e-30, 1e30], rel=1e-15)
    origin, offset = secular.solve(np.array([1.0, -1.0]), np.array([[0.5, 0.5]]), 2)
    # z^2 - z - 1 = 0
    assert np.array([1.0, -1.0])[origin[0]] + offset[0] == pytest.approx(
        [(1 + 5**0.5) / 2, (1 - 5**0.5) / 2], rel=1e-15
    )


def test_a_thousand_poles_in_bounded_rounds(monkeypatch):
    rng = np.random.default_rng(11)
    poles = np.sort(rng.standard_normal(1000))[::-1].copy()
    weights = rng.standard_normal((1, 1000)) ** 2 / 1000
    rounds = []
    sums = secular._sums
    monkeypatch.setattr(secular, "_sums", lambda *args: rounds.append(len(args[0])) or sums(*args))
    secular.solve(poles, weights, 1000)
    # Cubic convergence: a handful of evaluations a root, one of them in the middle of its gap.
    assert sum(rounds) < 6 * 1000
