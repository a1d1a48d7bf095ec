"""Signs have the correlation that was asked for, and what can't be made is refused."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.signs import Copula, Equicorrelated, Markov, Prefix, PrefixFraction, parse_signs

RANDOM = settings(deadline=None, derandomize=True, max_examples=60)
CHAIN = np.array([[1.0, 0.6, 0.2], [0.6, 1.0, -0.1], [0.2, -0.1, 1.0]])
FILES = {"R.npy": CHAIN}


def rng(key=0):
    return np.random.Generator(np.random.PCG64(key))


@pytest.mark.parametrize(
    ("table", "term"),
    [
        ({"kind": "prefix", "length": 8}, "prefix(8)"),
        ({"kind": "prefix", "fraction": 0.5}, "prefix-fraction(0.5)"),
        ({"kind": "prefix", "fraction": 1}, "prefix-fraction(1.0)"),
        ({"kind": "equicorrelated", "correlation": 0.1 + 0.2}, "equicorrelated(0.3)"),
        ({"kind": "markov", "correlation": -0.5}, "markov(-0.5)"),
        ({"kind": "markov", "correlation": -0.0}, "markov(0.0)"),
        ({"kind": "file", "path": "R.npy"}, "file(R.npy)"),
    ],
)
def test_a_table_and_its_canonical_term_are_the_same(table, term):
    signs = parse_signs(table, FILES)
    assert signs.name == term
    assert parse_signs(term, FILES) == signs
    assert pickle.loads(pickle.dumps(signs)) == signs


@RANDOM
@given(st.floats(-1, 1), st.sampled_from(["markov", "equicorrelated"]))
def test_names_read_back(correlation, kind):
    signs = parse_signs({"kind": kind, "correlation": correlation}, {})
    assert parse_signs(signs.name, {}) == signs
    assert signs.coefficient == pytest.approx(correlation, rel=1e-11, abs=0)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"kind": "prefx", "length": 8}, "did you mean 'prefix'?"),
        ({"kind": "prefix", "lenght": 8}, "did you mean 'length'?"),
        ({"kind": "prefix"}, "length or fraction"),
        ({"kind": "prefix", "length": 8, "fraction": 0.5}, "exactly one"),
        ({"length": 8}, "no kind"),
        ({"kind": 3}, "no kind"),
        ({"kind": "prefix", "length": 0}, "below 1"),
        ({"kind": "prefix", "length": True}, "not a whole number"),
        ({"kind": "prefix", "length": 8.0}, "not a whole number"),
        ({"kind": "prefix", "fraction": 0.0}, "(0, 1]"),
        ({"kind": "prefix", "fraction": 1.5}, "(0, 1]"),
        ({"kind": "prefix", "fraction": float("nan")}, "finite"),
        ({"kind": "markov", "correlation": 1.1}, "[-1, 1]"),
        ({"kind": "markov", "correlation": [0.1]}, "finite"),
        ({"kind": "equicorrelated", "correlation": -1.5}, "[-1, 1]"),
        ({"kind": "file", "path": "S.npy"}, "'S.npy'"),
        ({"kind": "file", "path": 3}, "file 3"),
        ("prefix", "prefix(...)"),
        ("markof(0.3)", "did you mean 'markov'?"),
        ("prefix(8", "did you mean 'prefix'?"),
        ("markov(inf)", "finite"),
        (8, "not a text"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_do(spec, text):
    with pytest.raises(ValueError) as caught:
        parse_signs(spec, FILES)
    assert text in str(caught.value)
    reason, remedy = str(caught.value).split("; ")
    assert reason
    assert remedy


def test_a_matrix_of_anything_but_real_numbers_is_refused():
    for bad in (np.eye(2) * 1j, np.array([["a"]])):
        with pytest.raises(ValueError, match="not real numbers"):
            parse_signs("file(R.npy)", {"R.npy": bad})


@pytest.mark.parametrize(
    ("signs", "T"),
    [
        (Prefix(3), 6),
        (Prefix(6), 6),
        (PrefixFraction(0.5), 5),
        (Equicorrelated(0.3), 6),
        (Equicorrelated(-0.1), 6),
        (Equicorrelated(1.0), 4),
        (Markov(0.5), 6),
        (Markov(-0.7), 6),
        (parse_signs("file(R.npy)", FILES), 3),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_samples_have_the_correlation(signs, T):
    N = 400_000
    xi = signs.sample(rng(T), N, T)
    assert xi.shape == (N, T)
    assert xi.dtype == np.int8
    assert set(np.unique(xi)) == {-1, 1}
    assert signs.check(T) == []
    R = signs.correlation(T)
    # A sample of 4e5 fair signs has standard error 0.0016; the sum weighted by R is sharper than any
    # one entry, so that a correlation wrong by 3% fails.
    assert np.abs(xi.mean(axis=0)).max() < 5 / np.sqrt(N)
    found = xi.astype(np.float32).T @ xi.astype(np.float32) / N
    off = ~np.eye(T, dtype=bool)
    assert np.abs(found - R)[off].max() < 5 / np.sqrt(N)
    assert np.sum(found[off] * R[off]) / np.sum(R[off] ** 2) == pytest.approx(1, abs=0.025)


def test_independent_signs_are_independent():
    N, T = 400_000, 4
    for signs in (Prefix(1), Markov(0.0), Equicorrelated(0.0)):
        patterns = (signs.sample(rng(3), N, T) > 0) @ (1 << np.arange(T))
        counts = np.bincount(patterns, minlength=16)
        # 15 degrees of freedom: beyond 45 with probability 8e-5.
        assert np.sum((counts - N / 16) ** 2) / (N / 16) < 45


def test_markov_chain_forgets_all_but_its_last_state():
    xi = Markov(0.6).sample(rng(4), 400_000, 3).astype(int)
    same = xi[:, 0] == xi[:, 1]
    for given_the_past in (xi[same], xi[~same]):
        flips = (given_the_past[:, 1] != given_the_past[:, 2]).mean()
        assert flips == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / len(given_the_past)))


@pytest.mark.parametrize("phi", [1.0, -1.0])
def test_deterministic_chains(phi):
    xi = Markov(phi).sample(rng(), 1000, 7)
    assert (xi == xi[:, :1] * (int(phi) ** np.arange(7))).all()
    assert abs(xi[:, 0].mean()) < 0.2


def test_a_matrix_of_full_correlation_makes_signs_that_are_one():
    R = np.array([[1.0, 1, -1, 0.2], [1, 1, -1, 0.2], [-1, -1, 1, -0.2], [0.2, 0.2, -0.2, 1]])
    xi = parse_signs("file(R.npy)", {"R.npy": R}).sample(rng(), 200_000, 4)
    assert (xi[:, 0] == xi[:, 1]).all()
    assert (xi[:, 0] == -xi[:, 2]).all()


@RANDOM
@given(st.integers(1, 12), st.integers(0, 2**32), st.floats(-0.05, 1), st.floats(0.01, 1))
def test_correlations_are_correlation_matrices(T, key, correlation, fraction):
    for signs in (Equicorrelated(correlation), Markov(-correlation), PrefixFraction(fraction)):
        R = signs.correlation(T)
        assert R.shape == (T, T)
        assert (R == R.T).all()
        assert (np.diagonal(R) == 1).all()
        assert signs.check(T) == []
        assert (signs.sample(rng(key), 3, T) == signs.sample(rng(key), 3, T)).all()


def test_fraction_rounds_to_the_nearest_and_shares_the_prefix_stream():
    half = PrefixFraction(0.5)
    assert [half.at(T).length for T in (1, 2, 3, 5, 7, 16)] == [1, 1, 2, 2, 4, 8]
    assert PrefixFraction(0.01).at(16).length == 1
    assert PrefixFraction(0.29).at(100).length == 29
    assert half.realised(16) == Prefix(8).realised(16) == "prefix(8)"
    assert (half.sample(rng(), 50, 16) == Prefix(8).sample(rng(), 50, 16)).all()


def test_a_file_is_known_by_its_content():
    one, renamed = (Copula(name, *_matrix(CHAIN)) for name in ("R.npy", "other.npy"))
    other = Copula("R.npy", *_matrix(CHAIN * 0.5 + np.eye(3) * 0.5))
    assert one.realised(3) == renamed.realised(3) != other.realised(3)
    assert one != other
    assert "R.npy" not in one.realised(3)
    one.matrix[:].setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        one.matrix[0, 0] = 2


def _matrix(R):
    signs = parse_signs("file(x)", {"x": R})
    return signs.matrix, signs.digest


@pytest.mark.parametrize(
    ("R", "text"),
    [
        (np.array([[1.0, 0.2], [0.3, 1.0]]), "not symmetric"),
        (np.array([[1.0, 0.2], [0.2, 0.9]]), "diagonal is not 1"),
        (np.array([[1.0, 1.2], [1.2, 1.0]]), "not in [-1, 1]"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "not in [-1, 1]"),
        (np.eye(3), "3 x 3 where T = 2 needs 2 x 2"),
        (np.ones(2), "not that of a square matrix"),
        (np.ones((2, 3)), "not that of a square matrix"),
        (np.float64(1), "not that of a square matrix"),
        (np.zeros((0, 0)), "not that of a square matrix"),
    ],
)
def test_matrices_that_are_no_correlation_are_refused(R, text):
    [fault] = parse_signs("file(R.npy)", {"R.npy": R}).check(2)
    assert text in fault.reason
    assert fault.thing == "model.correlation"
    assert fault.value == "file(R.npy)"
    assert fault.remedy


def test_what_the_copula_cannot_make_is_refused():
    # Three signs can have pairwise correlation -1/3 (never all equal): sin(-pi/6) = -1/2 is just
    # possible for three Gaussians, and nothing below it.
    assert Equicorrelated(-0.33333).check(3) == []
    assert parse_signs("file(R)", {"R": Equicorrelated(-1 / 3).correlation(3)}).check(3) == []
    for signs in (
        Equicorrelated(-0.35),
        parse_signs("file(R)", {"R": Equicorrelated(-0.35).correlation(3)}),
    ):
        [fault] = signs.check(3)
        assert "the Gaussian copula cannot make it" in fault.reason
    [fault] = Equicorrelated(-0.35).check(3)
    assert "-0.3333 " in fault.remedy
    # This one is positive semidefinite itself; its latent matrix is not.
    R = np.array([[1, 0.7, 0.0], [0.7, 1, 0.7], [0.0, 0.7, 1]])
    assert np.linalg.eigvalsh(R)[0] > 0
    assert "copula" in parse_signs("file(R)", {"R": R}).check(3)[0].reason


def test_a_prefix_longer_than_the_sequence_is_refused():
    [fault] = Prefix(8).check(4)
    assert str(fault).startswith("model.correlation = prefix(8): a prefix of 8 is longer")
    assert Prefix(8).check(8) == []
