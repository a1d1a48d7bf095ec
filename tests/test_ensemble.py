"""Attention pooling: its family against dense linear algebra on the tokens, and its seeds."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eigensweep.pipeline import attention_pooling
from eigensweep.pipeline.attention_pooling import configure
from eigensweep.pipeline.ensemble import Ensemble
from eigensweep.pipeline.errors import InputError

RANDOM = settings(deadline=None, derandomize=True, max_examples=70)
PREFIX = {"kind": "prefix", "length": 2}
POINT = {"d": 30, "delta": 0.5, "gamma": 0.4, "T": 4, "pooling": "mean"}
POOLINGS = ("mean", "causal", "optimal", "last", "prefix(2)", "exponential(0.5)", "causal-inclusive(1.0)")
STRENGTHS = (0.0, 1e-12, 1e-3, 0.7, 3.0, 50.0, 1e6, 1e12)


def clear():
    attention_pooling._draw_table.cache_clear()
    attention_pooling._draw_sequences.cache_clear()


def signs_correlation(correlation, T):
    """R, entry by entry."""
    R = np.eye(T)
    for t in range(T):
        for s in range(t):
            if correlation["kind"] == "prefix":
                R[t, s] = R[s, t] = float(t < correlation["length"])
            elif correlation["kind"] == "equicorrelated":
                R[t, s] = R[s, t] = correlation["correlation"]
            else:
                R[t, s] = R[s, t] = correlation["correlation"] ** (t - s)
    return R


def sample_matrix(parts):
    """S and kappa from the table and the tokens, position by position."""
    E, tokens, w = parts["E"], parts["tokens"], parts["w"]
    C = np.zeros((tokens.shape[0], E.shape[0]))
    for t in range(w.size):
        C += w[t] * E[:, tokens[:, t]].T
    return C.T @ C / C.shape[0], float(w @ w)


def population_matrix(parts, R):
    """E[c c'] given the table: tokens are independent given the signs, whose second moments are R."""
    E, w = parts["E"], parts["w"]
    half = E.shape[1] // 2
    plus, minus = E[:, :half].mean(axis=1), E[:, half:].mean(axis=1)
    signal, middle = (plus - minus) / 2, (plus + minus) / 2
    same = (w @ w) * E @ E.T / E.shape[1]
    crossed = w @ R @ w - w @ w
    others = w.sum() ** 2 - w @ w
    return same + crossed * np.outer(signal, signal) + others * np.outer(middle, middle), float(w @ w)


@st.composite
def cases(draw):
    T = draw(st.integers(1, 7))
    correlation = draw(
        st.sampled_from(
            [
                {"kind": "prefix", "length": min(T, 3)},
                {"kind": "equicorrelated", "correlation": 0.3},
                {"kind": "markov", "correlation": 0.6},
                {"kind": "markov", "correlation": -0.4},
            ]
        )
    )
    table = draw(st.sampled_from(["class-centered", "centered", "raw"]))
    point = {
        "d": draw(st.integers(2, 40)),
        "delta": draw(st.sampled_from([0.1, 0.35, 0.5, 1.0, 1.7, 4.0])),
        "gamma": draw(st.sampled_from([0.1, 0.25, 1.0, 2.5, 6.0])),
        "T": T,
        "pooling": draw(st.sampled_from(POOLINGS)),
    }
    ensemble = configure({"table": table, "correlation": correlation}, {})
    assume(not ensemble.check(point))
    return ensemble, point, signs_correlation(correlation, T), draw(st.integers(0, 2**40))


@pytest.mark.parametrize("level", ["sample", "population"])
@RANDOM
@given(cases(), st.lists(st.sampled_from(STRENGTHS), min_size=1, max_size=3, unique=True), st.integers(0, 5))
def test_the_family_is_the_dense_matrix(level, case, strengths, replicate):
    ensemble, point, R, seed = case
    column = ensemble.column(level, point, seed, replicate)
    value, overlap = column.eigenpairs(strengths)
    mu = ensemble.explain({**point, "rho": 1.0}, seed, replicate)["mu"]
    u = mu / np.linalg.norm(mu)
    for i, rho in enumerate(strengths):
        parts = ensemble.explain({**point, "rho": rho}, seed, replicate)
        alpha, kappa = parts["w"] @ R @ parts["w"], parts["w"] @ parts["w"]
        assert alpha * np.sum(parts["mu"] ** 2) / kappa == pytest.approx(rho, rel=1e-12)
        S, kappa = sample_matrix(parts) if level == "sample" else population_matrix(parts, R)
        expected, vectors = np.linalg.eigh(S / kappa)
        expected, weight = expected[::-1], ((vectors.T @ u) ** 2)[::-1]
        norm = expected[0]
        assert np.max(np.abs(value[i] - expected)) <= 1e-10 * norm
        assert np.all(np.diff(value[i]) <= 0)
        starts = np.flatnonzero(np.concatenate([[True], expected[:-1] - expected[1:] > 1e-8 * norm]))
        summed, reference = np.add.reduceat(overlap[i], starts), np.add.reduceat(weight, starts)
        assert np.max(np.abs(summed - reference)) <= 1e-10
        assert np.all(value[i] >= column.value - 1e-13 * norm)
        assert np.all(value[i, 1:] <= column.value[:-1] + 1e-13 * norm)


@pytest.mark.parametrize("level", ["sample", "population"])
@pytest.mark.parametrize("table", ["class-centered", "centered", "raw"])
@pytest.mark.parametrize(("delta", "gamma"), [(0.5, 0.25), (2.0, 0.5), (0.5, 3.0), (2.0, 3.0), (1.0, 1.0)])
def test_the_family_at_a_size_that_blocks_and_branches(level, table, delta, gamma):
    correlation = {"kind": "prefix", "length": 4}
    ensemble = configure({"table": table, "correlation": correlation}, {})
    for pooling in ("causal", "optimal"):
        point = {"d": 90, "delta": delta, "gamma": gamma, "T": 8, "pooling": pooling}
        column = ensemble.column(level, point, 3, 1)
        for rho in (0.0, 2.5):
            parts = ensemble.explain({**point, "rho": rho}, 3, 1)
            R = signs_correlation(correlation, 8)
            S, kappa = sample_matrix(parts) if level == "sample" else population_matrix(parts, R)
            expected = np.linalg.eigvalsh(S / kappa)[::-1]
            (value,), _ = column.eigenpairs([rho])
            assert np.max(np.abs(value - expected)) <= 1e-12 * expected[0]
        # The null space is one, whichever solver counts it: what the matrix has not, the column has not.
        rank = min(90, parts["E"].shape[1] - 2 * (table == "class-centered") - (table == "centered"))
        if level == "sample":
            rank = min(rank, parts["tokens"].shape[0])
        assert np.count_nonzero(column.value == 0.0) >= 90 - rank


@pytest.mark.parametrize("table", ["class-centered", "centered", "raw"])
@pytest.mark.parametrize("pooling", ["mean", "causal", "optimal"])
def test_the_sample_covariance_tends_to_the_population_one(table, pooling):
    # N = 2 10^5 sequences of dimension 4: what the population level claims, from the sample level alone.
    ensemble = configure({"table": table, "correlation": PREFIX}, {})
    point = {"d": 4, "delta": 0.5, "gamma": 2e-5, "T": 4, "pooling": pooling}
    S, kappa = sample_matrix(ensemble.explain({**point, "rho": 3.0}, 5, 0))
    Sigma = population_matrix(ensemble.explain({**point, "rho": 3.0}, 5, 0), signs_correlation(PREFIX, 4))[0]
    scale = np.linalg.norm(Sigma, 2)
    assert np.linalg.norm(S - Sigma, 2) < 5 * np.sqrt(4 / 2e5) * scale
    value = ensemble.column("population", point, 5, 0).eigenpairs([3.0])[0][0]
    assert value == pytest.approx(np.linalg.eigvalsh(Sigma / kappa)[::-1], rel=1e-12)


def test_explain_is_consistent():
    ensemble = configure({"table": "raw", "correlation": PREFIX}, {})
    parts = ensemble.explain({**POINT, "rho": 2.0}, 7, 4)
    N, V = 75, 60
    assert {key: value.shape for key, value in parts.items()} == {
        "E": (30, V),
        "tokens": (N, 4),
        "signs": (N, 4),
        "w": (4,),
        "C": (N, 30),
        "S": (30, 30),
        "mu": (30,),
    }
    S, _ = sample_matrix(parts)
    assert parts["S"] == pytest.approx(S, rel=1e-12, abs=1e-13)
    assert np.all(np.isin(parts["signs"], (-1, 1)))
    assert np.array_equal(parts["signs"] > 0, parts["tokens"] < V // 2)
    assert np.array_equal(parts["signs"][:, 0], parts["signs"][:, 1])
    assert parts["tokens"].min() >= 0
    assert parts["tokens"].max() < V


def test_tokens_are_uniform_within_their_class():
    ensemble = configure({"correlation": PREFIX}, {})
    point = {"d": 10, "delta": 0.5, "gamma": 1e-3, "T": 4, "pooling": "mean", "rho": 1.0}
    tokens = ensemble.explain(point, 0, 0)["tokens"]
    counts = np.bincount(tokens.ravel(), minlength=20)
    mean = tokens.size / 20
    # Each class's share follows the signs, so each half is compared with its own mean.
    for half in (counts[:10], counts[10:]):
        assert np.sum((half - half.mean()) ** 2 / mean) < 9 + 5 * np.sqrt(18)


@pytest.mark.parametrize("level", ["sample", "population"])
def test_a_column_alone_is_the_column_in_company(level):
    ensemble = configure({"table": ["class-centered", "raw"], "correlation": PREFIX}, {})
    points = [
        {"d": 40, "delta": 0.5, "gamma": gamma, "table": table, "T": 8, "pooling": pooling}
        for table in ("class-centered", "raw")
        for gamma in (0.2, 1.5)
        for pooling in POOLINGS
    ]
    alone = {}
    for i, point in enumerate(points):
        for replicate in (0, 1):
            clear()
            alone[i, replicate] = ensemble.column(level, point, 9, replicate)
    clear()
    order = np.random.default_rng(0).permutation(2 * len(points))
    for place in order:
        i, replicate = divmod(int(place), 2)
        column, before = ensemble.column(level, points[i], 9, replicate), alone[i, replicate]
        for name in ("value", "signal", "noise"):
            assert getattr(column, name).tobytes() == getattr(before, name).tobytes()
        assert column.amplitude == before.amplitude


def test_what_each_stream_depends_on():
    ensemble = configure({"table": ["class-centered", "raw"], "correlation": PREFIX}, {})
    base = {**POINT, "table": "raw", "rho": 1.0}

    def parts(seed=1, replicate=0, **changes):
        return ensemble.explain({**base, **changes}, seed, replicate)

    def same(one, other, name):
        return one[name].shape == other[name].shape and np.array_equal(one[name], other[name])

    first = parts()
    for changes in ({"pooling": "causal"}, {"table": "class-centered"}, {"rho": 4.0}):
        assert same(first, parts(**changes), "tokens")
        assert same(first, parts(**changes), "signs")
    # The table does not know the sequences.
    for changes in ({"gamma": 0.5}, {"T": 5}):
        mu = parts(**changes)["mu"]
        assert mu / np.linalg.norm(mu) == pytest.approx(first["mu"] / np.linalg.norm(first["mu"]))
    assert same(first, parts(gamma=0.5), "E")
    for changes in ({"seed": 2}, {"replicate": 1}, {"delta": 0.5000001}):
        other = parts(**changes)
        assert not same(first, other, "E")
        assert not same(first, other, "tokens")
    # gamma and T enter the sequences' stream, not only their number.
    few = parts(gamma=0.41)["tokens"]
    assert not np.array_equal(few, first["tokens"][: few.shape[0]])


def test_a_fraction_and_the_length_that_it_rounds_to_share_their_sequences():
    by_length = configure({"correlation": PREFIX}, {})
    by_fraction = configure({"correlation": {"kind": "prefix", "fraction": 0.5}}, {})
    one, other = (e.explain({**POINT, "rho": 1.0}, 1, 0) for e in (by_length, by_fraction))
    assert np.array_equal(one["tokens"], other["tokens"])


def test_two_and_two_point_zero_share_a_column():
    ensemble = configure({"correlation": PREFIX}, {})
    gamma = 2 * 0.1 + 0.2
    clear()
    one = ensemble.column("sample", POINT, 1, 0)
    clear()
    axes = {axis.name: axis for axis in ensemble.axes}
    point = {name: axes[name].parse(value) for name, value in {**POINT, "d": 30.0, "gamma": gamma}.items()}
    other = ensemble.column("sample", point, 1, 0)
    assert one.value.tobytes() == other.value.tobytes()


def test_population_does_not_read_gamma():
    ensemble = configure({"correlation": PREFIX}, {})
    point = {key: value for key, value in POINT.items() if key != "gamma"}
    one, other = ensemble.column("population", point, 1, 0), ensemble.column("population", POINT, 1, 0)
    assert one.value.tobytes() == other.value.tobytes()
    assert ensemble.levels[1].axes == ("d", "delta", "T", "pooling")


def test_large_tables_are_not_kept(monkeypatch):
    ensemble = configure({"correlation": PREFIX}, {})
    clear()
    kept = ensemble.column("sample", POINT, 1, 0)
    assert attention_pooling._draw_table.cache_info().currsize == 1
    clear()
    monkeypatch.setattr(attention_pooling, "SHARED_BYTES", 0)
    fresh = ensemble.column("sample", POINT, 1, 0)
    assert attention_pooling._draw_table.cache_info().currsize == 0
    assert attention_pooling._draw_sequences.cache_info().currsize == 0
    assert kept.value.tobytes() == fresh.value.tobytes()


def test_the_ensemble_is_a_picklable_ensemble():
    weights = np.array([1.0, -0.5, 0.25, 0.1])
    ensemble = configure({"correlation": PREFIX}, {"w.npy": weights})
    assert isinstance(ensemble, Ensemble)
    again = pickle.loads(pickle.dumps(ensemble))
    assert again == ensemble
    assert again.options() == ensemble.options()
    point = {**POINT, "pooling": "file(w.npy)"}
    one, other = (e.column("sample", point, 1, 0) for e in (ensemble, again))
    assert one.value.tobytes() == other.value.tobytes()
    assert ensemble.explain({**point, "rho": 1.0}, 1, 0)["w"] == pytest.approx(weights)


def test_axes_and_levels_follow_the_options():
    plain = configure({"correlation": PREFIX}, {})
    assert [axis.name for axis in plain.axes] == ["d", "delta", "gamma", "T", "pooling"]
    assert plain.gain_axes == ("T", "pooling")
    both = configure({"table": ["raw"], "correlation": [PREFIX, {"kind": "markov", "correlation": 0.5}]}, {})
    names = ["d", "delta", "gamma", "table", "correlation", "T", "pooling"]
    assert [axis.name for axis in both.axes] == names
    assert both.gain_axes == ("correlation", "T", "pooling")
    assert both.options() == {"ensemble": "attention-pooling"}
    assert both.correlations == ("prefix(2)", "markov(0.5)")
    for level in both.levels:
        assert list(level.axes) == [n for n in names if n != "gamma" or level.name == "sample"]


def test_derived_coordinates():
    ensemble = configure({"correlation": {"kind": "prefix", "length": 4}}, {})
    point = {"d": 101, "delta": 0.3, "gamma": 0.7, "T": 16, "pooling": "mean"}
    found = {item.name: item.compute({dim: point[dim] for dim in item.dims}) for item in ensemble.derived}
    assert found["V"] == 336
    assert found["N"] == 144
    assert found["delta_realised"] == 101 / 336
    assert found["gamma_realised"] == 101 / 144
    # Of the pairs of 16 positions 4 of 16^2 on the diagonal and 12 within the prefix carry signal.
    assert found["kappa"] == pytest.approx(1 / 16)
    assert found["alpha"] == pytest.approx(28 / 256)
    assert found["weight_sum"] == pytest.approx(1.0)
    assert ensemble.gain(point) == pytest.approx(1.75)
    assert ensemble.gain({**point, "pooling": "causal"}) == pytest.approx(3.1745, abs=5e-5)
    assert ensemble.gain({**point, "pooling": "optimal"}) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("changes", "thing", "words"),
    [
        ({"d": 2, "delta": 3.0}, "grid.delta", "V = 2 round"),
        ({"d": 3, "gamma": 4.0}, "grid.gamma", "N = round"),
        ({"pooling": "prefix(5)"}, "grid.pooling", "longer than the sequence"),
        ({"pooling": "causal", "T": 1}, "grid.pooling", "kappa = 0"),
    ],
)
def test_points_that_can_not_be_sampled(changes, thing, words):
    ensemble = configure({"correlation": {"kind": "prefix", "length": 1}}, {})
    faults = ensemble.check({**POINT, **changes})
    assert any(fault.thing == thing and words in fault.reason and fault.remedy for fault in faults)
    assert ensemble.check(POINT) == []


def test_faults_of_the_options_come_all_at_once():
    with pytest.raises(InputError) as caught:
        configure({"tabel": "raw", "table": ["row", "centred"], "correlation": []}, {})
    things = [fault.thing for fault in caught.value.faults]
    assert things == ["model.tabel", "model.table", "model.table", "model.correlation"]
    assert "did you mean 'table'?" in str(caught.value)
    with pytest.raises(InputError, match="it is missing"):
        configure({}, {})


def test_work_grows_with_what_is_asked():
    ensemble = configure({"correlation": PREFIX}, {})
    point = {"d": 200, "delta": 0.5, "gamma": 0.5, "T": 8, "pooling": "mean"}
    for level in ("sample", "population"):
        base = ensemble.work(level, point)
        assert base.seconds > 0
        assert base.bytes > 8 * 200 * 400
        larger = ensemble.work(level, {**point, "d": 400})
        assert larger.seconds > 2 * base.seconds
        assert larger.bytes > 2 * base.bytes
    longer = ensemble.work("sample", {**point, "gamma": 0.05})
    assert longer.seconds > ensemble.work("sample", point).seconds
