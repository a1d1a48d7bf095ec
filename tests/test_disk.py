"""Full, read-only and vanishing disks: a clean stop that says so, then a resume. How many files there are."""

import os
import shutil
import subprocess

import faulty_command
import numpy as np
import pytest
import xarray as xr
import zarr

from eigensweep.pipeline.chunks import read_whole
from eigensweep.pipeline.engine import run
from eigensweep.pipeline.errors import StoppedError
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.views import open_cube


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, whose size and access can be changed: ``remount("size=1m")``."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "eigensweep", disk], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs can be mounted here, which takes root: {error}")

    def remount(option):
        subprocess.run(["mount", "-o", f"remount,{option}", disk], check=True, capture_output=True)

    try:
        yield disk, remount
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True, capture_output=True)


def used(disk):
    """KiB in use on a disk."""
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize // 1024


def assert_consistent(study):
    """See that plain xarray opens a cube and that what is done is whole."""
    plain = xr.open_zarr(study / "cube.zarr", chunks=None).load()
    done = plain["column_status"].values == 1
    assert np.isfinite(plain["eigenvalue"].values[done]).all()
    assert np.isfinite(plain["mode_value"].values[done][:, 0]).all()
    assert (plain["column_digest"].values[done] != 0).all()
    return done


@pytest.mark.timeout(240)
@pytest.mark.parametrize("where", [("--cluster", "serial"), ("--workers", "1")], ids=["serial", "worker"])
def test_a_disk_that_fills_stops_the_run_which_goes_on_once_there_is_room(
    small_sweep, tmp_path, small_disk, assert_same_cube, where
):
    disk, remount = small_disk
    sweep, study = small_sweep(), disk / "study"
    with prepared(sweep, study):
        pass
    # Room for about seven blocks of eight files of a page each.
    remount(f"size={used(disk) + 230}k")
    file = faulty_command.write(sweep, tmp_path / "small.toml")
    words = ("run", file, "--study", study, "--no-figures", *where)
    running = faulty_command.start(tmp_path, *words, bundle=0.0)
    try:
        assert running.wait(120) == 3, running.output()
        assert "No space left on device" in running.output()
        assert "make room" in running.output()
        assert "Traceback" not in running.output().partition("distributed.worker")[0]
    finally:
        running.kill()
    done = assert_consistent(study)
    assert done.any()
    assert not done.all()
    remount("size=8m")
    assert not run(sweep, study).failures
    run(sweep, tmp_path / "straight")
    assert_same_cube(open_cube(study), open_cube(tmp_path / "straight"))
    assert not list(study.rglob("*.partial"))
    assert not list(study.rglob("*.tmp"))


def test_a_disk_that_fills_during_the_template_or_a_growth(
    small_sweep, tmp_path, small_disk, assert_same_cube
):
    disk, remount = small_disk
    sweep, more = small_sweep(), small_sweep(grid={"d": [12, 16, 20], "T": [4, 6]})
    study = disk / "study"
    for room in (4, 40, 120):
        remount(f"size={used(disk) + room}k")
        with pytest.raises(StoppedError, match="No space left on device; make room"):
            run(sweep, study)
        assert not (study / "cube.zarr").exists()
    remount("size=8m")
    run(sweep, study)
    shapes = {name: array.shape for name, array in xr.open_zarr(study / "cube.zarr").variables.items()}
    # The first growth finds no room for its lock, the others for some of the metadata.
    for room in (0, 8, 12):
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1024 * (8192 - used(disk) - room)))
        with pytest.raises(StoppedError, match="No space left on device; make room"):
            run(more, study)
        ballast.unlink()
        found = xr.open_zarr(study / "cube.zarr")
        assert {name: array.shape for name, array in found.variables.items()} == shapes
        assert assert_consistent(study).all()
    run(more, study)
    run(sweep, tmp_path / "straight")
    run(more, tmp_path / "straight")
    assert_same_cube(open_cube(study), open_cube(tmp_path / "straight"))


def test_a_read_only_disk_is_named_and_still_read(small_sweep, tmp_path, small_disk):
    disk, remount = small_disk
    sweep, study = small_sweep(), disk / "study"
    run(sweep, study)
    remount("ro")
    file = faulty_command.write(sweep, tmp_path / "small.toml")
    running = faulty_command.start(
        tmp_path, "run", file, "--study", study, "--cluster", "serial", "--no-figures"
    )
    assert running.wait() == 3, running.output()
    assert "Read-only file system" in running.output()
    assert str(study) in running.output()
    assert "Traceback" not in running.output()
    assert (open_cube(study).load()["column_status"] == 1).all()
    with pytest.raises(StoppedError, match="Read-only file system"):
        run(sweep, disk / "another")
    remount("rw")
    assert run(sweep, study).progress.total == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("where", [("--cluster", "serial"), ("--workers", "1")], ids=["serial", "worker"])
