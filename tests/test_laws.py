"""The product law against reference values, its own functional equation, quadrature and Monte Carlo."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.analysis import tracy_widom
from eigensweep.analysis.laws import ProductLaw

CASES = json.loads((Path(__file__).parent / "reference" / "laws.json").read_text())["product_laws"]
TOLERANCE = 1e-10
ratios = st.floats(0.01, 20)
some = settings(deadline=None, derandomize=True, max_examples=80)
reference = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['delta']},{case['gamma']}")
CORNERS = [
    (1e-8, 1e-8),
    (1e-8, 0.3),
    (0.3, 1e-8),
    (1e3, 1e-8),
    (1e3, 1e3),
    (1e3, 999.0),
    (1e-8, 1e3),
    (1.0, 1e-8),
    (1.0, 0.3),
    (1 - 1e-6, 1 - 2e-6),
    (1 + 1e-9, 1.0),
    (2.0, 2.0),
    (0.7, 0.0),
    (1.0, 0.0),
    (3.0, 0.0),
]


def law_of(case):
    return ProductLaw(float(case["delta"]), float(case["gamma"]))


def close(value, expected, tolerance=TOLERANCE):
    """Relative, complex values by modulus; values that are 0 to 1e-13."""
    assert abs(value - expected) <= (tolerance * abs(expected) if expected != 0 else 1e-13)


@reference
def test_reference_shape(case):
    law, given_ratios = law_of(case), (float(case["delta"]), float(case["gamma"]))
    close(1 + sum(given_ratios), float(case["e1"]))
    close(sum(given_ratios) + np.prod(given_ratios), float(case["e2"]))
    close(np.prod(given_ratios), float(case["e3"]))
    close(law.atom, float(case["atom_at_0"]))
    close(law.support[0], float(case["edge_lower"]))
    close(law.support[1], float(case["edge_upper"]))
    assert law.hard_edge is case["hard_edge_at_0"]
    for value, side in zip(law.edge_w, ("lower", "upper"), strict=True):
        close(value, float(case[f"w_{side}"]))
        close(1 / value, float(case[f"s_{side}"]))
    close(law.edge_coefficients[1], float(case["sqrt_edge_coef_A"]))
    close(law.tracy_widom_scale, float(case["tw_scale_times_dim^(2/3)"]))
    if law.hard_edge:
        assert law.edge_coefficients[0] == np.inf
        assert np.isnan(law.tracy_widom_scale_lower)
    else:
        close(law.edge_coefficients[0], float(case["sqrt_edge_coef_A_lower"]))
        close(law.tracy_widom_scale_lower, float(case["tw_scale_lower"]))


@reference
def test_reference_values(case):
    law = law_of(case)
    for k, value in enumerate(case["moments_1_to_6"], start=1):
        close(law.moment(k), float(value))
    for point in case["points"]:
        close(law.pdf(float(point["x"])), float(point["density"]))
        close(law.cdf(float(point["x"])), float(point["cdf"]))
    for point in case["quantiles"]:
        close(law.ppf(float(point["p"])), float(point["x"]))
    for point in case["stieltjes"]:
        close(law.stieltjes(complex(*map(float, point["z"]))), complex(*map(float, point["G"])))


def test_references_are_all_read():
    known = {
        *("delta", "gamma", "e1", "e2", "e3", "atom_at_0", "edge_lower", "edge_upper", "hard_edge_at_0"),
        *("w_upper", "w_lower", "s_upper", "s_lower", "sqrt_edge_coef_A", "sqrt_edge_coef_A_lower"),
        *("tw_scale_times_dim^(2/3)", "tw_scale_lower", "moments_1_to_6", "points", "quantiles", "stieltjes"),
    }
    assert {key for case in CASES for key in case} == known


def tanh_sinh(lower, upper, nodes=1500, reach=4.3):
    """Points and weights on (lower, upper) that resolve any algebraic singularity at its ends."""
    t = np.linspace(-reach, reach, nodes)
    side = np.pi / 2 * np.sinh(t)
    near = 1 / (1 + np.exp(-2 * np.abs(side)))
    far = np.exp(-2 * np.abs(side)) * near  # distance to the nearer end, in units of the length
    x = np.where(t < 0, lower + (upper - lower) * far, upper - (upper - lower) * far)
    weight = (upper - lower) * np.pi * np.cosh(t) * near * far * (t[1] - t[0])
    return x, weight


@some
@given(delta=ratios, gamma=ratios)
def test_density_integrates_to_its_mass_and_moments(delta, gamma):
    law = ProductLaw(delta, gamma)
    x, weight = tanh_sinh(*law.support)
    mass = weight * law.pdf(x)
    assert mass.sum() == pytest.approx(1 - law.atom, rel=1e-9)
    for k in (1, 2, 3, 6):
        assert mass @ x**k == pytest.approx(law.moment(k), rel=1e-9)
    z = law.support[1] * np.array([0.3 + 0.4j, -0.5, 1.5, 0.7 - 0.3j])
    direct = (mass / (z[:, None] - x)).sum(axis=1) + law.atom / z
    np.testing.assert_allclose(law.stieltjes(z), direct, rtol=1e-8)


@some
@given(delta=ratios, gamma=ratios)
def test_first_moments(delta, gamma):
    expected = [
        1,
        1,
        1 + delta + gamma,
        1 + 3 * (delta + gamma) + delta**2 + gamma**2 + 3 * delta * gamma,
    ]
    np.testing.assert_allclose(ProductLaw(delta, gamma).moment([0, 1, 2, 3]), expected, rtol=1e-14)


@some
@given(delta=ratios, gamma=st.floats(0, 20), q=st.floats(0, 1))
def test_quantile_inverts_the_distribution_function(delta, gamma, q):
    law = ProductLaw(delta, gamma)
    x = law.ppf(q)
    assert law.cdf(x) == pytest.approx(max(q, law.atom), rel=1e-10, abs=1e-14)
    assert x == 0 if law.atom >= q > 0 else law.support[0] <= x <= law.support[1] or x == 0


@pytest.mark.parametrize(("delta", "gamma"), [*CORNERS, (0.5, 0.25), (2, 0.5), (1, 1)])
def test_quantile_is_monotone_and_inverts_in_both_tails(delta, gamma):
    law = ProductLaw(delta, gamma)
    tail = np.geomspace(1e-14, 0.5, 300)
    q = law.atom + (1 - law.atom) * np.r_[tail, 1 - tail[-2::-1]]
    x = law.ppf(q)
    assert np.all(np.diff(x) >= -1e-15 * x[1:])
    # x is a double: on the narrowest law its last digit moves F by 1e-12
    relative = 1e-10 if law.hard_edge and law.atom == 0 else 0
    np.testing.assert_allclose(law.cdf(x), q, rtol=relative, atol=0 if relative else 2e-12)


@some
@given(delta=ratios, gamma=st.floats(0, 20), u=st.floats(0.01, 0.99))
def test_density_is_the_derivative_of_the_distribution_function(delta, gamma, u):
    law = ProductLaw(delta, gamma)
    x = law.ppf(law.atom + (1 - law.atom) * u)
    step = 1e-4 * min(x - law.support[0], law.support[1] - x)
    f = law.cdf(x + step * np.array([-2, -1, 1, 2]))
    slope = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)
    assert law.pdf(x) == pytest.approx(slope, rel=1e-7)


@some
@given(
    delta=ratios,
    gamma=st.floats(0, 20),
    x=st.floats(-30, 60),
    log_y=st.floats(-9, 2),
    sign=st.sampled_from([-1, 1]),
)
def test_stieltjes_solves_its_equation_on_the_right_branch(delta, gamma, x, log_y, sign):
    law = ProductLaw(delta, gamma)
    z = complex(x, sign * 10**log_y)
    transform = law.stieltjes(z)
    w = 1 / (z * transform - 1)
    residual = (w + 1) * (w + delta) * (w + gamma) - z * w**2
    size = abs(w + 1) * abs(w + delta) * abs(w + gamma) + abs(z * w**2)
    assert abs(residual) <= 1e-9 * size + 1e-13 * (abs(w) + 1 + delta + gamma) ** 3  # z G - 1 is rounded
    assert transform == law.stieltjes(z.conjugate()).conjugate()
    assert transform.imag * z.imag < 0
    assert abs(transform) <= 1 / abs(z.imag)
    # on the path down from infinity G is continuous: the branch never jumps
    path = law.stieltjes(x + 1j * sign * np.geomspace(1e4, 10**log_y, 3000))
    steps = np.abs(np.diff(path)) / np.abs(path[1:])
    assert steps.max() < 0.05


@pytest.mark.parametrize(("delta", "gamma"), [*CORNERS, (0.5, 0.25), (2, 0.5), (1, 1)])
def test_stieltjes_reaches_the_density_and_the_edges(delta, gamma):
    law = ProductLaw(delta, gamma)
    lower, upper = law.support
    x = lower + (upper - lower) * np.array([0.01, 0.2, 0.5, 0.9, 0.99])
    z = x + 1e-13j * (upper - lower)
    above = law.stieltjes(z) - law.atom / z
    np.testing.assert_allclose(-above.imag / np.pi, law.pdf(x), rtol=1e-9)
    edges = [upper] if law.hard_edge else [lower, upper]
    width = upper - lower
    for edge, side in zip(edges[::-1], (1, -1), strict=False):
        near = law.stieltjes(edge + side * 1e-8 * min(width, edge))
        assert law.stieltjes(edge) == pytest.approx(near, rel=1e-3, abs=1e-3 / width)


@pytest.mark.parametrize(("delta", "gamma"), CORNERS)
def test_corners_of_the_domain(delta, gamma):
    """Mean, second moment and variance by integrating quantiles over probability."""
    law = ProductLaw(delta, gamma)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    # nodes crowd at both ends, where the quantile has fractional powers
    angle = np.pi / 4 * (nodes + 1)
    u = np.sin(angle) ** 2
    q, jacobian = u**3 * (10 - 15 * u + 6 * u**2), 30 * u**2 * (1 - u) ** 2 * np.sin(2 * angle) * np.pi / 4
    x = law.ppf(np.minimum(law.atom + (1 - law.atom) * q, 1))
    measure = weights * jacobian * (1 - law.atom)
    assert measure @ x == pytest.approx(law.moment(1), rel=1e-7)
    assert measure @ x**2 == pytest.approx(law.moment(2), rel=1e-7)
    assert measure @ (x - 1) ** 2 == pytest.approx(law.moment(2) - 2 + 1 - law.atom, rel=1e-5, abs=1e-15)


@some
@given(delta=ratios, x=st.floats(0, 1))
def test_no_sample_noise_is_marchenko_pastur(delta, x):
    law = ProductLaw(delta, 0)
    lower, upper = (1 - np.sqrt(delta)) ** 2, (1 + np.sqrt(delta)) ** 2
    assert law.support == pytest.approx((lower, upper), rel=1e-10, abs=1e-16)
    x = lower + (0.001 + 0.998 * x) * (upper - lower)
    density = np.sqrt((x - lower) * (upper - x)) / (2 * np.pi * delta * x)
    assert law.pdf(x) == pytest.approx(density, rel=1e-10)
    assert ProductLaw(delta, 1e-12).pdf(x) == pytest.approx(density, rel=1e-6)
    assert law.cdf(x) == pytest.approx(ProductLaw(delta, 1e-12).cdf(x), rel=1e-6)


@some
@given(delta=ratios, gamma=ratios)
def test_symmetry_and_scaling(delta, gamma):
    """The law is symmetric in its ratios, and homogeneous in (1, delta, gamma)."""
    law, swapped, scaled = (
        ProductLaw(delta, gamma),
        ProductLaw(gamma, delta),
        ProductLaw(1 / delta, gamma / delta),
    )
    x = np.linspace(0, 1.1 * law.support[1], 23)[1:]
    assert law.support == pytest.approx(swapped.support, rel=1e-13)
    np.testing.assert_allclose(law.pdf(x), swapped.pdf(x), rtol=1e-10)
    inner = (x > 1.001 * law.support[0]) & (x < 0.999 * law.support[1])
    np.testing.assert_allclose(scaled.pdf(x / delta)[inner] / delta**2, law.pdf(x)[inner], rtol=1e-9)


def test_outside_the_support_and_at_its_ends():
    x = np.array([-np.inf, -1.0, 0.0, 1e-300, 100.0, np.inf])
    for law in (ProductLaw(0.5, 0.25), ProductLaw(2, 0.5), ProductLaw(3, 0)):
        np.testing.assert_array_equal(law.pdf(x), 0)
        np.testing.assert_array_equal(law.pdf(law.support), 0)
        np.testing.assert_array_equal(law.cdf(x), [0, 0, law.atom, law.atom, 1, 1])
        np.testing.assert_array_equal(law.cdf(law.support), [law.atom, 1])
        np.testing.assert_array_equal(law.ppf([0, 1]), [0 if law.atom else law.support[0], law.support[1]])
        np.testing.assert_array_equal(law.stieltjes([-np.inf, np.inf, 1e200]), [0, 0, 1e-200])
    for law in (ProductLaw(1, 1), ProductLaw(2, 2), ProductLaw(1, 0)):
        assert law.hard_edge
        assert law.support[0] == 0
        assert law.pdf(0.0) == np.inf
        assert law.pdf(1e-300) > 1e100
        assert law.cdf(0.0) == law.atom
    assert ProductLaw(2, 0.5).ppf(0.3) == 0
    for value in (ProductLaw(1, 1).pdf(np.nan), ProductLaw(1, 1).cdf(np.nan), ProductLaw(1, 1).ppf(np.nan)):
        assert np.isnan(value)


def test_hard_edge_exponents():
    """F grows as x^(1/3) where all three ratios coincide and as x^(1/2) where two do."""
    x = np.geomspace(1e-60, 1e-50, 11)
    for law, exponent in ((ProductLaw(1, 1), 1 / 3), (ProductLaw(1, 0.3), 1 / 2)):
        slopes = np.diff(np.log(law.cdf(x))) / np.diff(np.log(x))
        np.testing.assert_allclose(slopes, exponent, rtol=1e-9)
        np.testing.assert_allclose(law.pdf(x) * x, exponent * law.cdf(x), rtol=1e-9)
        np.testing.assert_allclose(law.ppf(law.cdf(x)), x, rtol=1e-10)


@some
@given(delta=ratios, gamma=st.floats(0, 20))
def test_edge_coefficients_and_tracy_widom_scale(delta, gamma):
    law = ProductLaw(delta, gamma)
    (lower, upper), near = law.support, 1e-7
    width = upper - lower
    density = law.pdf(upper - near * width)
    assert law.edge_coefficients[1] * np.sqrt(near * width) == pytest.approx(density, rel=1e-4)
    # a square-root edge A |x - b|^(1/2) fluctuates on the scale (pi A)^(-2/3)
    for scale, coefficient in zip(
        (law.tracy_widom_scale_lower, law.tracy_widom_scale), law.edge_coefficients, strict=True
    ):
        if np.isfinite(coefficient):
            assert scale == pytest.approx((np.pi * coefficient) ** (-2 / 3), rel=1e-10)


def test_top_quantile():
    law = ProductLaw(0.5, 0.25)
    q, d = np.array([0.05, 0.5, 0.95]), np.array([[100], [800]])
    expected = law.support[1] + law.tracy_widom_scale * d ** (-2 / 3) * tracy_widom.ppf(q)
    np.testing.assert_allclose(law.top_quantile(q, d), expected, rtol=1e-14)
    assert isinstance(law.top_quantile(0.5, 100), np.float64)


def test_large_moments():
    law = ProductLaw(0.5, 0.25)
    ratio = law.moment(np.arange(45, 60)) / law.moment(np.arange(44, 59))
    assert np.all(np.diff(ratio) > 0)  # across the change of method at order 50
    assert np.all(np.diff(ratio, 2) < 0)
    # m_k ~ c k^(-3/2) b^k: the ratio of neighbours tends to the upper edge
    assert law.moment(400) / law.moment(399) == pytest.approx(law.support[1] * (1 - 1.5 / 400), rel=1e-3)
    assert law.moment(1000) == np.inf


def test_shapes_and_scalars():
    law = ProductLaw(delta=0.5, gamma=0.25)
    for function in (law.pdf, law.cdf, law.ppf):
        assert function(np.full((2, 3), 0.5)).shape == (2, 3)
        assert function(np.zeros((0, 4))).shape == (0, 4)
        assert isinstance(function(0.5), np.float64)
        assert function([0.25, 0.5])[1] == function(0.5)
    assert law.stieltjes(np.full((2, 3), 1 + 1j)).shape == (2, 3)
    assert isinstance(law.stieltjes(1j), np.complex128)
    assert isinstance(law.stieltjes(-1), np.float64)
    assert law.moment([[1, 2], [2, 1]]).tolist() == [[1.0, 1.75], [1.75, 1.0]]
    assert law == ProductLaw(0.5, 0.25)
    assert hash(law) == hash(ProductLaw(0.5, 0.25))


def test_a_point_alone_equals_the_point_in_company():
    law = ProductLaw(0.5, 0.25)
    x = np.linspace(*law.support, 301)
    for function, points in ((law.pdf, x), (law.cdf, x), (law.ppf, np.linspace(0, 1, 301))):
        np.testing.assert_array_equal(function(points), [function(point) for point in points])


def test_density_is_fast():
    """A figure or a fit asks for 10^5 points: under 50 ms of one core."""
    law = ProductLaw(0.5, 0.25)
    x = np.linspace(*law.support, 100_000)
    times = []
    for _ in range(5):
        start = time.process_time()
        law.pdf(x)
        times.append(time.process_time() - start)
    assert min(times) < 0.05


@pytest.mark.parametrize("ratios", [(0, 1), (-0.5, 1), (1, -1e-9), (np.inf, 1), (1, np.nan)])
def test_ratios_outside_the_domain(ratios):
    with pytest.raises(ValueError, match=r"(delta|gamma) = "):
        ProductLaw(*ratios)


def test_bad_input_is_named():
    law = ProductLaw(2, 0.5)
    with pytest.raises(ValueError, match=r"z = 1: .* spectrum"):
        law.stieltjes([10.0, 1.0])
    with pytest.raises(ValueError, match=r"z = 0: "):
        law.stieltjes(0.0)
    with pytest.raises(ValueError, match=r"z = 0: "):
        ProductLaw(1, 1).stieltjes(0j)
    assert ProductLaw(0.5, 0.25).stieltjes(0.0) == pytest.approx(-1 / (0.5 * 0.75), rel=1e-13)
    with pytest.raises(ValueError, match=r"q = -0\.1"):
        law.ppf([0.5, -0.1])
    with pytest.raises(ValueError, match=r"k = 1\.5"):
        law.moment(1.5)
    with pytest.raises(ValueError, match="d = 0"):
        law.top_quantile(0.5, 0)


def spectrum(rng, d, delta, gamma):
    """Eigenvalues, zeros left out, of a sample covariance of a Wishart population."""
    V, N = round(d / delta), round(d / gamma)
    _, values, right = np.linalg.svd(rng.standard_normal((d, V)), full_matrices=False)
    half = values[:, None] * rng.standard_normal((right.shape[0], N)) / np.sqrt(V * N)
    return np.linalg.svd(half, compute_uv=False) ** 2


def distance(x, law, stretch=1.0):
    """Kolmogorov-Smirnov distance to the continuous part of a law, stretched about 0."""
    x = np.sort(x)
    below = (law.cdf(x / stretch) - law.atom) / (1 - law.atom)
    rank = np.arange(x.size + 1) / x.size
    return max(np.max(rank[1:] - below), np.max(below - rank[:-1]))


@pytest.mark.parametrize(("delta", "gamma"), [(0.5, 0.25), (1, 1), (2, 0.5), (0.5, 2)])
def test_monte_carlo_has_the_power_to_see_three_percent(delta, gamma):
    rng = np.random.default_rng(20260507)
    drawn = np.array([spectrum(rng, 300, delta, gamma) for _ in range(30)])
    law = ProductLaw(delta, gamma)
    seen = distance(drawn.ravel(), law)
    assert seen < 0.006
    for stretch in (0.97, 1.03):
        assert distance(drawn.ravel(), law, stretch) > 1.3 * seen
    mean = (drawn**2).mean() * min(1, 1 / delta, 1 / gamma)
    error = 4 * (drawn**2).mean(axis=1).std(ddof=1) / np.sqrt(30) * min(1, 1 / delta, 1 / gamma)
    assert error + 1 / 300 < 0.03 * law.moment(2)
    assert abs(mean - law.moment(2)) < error + 1 / 300
