"""What is exported reads back to the same bits, holds what is done only, and is there whole or not at all."""

import csv
import importlib
import json
import math
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from toy_ensemble import poisoned

from eigensweep.pipeline import export as exporting
from eigensweep.pipeline import open_cube, run
from eigensweep.pipeline.errors import InputError, StudyError
from eigensweep.pipeline.export import export
from eigensweep.pipeline.pack import pack
from eigensweep.workflows import main as command_line

GRID = {"d": [12, 8], "gamma": [0.5, 1.0], "pooling": ["mean", "exponential(0.5)"], "rho": [0.1, 1 / 3, 3.0]}
KEYS = ["level", "d", "delta", "gamma", "T", "pooling", "replicate", "rho", "top"]


@pytest.fixture(scope="module")
def study(small_sweep, tmp_path_factory):
    """Make a study that has cells which nobody asked for."""
    folder = tmp_path_factory.mktemp("study") / "study"
    run(small_sweep(grid={**GRID, "replicates": {"8": 1, "12": 2}}), folder)
    return folder


def expected(study):
    """Spell the table out cell by cell."""
    cube = open_cube(study).load()
    rows = []
    for level, prefix in (("sample", ""), ("population", "population_")):
        value, overlap = cube[f"{prefix}eigenvalue"], cube[f"{prefix}overlap"]
        for index in np.ndindex(value.shape):
            place = dict(zip(value.dims, index, strict=True))
            if math.isnan(value[place]):
                continue
            row = {"level": level}
            for name, coordinate in cube.coords.items():
                known = set(coordinate.dims) <= set(place)
                row[name] = coordinate.isel({d: place[d] for d in coordinate.dims}).item() if known else None
            rows.append({**row, "eigenvalue": value[place].item(), "overlap": overlap[place].item()})
    return rows


def same(one, other):
    if one is None or other is None:
        return one is other
    both_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
    return type(one) is type(other) and (one == other or both_nan)


def assert_same_rows(found, wanted):
    assert len(found) == len(wanted)
    order = lambda row: [str(row[key]) for key in KEYS]  # noqa: E731
    for one, other in zip(sorted(found, key=order), sorted(wanted, key=order), strict=True):
        assert set(one) == set(other)
        assert all(same(one[name], other[name]) for name in one), (one, other)


def read_csv(path, study):
    """Read a csv with nothing but the standard library."""
    kinds = {"f": float, "i": int, "T": str, "O": str}
    types = {name: kinds[variable.dtype.kind] for name, variable in open_cube(study).coords.items()}
    types |= {"level": str, "eigenvalue": float, "overlap": float}
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: types[name](text) if text else None for name, text in row.items()} for row in rows]


@pytest.mark.parametrize("cells", [1 << 16, 7])
def test_csv_reads_back_to_the_same_bits(cells, study, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "CELLS", cells)
    told = export(study, tmp_path / "table.csv")
    rows = read_csv(tmp_path / "table.csv", study)
    # (d = 12 twice and d = 8 once), two poolings, three rho and three eigenvalues; the sample at two gammas.
    assert told.rows == len(rows) == 3 * 2 * 3 * 3 * (2 + 1)
    assert told.bytes == (tmp_path / "table.csv").stat().st_size
    assert_same_rows(rows, expected(study))


def test_pandas_reads_the_csv(study, tmp_path):
    export(study, tmp_path / "table.csv")
    table = pd.read_csv(tmp_path / "table.csv").set_index(KEYS)
    cube = open_cube(study)
    row = table.loc[("sample", 12, 0.5, 1.0, 4, "exponential(0.5)", 1, 3.0, 0)]
    place = {
        "d": 12,
        "delta": 0.5,
        "gamma": 1.0,
        "T": 4,
        "pooling": "exponential(0.5)",
        "replicate": 1,
        "rho": 3.0,
    }
    assert row["eigenvalue"] == float(cube.eigenvalue.sel(place).isel(top=0))
    assert row["mu2"] == float(cube.mu2.sel(T=4, pooling="exponential(0.5)", rho=3.0))


