"""The cube on disk: laid out whole, documented, and grown on every axis without a bit moving."""

import json
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from conftest import SMALL

from eigensweep.pipeline import Sweep, open_cube, run
from eigensweep.pipeline import cube as cubes
from eigensweep.pipeline.errors import InputError, StudyError
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.schema import DONE, PENDING
from eigensweep.pipeline.study import load

COLUMN = ("d", "delta", "gamma", "T", "pooling", "replicate")
POPULATION = ("d", "delta", "T", "pooling", "replicate")
PREFIX = {"kind": "prefix", "length": 2}
MARKOV = {"kind": "markov", "correlation": 0.5}

GROWTH = {
    "d": ({"d": [12, 20]}, {"d": [16, 12, 24, 20, 10]}),
    "delta": ({"delta": [0.3, 0.7]}, {"delta": [0.2, 0.3, 0.5, 0.7, 2.0]}),
    "gamma": ({"gamma": [0.25, 1.0]}, {"gamma": [0.1, 0.25, 0.5, 1.0, 2.5]}),
    "T": ({"T": [3, 5]}, {"T": [2, 3, 4, 5, 6]}),
    "pooling": (
        {"pooling": ["causal", "mean"]},
        {"pooling": ["causal", "causal-inclusive(0.123456789012)", "last", "mean", "prefix(2)"]},
    ),
    "rho": ({"rho": [0.5, 2.0]}, {"rho": [0.0, 0.5, 1.0, 2.0, 4.0]}),
    "replicates": ({"replicates": 3}, {"replicates": 8}),
    "replicates of one size": (
        {"d": [12, 20], "replicates": {"12": 2, "20": 2}},
        {"replicates": {"12": 5, "20": 3}},
    ),
    "everything": (
        {"rho": [1.0], "replicates": 2},
        {"d": [10, 12, 16], "gamma": [0.4, 0.5, 0.6], "rho": [0.5, 1.0, 2.0], "pooling": ["last", "mean"]},
    ),
}


def expected_variables(signal="rho"):
    pairs, modes = (*COLUMN, signal, "top"), (*COLUMN, "mode")
    drop = {dims: tuple(dim for dim in dims if dim != "gamma") for dims in (pairs, modes, COLUMN)}
    rows = {
        "eigenvalue": pairs,
        "overlap": pairs,
        "mode_value": modes,
        "mode_signal": modes,
        "mode_noise": modes,
        "signal_amplitude": COLUMN,
    }
    books = {"column_status": "u1", "column_rho_count": "u4", "column_digest": "u8", "seconds": "f8"}
    found = {name: (dims, "f8") for name, dims in rows.items()}
    found |= {f"population_{name}": (drop[dims], "f8") for name, dims in rows.items()}
    found |= {name: (COLUMN, dtype) for name, dtype in books.items()}
    found |= {f"{name}_population": (drop[COLUMN], dtype) for name, dtype in books.items()}
    return found


@pytest.fixture(scope="module")
def study(small_sweep, tmp_path_factory):
    """A complete study, which tests only read."""
    folder = tmp_path_factory.mktemp("cube") / "small"
    run(small_sweep(), folder)
    return folder


def test_plain_xarray_opens_it_without_a_warning(study):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cube = xr.open_zarr(study / "cube.zarr")
    assert {name: (v.dims, v.dtype.str[1:]) for name, v in cube.data_vars.items()} == expected_variables()
    assert set(cube.coords) == {
        *COLUMN,
        "rho",
        "top",
        "mu2",
        "V",
        "N",
        "delta_realised",
        "gamma_realised",
        "alpha",
        "kappa",
        "weight_sum",
    }
    assert cube.sizes == {
        "d": 2,
        "delta": 1,
        "gamma": 2,
        "T": 1,
        "pooling": 2,
        "replicate": 3,
        "rho": 3,
        "top": 3,
        "mode": 20,
    }


