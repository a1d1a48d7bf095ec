"""Damage of every kind in every array is found, named and mended; what is merely absent is not damage."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr
from toy_ensemble import poisoned

from eigensweep.pipeline import lock, open_cube, run
from eigensweep.pipeline.blocks import blocks
from eigensweep.pipeline.chunks import Chunks
from eigensweep.pipeline.errors import InputError, StudyError
from eigensweep.pipeline.kernel import fill
from eigensweep.pipeline.preparation import Share, prepared
from eigensweep.pipeline.recovery import recipe_of, true_layout
from eigensweep.pipeline.repair import repair
from eigensweep.pipeline.schema import FAILED, PENDING
from eigensweep.pipeline.stored import open_stored
from eigensweep.pipeline.study import LOCK
from eigensweep.pipeline.verify import verify
from eigensweep.workflows import main as command_line

GRID = {"d": [12, 8], "gamma": [0.5], "pooling": ["mean", "causal"], "rho": [0.0, 2.0]}
ROLES = (
    "eigenvalue",
    "overlap",
    "mode_value",
    "mode_signal",
    "mode_noise",
    "signal_amplitude",
    "column_digest",
    "column_rho_count",
    "seconds",
    "column_status",
)
ARRAYS = [
    *ROLES,
    *(f"population_{role}" for role in ROLES[:6]),
    *(f"{role}_population" for role in ROLES[6:]),
]
COORDINATES = [
    *("d", "delta", "gamma", "T", "pooling", "replicate", "top", "rho", "mu2", "V", "N"),
    *("delta_realised", "gamma_realised", "alpha", "kappa", "weight_sum"),
]


@pytest.fixture(scope="module")
def wholes(small_sweep, tmp_path_factory):
    """Make a study of each level, grown by one replicate so that its last chunks are cut short."""
    made = {}
    for level in ("sample", "population"):
        folder = tmp_path_factory.mktemp(level) / "study"
        run(small_sweep(grid={**GRID, "replicates": 2}, record={"levels": [level]}), folder)
        sweep = small_sweep(grid={**GRID, "replicates": 3}, record={"levels": [level]})
        run(sweep, folder)
        made[level] = folder, sweep
    return made


@pytest.fixture
def study(wholes, tmp_path):
    """Copy the sample level's study, to be damaged."""
    shutil.copytree(wholes["sample"][0], tmp_path / "study")
    return tmp_path / "study"


def chunks(study, name):
    return sorted((study / "cube.zarr" / name).glob("c*"))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def delete(path):
    path.unlink()


def write(study, name, change):
    """Change an array through zarr, so that every checksum is right."""
    array = zarr.open_group(str(study / "cube.zarr"), mode="r+")[name]
    values = array[...]
    change(values)
    array[...] = values


def bound(name):
    """The arrays that a finding may name when one of those is wrong that a digest covers."""
    prefix = "population_" if "population" in name else ""
    suffix = "_population" if "population" in name else ""
    covered = {f"{prefix}{role}" for role in ROLES[2:6]} | {f"column_digest{suffix}"}
    return covered if name in covered else {name}


@pytest.mark.parametrize("level", ["sample", "population"])
def test_a_sound_study(level, wholes):
    report = verify(wholes[level][0], sample=5)
    assert report.sound
    assert (report.columns, report.recomputed, report.rounded) == (12, 5, 0)
    assert report.arrays == len(ROLES) + len(COORDINATES)
    assert report.chunks == 8 * len(ROLES) + len(COORDINATES)
    assert {name: counts.tolist() for name, counts in report.states.items()} == {level: [0, 12, 0, 0, 0, 0]}
    assert (report.lacking, report.leftovers, report.short) == ([], [], 0)


