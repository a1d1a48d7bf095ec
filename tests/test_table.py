"""The embedding table: what each kind removes, and that what is left is what was drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.table import KINDS, sample_table

RANDOM = settings(deadline=None, derandomize=True, max_examples=50)


def drawn(seed, d, V):
    """Direction and noise as the docstring says they are drawn."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(d)
    return u / np.linalg.norm(u), rng.standard_normal((V, d))


@RANDOM
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12))
def test_each_kind_is_the_drawn_noise_less_its_means(seed, d, half):
    V = 2 * half
    table = sample_table(np.random.default_rng(seed), d, V)
    u, Z = drawn(seed, d, V)
    plus, minus = Z[:half].mean(axis=0), Z[half:].mean(axis=0)
    expected = {
        "raw": Z,
        "centered": Z - Z.mean(axis=0),
        "class-centered": np.concatenate([Z[:half] - plus, Z[half:] - minus]),
    }
    assert set(expected) == set(KINDS)
    for kind in KINDS:
        assert table.noise(kind) == pytest.approx(expected[kind], abs=1e-13)
    assert table.direction == pytest.approx(u, abs=1e-15)
    labels = np.where(np.arange(V) < half, 1.0, -1.0)
    assert table.difference == pytest.approx(labels @ Z / V, abs=1e-13)
    assert table.midpoint == pytest.approx(Z.mean(axis=0), abs=1e-13)


@RANDOM
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12))
def test_residual_means_are_those_of_the_noise(seed, d, half):
    table = sample_table(np.random.default_rng(seed), d, 2 * half)
    for kind in KINDS:
        noise = table.noise(kind)
        plus, minus = noise[:half].mean(axis=0), noise[half:].mean(axis=0)
        difference, midpoint = table.residual_means(kind)
        assert difference == pytest.approx((plus - minus) / 2, abs=1e-13)
        assert midpoint == pytest.approx((plus + minus) / 2, abs=1e-13)


def test_class_means_have_squared_norm_delta():
    d, V = 400, 800
    table = sample_table(np.random.default_rng(1), d, V)
    # Chi squared with d degrees of freedom over V: relative standard deviation sqrt(2/d).
    for mean in (table.difference, table.midpoint):
        assert np.sum(mean**2) == pytest.approx(d / V, rel=4 * np.sqrt(2 / d))
    assert abs(table.difference @ table.midpoint) < 4 * (d / V) / np.sqrt(d)
    assert abs(table.difference @ table.direction) < 4 / np.sqrt(V)
    assert np.linalg.norm(table.direction) == pytest.approx(1.0, abs=1e-15)
    within = table.noise("class-centered")
    assert np.mean(within**2) == pytest.approx(1 - 2 / V, rel=5 * np.sqrt(2 / (d * V)))


def test_what_is_shared_cannot_be_changed():
    table = sample_table(np.random.default_rng(0), 3, 4)
    for array in (table.direction, table.noise("class-centered")):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    before = table.within.copy()
    table.noise("raw")[...] = 0.0
    table.noise("centered")[...] = 0.0
    assert np.array_equal(table.within, before)
