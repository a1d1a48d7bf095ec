"""Ridge and spectral classifiers from one decomposition against direct solutions, and their accuracy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.analysis import downstream
from eigensweep.pipeline import counts
from eigensweep.pipeline.accuracy import conditional_accuracy
from eigensweep.pipeline.pooling import parse_pooling, scales
from eigensweep.pipeline.ridge import gaussian_pooled, margin, token_scores, train
from eigensweep.pipeline.signs import parse_signs
from eigensweep.pipeline.table import KINDS, sample_table

SOME = settings(deadline=None, derandomize=True, max_examples=40)
SIZES = [(12, 30, 40), (12, 30, 8), (12, 8, 40), (12, 8, 6), (12, 12, 12), (1, 6, 5)]
RHO = np.array([0.0, 0.7, 3.0])


class Drawn:
    """A table, sequences over it and what is trained on them."""

    def __init__(self, seed, d, V, N, pooling="causal", kind="class-centered", T=6, L=3):
        rng = np.random.default_rng(seed)
        signs = parse_signs(f"prefix({L})", {})
        R = signs.correlation(T)
        self.w, self.L, self.V, self.N = parse_pooling(pooling, {}).weights(T, R), L, V, N
        self.scales = scales(self.w, R)
        self.table = sample_table(rng, d, V)
        self.noise = self.table.noise(kind)
        xi = signs.sample(rng, N, T)
        self.labels, self.b = xi[:, 0].astype(float), xi @ self.w
        tokens = rng.integers(0, V // 2, size=xi.shape) + np.where(xi > 0, 0, V // 2)
        self.pooled = counts.count_matrix(tokens, self.w, V) @ self.noise
        alpha, kappa = self.scales.alpha, self.scales.kappa
        self.training = train(
            self.pooled, self.b, self.labels, self.table.direction, alpha=alpha, kappa=kappa
        )

    def vectors(self, rho):
        """Pooled vectors in units of sqrt(kappa), their covariance and the labels' mean."""
        length = np.sqrt(rho / self.scales.gain)
        C = (self.pooled + np.outer(self.b, length * self.table.direction)) / np.sqrt(self.scales.kappa)
        return C, C.T @ C / self.N, C.T @ self.labels / self.N

    def scores(self, beta):
        return token_scores(beta, self.noise, self.table.direction, np.sqrt(RHO / self.scales.gain))