def test_a_study_that_vanishes_stops_the_run_and_is_not_made_anew(
    small_sweep, tmp_path, assert_same_cube, where
):
    sweep, study = small_sweep(grid={"d": [12], "replicates": 8}), tmp_path / "study"
    file = faulty_command.write(sweep, tmp_path / "small.toml")
    words = ("run", file, "--study", study, "--no-figures", *where)
    running = faulty_command.start(tmp_path, *words, slow=0.1, bundle=0.0)
    try:
        faulty_command.until(lambda: list((study / "cube.zarr").glob("column_status/c.*")))
        study.rename(tmp_path / "moved")
        assert running.wait() == 3, running.output()
        assert "the cube has vanished" in running.output()
        assert not study.exists()
        assert running.left() == []
    finally:
        running.kill()
    (tmp_path / "moved").rename(study)
    done = assert_consistent(study)
    assert done.any()
    assert not done.all()
    assert not run(sweep, study).failures
    run(sweep, tmp_path / "straight")
    assert_same_cube(open_cube(study), open_cube(tmp_path / "straight"))


def test_a_study_that_is_removed_stops_the_run(small_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("eigensweep.pipeline.engine.BUNDLE_SECONDS", 0.0)
    study = tmp_path / "study"

    def remove(progress):
        if progress.done:
            shutil.rmtree(study)

    with pytest.raises(StoppedError, match="the cube has vanished"):
        run(small_sweep(), study, watch=remove)
    assert not study.exists()


def test_files_stay_within_their_budget(small_sweep, tmp_path):
    """Twenty files a block and three hundred beside, counted at about a thousand columns."""
    grid = {"d": [4, 6], "gamma": [0.5, 1.0], "rho": [1.0], "pooling": ["mean", "causal"], "replicates": 90}
    sweep, study = small_sweep(grid=grid), tmp_path / "study"
    outcome = run(sweep, study)
    assert outcome.progress.done == 8 * 90 + 4 * 90
    with prepared(sweep, study) as held:
        count = sum(1 for _ in held.blocks())
    # Two runs of 45 replicates at each point.
    assert count == 2 * (8 + 4)
    files = sum(len(names) for _, _, names in os.walk(study))
    assert files <= 20 * count + 300


def test_states_are_read_as_zarr_reads_them(small_sweep, tmp_path):
    grid = {"d": [6, 8], "replicates": 67}
    study = tmp_path / "study"
    run(small_sweep(grid=grid), study)
    group = zarr.open_group(str(study / "cube.zarr"), mode="r", use_consolidated=True)
    earlier = dict(group.arrays())
    (study / "cube.zarr/column_status/c.0.0.0.0.0.1.abc.partial").write_bytes(b"half")
    # Read by shapes of before as well as after a growth.
    for grown in (grid, {**grid, "d": [6, 7, 8], "replicates": 70}):
        run(small_sweep(grid=grown), study)
        now = dict(zarr.open_group(str(study / "cube.zarr"), mode="r", use_consolidated=True).arrays())
        for name in (
            "column_status",
            "column_rho_count_population",
            "column_digest",
            "mode_value",
            "d",
            "pooling",
        ):
            for array in (earlier[name], now[name]):
                found, expected = read_whole(study / "cube.zarr" / name, array), np.asarray(array[...])
                assert found.dtype == expected.dtype
                assert found.tolist() == expected.tolist() or found.tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "other"])
def test_a_damaged_state_is_an_error_and_not_a_number(small_sweep, tmp_path, damage):
    study = tmp_path / "study"
    run(small_sweep(), study)
    chunk = study / "cube.zarr/column_status/c.0.0.0.0.0.0"
    text = chunk.read_bytes()
    changed = {"empty": b"", "short": text[:-1], "flipped": text[:9] + bytes([text[9] ^ 4]) + text[10:]}
    chunk.write_bytes(changed.get(damage, (study / "cube.zarr/eigenvalue/c.0.0.0.0.0.0.0.0").read_bytes()))
    with pytest.raises((ValueError, RuntimeError)):
        open_cube(study)