def test_every_variable_is_documented(study):
    cube = xr.open_zarr(study / "cube.zarr")
    for name, variable in cube.variables.items():
        assert set(variable.attrs) >= {"long_name", "units", "source"}, name
        assert all(variable.attrs[key] for key in ("long_name", "units", "source")), name
        assert variable.attrs["units"] in ("1", "kappa", "sqrt(kappa)", "s"), name
    assert cube.eigenvalue.attrs["units"] == cube.population_mode_value.attrs["units"] == "kappa"
    assert "1 done" in cube.column_status.attrs["long_name"]


def test_coordinates_say_what_was_asked(study):
    cube = open_cube(study)
    assert cube.d.values.tolist() == [12, 20]
    assert cube.gamma.values.tolist() == [0.25, 1.0]
    assert cube.pooling.values.tolist() == ["causal", "mean"]
    assert cube.replicate.values.tolist() == [0, 1, 2]
    assert cube.rho.values.tolist() == [0.0, 1.0, 3.0]
    assert cube.V.dims == ("d", "delta")
    assert cube.V.values.tolist() == [[24], [40]]
    assert cube.N.values.tolist() == [[48, 12], [80, 20]]
    assert cube.alpha.dims == cube.kappa.dims == cube.weight_sum.dims == ("T", "pooling")
    gain = (cube.alpha / cube.kappa).sel(T=4)
    # A prefix of 2 in 4 positions: w'Rw/w'w = (4 + 2)/4 for mean pooling.
    assert float(gain.sel(pooling="mean")) == pytest.approx(1.5)
    assert cube.mu2.dims == ("T", "pooling", "rho")
    assert cube.mu2.sel(T=4, pooling="mean").values == pytest.approx([0.0, 1 / 1.5, 3 / 1.5])


def strict(path):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_metadata_is_strict_json(study):
    files = sorted((study / "cube.zarr").rglob("zarr.json"))
    assert len(files) == 1 + len(expected_variables()) + 16
    for path in files:
        strict(path)


def test_arrays_are_stored_as_designed(study):
    document = strict(study / "cube.zarr" / "zarr.json")
    arrays = document["consolidated_metadata"]["metadata"]
    for name, array in arrays.items():
        kinds = [codec["name"] for codec in array["codecs"]]
        assert kinds[1:] == ["blosc", "crc32c"], name
        setting = array["codecs"][1]["configuration"]
        assert (setting["cname"], setting["clevel"], setting["shuffle"]) == ("zstd", 5, "bitshuffle")
        assert array["chunk_key_encoding"]["configuration"]["separator"] == "."
        if name == "pooling":
            assert array["data_type"] == "string"
        if name in expected_variables():
            dims = array["dimension_names"]
            shape = dict(zip(dims, array["chunk_grid"]["configuration"]["chunk_shape"], strict=True))
            parameters = {dim: length for dim, length in shape.items() if dim in COLUMN[:-1]}
            assert set(parameters.values()) == {1}, name
            assert shape["replicate"] == 3
            assert shape.get("rho", 256) == 256
            assert shape.get("top", 3) == 3
            assert shape.get("mode", 4096) == 4096
        if name in expected_variables() and not name.startswith("column_"):
            assert array["fill_value"] == "NaN", name
        if name.startswith("column_"):
            assert array["fill_value"] == 0, name
    # A reader that takes the variables by name has read the status before it reads any data.
    data = [name for name in sorted(arrays) if name in expected_variables()]
    assert data.index("column_status_population") < min(
        data.index(name) for name in data if "eigenvalue" in name or "mode" in name or "overlap" in name
    )


def test_attributes_tell_the_story(study, small_sweep):
    attributes = strict(study / "cube.zarr" / "zarr.json")["attributes"]
    (entry,) = attributes["sweeps"]
    assert entry["digest"] == small_sweep().digest
    assert entry["sweep"] == json.loads(small_sweep().to_json())
    told = entry["provenance"]
    for name in ("eigensweep", "commit", "python", "numpy", "scipy", "zarr", "dask", "xarray", "first_run"):
        assert told[name], name
    assert told["machine"]["host"]
    assert all(pool["threads"] >= 1 and pool["library"] for pool in told["machine"]["blas"])


def test_files_stay_within_the_budget(study):
    files = [path for path in study.rglob("*") if path.is_file() and path.suffix != ".json"]
    blocks = len(list(load(study).blocks()))
    assert blocks == 12
    assert len(files) <= 20 * blocks + 300


