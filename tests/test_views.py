"""What a researcher opens: masked by status, exact at any rho, and never sampled again."""

import shutil

import numpy as np
import pytest

from eigensweep.pipeline import cube_at, open_cube, run, sample_column, spectrum_at
from eigensweep.pipeline.errors import InputError
from eigensweep.pipeline.schema import DONE, FAILED, PENDING
from eigensweep.pipeline.study import load
from eigensweep.pipeline.views import prefixes, resolve_point

LEVELS = ("", "population_")


@pytest.fixture(scope="module")
def sweep(small_sweep):
    return small_sweep(grid={"replicates": 2, "gamma": [1.0, 0.25]}, model={"table": "raw"})


@pytest.fixture(scope="module")
def study(sweep, tmp_path_factory):
    """A complete study, which tests only read."""
    folder = tmp_path_factory.mktemp("views") / "small"
    run(sweep, folder)
    return folder


@pytest.fixture
def copy(study, tmp_path):
    """A copy of the study, to damage."""
    return shutil.copytree(study, tmp_path / "copy")


def points(cube):
    for d in cube.d.values:
        for gamma in cube.gamma.values:
            for pooling in cube.pooling.values:
                for replicate in cube.replicate.values:
                    yield (
                        {
                            "d": int(d),
                            "delta": 0.5,
                            "gamma": float(gamma),
                            "T": 4,
                            "pooling": str(pooling),
                        },
                        int(replicate),
                    )


def test_axes_are_ascending_whatever_the_storage(study):
    cube = open_cube(study)
    assert cube.gamma.values.tolist() == [0.25, 1.0]
    assert cube.pooling.values.tolist() == ["causal", "mean"]
    assert cube.N.sel(d=20).values.tolist() == [80, 20]
    stored = load(study).plan.layout.axes
    assert stored["gamma"] == (1.0, 0.25)
    assert stored["pooling"] == ("mean", "causal")


def test_a_study_and_its_cube_open_alike(study, assert_same_cube):
    assert_same_cube(open_cube(study), open_cube(study / "cube.zarr"))
    assert_same_cube(open_cube(str(study)), open_cube(study))


@pytest.mark.parametrize("chunks", [{}, "auto", {"replicate": 1, "d": 1}])
def test_dask_arrays_hold_the_same(chunks, study, assert_same_cube):
    lazy = open_cube(study, chunks=chunks)
    assert lazy.eigenvalue.chunks is not None
    assert_same_cube(lazy.compute(), open_cube(study))


def test_cube_at_stored_rho_is_what_is_stored_bit_for_bit(study):
    cube = open_cube(study)
    found = cube_at(cube, cube.rho.values)
    assert set(found.data_vars) == {
        f"{prefix}{name}" for prefix in LEVELS for name in ("eigenvalue", "overlap")
    }
    for name, array in found.data_vars.items():
        assert array.dims == cube[name].dims
        assert array.values.tobytes() == cube[name].values.tobytes(), name
        assert array.attrs == cube[name].attrs
    assert found.rho.attrs == cube.rho.attrs
    one = cube_at(cube, 1.0)
    assert one.rho.values.tolist() == [1.0]
    assert one.eigenvalue.values.tobytes() == cube.eigenvalue.sel(rho=[1.0]).values.tobytes()
    assert cube_at(cube, []).sizes["rho"] == 0


def test_top_takes_more_pairs_than_are_stored(study):
    cube = open_cube(study)
    few, many = cube_at(cube, [2.0], top=1), cube_at(cube, [2.0], top=20)
    assert few.sizes["top"] == 1
    assert np.array_equal(few.eigenvalue.values[..., 0], many.eigenvalue.values[..., 0])
    # Beyond d there is nothing.
    assert bool(np.isnan(many.eigenvalue.sel(d=12).isel(top=slice(12, None))).all())
    assert bool(np.isfinite(many.eigenvalue.sel(d=20)).all())
    assert many.overlap.sum("top").values == pytest.approx(1.0, abs=1e-12)


def test_spectrum_at_is_the_dense_spectrum(study, sweep):
    cube = open_cube(study)
    rho = [0.0, 0.7, 5.0]
    found, leading = spectrum_at(cube, rho), cube_at(cube, rho)
    assert found.eigenvalue.dims == ("d", "delta", "gamma", "T", "pooling", "replicate", "rho", "mode")
    for point, replicate in points(cube):
        for strength in rho:
            parts = sample_column(sweep, replicate=replicate, rho=strength, **point)
            dense = np.linalg.eigvalsh(parts["S"] / np.sum(parts["w"] ** 2))[::-1]
            place = {**point, "replicate": replicate, "rho": strength}
            stored = found.eigenvalue.sel(place).values
            assert stored[: point["d"]] == pytest.approx(dense, abs=1e-12 * dense[0])
            assert np.all(np.isnan(stored[point["d"] :]))
            assert leading.eigenvalue.sel(place).values.tobytes() == stored[:3].tobytes()
    assert "gamma" not in found.population_eigenvalue.dims