@pytest.mark.parametrize("name", ARRAYS)
def test_damage_in_every_array_is_found_and_mended(name, wholes, tmp_path, assert_same_cube, raw_arrays):
    whole, sweep = wholes["population" if "population" in name else "sample"]
    study = tmp_path / "study"
    shutil.copytree(whole, study)
    paths = chunks(study, name)
    assert len(paths) == 8
    flip(paths[0])
    truncate(paths[2])
    delete(paths[3])
    one, other = paths[4].read_bytes(), paths[6].read_bytes()
    paths[4].write_bytes(other)
    paths[6].write_bytes(one)
    report = repair(study, sample=0)
    assert {finding.array for finding in report.findings} <= bound(name)
    found = {finding.chunk for finding in report.findings}
    expected = {paths[0].name, paths[2].name}
    if name.startswith("column_status"):
        # A chunk of data without a status is what a killed write leaves: not there yet, no damage.
        assert {item.unfinished for item in report.lacking} == {True}
    else:
        expected |= {paths[3].name}
    if one != other and not name.startswith("seconds"):
        expected |= {paths[4].name, paths[6].name}
    # What a digest covers is named by the chunk of the digest, whose name is the shorter one.
    assert {any(a.startswith(b) or b.startswith(a) for b in expected) for a in found} == {True}
    assert len(found) == len(expected)
    assert all(finding.level and finding.replicates and finding.remedy for finding in report.findings)
    assert report.repaired > 0
    run(sweep, study)
    assert_same_cube(open_cube(whole), open_cube(study))
    raw = raw_arrays(whole)
    for key, values in raw_arrays(study).items():
        if not key.startswith("seconds") and key != "pooling":
            assert values.tobytes() == raw[key].tobytes(), key


@pytest.mark.parametrize(
    ("names", "damage"),
    [
        *(([name], flip) for name in COORDINATES[:8]),
        (COORDINATES[8:], flip),
        *(([name], kind) for name in ("d", "pooling", "rho") for kind in (truncate, delete)),
        *((COORDINATES, kind) for kind in (flip, truncate, delete)),
    ],
)
def test_damaged_coordinates_are_found_and_written_anew(names, damage, study, chunk_bytes):
    before = chunk_bytes(study)
    for name in names:
        (path,) = chunks(study, name)
        damage(path)
    report = repair(study, sample=0)
    assert {finding.array for finding in report.findings} == set(names)
    assert {finding.level for finding in report.findings} == {""}
    assert report.repaired == 0
    assert chunk_bytes(study) == before


@pytest.mark.parametrize("role", ["eigenvalue", "overlap", "mode_value", "signal_amplitude", "column_digest"])
def test_a_changed_number_with_a_right_checksum_is_found(role, study):
    def change(values):
        cell = (0, 0, 0, 0, 1, 2, *(0,) * (values.ndim - 6))
        values[cell] += 1 if values.dtype.kind == "u" else 1e-9

    write(study, role, change)
    (finding,) = verify(study, sample=0).findings
    assert finding.array in bound(role)
    assert finding.point == {"d": 12, "delta": 0.5, "gamma": 0.5, "T": 4, "pooling": "causal"}
    assert finding.replicates == (2,)
    assert "--repair" in finding.remedy


def test_a_forged_column_is_found_by_its_seed(study, wholes):
    """A column that agrees with its digest and its pairs, and was computed with another seed."""
    stored = open_stored(study)
    point = {"d": 8, "delta": 0.5, "gamma": 0.5, "T": 4, "pooling": "mean"}
    layout, level = true_layout(stored), stored.levels[0]
    block = next(b for b in blocks(layout, [level], layout.axes, {8: 3, 12: 3}) if dict(b.point) == point)
    with lock.hold(study / LOCK):
        (forged,) = fill(replace(recipe_of(stored, layout), seed=8), [block], [None], retry=False)
        held = Chunks(stored.path, stored.token, layout, {level.name: level}, columns=True)
        held.write(block, forged.arrays)
    assert verify(study, sample=0).sound
    report = verify(study, sample=12)
    assert {(f.point["d"], f.point["pooling"]) for f in report.findings} == {(8, "mean")}
    assert {r for finding in report.findings for r in finding.replicates} == {0, 1}
    assert "seed" in report.findings[0].problem
    repair(study, sample=12)
    run(wholes["sample"][1], study)
    assert verify(study, sample=12).sound