def test_the_template_is_whole_before_the_first_task(small_sweep, tmp_path):
    with prepared(small_sweep(), tmp_path / "s") as held:
        assert list(held.pending())
    cube = xr.open_zarr(tmp_path / "s" / "cube.zarr")
    assert {name: (v.dims, v.dtype.str[1:]) for name, v in cube.data_vars.items()} == expected_variables()
    for name, (_, dtype) in expected_variables().items():
        values = cube[name].values
        assert np.all(np.isnan(values)) if dtype == "f8" else not values.any(), name
    assert np.array_equal(open_cube(tmp_path / "s").V, cube.V)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert not [path for path in (tmp_path / "s").iterdir() if path.name.startswith(".")]


def test_a_failed_template_leaves_nothing(small_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(cubes, "_create_array", lambda *args: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError, match="no"), prepared(small_sweep(), tmp_path / "s"):
        pass
    assert not list((tmp_path / "s").iterdir())


@pytest.mark.parametrize("case", GROWTH)
def test_grown_equals_asked_for_at_first(case, small_sweep, tmp_path, assert_same_cube, chunk_bytes):
    first, more = GROWTH[case]
    first = {"d": [12], "gamma": [0.5], "pooling": ["mean"], **first}
    before, after = small_sweep(grid=first), small_sweep(grid={**first, **more})
    outcome = run(before, tmp_path / "grown")
    kept = chunk_bytes(tmp_path / "grown")
    old = open_cube(tmp_path / "grown").load()
    grown = run(after, tmp_path / "grown")
    fresh = run(after, tmp_path / "fresh")
    cube = open_cube(tmp_path / "grown")
    assert_same_cube(cube, open_cube(tmp_path / "fresh"))
    # What was there is there, where its coordinates say.
    again = cube.sel({dim: old[dim] for dim in (*COLUMN, "rho")}).isel(mode=slice(old.sizes["mode"]))
    for name, variable in old.data_vars.items():
        if not name.startswith(("column_rho_count", "seconds")):
            assert variable.values.tobytes() == again[name].values.tobytes(), name
        if name.startswith("seconds"):
            stored = ~np.isnan(variable.values)
            assert np.array_equal(variable.values[stored], again[name].values[stored])
    # Only what was lacking was computed: columns, or for new rho values extensions of columns.
    assert grown.progress.total == grown.progress.done
    if "rho" not in more:
        assert outcome.progress.done + grown.progress.done == fresh.progress.done
    now = chunk_bytes(tmp_path / "grown")
    coordinates = set(cube.coords)
    untouched = {path: h for path, h in kept.items() if path.split("/")[0] not in coordinates}
    if "rho" in more:
        untouched = {path: h for path, h in untouched.items() if "mode" in path or "amplitude" in path}
    if case == "replicates of one size":
        # Runs of two replicates: for neither size was the second run begun.
        assert untouched
    assert {path: now[path] for path in untouched} == untouched


def test_a_partly_filled_chunk_is_completed(small_sweep, tmp_path, assert_same_cube):
    grid = {"d": [12], "replicates": 5}
    run(small_sweep(grid=grid), tmp_path / "grown")
    old = open_cube(tmp_path / "grown").load()
    for count in (6, 7, 13):
        # Chunks of five replicates: the second holds one, then two, then five.
        outcome = run(small_sweep(grid={**grid, "replicates": count}), tmp_path / "grown")
        assert outcome.progress.done == 6 * {6: 1, 7: 1, 13: 6}[count]
    run(small_sweep(grid={**grid, "replicates": 13}), tmp_path / "fresh")
    cube = open_cube(tmp_path / "grown")
    assert_same_cube(cube, open_cube(tmp_path / "fresh"))
    assert old.seconds.values.tobytes() == cube.seconds.isel(replicate=slice(5)).values.tobytes()


def test_growth_without_columns_samples_again(small_sweep, tmp_path, assert_same_cube):
    record, grid = {"columns": False, "top": 2}, {"d": [12], "gamma": [0.5]}
    first = small_sweep(record=record, grid=grid)
    more = small_sweep(record=record, grid={**grid, "rho": [0.0, 0.5, 1.0, 3.0]})
    run(first, tmp_path / "grown")
    old = open_cube(tmp_path / "grown").load()
    assert not [name for name in old if "mode" in name or "amplitude" in name]
    run(more, tmp_path / "grown")
    run(more, tmp_path / "fresh")
    cube = open_cube(tmp_path / "grown")
    assert_same_cube(cube, open_cube(tmp_path / "fresh"))
    assert old.eigenvalue.values.tobytes() == cube.eigenvalue.sel(rho=[0.0, 1.0, 3.0]).values.tobytes()


def test_more_rho_values_than_a_chunk_was_laid_out_for(small_sweep, tmp_path, assert_same_cube):
    grid = {"d": [10], "gamma": [0.5], "pooling": ["mean"], "replicates": 2}
    few, many = np.linspace(0, 4, 9), np.linspace(0, 4, 401)
    run(small_sweep(grid={**grid, "rho": few}), tmp_path / "grown")
    run(small_sweep(grid={**grid, "rho": many}), tmp_path / "grown")
    run(small_sweep(grid={**grid, "rho": many}), tmp_path / "fresh")
    assert_same_cube(open_cube(tmp_path / "grown"), open_cube(tmp_path / "fresh"))
    assert open_cube(tmp_path / "grown").rho.size == 401


def test_tables_and_correlations_as_axes_grow(small_sweep, tmp_path, assert_same_cube):
    grid = {"d": [12], "gamma": [0.5]}

    def sweep(tables, correlations):
        return small_sweep(grid=grid, model={"table": tables, "correlation": correlations})

    first = sweep(["raw"], [PREFIX])
    after = sweep(["class-centered", "raw", "centered"], [MARKOV, PREFIX])
    run(first, tmp_path / "grown")
    run(after, tmp_path / "grown")
    run(after, tmp_path / "fresh")
    cube = open_cube(tmp_path / "grown")
    assert_same_cube(cube, open_cube(tmp_path / "fresh"))
    assert cube.table.values.tolist() == ["centered", "class-centered", "raw"]
    assert cube.correlation.values.tolist() == ["markov(0.5)", "prefix(2)"]
    assert cube.eigenvalue.dims[:5] == ("d", "delta", "gamma", "table", "correlation")
    assert cube.alpha.dims == ("correlation", "T", "pooling")
    assert bool(np.isfinite(cube.eigenvalue).all())


def test_a_study_over_mu2(small_sweep, tmp_path, assert_same_cube):
    grid = {"rho": None, "mu2": [0.0, 2.0], "d": [12], "gamma": [0.5]}
    after = small_sweep(grid={**grid, "mu2": [0.0, 1.0, 2.0, 5.0], "pooling": ["causal", "last", "mean"]})
    run(small_sweep(grid=grid), tmp_path / "grown")
    run(after, tmp_path / "grown")
    run(after, tmp_path / "fresh")
    cube = open_cube(tmp_path / "grown")
    assert_same_cube(cube, open_cube(tmp_path / "fresh"))
    assert {name: v.dims for name, v in cube.data_vars.items()} == {
        name: dims for name, (dims, _) in expected_variables("mu2").items()
    }
    assert cube.rho.dims == ("T", "pooling", "mu2")
    # rho = alpha mu2/kappa, and with it the cube of a study over rho.
    run(
        small_sweep(grid={**grid, "mu2": None, "rho": [0.0, 1.5, 3.0, 7.5], "pooling": ["mean"]}),
        tmp_path / "rho",
    )
    other = open_cube(tmp_path / "rho").sel(pooling="mean")
    assert cube.rho.sel(T=4, pooling="mean").values == pytest.approx(other.rho.values)
    one = cube.eigenvalue.sel(pooling="mean")
    assert one.values == pytest.approx(other.eigenvalue.transpose(..., "rho", "top").values, rel=1e-12)
    with pytest.raises(InputError, match="grid"):
        run(small_sweep(), tmp_path / "grown")


def test_the_same_sweep_twice_computes_nothing(small_sweep, tmp_path, chunk_bytes):
    run(small_sweep(), tmp_path / "s")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "cube.zarr").rglob("*")}
    kept = chunk_bytes(tmp_path / "s")
    literals = small_sweep(grid={"rho": np.linspace(0, 3, 4)[[0, 1, 3]], "gamma": [0.1 + 0.15, 1.0]})
    for sweep in (small_sweep(), literals):
        outcome = run(sweep, tmp_path / "s")
        assert (outcome.progress.total, outcome.progress.done) == (0, 0)
    assert chunk_bytes(tmp_path / "s") == kept
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "cube.zarr").rglob("*")} == files