def test_lazy_views_are_the_eager_ones(study, assert_same_cube):
    eager, lazy = open_cube(study), open_cube(study, chunks={"replicate": 1, "pooling": 1, "mode": 7})
    for view in (cube_at, spectrum_at):
        promised = view(lazy, [0.3, 2.0])
        assert promised.eigenvalue.chunks is not None
        assert_same_cube(promised.compute(), view(eager, [0.3, 2.0]))


def test_views_of_a_part_of_the_cube(study):
    cube = open_cube(study)
    whole, part = cube_at(cube, [0.3]), cube_at(cube.sel(pooling="mean", d=[12]).isel(replicate=1), [0.3])
    expected = whole.eigenvalue.sel(pooling="mean", d=[12]).isel(replicate=1)
    assert part.eigenvalue.values.tobytes() == expected.values.tobytes()


def test_sample_column_is_the_stored_column(study, sweep):
    cube = open_cube(study)
    for point, replicate in points(cube):
        parts = sample_column(sweep, replicate=replicate, rho=3.0, **point)
        value, vector = np.linalg.eigh(parts["S"] / np.sum(parts["w"] ** 2))
        overlap = (vector.T @ parts["mu"]) ** 2 / np.sum(parts["mu"] ** 2)
        cell = cube.sel({**point, "replicate": replicate, "rho": 3.0})
        assert cell.eigenvalue.values == pytest.approx(value[::-1][:3], rel=1e-12)
        assert cell.overlap.values == pytest.approx(overlap[::-1][:3], abs=1e-10)


def test_sample_column_takes_what_the_sweep_leaves_open(sweep):
    parts = sample_column(sweep, d=12, gamma=0.25, pooling="mean")
    explicit = sample_column(sweep, d=12, delta=0.5, gamma=0.25, T=4, pooling="mean", replicate=0, rho=3.0)
    assert all(np.array_equal(parts[name], explicit[name]) for name in explicit)
    # A point need not lie on the grid, and values need not be canonical.
    assert sample_column(sweep, d=14.0, gamma=0.1 + 0.2, pooling="exponential(0.50)")["E"].shape == (14, 28)
    assert resolve_point(sweep, {"d": 14, "gamma": 0.1 + 0.2, "pooling": "mean"})["gamma"] == 0.3


def test_sample_column_of_a_study_over_mu2(small_sweep):
    sweep = small_sweep(grid={"rho": None, "mu2": [1.0, 2.0], "pooling": ["mean"], "d": [12], "gamma": [0.5]})
    assert np.sum(sample_column(sweep)["mu"] ** 2) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"d": 12, "pooling": "mean"},
            "gamma: it is missing and the sweep has several; choose among: 1.0, 0.25",
        ),
        ({"d": 12, "gama": 1.0}, "gama = 1.0: the ensemble has no such axis; did you mean 'gamma'?"),
        ({"d": 12, "gamma": -1.0, "pooling": "mean"}, "gamma = -1.0: an aspect ratio is positive"),
        ({"d": 12, "gamma": 1.0, "pooling": "meen"}, "did you mean 'mean'?"),
        ({"d": 12, "gamma": 1.0, "pooling": "prefix(9)"}, "longer than the sequence"),
    ],
)
def test_a_wrong_parameter_is_named(parameters, words, sweep):
    with pytest.raises(InputError) as caught:
        sample_column(sweep, **parameters)
    assert words in str(caught.value)


@pytest.mark.parametrize("rho", [-0.1, [1.0, np.nan], np.inf, [[1.0]]])
def test_a_wrong_rho_is_named(rho, study, sweep):
    cube = open_cube(study)
    for ask in (lambda: cube_at(cube, rho), lambda: spectrum_at(cube, rho)):
        with pytest.raises(InputError, match=r"^rho = .*finite number of at least 0; give a one-dim"):
            ask()
    if np.ndim(rho) == 0:
        with pytest.raises(InputError, match=r"^rho = "):
            sample_column(sweep, d=12, gamma=0.25, pooling="mean", rho=rho)


