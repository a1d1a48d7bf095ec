"""Thresholds fitted over a whole cube: values, shapes, and what is said where there is none."""

import numpy as np
import pytest
import toy_ensemble

from eigensweep.analysis import estimate as answers
from eigensweep.analysis import spike
from eigensweep.analysis.transitions import fit_transitions
from eigensweep.pipeline import InputError, Sweep, open_cube, run
from eigensweep.pipeline.models import ENSEMBLES
from eigensweep.pipeline.schema import FAILED, PENDING

GRID = {
    "d": [50, 100, 200],
    "delta": [0.5],
    "gamma": [0.25],
    "T": [16],
    "pooling": ["mean"],
    "rho": [0.5, 1.0, 2.0, 4.0],
    "replicates": 24,
}


def study(folder, grid=None, record=None, **model):
    given = {
        "name": "fits",
        "seed": 3,
        "grid": {k: v for k, v in {**GRID, **(grid or {})}.items() if v is not None},
        "model": {
            "ensemble": "attention-pooling",
            "correlation": {"kind": "prefix", "length": 8},
            "table": "class-centered",
            **model,
        },
        "record": {"levels": ["population", "sample"], "top": 3, **(record or {})},
    }
    run(Sweep.from_dict(given), folder)
    return open_cube(folder)


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    return study(tmp_path_factory.mktemp("fits") / "study").load()


@pytest.fixture(scope="module")
def fits(cube):
    return fit_transitions(cube)


def status(fits, level="sample"):
    return str(fits.status.sel(level=level).item())


def test_fits_hold_the_theory_at_both_levels(fits):
    assert fits.threshold.dims == ("level", "delta", "gamma", "T", "pooling")
    assert fits.level.values.tolist() == ["population", "sample"]
    truth = [float(spike.population_threshold(0.5)), float(spike.sample_threshold(0.5, 0.25))]
    np.testing.assert_allclose(fits.theory.values.ravel(), truth, rtol=1e-12)
    assert (fits.status == answers.OK).all()
    assert ((fits.low < fits.theory) & (fits.theory < fits.high)).all()
    error = (fits.high - fits.low) / 4.0
    np.testing.assert_allclose(fits.z, (fits.threshold - fits.theory) / error)
    assert (error < 0.05 * fits.threshold).all()
    # Power: a theory off by 15% is rejected on the same data.
    assert (abs(fits.threshold - 1.15 * fits.theory) > 2.0 * error).all()


def test_fits_do_not_depend_on_what_else_is_fitted(cube, fits):
    alone = fit_transitions(cube, level="sample")
    np.testing.assert_array_equal(alone.threshold.values, fits.threshold.sel(level=["sample"]).values)
    np.testing.assert_array_equal(alone.low.values, fits.low.sel(level=["sample"]).values)


def test_the_crossing_agrees(cube):
    fits = fit_transitions(cube, method="crossing")
    assert (fits.method == "crossing").all()
    assert ((fits.low < fits.theory) & (fits.theory < fits.high)).all()


def test_a_population_fit_is_repeated_along_gamma(tmp_path):
    cube = study(tmp_path / "study", {"d": [30, 60], "gamma": [0.25, 1.0], "replicates": 9})
    fits = fit_transitions(cube)
    population = fits.threshold.sel(level="population").values.ravel()
    assert population[0] == population[1]
    sample = fits.threshold.sel(level="sample").values.ravel()
    assert sample[0] != sample[1]
    # One value of gamma taken out beforehand gives the same fit.
    part = fit_transitions(cube.isel(gamma=1))
    assert part.threshold.dims == ("level", "delta", "T", "pooling")
    np.testing.assert_array_equal(part.threshold.sel(level="sample").values.ravel(), sample[1:])


def test_columns_that_are_not_done_never_enter(cube, fits):
    poisoned = cube.copy(deep=True)
    # A cube that plain xarray opened still holds numbers under a mark: they must not count.
    for replicate, mark in ((3, FAILED), (7, PENDING)):
        place = {"replicate": replicate}
        poisoned["column_status"][place] = mark
        poisoned["mode_value"][place] = 1e3
    found = fit_transitions(poisoned, level="sample")
    kept = [r for r in range(24) if r not in (3, 7)]
    expected = fit_transitions(cube.isel(replicate=kept), level="sample")
    np.testing.assert_array_equal(found.threshold.values, expected.threshold.values)
    assert "2 of 24 columns at d = 200 are pending or failed" in str(found.message.item())
    empty = cube.copy(deep=True)
    empty["column_status"][...] = PENDING
    found = fit_transitions(empty)
    assert status(found) == answers.NO_DATA
    assert status(found, "population") == answers.OK
    np.testing.assert_array_equal(
        found.threshold.sel(level="population").values, fits.threshold.sel(level="population").values
    )


