"""Tracy-Widom laws against reference values, published moments and each other."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.analysis import tracy_widom

ROWS = json.loads((Path(__file__).parent / "reference" / "laws.json").read_text())["tracy_widom"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"s={row['s']}")
def test_reference_values(row):
    s = float(row["s"])
    assert tracy_widom.cdf(s) == pytest.approx(float(row["F1"]), rel=0, abs=1e-13)
    assert tracy_widom.cdf(s, beta=2) == pytest.approx(float(row["F2"]), rel=0, abs=1e-13)


@pytest.mark.parametrize("beta", [1, 2])
def test_expansion_carries_the_determinant(beta):
    s = np.linspace(-10, 10, 41)
    direct = np.array([tracy_widom.fredholm_cdf(float(point), beta) for point in s])
    np.testing.assert_allclose(tracy_widom.cdf(s, beta), direct, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("beta", "mean", "variance"),
    # Bornemann, Math. Comp. 79 (2010) 871, table of moments
    [(1, -1.20653357458, 1.60778103458), (2, -1.77108680741, 0.81319479283)],
)
def test_published_moments(beta, mean, variance):
    assert tracy_widom.mean(beta) == pytest.approx(mean, abs=2e-11)
    assert tracy_widom.std(beta) ** 2 == pytest.approx(variance, abs=2e-11)


@pytest.mark.parametrize("beta", [1, 2])
def test_density_is_the_derivative(beta):
    s = np.linspace(-7, 5, 49)
    step = 1e-3
    slope = (tracy_widom.cdf(s + step, beta) - tracy_widom.cdf(s - step, beta)) / (2 * step)
    np.testing.assert_allclose(tracy_widom.pdf(s, beta), slope, rtol=0, atol=1e-6)


@pytest.mark.parametrize("beta", [1, 2])
@settings(deadline=None, derandomize=True, max_examples=60)
@given(q=st.floats(1e-12, 1 - 1e-12))
def test_quantile_inverts(beta, q):
    assert tracy_widom.cdf(tracy_widom.ppf(q, beta), beta) == pytest.approx(q, rel=0, abs=1e-13)


def test_quantile_is_monotone():
    q = np.r_[np.geomspace(1e-9, 0.5, 200), 1 - np.geomspace(0.49, 1e-9, 200)]
    assert np.all(np.diff(tracy_widom.ppf(q)) > 0)


def test_ends_and_shapes():
    np.testing.assert_array_equal(tracy_widom.ppf([0.0, 1.0]), [-np.inf, np.inf])
    np.testing.assert_array_equal(tracy_widom.cdf([-np.inf, -50, 50, np.inf, np.nan]), [0, 0, 1, 1, np.nan])
    np.testing.assert_array_equal(tracy_widom.pdf([-np.inf, np.inf]), [0, 0])
    assert tracy_widom.cdf(np.zeros((2, 3))).shape == (2, 3)
    assert tracy_widom.ppf(np.zeros((0, 2))).shape == (0, 2)
    assert isinstance(tracy_widom.cdf(0.0), np.float64)
    assert np.isnan(tracy_widom.ppf(np.nan))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"q = 1\.5"):
        tracy_widom.ppf([0.5, 1.5])
    for function in (tracy_widom.cdf, tracy_widom.pdf, tracy_widom.ppf):
        with pytest.raises(ValueError, match="beta = 4"):
            function(0.5, beta=4)