def test_the_order_of_a_grid_does_not_matter(small_sweep, tmp_path, assert_same_cube):
    run(small_sweep(), tmp_path / "one")
    run(
        small_sweep(grid={"d": [20, 12], "gamma": [1.0, 0.25], "pooling": ["causal", "mean"]}),
        tmp_path / "two",
    )
    assert_same_cube(open_cube(tmp_path / "one"), open_cube(tmp_path / "two"))


def test_cells_that_nobody_asked_for_stay_pending(small_sweep, tmp_path, raw_arrays, assert_same_cube):
    run(small_sweep(grid={"d": [12], "gamma": [0.25]}), tmp_path / "s")
    run(small_sweep(grid={"d": [20], "gamma": [1.0], "replicates": 5}), tmp_path / "s")
    cube = open_cube(tmp_path / "s")
    status = cube.column_status.isel(delta=0, T=0, pooling=0)
    assert cube.sizes["replicate"] == 5
    asked = [(12, 0.25, 3), (20, 1.0, 5)]
    for d in (12, 20):
        for gamma in (0.25, 1.0):
            count = next((n for a, b, n in asked if (a, b) == (d, gamma)), 0)
            expected = [DONE] * count + [PENDING] * (5 - count)
            assert status.sel(d=d, gamma=gamma).values.tolist() == expected
            cells = cube.eigenvalue.sel(d=d, gamma=gamma).isel(delta=0, T=0)
            assert bool(np.isfinite(cells.isel(replicate=slice(count))).all())
            assert bool(np.isnan(cells.isel(replicate=slice(count, None))).all())
    assert np.isnan(raw_arrays(tmp_path / "s")["eigenvalue"]).sum() == np.isnan(cube.eigenvalue.values).sum()
    study = load(tmp_path / "s")
    assert not list(study.pending())
    assert {level: counts.tolist() for level, counts in study.tally().items()} == {
        "sample": [0, 10, 0, 0, 0, 0],
        "population": [0, 10, 0, 0, 0, 0],
    }
    # Until somebody does.
    whole = small_sweep(grid={"replicates": 5})
    run(whole, tmp_path / "s")
    run(whole, tmp_path / "fresh")
    assert_same_cube(open_cube(tmp_path / "s"), open_cube(tmp_path / "fresh"))


