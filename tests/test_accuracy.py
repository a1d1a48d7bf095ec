"""Exact accuracy of a linear classifier: by counting, by its series and on a lattice."""

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.accuracy import conditional_accuracy, enumerated_accuracy, series_accuracy
from eigensweep.pipeline.score_lattice import lattice_accuracy

EXAMPLE = json.loads((Path(__file__).parent / "reference" / "downstream.json").read_text())[
    "accuracy_example"
]
SOME = settings(deadline=None, derandomize=True, max_examples=60)
whole = st.integers(-9, 9)
# Products and sums of these are exact, so that ties are ties.
dyadic = st.integers(-1024, 1024).map(lambda k: k / 1024)


def counted(plus, minus, weights, length):
    """Accuracy by listing every sequence, in exact arithmetic where the numbers are."""
    right, every = Fraction(0), Fraction(0)
    for sign, own in ((1, plus), (-1, minus)):
        tables = [own if t < length else plus + minus for t in range(len(weights))]
        for tokens in product(*tables):
            score = sign * sum(w * f for w, f in zip(weights, tokens, strict=True))
            right += 1 if score > 0 else Fraction(1, 2) if score == 0 else 0
            every += 1
    return float(right / every)


@st.composite
def tiny(draw, numbers):
    n, T = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    length = draw(st.integers(1, T))
    plus, minus = (draw(st.lists(numbers, min_size=n, max_size=n)) for _ in range(2))
    weights = draw(st.lists(numbers, min_size=T, max_size=T).filter(any))
    return plus, minus, weights, length


def test_worked_example():
    arguments = [EXAMPLE[key] for key in ("plus", "minus", "weights", "length")]
    expected = float(Fraction(EXAMPLE["accuracy"]))
    assert enumerated_accuracy(*arguments) == pytest.approx(expected, abs=1e-14)
    value, error = conditional_accuracy(*arguments)
    assert abs(value - expected) <= error
    value, bound = lattice_accuracy(*arguments, step=EXAMPLE["step"])
    assert value == pytest.approx(expected, abs=1e-13)
    assert bound < 1e-13


@SOME
@given(tiny(whole))
def test_ties_count_one_half(case):
    expected = counted(*case)
    assert enumerated_accuracy(*case) == pytest.approx(expected, abs=1e-13)
    value, bound = lattice_accuracy(*case, step=1.0)
    assert value == pytest.approx(expected, abs=1e-10)
    assert bound < 1e-13


@SOME
@given(tiny(dyadic))
def test_lattice_is_enumeration_within_its_bound(case):
    expected = counted(*case)
    assert enumerated_accuracy(*case) == pytest.approx(expected, abs=1e-10)
    value, bound = lattice_accuracy(*case, points=1 << 14)
    assert abs(value - expected) <= bound + 1e-10


def test_lattice_is_exact_where_no_score_is_near_zero():
    # The bound is the mass near 0: where it vanishes both agree to rounding, at any step.
    hits = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        case = rng.normal(1, 1, 4), rng.normal(-1, 1, 4), rng.uniform(0.1, 1, 4), 2
        value, bound = lattice_accuracy(*case)
        if bound < 1e-10:
            hits += 1
            assert value == pytest.approx(enumerated_accuracy(*case), abs=1e-10)
    assert hits > 15


@pytest.mark.parametrize(
    ("weights", "length"), [(np.full(3, 1 / 3), 2), ([0.5, 0.3, 0.2], 1), (np.ones(4), 4)]
)
def test_series_is_enumeration_within_its_error(weights, length):
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        plus, minus = rng.normal(0.7, 1.0, 60), rng.normal(-0.7, 1.0, 60)
        value, error = series_accuracy(plus, minus, weights, length)
        exact = enumerated_accuracy(plus, minus, weights, length)
        errors.append(abs(value - exact) / error)
        assert error < 1e-2
        # Loose tolerances stop early, and say so.
        loose, at_most = series_accuracy(plus, minus, weights, length, tolerance=1e-3)
        assert abs(loose - exact) <= at_most
        chosen, rounding = conditional_accuracy(plus, minus, weights, length)
        assert chosen == pytest.approx(exact, abs=1e-12)
        assert rounding < 1e-12
    assert max(errors) <= 1.0