def test_nan_in_a_column_marked_done_does_not_enter(cube):
    broken = cube.copy(deep=True)
    broken["mode_signal"][{"replicate": 5, "mode": 0}] = np.nan
    found = fit_transitions(broken, level="sample")
    expected = fit_transitions(cube.isel(replicate=[r for r in range(24) if r != 5]), level="sample")
    np.testing.assert_array_equal(found.threshold.values, expected.threshold.values)


def test_what_is_missing_is_said(cube):
    one_size = fit_transitions(cube.isel(d=[1]), level="sample")
    assert status(one_size) == answers.TOO_FEW_SIZES
    assert "add a second d under [grid]" in str(one_size.message.item())
    assert np.isnan(one_size.threshold).all()
    assert one_size.theory.notnull().all()
    dropped = fit_transitions(cube.isel(d=1), level="sample")
    assert status(dropped) == answers.TOO_FEW_SIZES
    few = fit_transitions(cube.isel(replicate=[0]), level="sample")
    assert status(few) == answers.TOO_FEW_REPLICATES
    assert "raise replicates under [grid]" in str(few.message.item())


def test_a_level_that_was_not_sampled_is_said(cube):
    names = [n for n in cube.variables if str(n).startswith("population_") or str(n).endswith("_population")]
    fits = fit_transitions(cube.drop_vars(names), level=["sample", "population"])
    assert status(fits) == answers.OK
    assert status(fits, "population") == answers.NOT_SAMPLED
    assert '"population" to levels under [record]' in str(fits.message.sel(level="population").item())


def test_without_columns_the_sweeps_own_rho_serve(tmp_path):
    dense = {"rho": np.linspace(0.4, 3.6, 25), "replicates": 24, "d": [60, 120]}
    cube = study(tmp_path / "dense", dense, {"columns": False, "levels": ["sample"]})
    fits = fit_transitions(cube)
    assert status(fits) in (answers.OK, answers.WIDE)
    assert fits.low.item() < fits.theory.item() < fits.high.item()
    fits = fit_transitions(cube.isel(rho=slice(0, 5)))
    assert status(fits) == answers.NEVER_RISES
    assert "add larger rho under [grid]" in str(fits.message.item())
    assert "columns = true" in str(fits.message.item())
    fits = fit_transitions(cube.isel(rho=slice(-5, None)))
    assert status(fits) == answers.NO_FOOT
    assert "add smaller rho under [grid]" in str(fits.message.item())


def test_a_study_over_mu2_speaks_rho(tmp_path):
    grid = {
        "rho": None,
        "mu2": [0.1, 0.5, 1.0],
        "d": [40, 80],
        "replicates": 12,
        "pooling": ["mean", "causal"],
    }
    cube = study(tmp_path / "study", grid)
    fits = fit_transitions(cube, level="sample")
    assert (fits.status == answers.OK).all()
    assert ((fits.low < fits.theory) & (fits.theory < fits.high)).all()


def test_tables_that_keep_class_means(tmp_path):
    grid = {"delta": [0.1, 0.5], "gamma": [0.5], "d": [60, 120], "replicates": 14}
    cube = study(tmp_path / "study", grid, table=["centered", "raw"])
    fits = fit_transitions(cube)
    above = fits.theory < -0.1
    assert above.any()
    assert (fits.status.where(above, answers.ALWAYS_ABOVE) == answers.ALWAYS_ABOVE).all()
    assert np.isnan(fits.threshold.where(above)).all()
    clear = (fits.theory > 0.2) & (fits.table == "centered")
    assert clear.any()
    held = (fits.low < fits.theory) & (fits.theory < fits.high)
    assert held.where(clear, True).all()


@pytest.fixture
def toy(monkeypatch, tmp_path, toy_sweep):
    monkeypatch.setitem(ENSEMBLES, "toy-wigner", toy_ensemble.configure)
    folder = tmp_path / "toy"
    run(toy_sweep(grid={"n": [24, 48, 96], "beta": [1.0], "replicates": 16}), folder)
    return open_cube(folder)


def test_a_model_without_theory_is_fitted_over_its_own_axes(toy):
    fits = fit_transitions(toy)
    assert fits.threshold.dims == ("level", "beta", "flavour")
    assert np.isnan(fits.theory).all()
    assert np.isnan(fits.z).all()
    assert set(fits.status.values.ravel()) <= set(answers.STATUSES)
    assert np.isfinite(fits.threshold).any()


def test_an_unknown_method_or_level_is_refused_or_said(cube):
    with pytest.raises(InputError, match="did you mean 'crossing'"):
        fit_transitions(cube, method="crosing")
    fits = fit_transitions(cube, level="smaple")
    assert status(fits, "smaple") == answers.NOT_SAMPLED