def test_a_cube_without_columns_has_no_views(small_sweep, tmp_path):
    grid = {"d": [12], "gamma": [0.5], "pooling": ["mean"], "replicates": 1}
    run(small_sweep(grid=grid, record={"columns": False}), tmp_path / "s")
    cube = open_cube(tmp_path / "s")
    assert prefixes(cube) == []
    for view in (cube_at, spectrum_at):
        with pytest.raises(InputError, match="keeps no spectral columns; set columns = true under"):
            view(cube, [1.0])


def test_one_level_alone(small_sweep, tmp_path):
    grid = {"d": [12], "gamma": [0.5], "pooling": ["mean"], "replicates": 1}
    for level, prefix in (("sample", ""), ("population", "population_")):
        run(small_sweep(grid=grid, record={"levels": [level]}), tmp_path / level)
        cube = open_cube(tmp_path / level)
        assert prefixes(cube) == [prefix]
        assert set(cube_at(cube, [1.0])) == {f"{prefix}eigenvalue", f"{prefix}overlap"}
        assert bool(np.isfinite(cube[f"{prefix}eigenvalue"]).all())


def first_block(study):
    held = load(study)
    block = next(block for block in held.blocks() if block.level == "sample")
    return held, block


def test_cells_are_masked_by_their_status(copy):
    # Whatever lies on disk: here all the data of a column that says it is not done.
    held, block = first_block(copy)
    chunks = held.chunks()
    for status in (PENDING, FAILED):
        arrays = chunks.read(block)
        arrays["column_status"][1] = status
        chunks.write(block, arrays)
        cube = open_cube(copy)
        column = cube.sel(dict(block.point))
        assert column.column_status.values.tolist() == [DONE, status]
        for name in ("eigenvalue", "overlap", "mode_value", "mode_noise", "signal_amplitude", "seconds"):
            assert bool(np.isfinite(column[name].isel(replicate=0, mode=0, missing_dims="ignore")).all()), (
                name
            )
            assert bool(np.isnan(column[name].isel(replicate=1)).all()), name
        assert np.isnan(cube.eigenvalue.values).sum() == 9
        assert np.isnan(cube.eigenvalue.mean("replicate", skipna=True).values).sum() == 0
        found = cube_at(cube, [1.0])
        assert np.isnan(found.eigenvalue.values).sum() == 3
        assert bool(np.isfinite(found.population_eigenvalue).all())


def test_rho_values_that_are_not_counted_are_masked(copy):
    held, block = first_block(copy)
    arrays = held.chunks().read(block)
    arrays["column_rho_count"][0] = 2
    held.chunks().write(block, arrays)
    column = open_cube(copy).sel(dict(block.point)).isel(replicate=0)
    assert np.isfinite(column.eigenvalue.values).all(axis=-1).tolist() == [True, True, False]
    assert bool(np.isfinite(column.mode_value.isel(mode=slice(block.point[0][1]))).all())
    assert [item.block for item in held.pending()] == [block]


def test_a_missing_status_chunk_hides_its_cells(copy):
    held, block = first_block(copy)
    (copy / "cube.zarr" / "column_status" / f"c.{block.key}").unlink()
    cube = open_cube(copy)
    assert np.isnan(cube.sel(dict(block.point)).eigenvalue.values).all()
    assert np.isnan(cube.eigenvalue.values).sum() == 2 * 9
    assert not np.isnan(cube.population_eigenvalue.values).any()
    assert [item.block for item in held.pending()] == [block]


def test_indexing_reads_what_values_hold(study):
    cube = open_cube(study)
    whole = cube.eigenvalue.values
    assert np.array_equal(cube.eigenvalue[1, 0, 1, 0, 1, 1].values, whole[1, 0, 1, 0, 1, 1])
    assert np.array_equal(
        cube.eigenvalue[:, :, ::-1, :, [1, 0], 1, 1:].values, whole[:, :, ::-1, :, [1, 0], 1, 1:]
    )
    assert np.array_equal(cube.eigenvalue.isel(d=[1], rho=[2, 0]).values, whole[[1]][..., [2, 0], :])
    assert cube.eigenvalue.isel(replicate=slice(0, 0)).values.shape == (2, 1, 2, 1, 2, 0, 3, 3)


def test_the_cube_is_not_read_before_it_is_used(study, monkeypatch):
    from eigensweep.pipeline import views

    read = []
    original = views._Stored._read
    monkeypatch.setattr(
        views._Stored, "_read", lambda self, key: read.append(self.array.name) or original(self, key)
    )
    cube = open_cube(study)
    repr(cube)
    assert read == []
    float(cube.eigenvalue[0, 0, 0, 0, 0, 0, 0, 0])
    assert len(read) == 1
