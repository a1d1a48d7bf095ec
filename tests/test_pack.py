"""A packed cube is equal in every value, small, sound, and joins what several clusters computed."""

import json
import shutil
import sys

import numpy as np
import pytest
import xarray as xr
import zarr
from toy_ensemble import poisoned

from eigensweep.pipeline import open_cube, run
from eigensweep.pipeline import pack as packing
from eigensweep.pipeline.errors import InputError, StudyError
from eigensweep.pipeline.pack import pack
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.repair import repair
from eigensweep.pipeline.schema import DONE
from eigensweep.pipeline.verify import verify
from eigensweep.workflows import main as command_line

FIRST = {"d": [12], "gamma": [1.0, 0.5], "pooling": ["mean", "causal"], "rho": [2.0, 0.5], "replicates": 3}
SECOND = {"d": [8], "gamma": [0.5], "pooling": ["causal", "mean"], "rho": [0.5, 1.0, 2.0], "replicates": 2}


@pytest.fixture(scope="module")
def grown(small_sweep, tmp_path_factory):
    """Make a study that grew on four axes: unsorted, with cells that nobody asked for."""
    folder = tmp_path_factory.mktemp("grown") / "study"
    run(small_sweep(grid=FIRST), folder)
    run(small_sweep(grid=SECOND), folder)
    return folder


@pytest.fixture(scope="module")
def packed(grown, tmp_path_factory):
    out = tmp_path_factory.mktemp("packed") / "cube.zarr"
    return pack([grown], out)


def complete(study):
    """Drop from a cube the signal strengths that not every column has."""
    cube = open_cube(study)
    return cube.sel(rho=[0.5, 2.0]).drop_vars([name for name in cube if name.startswith("column_rho_count")])


def assert_equal_values(one, other):
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        assert one[name].dims == other[name].dims, name
        assert one[name].attrs == other[name].attrs, name
        assert np.array_equal(one[name].values, other[name].values, equal_nan=one[name].dtype.kind == "f"), (
            name
        )


def test_equal_in_every_value_and_coordinate(grown, packed):
    assert_equal_values(complete(grown), complete(packed.path))
    cube = open_cube(packed.path)
    for name in ("d", "gamma", "pooling", "rho", "replicate", "delta", "T"):
        values = cube[name].values.tolist()
        assert values == sorted(values)


def test_signal_strengths_that_a_study_had_not_filled_are_derived(
    small_sweep, grown, packed, tmp_path, assert_same_cube
):
    """The packed cube equals that of a study that was run to its end."""
    shutil.copytree(grown, tmp_path / "study")
    for grid in (FIRST, SECOND):
        run(small_sweep(grid={**grid, "rho": SECOND["rho"]}), tmp_path / "study")
    ended = pack([tmp_path / "study"], tmp_path / "ended", check=False)
    assert_same_cube(open_cube(ended.path).drop_vars("seconds"), open_cube(packed.path).drop_vars("seconds"))


def test_plain_xarray_opens_it(packed):
    cube = xr.open_zarr(packed.path)
    assert cube.pooling.values.tolist() == ["causal", "mean"]
    assert {"alpha", "mu2", "V"} < set(cube.coords)
    assert xr.open_zarr(packed.path, chunks=None).equals(cube)
    status, eigenvalue = cube.column_status.values, cube.eigenvalue.values
    assert np.array_equal(np.isfinite(eigenvalue).all(axis=(-1, -2)), status == DONE)
    assert (status == DONE).sum() == 4 * 3 + 2 * 2


def test_attributes_of_the_study_are_kept(grown, packed):
    before, after = open_cube(grown).attrs, open_cube(packed.path).attrs
    assert after["sweeps"] == before["sweeps"]
    (source,) = after["packed"]["sources"]
    assert source["attributes"] == {key: value for key, value in before.items() if key != "eigensweep_format"}
    json.loads((packed.path / "zarr.json").read_text(), parse_constant=pytest.fail)


def test_it_is_sharded_and_small(packed):
    metadata = json.loads((packed.path / "zarr.json").read_text())["consolidated_metadata"]["metadata"]
    for name in ("eigenvalue", "mode_value", "population_overlap"):
        assert metadata[name]["codecs"][0]["name"] == "sharding_indexed"
    files = [path for path in packed.path.rglob("*") if path.is_file()]
    assert packed.files == len(files) == 2 * len(metadata) + 1
    assert packed.bytes == sum(path.stat().st_size for path in files)


