"""Spike formulas against reference values, a closed cubic, and the secular equation of the law."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.analysis import spike
from eigensweep.analysis.laws import ProductLaw

REFERENCE = json.loads((Path(__file__).parent / "reference" / "laws.json").read_text())
TOLERANCE = 1e-10
ratios = st.floats(0.01, 20)
some = settings(deadline=None, derandomize=True, max_examples=80)


def close(value, reference):
    assert value == pytest.approx(float(reference), rel=TOLERANCE, abs=1e-13)


@pytest.mark.parametrize("case", REFERENCE["population_spike"], ids=lambda case: f"delta={case['delta']}")
def test_population_reference(case):
    delta = float(case["delta"])
    close(spike.population_threshold(delta), case["theta_c"])
    close(spike.bulk_edge(delta), case["edge_upper"])
    law = ProductLaw(delta, 0)
    close(law.stieltjes(law.support[1]), case["G_at_edge"])
    for row in case["rows"]:
        rho = float(row["theta"])
        close(spike.population_outlier(rho, delta), row["x_out"])
        close(spike.population_overlap(rho, delta), row["overlap2"])


@pytest.mark.parametrize("case", REFERENCE["two_stage_spike"], ids=lambda c: f"{c['delta']},{c['gamma']}")
def test_sample_reference(case):
    delta, gamma = float(case["delta"]), float(case["gamma"])
    close(spike.population_threshold(delta), case["theta_c_population"])
    close(spike.sample_threshold(delta, gamma), case["theta_star_sample"])
    for row in case["rows"]:
        rho = float(row["theta"])
        close(spike.population_outlier(rho, delta), row["population_outlier"])
        close(spike.sample_outlier(rho, delta, gamma), row["sample_outlier"])
        close(spike.sample_overlap(rho, delta, gamma), row["overlap2_with_v"])
        close(spike.population_overlap(rho, delta), row["overlap2_population_v"])


@some
@given(delta=ratios, gamma=ratios)
def test_threshold_solves_its_cubic(delta, gamma):
    w = spike.sample_threshold(delta, gamma) - delta
    e2, e3 = delta + gamma + delta * gamma, delta * gamma
    assert w > 0
    assert w**3 - e2 * w - 2 * e3 == pytest.approx(0, abs=1e-11 * (w + delta) * w**2)
    assert spike.sample_edge(delta, gamma) == pytest.approx(ProductLaw(delta, gamma).support[1], rel=1e-13)


@some
@given(delta=ratios, gamma=st.floats(0, 20), factor=st.floats(1.01, 30))
def test_outlier_solves_the_secular_equation(delta, gamma, factor):
    """A rank-one spike detaches where ``w(z) = 1/(z G(z) - 1)`` of the bulk equals rho - delta."""
    rho = delta + factor * (spike.sample_threshold(delta, gamma) - delta)
    z = spike.sample_outlier(rho, delta, gamma)
    law = ProductLaw(delta, gamma)
    assert 1 / (z * law.stieltjes(z) - 1) == pytest.approx(rho - delta, rel=1e-8)


@some
@given(delta=ratios, factor=st.floats(1.05, 30))
def test_population_overlap_is_the_derivative_of_the_outlier(delta, factor):
    """First-order perturbation theory of W + rho u u': d(outlier)/d(rho) = (u'v)^2."""
    t = factor * np.sqrt(delta)
    rho, step = t + delta, 1e-5 * t
    slope = spike.population_outlier(rho + step, delta) - spike.population_outlier(rho - step, delta)
    assert spike.population_overlap(rho, delta) == pytest.approx(slope / (2 * step), rel=1e-6)


@some
@given(delta=ratios, gamma=ratios, factor=st.floats(1.05, 30))
def test_sample_level_follows_from_the_population_level(delta, gamma, factor):
    """A population eigenvalue l over the bulk MP_delta is seen at ``x = l (1 + gamma int t/(l - t))``.

    Its sample eigenvector keeps the squared overlap ``l D/x``, ``D = 1 - gamma int t^2/(l - t)^2``.
    """
    rho = delta + factor * (spike.sample_threshold(delta, gamma) - delta)
    outlier, bulk = spike.population_outlier(rho, delta), ProductLaw(delta, 0)
    transform = bulk.stieltjes(outlier)
    step = 1e-4 * (outlier - bulk.support[1])
    slope = (bulk.stieltjes(outlier + step) - bulk.stieltjes(outlier - step)) / (2 * step)
    seen = outlier * (1 + gamma * (outlier * transform - 1))
    kept = 1 - gamma * (1 - 2 * outlier * transform - outlier**2 * slope)
    assert spike.sample_outlier(rho, delta, gamma) == pytest.approx(seen, rel=1e-9)
    overlap = spike.population_overlap(rho, delta) * outlier * kept / seen
    assert spike.sample_overlap(rho, delta, gamma) == pytest.approx(overlap, rel=1e-5)


@some
@given(
    rho=st.floats(0, 50),
    delta=ratios,
    gamma=st.floats(0, 20),
    gain=st.floats(0, 16),
    table=st.sampled_from(spike.TABLES),
)
def test_odds_are_those_of_the_overlap(rho, delta, gamma, gain, table):
    for overlap, odds in (
        (
            spike.population_overlap(rho, delta, table=table, gain=gain),
            spike.population_odds(rho, delta, table=table, gain=gain),
        ),
        (
            spike.sample_overlap(rho, delta, gamma, table=table, gain=gain),
            spike.sample_odds(rho, delta, gamma, table=table, gain=gain),
        ),
    ):
        assert 0 <= overlap <= 1
        assert odds / (1 + odds) == pytest.approx(overlap, rel=1e-12, abs=1e-14)


@some
@given(delta=ratios, gamma=st.floats(0, 20), gain=st.floats(0, 16))
def test_tables_shift_rho_and_share_the_overlap(delta, gamma, gain):
    rho = np.linspace(0, 4 * (delta + 1), 17)
    effective = rho + delta * gain
    share = np.divide(rho, effective, out=np.zeros_like(rho), where=effective > 0)
    for table in ("centered", "raw"):
        keywords = {"table": table, "gain": gain}
        np.testing.assert_allclose(
            spike.sample_outlier(rho, delta, gamma, **keywords), spike.sample_outlier(effective, delta, gamma)
        )
        np.testing.assert_allclose(
            spike.sample_overlap(rho, delta, gamma, **keywords),
            share * spike.sample_overlap(effective, delta, gamma),
        )
        threshold = spike.sample_threshold(delta, gamma, **keywords)
        np.testing.assert_allclose(threshold, spike.sample_threshold(delta, gamma) - delta * gain)
        np.testing.assert_array_equal(
            (spike.sample_outlier(rho, delta, gamma, **keywords) > spike.sample_edge(delta, gamma))[
                abs(rho - threshold) > 1e-6 * (1 + abs(threshold))
            ],
            (rho > threshold)[abs(rho - threshold) > 1e-6 * (1 + abs(threshold))],
        )


def test_below_threshold():
    rho = np.linspace(0, spike.sample_threshold(0.5, 0.25), 9)
    np.testing.assert_array_equal(spike.sample_outlier(rho, 0.5, 0.25), spike.sample_edge(0.5, 0.25))
    np.testing.assert_array_equal(spike.sample_overlap(rho, 0.5, 0.25), 0)
    np.testing.assert_array_equal(spike.sample_odds(rho, 0.5, 0.25), 0)
    assert np.all(spike.population_outlier(rho[rho < 1.2], 0.5) == spike.bulk_edge(0.5))
    # the prefix of 8 of 16 signs with mean pooling: alpha/kappa = 4.5, no transition at all
    assert spike.sample_threshold(0.5, 0.25, table="raw", gain=4.5) < 0
    assert spike.sample_outlier(0.0, 0.5, 0.25, table="raw", gain=4.5) > spike.sample_edge(0.5, 0.25)
    assert spike.sample_overlap(0.0, 0.5, 0.25, table="raw", gain=4.5) == 0


@pytest.mark.parametrize(
    ("delta", "gamma"), [(1e-8, 0.0), (1e-8, 1e-8), (0.0, 0.25), (0.0, 0.0), (1e3, 1e-8), (1e3, 1e3)]
)
def test_corners_of_the_domain(delta, gamma):
    threshold = spike.sample_threshold(delta, gamma)
    rho = np.array([0.0, threshold, threshold + 1e-6, threshold + 1, 1e6, 1e200, np.inf])
    outlier, overlap = spike.sample_outlier(rho, delta, gamma), spike.sample_overlap(rho, delta, gamma)
    assert np.all(np.diff(outlier[:-1]) >= -1e-15 * outlier[:-2])
    assert np.all(np.diff(overlap) >= 0)
    assert outlier[0] == pytest.approx(spike.sample_edge(delta, gamma), rel=1e-14)
    assert overlap[-1] == 1
    np.testing.assert_allclose(outlier[5], 1e200)
    assert spike.sample_odds(np.inf, delta, gamma) == np.inf
    if (
        delta == 0 < gamma
    ):  # the spiked covariance model: threshold sqrt(gamma), outlier (1 + rho)(1 + gamma/rho)
        assert threshold == pytest.approx(np.sqrt(gamma), rel=1e-14)
        close(spike.sample_outlier(2.0, delta, gamma), 3 * (1 + gamma / 2))
        close(spike.sample_overlap(2.0, delta, gamma), (1 - gamma / 4) / (1 + gamma / 2))


def test_broadcasting_and_scalars():
    rho, delta, gamma = np.linspace(0, 5, 7), np.array([[0.5], [2.0]]), np.array([[[0.25]], [[1.0]], [[0.0]]])
    for function in (spike.sample_outlier, spike.sample_overlap, spike.sample_odds):
        values = function(rho, delta, gamma, table="raw", gain=1.75)
        assert values.shape == (3, 2, 7)
        assert values[1, 0, 6] == function(5.0, 0.5, 1.0, table="raw", gain=1.75)
    assert spike.sample_threshold(delta, gamma).shape == (3, 2, 1)
    assert isinstance(spike.sample_overlap(3, 0.5, 0.25), np.float64)
    assert isinstance(spike.population_threshold(1), np.float64)
    assert np.isnan(spike.sample_overlap(np.nan, 0.5, 0.25))
    assert np.isnan(spike.sample_outlier(np.nan, 0.5, 0.25))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="did you mean 'centered'"):
        spike.sample_outlier(1.0, 0.5, 0.25, table="centred")
    with pytest.raises(ValueError, match=r"rho = -1"):
        spike.population_overlap([0.0, -1.0], 0.5)
    with pytest.raises(ValueError, match=r"gamma = -0\.5"):
        spike.sample_edge(0.5, -0.5)
    with pytest.raises(ValueError, match=r"delta = inf"):
        spike.bulk_edge(np.inf)


def draw(rng, d, delta, gamma, rho, gain, gain_sum, table):
    """Draw a table as the model says: per level the signal's eigenvalue and overlap and the top eigenvalue.

    Last come the deviations of the two norms whose mean is known, as control variates.
    """
    V, N = round(d / delta), round(d / gamma)
    signs = np.repeat([1.0, -1.0], V // 2)
    Z = rng.standard_normal((d, V))
    g, m = Z @ signs / V, Z.mean(axis=1)
    within = Z - np.outer(g, signs) - m[:, None]
    u = np.eye(d)[0]
    mu = np.sqrt(rho / gain) * u + (g if table != "class-centered" else 0)
    factor = np.column_stack([within / np.sqrt(V), np.sqrt(gain) * mu])
    if table == "raw":
        factor = np.column_stack([factor, np.sqrt(gain_sum) * m])
    found = []
    for half in (factor, factor @ rng.standard_normal((factor.shape[1], N)) / np.sqrt(N)):
        values, vectors = np.linalg.eigh(half @ half.T)
        overlaps = vectors[0] ** 2
        named = np.argmax(overlaps)
        found += [values[named], overlaps[named], values[-1]]
    return [*found, mu @ mu - rho / gain - delta * (table != "class-centered"), m @ m - delta]


@pytest.mark.parametrize("table", spike.TABLES)
def test_monte_carlo_has_the_power_to_see_three_percent(table):
    d, delta, gamma, rho, gain, gain_sum, replicates = 160, 0.5, 0.25, 4.0, 1.75, 64.0, 170
    rng = np.random.default_rng(20260507)
    drawn = np.array([draw(rng, d, delta, gamma, rho, gain, gain_sum, table) for _ in range(replicates)])
    keywords = {"table": table, "gain": gain}
    expected = [
        spike.population_outlier(rho, delta, **keywords),
        spike.population_overlap(rho, delta, **keywords),
        spike.population_outlier(rho, delta, **keywords),
        spike.sample_outlier(rho, delta, gamma, **keywords),
        spike.sample_overlap(rho, delta, gamma, **keywords),
        spike.sample_outlier(rho, delta, gamma, **keywords),
    ]
    if table == "raw":  # the table's mean lies above the signal, and has nothing to do with it
        second = spike.second_strength(delta, gain_sum)
        expected[2] = spike.population_outlier(second, delta)
        expected[5] = spike.sample_outlier(second, delta, gamma)
    values, controls = drawn[:, :6], drawn[:, 6:]
    values = values - controls @ np.linalg.lstsq(controls, values - values.mean(axis=0), rcond=None)[0]
    error = 4 * values.std(axis=0, ddof=1) / np.sqrt(replicates) / np.array(expected)
    allowance = 1.5 / d  # finite size: most of it is the mixing of the two outliers of "raw"
    assert np.all(error + allowance < 0.03)
    assert np.all(np.abs(values.mean(axis=0) / expected - 1) < error + allowance)