@pytest.mark.parametrize("role", ["eigenvalue", "overlap"])
def test_without_columns_the_digest_guards_the_pairs(role, small_sweep, tmp_path, assert_same_cube):
    sweep = small_sweep(grid={**GRID, "replicates": 2}, record={"columns": False, "levels": ["sample"]})
    run(sweep, tmp_path / "study")
    shutil.copytree(tmp_path / "study", tmp_path / "whole")
    assert verify(tmp_path / "study").sound

    def change(values):
        values[1, 0, 0, 0, 1, 1, 0, 0] += 1e-12

    write(tmp_path / "study", role, change)
    (finding,) = repair(tmp_path / "study").findings
    assert (finding.array, finding.replicates) == ("column_digest", (1,))
    run(sweep, tmp_path / "study")
    assert_same_cube(open_cube(tmp_path / "whole"), open_cube(tmp_path / "study"))


def test_states_that_changed_places(toy_sweep, tmp_path, assert_same_cube):
    sweep = poisoned(toy_sweep(), ("sour", 1))
    study = tmp_path / "study"
    assert run(sweep, study).failures
    shutil.copytree(study, tmp_path / "whole")
    report = verify(study)
    assert report.sound
    assert report.states["wigner"].tolist() == [0, 24, 8, 0, 0, 0]
    assert {(item.status, item.replicate % 2) for item in report.lacking} == {(FAILED, 1)}
    paths = chunks(study, "column_status")
    one, other = paths[0].read_bytes(), paths[1].read_bytes()
    paths[0].write_bytes(other)
    paths[1].write_bytes(one)
    report = repair(study)
    assert {finding.point["flavour"] for finding in report.findings} == {"plain", "sour"}
    run(sweep, study)
    assert_same_cube(open_cube(tmp_path / "whole"), open_cube(study))


def test_what_is_not_there_yet_is_no_damage(study, small_sweep, wholes):
    more = small_sweep(
        grid={**GRID, "rho": [0.0, 1.0, 2.0], "d": [10], "replicates": 3}, record={"levels": ["sample"]}
    )
    with prepared(more, study):
        pass
    report = verify(study)
    assert report.sound
    assert report.states["sample"].tolist() == [6, 12, 0, 0, 0, 0]
    assert report.short == 12
    assert {(item.point["d"], item.status, item.unfinished) for item in report.lacking} == {
        (10, PENDING, False)
    }
    run(more, study)
    report = verify(study)
    assert (report.sound, report.short, report.lacking) == (True, 12, [])
    (chunks(study, "eigenvalue")[0]).unlink()
    assert repair(study).elsewhere > 0


def test_the_order_of_a_lost_axis_is_found_from_the_columns(study, small_sweep, wholes, raw_arrays):
    """The attributes do not tell it: the study saw the first sweep again after it grew."""
    more = small_sweep(
        grid={**GRID, "d": [9, 12], "pooling": ["mean", "prefix(2)"], "replicates": 2},
        record={"levels": ["sample"]},
    )
    run(more, study)
    run(wholes["sample"][1], study)
    before = raw_arrays(study)
    for name in ("d", "pooling"):
        chunks(study, name)[0].unlink()
    repair(study)
    after = raw_arrays(study)
    assert before["d"].tolist() == after["d"].tolist() == [12, 8, 9]
    assert before["pooling"].tolist() == after["pooling"].tolist()
    assert verify(study).sound


def test_chunks_of_a_long_axis_that_changed_places(small_sweep, tmp_path, raw_arrays):
    def of(gammas):
        grid = {"d": [8], "pooling": ["mean"], "replicates": 1, "rho": [1.0], "gamma": gammas}
        return small_sweep(grid=grid, record={"levels": ["sample"]})

    study = tmp_path / "study"
    run(of([0.5]), study)
    run(of([8 / n for n in range(9, 40)]), study)
    before = raw_arrays(study)["gamma"]
    paths = chunks(study, "gamma")
    one, other = paths[0].read_bytes(), paths[1].read_bytes()
    paths[0].write_bytes(other)
    paths[1].write_bytes(one)
    assert {finding.array for finding in repair(study).findings} == {"gamma"}
    assert raw_arrays(study)["gamma"].tolist() == before.tolist()