def test_many_columns_take_few_files_and_several_shards(toy_sweep, tmp_path, monkeypatch, assert_same_cube):
    sweep = toy_sweep(grid={"n": [6], "beta": [1.0, 1.1], "replicates": 24})
    run(sweep, tmp_path / "study")
    one = pack([tmp_path / "study"], tmp_path / "one")
    assert one.columns == 96
    assert one.files < 45
    monkeypatch.setattr(packing, "SHARD", 1 << 13)
    monkeypatch.setattr(packing, "CHUNK", 1 << 9)
    many = pack([tmp_path / "study"], tmp_path / "many")
    assert many.files > one.files + 10
    for path in (one.path, many.path):
        assert_same_cube(open_cube(tmp_path / "study"), open_cube(path))
        assert verify(path, sample=2).sound
    array = zarr.open_group(str(many.path), mode="r")["eigenvalue"]
    assert array.chunks[3] < 24
    assert array.shards != array.chunks


@pytest.mark.parametrize(
    "name", ["mode_value", "overlap", "column_status", "column_digest", "seconds", "gamma"]
)
def test_verify_finds_damage_in_a_packed_cube(name, packed, tmp_path):
    (original,) = (packed.path / name).glob("c*")
    size = original.stat().st_size
    copy = tmp_path / "cube.zarr"
    shutil.copytree(packed.path, copy)
    path = copy / name / original.name
    whole = path.read_bytes()
    # The index of a shard lies at its end.
    for place in (size // 2, size - 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert {finding.array for finding in verify(copy, sample=0).findings} == {name}
    path.unlink()
    findings = verify(copy, sample=0).findings
    assert {finding.array for finding in findings} == {name}
    assert "pack" in findings[0].remedy
    with pytest.raises(InputError, match="never written again"):
        repair(copy)


def test_two_studies_join(small_sweep, grown, tmp_path):
    for number, grid in enumerate((FIRST, SECOND, {**SECOND, "d": [8, 12]})):
        run(
            small_sweep(grid=grid, name=f"part{number}", limits={"seconds_per_column": 60 + number}),
            tmp_path / str(number),
        )
    joined = pack([tmp_path / "0", tmp_path / "1", tmp_path / "2"], tmp_path / "joined")
    # Of the third study's columns, those at d = 12 are in the first as well, the others in the second.
    assert (joined.shared, joined.rounded) == (2 * (2 * 2 + 2 * 2), 0)
    reference = pack([grown], tmp_path / "reference", check=False)
    assert joined.columns == reference.columns
    numbers = [name for name in open_cube(grown).variables if not name.startswith("seconds")]
    assert_equal_values(open_cube(joined.path)[numbers], open_cube(reference.path)[numbers])
    attributes = open_cube(joined.path).attrs
    assert [entry["sweep"]["name"] for entry in attributes["sweeps"]] == ["part0", "part1", "part2"]
    assert [source["study"] for source in attributes["packed"]["sources"]] == ["0", "1", "2"]
    assert verify(joined.path).sound
    again = pack([joined.path, tmp_path / "1"], tmp_path / "again", check=False)
    assert_equal_values(open_cube(again.path), open_cube(joined.path))


def test_a_column_that_failed_in_one_study_and_not_in_the_other(toy_sweep, tmp_path):
    run(poisoned(toy_sweep(), ("sour", 1)), tmp_path / "one")
    run(toy_sweep(grid={"n": [8]}), tmp_path / "other")
    joined = pack([tmp_path / "one", tmp_path / "other"], tmp_path / "joined")
    status = open_cube(joined.path).column_status
    assert np.bincount(status.sel(n=8).values.ravel()).tolist() == [0, 16]
    assert np.bincount(status.sel(n=14).values.ravel()).tolist() == [0, 12, 4]
    assert verify(joined.path).sound


def nudge(study, roles, by):
    """Change the numbers of one column as another machine would, with the digest that belongs to them."""
    from eigensweep.pipeline.kernel import digest

    group = zarr.open_group(str(study / "cube.zarr"), mode="r+")
    place = (0, 0, 1, 0, 1, 2)
    for role in roles:
        values = group[role][...]
        values[place] += by
        group[role][...] = values
    parts = [group[role][place] for role in ("mode_value", "mode_signal", "mode_noise", "signal_amplitude")]
    point = {"d": 12, "delta": 0.5, "gamma": 0.5, "T": 4, "pooling": "causal"}
    digests = group["column_digest"][...]
    digests[place] = digest("sample", point, 2, [np.atleast_1d(part) for part in parts])
    group["column_digest"][...] = digests


@pytest.mark.parametrize(("by", "agree"), [(3e-12, True), (3e-9, False)])
def test_columns_of_two_machines(by, agree, small_sweep, tmp_path):
    run(small_sweep(grid=FIRST, record={"levels": ["sample"]}), tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    nudge(tmp_path / "other", ["mode_value", "eigenvalue"], by)
    assert verify(tmp_path / "other", sample=0).sound
    sources = [tmp_path / "one", tmp_path / "other"]
    if agree:
        joined = pack(sources, tmp_path / "joined")
        assert (joined.columns, joined.shared, joined.rounded) == (12, 12, 1)
        kept, first = open_cube(joined.path), open_cube(tmp_path / "one")
        assert np.array_equal(kept.mode_value.values, first.mode_value.values)
        return
    with pytest.raises(
        InputError, match=r"gamma=0\.5.*pooling=causal, replicate 2.*differ in its (mode_value|eigenvalue)"
    ):
        pack(sources, tmp_path / "joined")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["one", "other"]


def test_what_contradicts_is_refused(small_sweep, grown, tmp_path):
    run(small_sweep(grid={**SECOND, "replicates": 1}, seed=8, record={"top": 2}), tmp_path / "other")
    with pytest.raises(InputError) as refused:
        pack([grown, tmp_path / "other"], tmp_path / "out")
    things = {fault.thing.split(": ")[1]: fault for fault in refused.value.faults}
    assert set(things) == {"seed", "record.top"}
    assert str(grown) in things["seed"].reason
    assert "apart" in things["seed"].remedy
    assert not (tmp_path / "out").exists()


def test_without_columns_unfilled_strengths_are_refused(small_sweep, tmp_path):
    grid = {**SECOND, "pooling": ["mean"]}
    record = {"columns": False, "levels": ["sample"]}
    run(small_sweep(grid={**grid, "rho": [2.0]}, record=record), tmp_path / "study")
    more = small_sweep(grid={**grid, "rho": [0.5]}, record=record)
    with prepared(more, tmp_path / "study"):
        pass
    with pytest.raises(InputError, match=r"replicate 0: it is done, but not at rho = 0\.5"):
        pack([tmp_path / "study"], tmp_path / "out")
    run(more, tmp_path / "study")
    out = pack([tmp_path / "study"], tmp_path / "out")
    one, other = (open_cube(path).drop_vars("column_digest") for path in (tmp_path / "study", out.path))
    assert_equal_values(one, other)
    assert verify(out.path).sound


def test_a_damaged_study_is_refused_and_nothing_is_left(grown, tmp_path):
    def attempt(damage, message):
        shutil.rmtree(tmp_path / "study", ignore_errors=True)
        shutil.copytree(grown, tmp_path / "study")
        damage(tmp_path / "study" / "cube.zarr")
        with pytest.raises(StudyError, match=message):
            pack([tmp_path / "study"], tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["study"]

    def swap(cube):
        one, other = sorted((cube / "mode_signal").glob("c*"))[:2]
        one.write_bytes(other.read_bytes())

    attempt(lambda cube: next((cube / "overlap").glob("c*")).write_bytes(b"1234"), "overlap can't be read")
    attempt(swap, "digest of the sample column")
    attempt(lambda cube: next((cube / "gamma").glob("c*")).unlink(), "coordinate gamma is damaged")
    # Only the check at the end sees pairs that don't follow from the columns.
    attempt(lambda cube: next((cube / "eigenvalue").glob("c*")).unlink(), "eigenvalue")


def test_files_that_a_sweep_names_go_with_it(small_sweep, tmp_path):
    grid = {"d": [8], "gamma": [0.5], "pooling": ["file(w.npy)"], "replicates": 1}
    for name, last in (("one", 0.4), ("other", 0.3)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "w.npy", np.array([0.1, 0.2, 0.3, last]))
        run(small_sweep(base=tmp_path / name, grid=grid), tmp_path / name / "study")
    out = pack([tmp_path / "one" / "study"], tmp_path / "out")
    assert verify(out.path).recomputed == 2
    assert xr.open_zarr(out.path).alpha.shape == (1, 1)
    with pytest.raises(InputError, match=r"inputs\.w\.npy"):
        pack([out.path, tmp_path / "other" / "study"], tmp_path / "both")


def test_a_full_disk(grown, tmp_path, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(packing, "_flush", full)
    with pytest.raises(StudyError, match="No space left"):
        pack([grown], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_command(grown, tmp_path, monkeypatch, capsys):
    def type_in(*words):
        monkeypatch.setattr(sys, "argv", ["eigensweep", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            command_line.main()
        return end.value.code or 0, capsys.readouterr()

    code, printed = type_in("pack", grown, grown, "-o", tmp_path / "out", "--json")
    assert code == 0
    told = json.loads(printed.out)
    assert told["shared"] == told["columns"] > 0
    code, printed = type_in("pack", grown, "-o", tmp_path / "out")
    assert code == 2
    assert "exists already" in printed.err
    code, printed = type_in("pack", grown, "-o", tmp_path / "none" / "out", "--no-check")
    assert code == 2
    assert "make it first" in printed.err
    code, printed = type_in("pack", grown, grown, "-o", tmp_path / "more", "--no-check")
    assert code == 0
    assert "equal bit for bit" in printed.out
    code, printed = type_in("verify", tmp_path / "more")
    assert code == 0
