"""The spectral column against dense linear algebra, on columns as nasty as they come."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.rankone import Column, decompose

EPS = float(np.finfo(np.float64).eps)
RANDOM = settings(deadline=None, derandomize=True, max_examples=150)
RHO = np.array([0.0, 1e-300, 1e-18, 1e-9, 0.1, 1.0, 3.0, 1e3, 1e9, 1e15])


def dense(column, rho):
    """Eigenvalues, descending, and squared overlaps with u of S(rho), by LAPACK."""
    v = column.noise + np.sqrt(rho) * column.amplitude * column.signal
    value, vector = np.linalg.eigh(np.diag(column.value) + np.outer(v, v))
    return value[::-1], ((vector.T @ column.signal) ** 2)[::-1], float(np.max(np.abs(value)))


def clusters(value, norm):
    """Slices of eigenvalues each closer than 1e-8 of the norm to the next."""
    starts = np.flatnonzero(np.concatenate([[True], value[:-1] - value[1:] > 1e-8 * norm]))
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], value.size], strict=True)]


def assert_family_is_dense(column, strengths, reference=dense):
    value, overlap = column.eigenpairs(strengths)
    assert np.all(np.diff(value, axis=1) <= 0.0)
    assert np.all((overlap >= 0.0) & (overlap <= 1.0))
    for i, rho in enumerate(strengths):
        expected, weight, norm = reference(column, rho)
        # Errors are those of the family's own size: of S0, of h and of a u, whatever rho makes of a u.
        scale = max(norm, column.amplitude**2, 1e-30)
        assert np.max(np.abs(value[i] - expected)) <= 1e-10 * scale
        for group in clusters(expected, scale):
            # What rounding of the matrix alone turns its vectors by, for any solver.
            others = np.delete(expected, group)
            gap = np.min(np.abs(others[:, None] - expected[group]), initial=scale)
            tolerance = 1e-10 + 50 * EPS * column.dimension * scale / gap
            assert np.sum(overlap[i, group]) == pytest.approx(np.sum(weight[group]), abs=tolerance)
        assert np.sum(overlap[i]) == pytest.approx(np.sum(column.signal**2), abs=1e-10)


def unit(x):
    norm = np.sqrt(np.sum(x * x))
    return x / norm if norm > 0 else x


@st.composite
def columns(draw, largest=24):
    """Columns with weights that vanish or nearly so, repeated and nearly repeated eigenvalues, no noise."""
    d = draw(st.integers(1, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["spread", "repeated", "ulps", "zero", "decades"]))
    value = np.abs(rng.standard_normal(d))
    if kind == "repeated":
        value = rng.choice([0.0, 1.0, 2.0], d)
    elif kind == "ulps":
        value = 1.0 + EPS * rng.integers(0, 6, d)
    elif kind == "zero":
        value = np.zeros(d)
    elif kind == "decades":
        value = 10.0 ** rng.uniform(-14, 3, d)
    signal, noise = rng.standard_normal(d), rng.standard_normal(d)
    for vector in (signal, noise):
        style = draw(st.sampled_from(["full", "sparse", "tiny", "axis", "none"]))
        if style == "sparse":
            vector *= rng.random(d) < 0.5
        elif style == "tiny":
            vector *= 10.0 ** rng.uniform(-20, 0, d)
        elif style == "axis":
            vector *= np.arange(d) == rng.integers(d)
        elif style == "none":
            vector[:] = 0.0
    noise *= draw(st.sampled_from([1.0, 1e-8, 30.0]))
    amplitude = draw(st.sampled_from([0.0, 1e-6, 1.0, 1.3]))
    return Column(np.sort(value)[::-1].copy(), np.abs(unit(signal)), noise, amplitude)


@RANDOM
@given(columns())
def test_every_rho_is_dense_linear_algebra(column):
    assert_family_is_dense(column, RHO)


@RANDOM
@given(columns())
def test_interlacing(column):
    value, _ = column.eigenpairs(RHO)
    energy = np.max(column.value) + np.sum(column.noise**2) + column.amplitude**2
    slack = 1e-80 + 16 * EPS * column.dimension * energy
    assert np.all(value >= column.value - slack)
    assert np.all(value[:, 1:] <= column.value[:-1] + slack)
    spread = np.sum(column.update(RHO) ** 2, axis=1)
    trace = np.sum(column.value) + spread
    assert np.sum(value, axis=1) == pytest.approx(trace, rel=1e-12, abs=slack * column.dimension)


@RANDOM
@given(columns(), st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_a_rho_does_not_know_the_others_nor_how_many_pairs_are_asked(column, strengths):
    rho = np.array(strengths)
    value, overlap = column.eigenpairs(rho)
    for i in range(rho.size):
        for top in (1, 3, column.dimension):
            one, weight = column.eigenpairs(rho[i : i + 1], top)
            kept = min(top, column.dimension)
            assert one[0, :kept].tobytes() == value[i, :kept].tobytes()
            assert weight[0, :kept].tobytes() == overlap[i, :kept].tobytes()
            assert np.all(np.isnan(one[0, kept:]))
            assert np.all(np.isnan(weight[0, kept:]))


@pytest.mark.parametrize("weight", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
def test_a_root_that_passes_by_a_pole_of_tiny_weight(weight):
    # At this rho the eigenvalue of the last two modes is the first one's: their vectors mix, and only the
    # sum of their overlaps means anything. It does, if the vectors are orthogonal.
    column = Column(np.array([2.0, 1.3, 1.0]), np.array([0, 0.6, 0.8]), np.array([weight, 0, 0]), 1.0)
    meeting = 1 / (0.36 / 0.7 + 0.64)
    rho = meeting * (1 + weight * np.linspace(-3, 3, 31))
    value, overlap = column.eigenpairs(rho)
    for i, strength in enumerate(rho):
        expected, share, _ = dense(column, strength)
        assert value[i] == pytest.approx(expected, abs=1e-14)
        assert np.sum(overlap[i, :2]) == pytest.approx(np.sum(share[:2]), abs=1e-13)
        assert np.sum(overlap[i]) == pytest.approx(1.0, abs=1e-13)


def test_bits_in_company_of_a_large_column():
    # Modes that nothing touches make numpy lay the rest out the other way round, and sums then round
    # otherwise: a weight at the edge of the floor tells.
    rng = np.random.default_rng(5)
    d = 301
    signal, noise = np.abs(rng.standard_normal(d)), rng.standard_normal(d)
    signal[7] = noise[7] = 0.0
    signal = unit(signal)
    base = Column(np.sort(rng.random(d))[::-1].copy(), signal, noise, 1.0)
    rho = np.linspace(0.0, 4.0, 5)
    length = np.sqrt(np.sum(base.update(rho) ** 2, axis=1))
    for tiny in EPS * length[:2, None] * np.array([0.9999999, 1.0, 1.0000001]):
        for factor in tiny:
            small = noise.copy()
            small[10:60], signal[10:60] = factor, 0.0
            column = Column(base.value, signal, small, 1.0)
            value, overlap = column.eigenpairs(rho)
            for i in range(rho.size):
                one, weight = column.eigenpairs(rho[i : i + 1])
                assert one[0].tobytes() == value[i].tobytes()
                assert weight[0].tobytes() == overlap[i].tobytes()


@RANDOM
@given(columns(), st.floats(0, 100))
def test_forms_are_the_inverse(column, rho):
    z = np.array([1.0 + 0.3j, -2.0 + 0.0j, 0.5 - 1.0j, 40.0 + 1e-2j])
    trace, signal = column.forms(np.array([rho, 0.0]), z)
    assert trace.shape == signal.shape == (2, 4)
    for i, strength in enumerate((rho, 0.0)):
        v = column.noise + np.sqrt(strength) * column.amplitude * column.signal
        matrix = np.diag(column.value) + np.outer(v, v)
        eigenvalues = np.linalg.eigvalsh(matrix)
        for j, point in enumerate(z):
            assume(np.min(np.abs(point - eigenvalues)) > 1e-3)
            inverse = np.linalg.inv(point * np.eye(column.dimension) - matrix)
            size = 1e-10 * (1 + np.max(np.abs(inverse))) ** 2 * (1 + np.max(np.abs(eigenvalues)))
            assert abs(trace[i, j] - np.trace(inverse)) < size * column.dimension
            assert abs(signal[i, j] - column.signal @ inverse @ column.signal) < size


def test_forms_to_full_precision_away_from_the_spectrum():
    rng = np.random.default_rng(2)
    column = Column(np.sort(rng.random(30))[::-1].copy(), unit(np.abs(rng.random(30))), rng.random(30), 0.7)
    z = np.array([-1.0 + 0j, 2j, 0.3 + 0.4j])
    trace, signal = column.forms([0.0, 2.0, 9.0], z)
    value, overlap = column.eigenpairs([0.0, 2.0, 9.0])
    resolvent = 1 / (z[None, :, None] - value[:, None, :])
    assert trace == pytest.approx(np.sum(resolvent, axis=2), rel=1e-12)
    assert signal == pytest.approx(np.sum(resolvent * overlap[:, None, :], axis=2), rel=1e-12)


@RANDOM
@given(columns(), st.floats(0.01, 50))
def test_the_top_eigenvalue_passes_a_level_for_good(column, above):
    level = float(column.value[0]) + above
    (rho,) = column.passing(level)
    strength = column.amplitude**2 * np.sum(column.signal**2)
    # Weights below rounding lift an eigenvalue at no rho that a float can hold.
    assume(strength == 0.0 or strength > 1e-12)
    if np.isinf(rho):
        assert strength == 0.0
        assert column.eigenpairs([1e6], 1)[0][0, 0] <= level * (1 + 1e-12)
        return
    at, beyond = column.eigenpairs([rho, rho * 1.01 + 1e-3], 1)[0][:, 0]
    if rho > 0.0:
        assert at == pytest.approx(level, rel=1e-8)
    else:
        assert at >= level * (1 - 1e-12)
    if strength > 0.0:
        assert beyond >= level * (1 - 1e-12)


def test_passing_where_u_and_h_point_apart():
    # v shrinks before it grows: the top eigenvalue is above the level at rho = 0, falls, and comes back.
    column = Column(np.array([1.0, 0.5]), np.array([1.0, 0.0]), np.array([-2.0, 0.0]), 1.0)
    (rho,) = column.passing(2.0)
    assert rho == pytest.approx(9.0)
    assert column.eigenpairs([0.0, 4.0, 8.9, 9.1], 1)[0][:, 0] == pytest.approx(
        [5.0, 1.0, 1 + (8.9**0.5 - 2) ** 2, 1 + (9.1**0.5 - 2) ** 2]
    )
    assert column.passing([0.9, 1.0]).tolist() == [0.0, 0.0]
    silent = Column(np.array([1.0]), np.array([1.0]), np.array([0.5]), 0.0)
    assert silent.passing([1.2, 1.5]).tolist() == [0.0, np.inf]


@pytest.mark.parametrize("d", [1, 2, 3, 10, 70])
@pytest.mark.parametrize("rank", [0, 1, 5, 1000])
def test_decompose(d, rank):
    rng = np.random.default_rng(d + rank)
    factor = rng.standard_normal((d, min(rank, 2 * d)))
    matrix = factor @ factor.T / max(1, factor.shape[1])
    u, h, a = unit(rng.standard_normal(d)), rng.standard_normal(d), 0.8
    lower = np.asfortranarray(np.tril(matrix))
    kept = lower.copy()
    column = decompose(lower, u, h, a)
    assert np.array_equal(lower, kept)
    assert column.dimension == d
    assert np.all(np.diff(column.value) <= 0)
    assert np.all(column.signal >= 0)
    assert np.sum(column.signal**2) == pytest.approx(1.0, abs=1e-13)
    assert np.sum(column.noise**2) == pytest.approx(np.sum(h * h), rel=1e-13)
    assert np.sum(column.signal * column.noise) == pytest.approx(u @ h, abs=1e-12)

    def direct(_, rho):
        v = h + np.sqrt(rho) * a * u
        value, vector = np.linalg.eigh(matrix + np.outer(v, v))
        return value[::-1], ((vector.T @ u) ** 2)[::-1], float(np.max(np.abs(value)))

    assert_family_is_dense(column, np.array([0.0, 0.5, 3.0, 1e4]), direct)


@pytest.mark.parametrize("indefinite", [False, True])
def test_decompose_fixes_the_basis_of_a_degenerate_space(indefinite):
    rng = np.random.default_rng(4)
    basis, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    value = np.array([3.0] * 4 + [1.0] * 5 + [0.0] * 2 + [-1.0 if indefinite else 0.0])
    matrix = (basis * value) @ basis.T
    u, h = unit(rng.standard_normal(12)), rng.standard_normal(12)
    column = decompose(np.asfortranarray(matrix), u, h, 1.0)
    for eigenvalue in np.unique(value):
        space = np.abs(column.value - eigenvalue) < 1e-12
        assert np.count_nonzero(space) == np.count_nonzero(value == eigenvalue)
        assert np.unique(column.value[space]).size == 1
        projector = basis[:, value == eigenvalue]
        assert np.count_nonzero(column.signal[space]) == 1
        assert np.count_nonzero(column.noise[space]) <= 2
        assert np.sum(column.signal[space] ** 2) == pytest.approx(np.sum((projector.T @ u) ** 2))
        assert np.sum(column.noise[space] ** 2) == pytest.approx(np.sum((projector.T @ h) ** 2))
    assert np.all(column.value[np.abs(column.value) < 1e-10] == 0.0)


def test_decompose_of_zero_and_of_a_multiple_of_one():
    u, h = unit(np.arange(1.0, 6.0)), np.array([1.0, 0, 0, 0, 0])
    for scale in (0.0, 2.0):
        column = decompose(np.asfortranarray(scale * np.eye(5)), u, h, 1.0)
        assert np.all(column.value == scale)
        assert column.signal == pytest.approx([1, 0, 0, 0, 0])
        value, overlap = column.eigenpairs([4.0])
        v = h + 2 * u
        assert value[0] == pytest.approx([scale + v @ v, scale, scale, scale, scale])
        assert overlap[0, 0] == pytest.approx((u @ v) ** 2 / (v @ v))


def test_decompose_scales():
    rng = np.random.default_rng(8)
    factor = rng.standard_normal((9, 20))
    u, h = unit(rng.standard_normal(9)), rng.standard_normal(9)
    one = decompose(np.asfortranarray(factor @ factor.T), u, h, 1.0)
    for scale in (1e-60, 1e-20, 1e20, 1e100):
        root = np.sqrt(scale)
        other = decompose(np.asfortranarray(scale * (factor @ factor.T)), u, root * h, root)
        assert other.value == pytest.approx(scale * one.value, rel=1e-10)
        value, overlap = one.eigenpairs([0.0, 30.0])
        scaled, weight = other.eigenpairs([0.0, 30.0])
        assert scaled == pytest.approx(scale * value, rel=1e-10)
        assert weight == pytest.approx(overlap, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_decompose_refuses_what_is_not_finite(bad):
    matrix = np.asfortranarray(np.eye(4))
    matrix[2, 1] = bad
    with pytest.raises(ArithmeticError, match="size 4 holds NaN or infinity"):
        decompose(matrix, unit(np.ones(4)), np.zeros(4), 1.0)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, [[1.0]]])
def test_a_strength_outside_its_domain_is_named(bad):
    column = Column(np.ones(1), np.ones(1), np.zeros(1), 1.0)
    with pytest.raises(ValueError, match=r"rho = .*finite and not negative; give"):
        column.eigenpairs(bad)


def test_no_strengths_and_top_zero():
    column = Column(np.array([2.0, 1.0]), np.array([0.6, 0.8]), np.zeros(2), 1.0)
    assert column.eigenpairs([], 2)[0].shape == (0, 2)
    assert column.eigenpairs([1.0, 2.0], 0)[1].shape == (2, 0)