def test_asking_for_less_removes_nothing(small_sweep, tmp_path, chunk_bytes, assert_same_cube):
    run(small_sweep(), tmp_path / "s")
    kept, before = chunk_bytes(tmp_path / "s"), open_cube(tmp_path / "s").load()
    less = small_sweep(grid={"d": [20], "gamma": [1.0], "rho": [1.0], "pooling": ["mean"], "replicates": 1})
    assert run(less, tmp_path / "s").progress.total == 0
    now = chunk_bytes(tmp_path / "s")
    assert {path: now[path] for path in kept} == kept
    assert_same_cube(open_cube(tmp_path / "s"), before)
    # A new size is computed at every rho that the study has: no cell of a column that is done is empty.
    run(small_sweep(grid={"d": [16], "rho": [2.0]}), tmp_path / "s")
    cube = open_cube(tmp_path / "s")
    assert cube.rho.values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert bool(np.isfinite(cube.eigenvalue.sel(d=16)).all())


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"seed": 8}, ["seed"]),
        ({"model": {"table": "raw"}}, ["model.table"]),
        ({"model": {"correlation": MARKOV}}, ["model.correlation"]),
        ({"record": {"top": 4}}, ["record.top"]),
        ({"record": {"columns": False}, "seed": 9}, ["record.columns", "seed"]),
        ({"record": {"levels": ["sample"]}}, ["record.levels"]),
        ({"grid": {"rho": None, "mu2": [1.0]}}, ["grid"]),
        ({"model": {"table": ["class-centered"]}}, ["grid", "model.table"]),
    ],
)
def test_a_contradicting_sweep_is_refused(changes, keys, small_sweep, study, chunk_bytes):
    kept = chunk_bytes(study)
    metadata = (study / "cube.zarr" / "zarr.json").read_bytes()
    with pytest.raises(InputError) as caught:
        run(small_sweep(**changes), study)
    assert [fault.thing for fault in caught.value.faults] == keys
    assert all("the study has" in fault.reason for fault in caught.value.faults)
    assert chunk_bytes(study) == kept
    assert (study / "cube.zarr" / "zarr.json").read_bytes() == metadata


