"""Pooling weights follow their formulas, and combinations without signal or noise are refused."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.pooling import (
    check_pooling,
    optimal_dimension,
    optimal_weights,
    parse_pooling,
    scales,
)
from eigensweep.pipeline.signs import Equicorrelated, Markov, Prefix, parse_signs

RANDOM = settings(deadline=None, derandomize=True, max_examples=80)
FILES = {"w.npy": np.array([1.0, -2.0, 0.5])}
TERMS = ["mean", "causal", "causal-inclusive(1.0)", "prefix(1)", "last", "exponential(0.5)"]


def weights(term, T, R=None):
    return parse_pooling(term, FILES).weights(T, np.eye(T) if R is None else R)


@pytest.mark.parametrize(("term", "gain"), [("mean", 1.75), ("causal", 3.1745), ("optimal", 4.0)])
def test_gains_of_a_prefix_of_4_in_16(term, gain):
    R = Prefix(4).correlation(16)
    assert scales(weights(term, 16, R), R).gain == pytest.approx(gain, abs=5e-5)


@RANDOM
@given(st.integers(1, 20), st.floats(-5, 5))
def test_causal_poolings_average_attention_over_positions(T, tau):
    inclusive = np.zeros((T, T))
    strict = np.zeros((T, T))
    for i in range(T):
        scores = np.exp(np.where(np.arange(i + 1) == i, tau, 0.0))
        inclusive[i, : i + 1] = scores / scores.sum()
        strict[i, :i] = 1 / max(i, 1)
    found = parse_pooling(f"causal-inclusive({tau!r})", {}).weights(T, np.eye(T))
    np.testing.assert_allclose(found, inclusive.mean(axis=0), rtol=1e-9, atol=1e-14)
    if T > 1:
        np.testing.assert_allclose(weights("causal", T), strict.sum(axis=0) / (T - 1), rtol=1e-13, atol=1e-16)


def test_simple_poolings():
    np.testing.assert_array_equal(weights("mean", 4), [0.25] * 4)
    np.testing.assert_array_equal(weights("last", 3), [0, 0, 1])
    np.testing.assert_array_equal(weights("prefix(2)", 4), [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(weights("file(w.npy)", 3), FILES["w.npy"])
    np.testing.assert_allclose(weights("exponential(0.5)", 3), np.array([4, 2, 1]) / 7, rtol=1e-15)
    np.testing.assert_allclose(weights("exponential(2)", 3), np.array([1, 2, 4]) / 7, rtol=1e-15)
    assert weights("causal", 16)[-1] == 0


@RANDOM
@given(st.integers(1, 40), st.sampled_from(TERMS))
def test_weights_are_positive_and_sum_to_one(T, term):
    assume(not (term == "causal" and T == 1))
    w = weights(term, T)
    assert w.shape == (T,)
    assert w.dtype == np.float64
    assert (w >= 0).all()
    assert w.sum() == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize("term", ["exponential(1e10)", "exponential(1e-10)", "causal-inclusive(1e5)"])
def test_extreme_numbers_do_not_overflow(term):
    w = weights(term, 200)
    assert np.isfinite(w).all()
    assert w.sum() == pytest.approx(1)


def test_limits_of_the_self_score():
    np.testing.assert_allclose(weights("causal-inclusive(800)", 5), [0.2] * 5)
    # Without self-attention only the first position, which has nothing else, still sees itself.
    expected = (weights("causal", 5) * 4 + [1, 0, 0, 0, 0]) / 5
    np.testing.assert_allclose(weights("causal-inclusive(-800)", 5), expected, atol=1e-16)


@RANDOM
@given(st.integers(1, 12), st.integers(0, 2**31))
def test_optimal_has_the_largest_gain(T, key):
    draw = np.random.default_rng(key)
    factor = draw.standard_normal((T, T + 1))
    R = factor @ factor.T
    R /= np.sqrt(np.outer(np.diagonal(R), np.diagonal(R)))
    w = optimal_weights(R)
    gain = scales(w, R).gain
    assert np.linalg.norm(w) == pytest.approx(1, rel=1e-14)
    assert gain == pytest.approx(np.linalg.eigvalsh(R)[-1], rel=1e-12)
    assert gain >= scales(draw.standard_normal(T), R).gain - 1e-12
    assert w[np.argmax(np.abs(w))] > 0
    # The solver's rounding leaves no trace: reversing the positions reverses the weights.
    np.testing.assert_allclose(np.abs(optimal_weights(R[::-1, ::-1])[::-1]), np.abs(w), atol=1e-11)


@pytest.mark.parametrize(("L", "T"), [(2, 2), (4, 16), (8, 16), (5, 37), (64, 300)])
def test_optimal_for_a_prefix_is_exactly_uniform_on_it(L, T):
    w = optimal_weights(Prefix(L).correlation(T))
    assert (w[:L] == w[0]).all()
    assert (w[L:] == 0).all()
    assert optimal_dimension(Prefix(L).correlation(T)) == 1


def test_optimal_in_a_degenerate_space_is_a_fixed_vector():
    assert optimal_dimension(np.eye(5)) == 5
    np.testing.assert_allclose(optimal_weights(np.eye(5)), 1 / np.sqrt(5), rtol=1e-15)
    R = Equicorrelated(-0.1).correlation(4)
    assert optimal_dimension(R) == 3
    expected = np.array([3, -1, -1, -1]) / np.sqrt(12)
    np.testing.assert_allclose(optimal_weights(R), expected, atol=1e-12)
    assert scales(optimal_weights(R), R).gain == pytest.approx(1.1)


@RANDOM
@given(st.floats(1e-6, 1e6), st.sampled_from(["exponential", "causal-inclusive"]))
def test_names_are_canonical_and_read_back(number, kind):
    pooling = parse_pooling(f"{kind}({number!r})", {})
    assert parse_pooling(pooling.name, {}) == pooling
    assert pooling.argument == pytest.approx(number, rel=1e-11)
    assert pickle.loads(pickle.dumps(pooling)) == pooling


def test_canonical_names():
    assert parse_pooling("exponential(0.30000000000000004)", {}).name == "exponential(0.3)"
    assert parse_pooling(" exponential ( 1 ) ", {}).name == "exponential(1.0)"
    assert parse_pooling("prefix(04)", {}).name == "prefix(4)"
    assert parse_pooling("file(w.npy)", FILES).name == "file(w.npy)"
    assert parse_pooling("file(w.npy)", FILES) != parse_pooling("file(w.npy)", {"w.npy": np.ones(3)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("meen", "did you mean 'mean'?"),
        ("exponental(0.5)", "did you mean 'exponential'?"),
        ("zzz", "choose among: mean, causal"),
        ("", "choose among"),
        ("mean(3)", "takes no argument"),
        ("prefix", "prefix(...)"),
        ("prefix(0)", "below 1"),
        ("prefix(2.5)", "not a whole number"),
        ("exponential(-1)", "not positive"),
        ("exponential(nan)", "finite"),
        ("exponential()", "finite"),
        ("file(v.npy)", "'v.npy'"),
        (3, "not a text"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_do(text, said):
    with pytest.raises(ValueError) as caught:
        parse_pooling(text, FILES)
    assert said in str(caught.value)
    reason, remedy = str(caught.value).split("; ")
    assert reason
    assert remedy


def fault_of(term, signs, T, files=FILES):
    [fault] = check_pooling(parse_pooling(term, files), signs, T)
    assert fault.remedy
    return fault


def test_refused_combinations():
    assert "kappa = 0" in fault_of("causal", Prefix(1), 1).reason
    assert "longer than the sequence" in fault_of("prefix(5)", Prefix(1), 4).reason
    assert "3 weights where T = 4 needs 4" in fault_of("file(w.npy)", Prefix(1), 4).reason
    assert "alpha = 0" in fault_of("mean", Markov(-1.0), 4).reason
    assert "alpha = 0" in fault_of("mean", Equicorrelated(-1.0), 2).reason
    assert check_pooling(parse_pooling("mean", {}), Markov(-1.0), 5) == []
    assert fault_of("mean", Prefix(5), 4).thing == "model.correlation"
    assert fault_of("mean", Markov(-1.0), 4).thing == "grid.pooling"


def test_every_fault_of_a_combination_is_listed():
    faults = check_pooling(parse_pooling("prefix(5)", {}), Prefix(6), 4)
    assert [fault.thing for fault in faults] == ["model.correlation", "grid.pooling"]


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (np.zeros(2), "kappa is 0.0"),
        (np.full(2, 1e200), "kappa is inf"),
        (np.full(2, 1e-200), "kappa is 0.0"),
        (np.array([1.0, -1.0]), "alpha = 0"),
        (np.array([1.0, np.inf]), "entry [1] = inf"),
        (np.ones((1, 2)), "shape (1, 2)"),
        (np.float64(1), "shape ()"),
    ],
)
def test_weights_from_a_file_that_cannot_pool(vector, said):
    assert said in fault_of("file(v)", Prefix(2), 2, {"v": vector}).reason


def test_scales_are_quadratic_forms():
    R = parse_signs("markov(0.5)", {}).correlation(3)
    found = scales(np.array([1.0, 2.0, -1.0]), R)
    assert (found.kappa, found.weight_sum) == (6.0, 2.0)
    assert found.alpha == pytest.approx(6 + 2 * (2 * 0.5 - 2 * 0.5 - 0.25))
    assert found.gain == found.alpha / 6
