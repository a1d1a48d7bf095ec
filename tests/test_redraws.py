"""Redraws of the signal direction: their distribution, their identity, and cube_at with them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from eigensweep.pipeline import InputError, Sweep, cube_at, open_cube, run
from eigensweep.pipeline.rankone import Column
from eigensweep.pipeline.redraws import directions

SWEEP = {
    "name": "redraws",
    "seed": 5,
    "grid": {
        "d": [30, 44],
        "delta": [0.5, 2.0],
        "gamma": [0.25, 2.0],
        "T": 8,
        "pooling": ["mean"],
        "rho": [0.5, 2.0, 4.0],
        "replicates": 6,
    },
    "model": {"ensemble": "attention-pooling", "correlation": {"kind": "prefix", "length": 4}},
    "record": {"levels": ["population", "sample"], "top": 2},
}


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    folder = tmp_path_factory.mktemp("redraws") / "study"
    run(Sweep.from_dict(SWEEP), folder)
    return open_cube(folder)


def test_directions_are_uniform_on_the_sphere():
    drawn = np.concatenate([directions(3, "sample", 12, r, 8) for r in range(500)])
    np.testing.assert_allclose((drawn**2).sum(axis=1), 1.0, atol=1e-14)
    for mode in (0, 11):
        # Squared components of a uniform unit vector follow Beta(1/2, (d-1)/2).
        p = stats.kstest(drawn[:, mode] ** 2, stats.beta(0.5, 5.5).cdf).pvalue
        assert p > 1e-3
        assert abs((drawn[:, mode] > 0).mean() - 0.5) < 0.03


def test_directions_follow_from_identity_alone():
    first = directions(3, "sample", 20, 4, 8)
    np.testing.assert_array_equal(first, directions(3, "sample", 20, 4, 8))
    np.testing.assert_array_equal(first[:3], directions(3, "sample", 20, 4, 3))
    for other in (
        directions(4, "sample", 20, 4, 8),
        directions(3, "population", 20, 4, 8),
        directions(3, "sample", 20, 5, 8),
    ):
        assert np.abs(first - other).max() > 0.1


def test_cube_at_averages_over_u_and_its_redraws(cube):
    rho = np.array([0.7, 1.9, 3.3])
    found = cube_at(cube, rho, redraws=3)
    for level, prefix, axes in (
        ("sample", "", ("delta", "gamma")),
        ("population", "population_", ("delta",)),
    ):
        for d in (30, 44):
            point = {"d": d, "replicate": 2} | dict.fromkeys(axes, 2.0)
            held = cube.sel(point).isel(T=0, pooling=0)
            modes = [held[f"{prefix}mode_{role}"].values[:d] for role in ("value", "signal", "noise")]
            column = Column(*modes, float(held[f"{prefix}signal_amplitude"]))
            each = [column, *(replace(column, signal=u) for u in directions(5, level, d, 2, 3))]
            values, overlaps = zip(*(c.eigenpairs(rho, 2) for c in each), strict=True)
            got = found.sel(point).isel(T=0, pooling=0)
            np.testing.assert_allclose(got[f"{prefix}eigenvalue"], np.mean(values, axis=0), rtol=1e-13)
            np.testing.assert_allclose(got[f"{prefix}overlap"], np.mean(overlaps, axis=0), atol=1e-14)


def test_cube_at_without_redraws_is_the_sampled_direction(cube):
    found = cube_at(cube, [0.5, 2.0, 4.0])
    np.testing.assert_allclose(found.overlap, cube.overlap, atol=1e-12)
    some = cube_at(cube, [2.0], redraws=2).overlap
    assert float(abs(some - found.overlap.sel(rho=[2.0])).max()) > 0.01


def test_a_redraw_does_not_depend_on_what_is_selected_beside_it(cube):
    whole = cube_at(cube, [2.0], redraws=2)
    part = cube_at(cube.isel(d=[1], gamma=0, replicate=[3, 5]), [2.0], redraws=2)
    expected = whole.isel(d=[1], gamma=0, replicate=[3, 5])
    np.testing.assert_array_equal(part.overlap, expected.overlap)
    np.testing.assert_array_equal(part.population_overlap, expected.population_overlap)


def test_redraws_are_lazy_on_a_chunked_cube(cube):
    lazy = cube_at(cube.chunk({"replicate": 2, "delta": 1}), [1.0, 2.0], redraws=2)
    assert lazy.overlap.chunks is not None
    np.testing.assert_array_equal(lazy.overlap.values, cube_at(cube, [1.0, 2.0], redraws=2).overlap)


def test_redraws_sharpen_the_mean_overlap():
    rng = np.random.default_rng(0)
    plain, averaged = [], []
    for r in range(60):
        matrix = rng.standard_normal((60, 60))
        value = np.linalg.eigvalsh((matrix + matrix.T) / np.sqrt(120.0))[::-1].copy()
        column = Column(value, directions(9, "u", 60, r, 1)[0], np.zeros(60), 1.0)
        each = [column, *(replace(column, signal=u) for u in directions(9, "v", 60, r, 8))]
        overlaps = [float(c.eigenpairs([1.5], 1)[1][0, 0]) for c in each]
        plain.append(overlaps[0])
        averaged.append(np.mean(overlaps))
    assert np.var(averaged) < 0.7 * np.var(plain)


def test_redraws_of_a_cube_that_lost_its_identity_are_refused(cube):
    for lost in (cube.drop_vars("replicate"), cube.drop_attrs()):
        with pytest.raises(InputError, match="redraws need the study's seed"):
            cube_at(lost, [1.0], redraws=2)
        assert cube_at(lost, [1.0]).overlap.notnull().all()