def test_name_limits_and_size_are_no_contradiction(small_sweep, tmp_path):
    run(small_sweep(), tmp_path / "s")
    other = small_sweep(name="renamed", limits={"seconds_per_column": 60.0})
    assert run(other, tmp_path / "s").progress.total == 0
    attributes = load(tmp_path / "s").attributes
    assert [entry["sweep"]["name"] for entry in attributes["sweeps"]] == ["small", "renamed"]
    assert run(small_sweep(), tmp_path / "s").progress.total == 0
    attributes = load(tmp_path / "s").attributes
    assert [entry["sweep"]["name"] for entry in attributes["sweeps"]] == ["renamed", "small"]


def test_a_killed_growth_is_forgotten(small_sweep, tmp_path, assert_same_cube):
    grid = {"gamma": [0.25], "pooling": ["mean"]}
    run(small_sweep(grid=grid), tmp_path / "s")
    before = open_cube(tmp_path / "s").load()
    cube = tmp_path / "s" / "cube.zarr"
    # A growth of d writes arrays and coordinates, and is killed before it publishes.
    study = load(tmp_path / "s")
    asked = small_sweep(grid={**grid, "d": [12, 16, 20]})
    with pytest.MonkeyPatch.context() as patch:
        replaced = cubes._replace

        def killed(path, document):
            if path == cube / "zarr.json":
                raise RuntimeError("killed")
            replaced(path, document)

        patch.setattr(cubes, "_replace", killed)
        with pytest.raises(RuntimeError, match="killed"):
            run(asked, tmp_path / "s")
    assert zarr.open_array(str(cube / "d"), mode="r").shape == (3,)
    assert_same_cube(open_cube(tmp_path / "s"), before)
    assert load(tmp_path / "s").token == study.token
    assert run(small_sweep(grid=grid), tmp_path / "s").progress.total == 0
    # The growth of another axis must not publish what the killed one left.
    grown = small_sweep(grid={**grid, "gamma": [0.25, 0.5]})
    run(grown, tmp_path / "s")
    run(grown, tmp_path / "fresh")
    assert_same_cube(open_cube(tmp_path / "s"), open_cube(tmp_path / "fresh"))
    assert zarr.open_array(str(cube / "d"), mode="r").shape == (2,)
    run(asked, tmp_path / "s")
    assert open_cube(tmp_path / "s").d.values.tolist() == [12, 16, 20]


def test_what_is_no_cube_is_named(tmp_path, study):
    with pytest.raises(StudyError, match="there is no cube; run the sweep first"):
        open_cube(tmp_path / "nothing")
    other = tmp_path / "other" / "cube.zarr"
    other.mkdir(parents=True)
    (other / "zarr.json").write_text("{}")
    with pytest.raises(StudyError, match="this is not a cube of eigensweep"):
        open_cube(tmp_path / "other")
    document = json.loads((study / "cube.zarr" / "zarr.json").read_text())
    document["attributes"]["eigensweep_format"] = 99
    (other / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(StudyError, match="the cube has format 99 and this eigensweep reads 1"):
        open_cube(other)


def test_the_sweep_of_these_tests_is_what_a_user_writes(small_sweep, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    assert Sweep.from_toml(tmp_path / "small.toml").digest == small_sweep().digest