def test_series_of_many_tokens_meets_lattice_and_sampling():
    rng = np.random.default_rng(2)
    plus, minus, w, L = rng.normal(0.8, 1.0, 150), rng.normal(-0.5, 1.2, 170), rng.uniform(0.2, 1.0, 12), 4
    value, error = series_accuracy(plus, minus, w, L)
    assert error < 1e-9
    fine, _ = lattice_accuracy(plus, minus, w, L, points=1 << 16)
    coarse, bound = lattice_accuracy(plus, minus, w, L, points=1 << 14)
    assert abs(coarse - value) < bound
    # The lattice's error falls with the square of its step.
    assert abs(fine - value) < 1e-6
    n = 200_000
    y = rng.choice([-1.0, 1.0], n)
    signs = np.concatenate([np.repeat(y[:, None], L, axis=1), rng.choice([-1.0, 1.0], (n, 12 - L))], axis=1)
    tokens = np.where(signs > 0, rng.choice(plus, signs.shape), rng.choice(minus, signs.shape))
    right = np.mean(y * (tokens @ w) > 0)
    assert value == pytest.approx(right, abs=4 * np.sqrt(value * (1 - value) / n))
    assert abs(1.03 * value - right) > 4 * np.sqrt(value * (1 - value) / n)


@SOME
@given(tiny(dyadic), st.floats(0.1, 10))
def test_symmetries(case, scale):
    plus, minus, weights, length = (*(np.array(x) for x in case[:3]), case[3])
    value = enumerated_accuracy(plus, minus, weights, length)
    assert 0.0 <= value <= 1.0
    assert enumerated_accuracy(scale * plus, scale * minus, weights, length) == pytest.approx(value, abs=1e-9)
    # The other class for the other label is no change; a classifier turned round is right where it was wrong.
    assert enumerated_accuracy(-minus, -plus, weights, length) == pytest.approx(value, abs=1e-12)
    assert enumerated_accuracy(-plus, -minus, weights, length) == pytest.approx(1 - value, abs=1e-12)


def test_no_signal_and_whole_signal():
    scores = np.random.default_rng(1).normal(size=200)
    w = np.linspace(0.5, 1.0, 12)
    assert series_accuracy(scores, scores, w, 6)[0] == pytest.approx(0.5, abs=1e-12)
    assert conditional_accuracy(np.zeros(50), np.zeros(50), w, 6)[0] == 0.5
    assert conditional_accuracy(np.ones(50), -np.ones(50), w[:2], 2)[0] == 1.0


def test_scores_on_a_lattice_do_not_fool_the_series():
    # Two values a class at many tokens: the characteristic function never fades.
    rng = np.random.default_rng(1)
    plus, minus = rng.choice([-1.0, 1.0], 500, p=[0.2, 0.8]), rng.choice([-1.0, 1.0], 500, p=[0.7, 0.3])
    w = np.ones(9)
    value, error = conditional_accuracy(plus, minus, w, 5)
    exact, bound = lattice_accuracy(plus, minus, w, 5, step=1.0)
    assert bound < 1e-13
    assert abs(value - exact) <= error


def test_shapes():
    rng = np.random.default_rng(4)
    plus, minus = rng.normal(1, 1, (2, 3, 40)), rng.normal(-1, 1, (2, 3, 40))
    value, error = conditional_accuracy(plus, minus, np.full(10, 0.1), 4)
    assert value.shape == error.shape == (2, 3)
    alone, _ = conditional_accuracy(plus[1, 2], minus[1, 2], np.full(10, 0.1), 4)
    assert alone.shape == ()
    assert value[1, 2] == pytest.approx(float(alone), abs=1e-9)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: conditional_accuracy([1.0], [1.0], [1.0], 2), "length"),
        (lambda: conditional_accuracy([1.0], [1.0], [0.0], 1), "weights"),
        (lambda: conditional_accuracy([1.0], [np.nan], [1.0], 1), "finite"),
        (lambda: conditional_accuracy([[1.0]], [1.0], [1.0], 1), "shapes"),
        (lambda: conditional_accuracy([], [], [1.0], 1), "none"),
        (lambda: enumerated_accuracy(np.ones(300), np.ones(300), np.ones(6), 6), "too many"),
        (lambda: lattice_accuracy([1.0], [1.0], [1.0], 1, points=100), "points"),
        (lambda: lattice_accuracy([1.0], [1.0], [1.0], 1, step=0.0), "step"),
    ],
)
def test_refusals(call, word):
    with pytest.raises(ValueError, match=word):
        call()
