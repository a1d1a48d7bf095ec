"""Streams depend on what is sampled, never on when, where or in which order."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline import seeds

RANDOM = settings(deadline=None, derandomize=True, max_examples=200)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@RANDOM
@given(finite)
def test_canonical_is_idempotent_and_keeps_twelve_digits(value):
    once = seeds.canonical(value)
    assert seeds.canonical(once) == once
    assert once == pytest.approx(value, rel=5.1e-12, abs=5e-324)
    assert str(seeds.canonical(-0.0)) == "0.0"


@RANDOM
@given(st.integers(-(10**9), 10**9), st.integers(1, 1000))
def test_computed_decimals_are_their_literals(numerator, denominator):
    literal = float(f"{numerator / denominator:.12g}")
    assert seeds.canonical(numerator / denominator) == literal
    assert seeds.canonical(literal) == literal


def test_linspace_is_its_literals():
    computed = [seeds.canonical(float(value)) for value in np.linspace(0, 1, 11)]
    assert computed == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert seeds.canonical(0.1 + 0.2) == 0.3
    assert [seeds.identity("x", {"delta": value}) for value in np.arange(0.1, 1.0, 0.1).tolist()] == [
        seeds.identity("x", {"delta": i / 10}) for i in range(1, 10)
    ]


def test_canonical_leaves_text_and_whole_numbers_alone():
    assert seeds.canonical("exponential(0.5)") == "exponential(0.5)"
    whole = seeds.canonical(123456789012345)
    assert whole == 123456789012345
    assert isinstance(whole, int)


def test_two_and_two_point_zero_are_one_but_not_the_text():
    assert seeds.identity("table", {"d": 2}) == seeds.identity("table", {"d": 2.0})
    assert seeds.identity("table", {"d": 2}) != seeds.identity("table", {"d": "2"})
    assert seeds.identity("table", {"d": 0.0}) == seeds.identity("table", {"d": -0.0})


def test_order_of_parameters_does_not_matter_but_everything_else_does():
    base = {"d": 100, "delta": 0.5, "replicate": 3}
    key = seeds.identity("table", base)
    assert key == seeds.identity("table", dict(reversed(base.items())))
    others = [
        seeds.identity("sequences", base),
        seeds.identity("table", {**base, "gamma": 0.5}),
        seeds.identity("table", {**base, "replicate": 4}),
        seeds.identity("table", {**base, "delta": 0.500000000001}),
        seeds.identity("table", {"d": 100, "delta": 3, "replicate": 0.5}),
        seeds.identity("table", {"d": 100, "replicate": 3}),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_a_stream_is_this_one_for_ever():
    # Stored cubes depend on it: a change here orphans every study.
    assert seeds.identity("table", {"d": 100, "delta": 0.5, "replicate": 3}) == (
        2890229473,
        959946859,
        3230198349,
        996732176,
    )
    drawn = seeds.generator(20260507, "table", {"d": 100, "delta": 0.5, "replicate": 3})
    assert drawn.integers(0, 1 << 62, size=3).tolist() == [
        1858486081213237260,
        4487596217570086478,
        1455422286511309394,
    ]


def test_a_stream_is_the_same_in_another_process_and_after_other_draws():
    code = (
        "from eigensweep.pipeline import seeds\n"
        "seeds.generator(1, 'other', {'a': 1}).standard_normal(10)\n"
        "print(seeds.generator(5, 'table', {'b': 'x', 'a': 2}).standard_normal(2).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = seeds.generator(5, "table", {"a": 2.0, "b": "x"}).standard_normal(2).tolist()
    assert done.stdout.strip() == repr(here)


def test_the_sweeps_seed_enters():
    draws = [seeds.generator(seed, "table", {"d": 4}).integers(0, 1 << 62) for seed in (0, 1, 2**62, 2**40)]
    assert len(set(draws)) == 4


def test_keys_collide_as_rarely_as_chance_has_it():
    # Neighbouring values on every axis: where sums and products of indices collide.
    keys = np.array(
        [
            seeds.identity(name, {"d": d, "x": 0.5 + x, "replicate": replicate})
            for d in range(100, 110)
            for x in range(10)
            for name in ("table", "sequences")
            for replicate in range(1000)
        ],
        dtype=np.uint64,
    )
    count = keys.shape[0]
    pairs = count * (count - 1) / 2
    # A 32-bit word of 200,000 keys repeats 4.7 times on average. As each of the four does so, and any two
    # together not at all, whole keys of 10^6 streams agree with probability 10^-27.
    for word in keys.T:
        repeats = count - np.unique(word).size
        assert abs(repeats - pairs / 2**32) < 6 * np.sqrt(pairs / 2**32)
        share = [np.mean((word >> np.uint64(bit)) & np.uint64(1)) for bit in range(32)]
        assert np.max(np.abs(np.array(share) - 0.5)) < 6 * 0.5 / np.sqrt(count)
    for first in range(4):
        for second in range(first):
            assert np.unique(keys[:, first] << np.uint64(32) | keys[:, second]).size == count


def test_states_of_streams_differ():
    states = {
        seeds.generator(seed, name, {"d": d, "replicate": replicate}).bit_generator.state["state"]["state"]
        for seed in range(2)
        for name in ("table", "sequences")
        for d in range(10)
        for replicate in range(100)
    }
    assert len(states) == 4000
