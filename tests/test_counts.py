"""Pooled noise by three routes: one Gram matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline import counts

RANDOM = settings(deadline=None, derandomize=True, max_examples=40)
ROUTES = {"sparse": "SPARSE", "dense": "GEMM", "tokens": "PAIR"}


def pooled(tokens, weights, noise):
    """Pooled noise, position by position."""
    C = np.zeros((tokens.shape[0], noise.shape[1]))
    for t, w in enumerate(weights):
        C += w * noise[tokens[:, t]]
    return C


@st.composite
def pools(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    N, T, V, d = (draw(st.integers(1, 9)) for _ in range(4))
    weights = rng.standard_normal(T) * (rng.random(T) < draw(st.sampled_from([0.5, 1.0])))
    return rng.integers(0, V, (N, T), dtype=np.int32), weights, rng.standard_normal((V, d))


@RANDOM
@given(pools())
def test_the_count_matrix_pools(case):
    tokens, weights, noise = case
    matrix = counts.count_matrix(tokens, weights, noise.shape[0])
    assert matrix.shape == (tokens.shape[0], noise.shape[0])
    assert matrix @ noise == pytest.approx(pooled(tokens, weights, noise), abs=1e-12)
    assert np.sum(matrix.toarray(), axis=1) == pytest.approx(
        np.full(tokens.shape[0], weights.sum()), abs=1e-12
    )
    # A token that comes twice is one entry.
    assert matrix.has_canonical_format
    assert matrix.nnz <= tokens.shape[0] * np.count_nonzero(weights)


@pytest.fixture(params=ROUTES)
def forced(request, monkeypatch):
    """Make one route so cheap that it is taken."""
    for name in ("SPARSE", "GEMM", "SYRK", "PAIR"):
        monkeypatch.setattr(counts, name, 1.0)
    monkeypatch.setattr(counts, "SYRK", 0.0)
    scale = {"sparse": ("SPARSE",), "dense": ("GEMM",), "tokens": ("PAIR", "GEMM")}[request.param]
    for name in scale:
        monkeypatch.setattr(counts, name, 1e-12)
    if request.param == "tokens":
        monkeypatch.setattr(counts, "SYRK", 1.0)
    return request.param


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_every_route_gives_one_gram_matrix(forced, block, monkeypatch):
    monkeypatch.setattr(counts, "BLOCK", block)
    rng = np.random.default_rng(6)
    # More sequences than fit in a block of 64, so that blocks add up.
    for N, T, V, d in ((150, 7, 20, 12), (65, 3, 8, 30), (5, 4, 40, 9)):
        tokens = rng.integers(0, V, (N, T), dtype=np.int32)
        weights, noise = rng.standard_normal(T), rng.standard_normal((V, d))
        assert counts.route(d, V, N, T).name == forced
        G = counts.gram(counts.count_matrix(tokens, weights, V), noise, T)
        C = pooled(tokens, weights, noise)
        assert G.flags.f_contiguous
        assert np.tril(G) == pytest.approx(np.tril(C.T @ C), rel=1e-12, abs=1e-12)


def test_each_route_is_the_cheapest_somewhere():
    # Short sequences over a large vocabulary; a small vocabulary; many more sequences than tokens.
    assert counts.route(400, 50_000, 1600, 4).name == "sparse"
    assert counts.route(400, 40, 1600, 64).name in ("dense", "tokens")
    assert counts.route(400, 800, 400_000, 4).name == "tokens"
    assert counts.route(2000, 200, 400, 300).name == "dense"
    chosen = {
        counts.route(d, V, N, T).name
        for d, V, N, T in np.random.default_rng(0).integers(4, 2000, (500, 4)).tolist()
    }
    assert chosen == {"sparse", "dense", "tokens"}


@RANDOM
@given(*(st.integers(1, 10**5) for _ in range(4)))
def test_a_route_depends_on_its_arguments_alone(d, V, N, T):
    first, second = counts.route(d, V, N, T), counts.route(d, V, N, T)
    assert first == second
    assert first.seconds > 0
    assert first.bytes > 0


def test_positions_of_weight_zero_cost_nothing():
    tokens = np.array([[0, 1, 2], [2, 2, 0]], dtype=np.int32)
    matrix = counts.count_matrix(tokens, np.array([0.0, 2.0, 0.0]), 3)
    assert matrix.nnz == 2
    assert matrix.toarray().tolist() == [[0, 2, 0], [0, 0, 2]]
    assert counts.count_matrix(tokens, np.zeros(3), 3).nnz == 0
