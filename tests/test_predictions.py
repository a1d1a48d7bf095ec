"""What theory predicts for a cube: the closed forms, at the cube's own coordinates."""

import numpy as np
import pytest
import xarray as xr

from eigensweep.analysis import spike
from eigensweep.analysis.laws import ProductLaw
from eigensweep.analysis.predictions import PREDICTIONS, prediction_for

LEVELS = ("population", "sample")


def cube_of(kind="class-centered", ensemble="attention-pooling", **changes):
    coords = {
        "d": ("d", [30, 400]),
        "delta": ("delta", [0.3, 0.5, 2.0]),
        "gamma": ("gamma", [0.25, 1.0]),
        "T": ("T", [16]),
        "pooling": ("pooling", ["mean", "optimal"]),
        "delta_realised": (("d", "delta"), [[0.3, 0.5, 1.875], [400 / 1334, 0.5, 2.0]]),
        "gamma_realised": (("d", "gamma"), [[0.25, 1.0], [0.25, 1.0]]),
        "alpha": (("T", "pooling"), [[1.75 / 16, 4.0]]),
        "kappa": (("T", "pooling"), [[1 / 16, 1.0]]),
        "weight_sum": (("T", "pooling"), [[1.0, 2.0]]),
    }
    model = {"ensemble": ensemble, "table": kind}
    return xr.Dataset(coords={**coords, **changes}, attrs={"sweeps": [{"sweep": {"model": model}}]})


def points(cube):
    """Every point with its realised ratios, gain and sum of weights."""
    for d in cube.d.values:
        for delta in cube.delta.values:
            for gamma in cube.gamma.values:
                for pooling in cube.pooling.values:
                    where = {"d": d, "delta": delta, "gamma": gamma, "T": 16, "pooling": pooling}
                    here = cube.sel(where)
                    gain = here.alpha.item() / here.kappa.item()
                    yield where, here.delta_realised.item(), here.gamma_realised.item(), gain, here


def at(array, where):
    return array.sel({name: value for name, value in where.items() if name in array.dims})


@pytest.mark.parametrize("table", spike.TABLES)
def test_every_point_holds_the_closed_forms_at_its_realised_ratios(table):
    cube = cube_of(table)
    theory = prediction_for(cube)
    rho = np.array([0.0, 1.0, 2.5, 7.0])
    for where, delta, gamma, gain, _ in points(cube):
        for level, ratio in (("population", 0.0), ("sample", gamma)):
            look = {"table": table, "gain": gain}
            assert at(theory.threshold(level), where).item() == spike.sample_threshold(delta, ratio, **look)
            for ours, theirs in (
                (theory.outlier(level, rho), spike.sample_outlier),
                (theory.overlap(level, rho), spike.sample_overlap),
            ):
                np.testing.assert_allclose(
                    at(ours, where).values, theirs(rho, delta, ratio, **look), rtol=1e-14
                )
            law = ProductLaw(delta, ratio)
            low, high = theory.edges(level)
            assert (at(low, where).item(), at(high, where).item()) == law.support
            quantile = at(theory.top_quantile(level, 0.95), where).item()
            assert quantile == law.top_quantile(0.95, where["d"])


def test_a_raw_table_alone_has_a_second_outlier_where_it_leaves_the_bulk():
    cube = cube_of("raw")
    second = prediction_for(cube).second_outlier("sample")
    seen = set()
    for where, delta, gamma, _, here in points(cube):
        strength = delta * here.weight_sum.item() ** 2 / here.kappa.item()
        found = at(second, where).item()
        outside = strength > spike.sample_threshold(delta, gamma)
        seen.add(bool(outside))
        if outside:
            assert found == pytest.approx(spike.sample_outlier(strength, delta, gamma), rel=1e-14)
        else:
            assert np.isnan(found)
    assert seen == {True, False}
    for table in ("centered", "class-centered"):
        assert np.isnan(prediction_for(cube_of(table)).second_outlier("sample")).all()


def test_a_table_axis_gives_each_kind_its_own_theory():
    kinds = ["class-centered", "raw"]
    both = prediction_for(cube_of(kinds, table=("table", kinds)))
    overlap = both.overlap("sample", [1.0, 4.0])
    assert set(overlap.dims) == {"table", "rho", "d", "delta", "gamma", "T", "pooling"}
    for kind in kinds:
        alone = prediction_for(cube_of(kind)).overlap("sample", [1.0, 4.0])
        one, other = xr.broadcast(overlap.sel(table=kind, drop=True), alone)
        np.testing.assert_array_equal(one.transpose(*other.dims), other)
    assert both.formula("sample") == ""


def test_rho_over_its_own_dimensions_is_broadcast_as_a_mu2_study_needs_it():
    cube = cube_of()
    gain = cube.alpha / cube.kappa
    rho = gain * xr.DataArray([0.5, 1.0], {"mu2": [0.5, 1.0]}, ("mu2",))
    found = prediction_for(cube).outlier("sample", rho)
    point = {"d": 400, "delta": 0.5, "gamma": 0.25, "T": 16, "pooling": "optimal", "mu2": 1.0}
    assert found.sel(point).item() == spike.sample_outlier(4.0, 0.5, 0.25)


def test_other_parameters_and_the_law_of_one_point():
    theory = prediction_for(cube_of())
    fine = theory.at(delta=[0.1, 0.7], gamma=0.25)
    np.testing.assert_array_equal(fine.threshold("sample").values, spike.sample_threshold([0.1, 0.7], 0.25))
    assert theory.at(delta=0.5, gamma=0.25).law("sample") == ProductLaw(0.5, 0.25)
    assert theory.at(delta=0.5).law("population") == ProductLaw(0.5, 0.0)
    with pytest.raises(ValueError, match="delta has 6 values"):
        theory.law("sample")
    with pytest.raises(ValueError, match="no such level"):
        theory.threshold("sampel")


def test_what_is_not_registered_has_no_prediction_and_a_combination_without_gain_none_of_its_own():
    assert prediction_for(cube_of(ensemble="toy")) is None
    assert prediction_for(xr.Dataset()) is None
    assert set(PREDICTIONS) == {"attention-pooling"}
    undefined = cube_of("raw", alpha=(("T", "pooling"), [[np.nan, 4.0]]))
    threshold = prediction_for(undefined).threshold("sample")
    assert np.isnan(threshold.sel(pooling="mean")).all()
    assert np.isfinite(threshold.sel(pooling="optimal")).all()


def test_every_result_is_documented_and_the_formula_follows_the_table():
    theory = prediction_for(cube_of())
    for found in (theory.threshold("sample"), theory.outlier("population", 1.0), *theory.edges("sample")):
        assert {"long_name", "units", "source"} <= set(found.attrs)
    assert theory.formula("population") == r"$\delta + \sqrt{\delta}$"
    assert theory.formula("sample") == r"$\delta + w_{+}$"
    assert theory.at(table="raw").formula("sample").endswith(r"- \delta\alpha/\kappa$")
