"""A study remembers the files of every sweep that it has seen, not of the last one only."""

import numpy as np
import pytest
import xarray as xr

from eigensweep.pipeline import InputError, open_cube, run


@pytest.fixture
def write(tmp_path, small_sweep):
    def write(pooling, replicates=2, weights=(0.5, 0.3, 0.2, 0.1)):
        np.save(tmp_path / "w.npy", np.array(weights))
        return small_sweep(tmp_path, grid={"pooling": pooling, "replicates": replicates})

    return write


def test_growing_without_the_file_keeps_what_is_known_of_it(tmp_path, write):
    run(write(["file(w.npy)"]), tmp_path / "study")
    before = open_cube(tmp_path / "study").load()
    run(write(["mean"], replicates=3), tmp_path / "study")
    after = open_cube(tmp_path / "study").load().sel(pooling=["file(w.npy)"]).isel(replicate=slice(2))
    for name in ("alpha", "kappa", "weight_sum", "mu2", "eigenvalue", "population_overlap"):
        xr.testing.assert_equal(before[name], after[name])
    assert np.isfinite(after.alpha).all()


def test_another_file_of_an_earlier_name_is_refused(tmp_path, write):
    run(write(["file(w.npy)"]), tmp_path / "study")
    run(write(["mean"]), tmp_path / "study")
    with pytest.raises(InputError, match=r"w\.npy"):
        run(write(["file(w.npy)"], weights=(1.0, 0.0, 0.0, 0.0)), tmp_path / "study")
    run(write(["file(w.npy)"], replicates=3), tmp_path / "study")
    assert (open_cube(tmp_path / "study").sel(pooling="file(w.npy)").column_status == 1).all()