@pytest.mark.parametrize("damage", [truncate, delete])
def test_damaged_metadata_of_an_array(damage, study, chunk_bytes):
    before = chunk_bytes(study)
    damage(study / "cube.zarr" / "overlap" / "zarr.json")
    (finding,) = repair(study, sample=0).findings
    assert (finding.array, finding.chunk) == ("overlap", "zarr.json")
    assert chunk_bytes(study) == before
    assert verify(study, sample=0).sound
    assert np.isfinite(zarr.open_array(str(study / "cube.zarr" / "overlap"))[...]).all()


def test_a_changed_sweep_in_the_attributes_is_told_and_not_repaired(study, chunk_bytes):
    path = study / "cube.zarr" / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"]["sweeps"][-1]["sweep"]["seed"] += 1
    path.write_text(json.dumps(document))
    before = chunk_bytes(study)
    (finding,) = repair(study).findings
    assert "digest" in finding.problem
    assert "copy" in finding.remedy
    assert chunk_bytes(study) == before


def test_leftovers_of_killed_writers_are_told_and_removed(study):
    ours = study / "cube.zarr" / "overlap" / "c.0.0.0.1f.partial"
    theirs = study / "cube.zarr" / "notes.txt"
    ours.write_bytes(b"half")
    theirs.write_text("mine")
    report = verify(study, sample=0)
    assert (report.sound, report.leftovers) == (True, [ours, theirs])
    repair(study, sample=0)
    assert not ours.exists()
    assert theirs.exists()


def test_repair_waits_for_nobody(study, small_sweep):
    chunks(study, "overlap")[0].unlink()
    with lock.hold(study / LOCK), pytest.raises(StudyError, match="another run is at work"):
        repair(study)
    sweep = small_sweep(grid={**GRID, "replicates": 3}, record={"levels": ["sample"]})
    with prepared(sweep, study, Share(1, 2)), pytest.raises(StudyError, match="share"):
        repair(study)
    assert len(verify(study, sample=0).findings) == 1


def test_verify_needs_the_files_that_the_sweep_named(small_sweep, tmp_path):
    np.save(tmp_path / "w.npy", np.array([0.1, 0.2, 0.3, 0.4]))
    grid = {"d": [8], "gamma": [0.5], "pooling": ["file(w.npy)"], "replicates": 1}
    run(small_sweep(base=tmp_path, grid=grid), tmp_path / "study")
    assert verify(tmp_path / "study").recomputed == 2
    np.save(tmp_path / "study" / "inputs" / "w.npy", np.array([0.1, 0.2, 0.4, 0.3]))
    with pytest.raises(InputError, match=r"w\.npy"):
        verify(tmp_path / "study")


def test_the_command(study, monkeypatch, capsys):
    def type_in(*words):
        monkeypatch.setattr("sys.argv", ["eigensweep", *words])
        with pytest.raises(SystemExit) as end:
            command_line.main()
        return end.value.code or 0, capsys.readouterr()

    code, printed = type_in("verify", str(study))
    assert code == 0
    assert "no damage" in printed.out
    flip(chunks(study, "mode_value")[0])
    code, printed = type_in("verify", str(study / "cube.zarr"), "--json", "--sample", "0")
    assert code == 1
    (damage,) = json.loads(printed.out)["damage"]
    assert damage["array"] == "mode_value"
    code, printed = type_in("verify", str(study), "--repair", "--sample", "0")
    assert code == 1
    assert "2 columns are marked pending" in printed.out
    code, printed = type_in("verify", str(study))
    assert code == 0
    assert "2 pending" in printed.out
    code, printed = type_in("verify", str(study.parent))
    assert code == 2
    assert "there is no cube" in printed.err