@pytest.mark.parametrize(("d", "V", "N"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_ridge_solves_the_normal_equations(d, V, N, kind):
    drawn = Drawn(d + V + N, d, V, N, kind=kind)
    lams = [0.0, 1e-9, 1e-3, 0.5, 20.0, np.inf]
    beta = drawn.training.ridge(RHO, lams)
    assert beta.shape == (RHO.size, len(lams), d)
    for i, rho in enumerate(RHO):
        C, S, mean = drawn.vectors(rho)
        scale = np.abs(np.linalg.pinv(C) @ drawn.labels).max()
        least = np.linalg.lstsq(C, drawn.labels, rcond=1e-10)[0]
        assert beta[i, 0] == pytest.approx(least, abs=1e-7 * scale)
        for j, lam in enumerate(lams[1:-1], start=1):
            # The dual form is stable at every ridge where d > N, the primal one elsewhere.
            dual = C.T @ np.linalg.solve(C @ C.T / N + lam * np.eye(N), drawn.labels / N)
            primal = np.linalg.solve(S + lam * np.eye(d), mean)
            assert beta[i, j] == pytest.approx(dual if N < d else primal, abs=1e-6 * scale)
        assert beta[i, -1] == pytest.approx(mean, abs=1e-13)
    # Both ends are limits.
    near = drawn.training.ridge(RHO, [1e-10, 1e10])
    assert near[:, 0] == pytest.approx(beta[:, 0], abs=1e-4 * np.abs(beta[:, 0]).max())
    assert 1e10 * near[:, 1] == pytest.approx(beta[:, -1], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(("d", "V", "N"), SIZES)
def test_spectral_is_the_leading_eigenvector(d, V, N):
    drawn = Drawn(1, d, V, N)
    found = drawn.training.spectral(RHO)
    for i, rho in enumerate(RHO):
        _, S, mean = drawn.vectors(rho)
        value, vector = np.linalg.eigh(S)
        assert np.linalg.norm(found[i]) == pytest.approx(1.0)
        assert abs(found[i] @ vector[:, -1]) == pytest.approx(1.0, abs=1e-9)
        assert found[i] @ mean >= 0
        assert found[i] @ S @ found[i] == pytest.approx(value[-1])


@SOME
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.sampled_from([1e-3, 0.3, np.inf]))
def test_margin_statistics_are_the_quadratic_forms(seed, kind, lam):
    drawn = Drawn(seed, 10, 24, 30, kind=kind)
    beta = drawn.training.ridge(RHO, [lam])
    stats = margin(*drawn.scores(beta))
    W = drawn.table.within.T @ drawn.table.within / drawn.V
    difference, midpoint = drawn.table.residual_means(kind)
    for i, rho in enumerate(RHO):
        one = beta[i, 0]
        mu = np.sqrt(rho / drawn.scales.gain) * drawn.table.direction
        assert stats.signal[i, 0] == pytest.approx((mu + difference) @ one, abs=1e-10)
        assert stats.offset[i, 0] == pytest.approx(midpoint @ one, abs=1e-10)
        assert stats.noise[i, 0] == pytest.approx(one @ W @ one, rel=1e-10)
    theta2 = stats.theta2(drawn.scales.gain)
    assert theta2 == pytest.approx(drawn.scales.gain * stats.signal**2 / stats.noise)
    assert np.all(theta2 >= 0)


def test_accuracy_of_trained_classifiers_meets_the_limit():
    # Tokens, not normal counts. Rescaled to the V - 2 degrees of freedom of W, what finite d = 80 and finite
    # T leave is within 0.003 for poolings over many tokens.
    d, V, N, lam, rho, finite = 80, 160, 160, 0.3, RHO[2:], 0.003
    for pooling in ("mean", "causal"):
        found = []
        for seed in range(60):
            drawn = Drawn(seed, d, V, N, pooling, T=16, L=4)
            beta = drawn.training.ridge(rho, [lam])
            length = np.sqrt(rho / drawn.scales.gain)
            plus, minus = token_scores(beta, drawn.noise, drawn.table.direction, length)
            value, error = conditional_accuracy(plus, minus, drawn.w, 4, tolerance=1e-7)
            assert np.all(error < 1e-6)
            found.append(value[0, 0])
        x, r = V / (V - 2), downstream.label_correlation(drawn.w, 4)
        theta2 = downstream.ridge_theta2(rho * x, d / (V - 2), d / N, lam * x, r)
        limit = downstream.accuracy(theta2, drawn.w, 4)[0]
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        assert abs(np.mean(found) - limit) < 4 * error + finite
        assert abs(np.mean(found) - 1.03 * limit) > 4 * error + finite


def test_gaussian_control_has_the_moments_of_pooled_noise():
    rng = np.random.default_rng(5)
    table = sample_table(rng, 6, 20)
    W = table.within.T @ table.within / 20
    drawn = gaussian_pooled(rng, table.within, 40_000, 0.25)
    covariance = drawn.T @ drawn / 40_000
    error = 0.25 * np.sqrt((W**2 + np.outer(np.diag(W), np.diag(W))) / 40_000)
    assert np.all(np.abs(covariance - 0.25 * W) < 4.5 * error)
    assert np.all(np.abs(drawn.mean(axis=0)) < 4.5 * np.sqrt(0.25 * np.diag(W) / 40_000))


def test_no_pooled_signs_and_no_noise():
    drawn = Drawn(1, 5, 12, 20)
    training = train(drawn.pooled, np.zeros(20), drawn.labels, drawn.table.direction, alpha=1.0, kappa=1.0)
    assert training.amplitude == 0.0
    assert training.ridge([0.0], [1.0])[0] == pytest.approx(training.ridge([2.0], [1.0])[0])
    with pytest.raises(ArithmeticError, match="NaN"):
        train(np.full((4, 3), np.nan), np.ones(4), np.ones(4), np.ones(3), alpha=1.0, kappa=1.0)


@pytest.mark.parametrize("bad", [[-1.0], [np.nan], [[1.0]]])
def test_refusals(bad):
    drawn = Drawn(1, 5, 12, 20)
    for call in (lambda: drawn.training.ridge(bad, [1.0]), lambda: drawn.training.ridge([1.0], bad)):
        with pytest.raises(ValueError, match="give such a one"):
            call()
    with pytest.raises(ValueError, match="rho"):
        drawn.training.spectral([np.inf])