def test_parquet_reads_back_to_the_same_bits(study, tmp_path):
    told = export(study, tmp_path / "table.parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "table.parquet")
    assert told.rows == table.num_rows
    assert_same_rows(table.to_pylist(), expected(study))
    field = table.schema.field("eigenvalue")
    assert field.metadata[b"units"] == b"kappa"
    assert str(table.schema.field("N").type) == "int64"
    attributes = json.loads(table.schema.metadata[b"eigensweep"])
    assert attributes["sweeps"] == open_cube(study).attrs["sweeps"]


@pytest.mark.parametrize("slab", [1 << 26, 100])
def test_netcdf_holds_the_dataset(slab, study, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "SLAB", slab)
    export(study, tmp_path / "cube.nc")
    cube = open_cube(study)
    with xr.open_dataset(tmp_path / "cube.nc", engine="h5netcdf") as found:
        assert set(found.variables) == set(cube.variables)
        assert set(found.coords) == set(cube.coords)
        for name, variable in cube.variables.items():
            other = found[name]
            assert other.dims == variable.dims
            assert other.attrs == variable.attrs, name
            if name == "pooling":
                assert other.values.tolist() == variable.values.tolist()
                continue
            assert other.dtype == variable.dtype, name
            assert other.values.tobytes() == np.asarray(variable.values).tobytes(), name
        assert json.loads(found.attrs["sweeps"]) == cube.attrs["sweeps"]


def test_a_packed_cube_exports_the_same(study, tmp_path):
    pack([study], tmp_path / "packed", check=False)
    for source, name in ((study, "one.csv"), (tmp_path / "packed", "other.csv")):
        export(source, tmp_path / name)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def test_only_what_is_done_and_exists(toy_sweep, tmp_path):
    """Of matrices of size 2 there are two eigenvalues; columns that failed have none."""
    sweep = poisoned(
        toy_sweep(grid={"n": [2], "beta": [1.0], "flavour": ["sour", "very sweet (1.0)"]}), ("sour", 1)
    )
    run(sweep, tmp_path / "study")
    export(tmp_path / "study", tmp_path / "table.csv")
    table = pd.read_csv(tmp_path / "table.csv")
    assert table.flavour.value_counts().to_dict() == {"sour": 2 * 3 * 2, "very sweet (1.0)": 4 * 3 * 2}
    assert set(table.top) == {0, 1}
    assert list(table.columns[:4]) == ["level", "n", "beta", "flavour"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table.xlsx", r"'\.xlsx' names no kind of file; .*\.csv"),
        ("table", "it has no ending"),
        ("none/table.csv", "there is no folder"),
        ("folder.csv", "it is a folder"),
    ],
)
def test_wrong_files(name, message, study, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=message):
        export(study, tmp_path / name)


@pytest.mark.parametrize(
    ("name", "package"), [("t.parquet", "pyarrow"), ("t.nc", "h5netcdf"), ("t.nc", "h5py")]
)
def test_a_missing_package_is_named(name, package, study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}.*pip install 'eigensweep\[export\]'"):
        export(study, tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.nc"])
def test_what_breaks_off_leaves_the_file_that_was_there(name, study, tmp_path, monkeypatch):
    (tmp_path / name).write_text("before")
    shutil.copytree(study, tmp_path / "study")
    broken = sorted((tmp_path / "study" / "cube.zarr" / "population_overlap").glob("c*"))[-1]
    broken.write_bytes(b"1234")
    with pytest.raises(StudyError, match=r"can't be read.*eigensweep verify"):
        export(tmp_path / "study", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study", name]
    assert (tmp_path / name).read_text() == "before"

    def full(path, stored, dataset):
        path.write_text("half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(exporting, "_write_csv", full)
    with pytest.raises(StudyError, match="No space left"):
        export(study, tmp_path / "other.csv")
    assert not list(tmp_path.glob("*other.csv*"))


def test_the_command(study, tmp_path, monkeypatch, capsys):
    def type_in(*words):
        monkeypatch.setattr(sys, "argv", ["eigensweep", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            command_line.main()
        return end.value.code or 0, capsys.readouterr()

    code, printed = type_in("export", study, tmp_path / "t.csv", "--json")
    assert code == 0
    assert json.loads(printed.out)["rows"] == 162
    code, printed = type_in("export", study, tmp_path / "t.parquet")
    assert code == 0
    assert "162 rows" in printed.out
    code, printed = type_in("export", tmp_path, tmp_path / "t.csv")
    assert code == 2
    assert "there is no cube" in printed.err
