"""Kills at random instants, and at every single write of a growth: nothing that was done is lost."""

import json
import random
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import psutil
import pytest
import xarray as xr
import zarr

from eigensweep.pipeline.engine import run
from eigensweep.pipeline.errors import StoppedError, StudyError
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.study import load
from eigensweep.pipeline.task import Job, Task, perform_here
from eigensweep.pipeline.views import open_cube

TORTURE = Path(__file__).parents[1] / "benchmarks" / "torture.py"


@pytest.mark.timeout(400)
def test_twenty_kills_of_growing_studies_lose_nothing():
    command = [sys.executable, str(TORTURE), "--cycles", "20", "--clusters", "0.15", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=380)
    assert found.returncode == 0, found.stdout + found.stderr[-4000:]
    figures = json.loads(found.stdout)
    assert figures["cycles"] == 20
    assert len(figures["kills"]) == 4
    assert sum(figures["kills"].values()) == 20
    assert figures["studies"] >= 1
    assert figures["columns"] >= 60
    for count in ("unopenable", "wrong", "lost", "refused", "different", "beyond_flight"):
        assert figures[count] == 0, count
    assert figures["leftovers"] == 0
    assert figures["processes_left"] == 0


class Killed(BaseException):
    """What a kill looks like from inside: nothing catches it."""


@contextmanager
def killed_at(monkeypatch, count):
    """Stop the world right before the ``count``-th file is renamed into place: nothing is written after it.

    Every write of a study is a rename: the store's, the metadata's, the sweep file's and the template's.
    """
    done = [0]

    def striking(rename):
        def wrapper(self, target):
            done[0] += 1
            if done[0] >= count:
                raise Killed
            return rename(self, target)

        return wrapper

    remove = shutil.rmtree

    def tidy(path, ignore_errors=False):
        # A dead process tidies nothing up.
        if done[0] < count:
            remove(path, ignore_errors)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", striking(Path.replace))
        patch.setattr(Path, "rename", striking(Path.rename))
        patch.setattr(shutil, "rmtree", tidy)
        yield done


def laid_out(sweep, study):
    """Lay a study out or grow it, without sampling anything."""
    with prepared(sweep, study):
        pass


def published(study):
    """The shapes that readers go by, out of one file, which must be strict JSON."""
    text = (study / "cube.zarr/zarr.json").read_text()
    document = json.loads(text, parse_constant=pytest.fail)
    arrays = document["consolidated_metadata"]["metadata"]
    return {name: tuple(array["shape"]) for name, array in arrays.items()}


def assert_readable(study, **axes):
    """Open a cube with plain xarray and look at its axes' values, whose order is that of storage."""
    found = xr.open_zarr(study / "cube.zarr", chunks=None).load()
    for name, values in axes.items():
        assert found[name].values.tolist() == values, name
    for name, array in found.variables.items():
        if array.dtype.kind == "f" and name in found.coords:
            assert np.isfinite(array.values).all(), name
    assert (found["V"].values == 2 * np.round(found["d"].values[:, None] / (2 * found["delta"].values))).all()
    return found


def test_a_template_killed_at_any_write_is_not_there_and_then_whole(
    small_sweep, tmp_path, monkeypatch, assert_same_cube
):
    sweep = small_sweep(record={"columns": False})
    whole = tmp_path / "whole"
    with killed_at(monkeypatch, 10**6) as done:
        laid_out(sweep, whole)
    writes = done[0]
    assert writes > 20
    study = tmp_path / "study"
    for count in range(1, writes + 1):
        with killed_at(monkeypatch, count), pytest.raises(Killed):
            laid_out(sweep, study)
        if (study / "cube.zarr").exists():
            # Only the sweep file is written after the template is in place.
            assert count == writes
            assert_readable(study, d=[12, 20], gamma=[0.25, 1.0])
        with pytest.raises(StudyError, match="no cube") if count < writes else nullcontext():
            open_cube(study)
    laid_out(sweep, study)
    assert_same_cube(open_cube(study), open_cube(whole))
    assert {p.name for p in study.rglob("*")} == {p.name for p in whole.rglob("*")}


def test_a_growth_killed_at_any_write_is_invisible_and_never_published_by_another(
    small_sweep, tmp_path, monkeypatch, assert_same_cube
):
    record = {"columns": False, "levels": ["sample"]}
    base = small_sweep(record=record, grid={"d": [12, 20], "gamma": [0.25]})
    one = small_sweep(record=record, grid={"d": [8, 12, 16, 20], "gamma": [0.25]})
    other = small_sweep(record=record, grid={"gamma": [0.25, 0.5, 1.0]})
    start, straight = tmp_path / "start", tmp_path / "straight"
    run(base, start)
    shutil.copytree(start, straight)
    before, content = published(start), assert_readable(start)
    with killed_at(monkeypatch, 10**6) as done:
        laid_out(one, straight)
    writes = done[0]
    assert writes > 30
    laid_out(other, straight)
    study = start
    for count in range(1, writes):
        with killed_at(monkeypatch, count), pytest.raises(Killed):
            laid_out(one, study)
        assert published(study) == before
        found = assert_readable(study, d=[12, 20], gamma=[0.25])
        assert (found["column_status"] == 1).all()
        assert found["eigenvalue"].values.tobytes() == content["eigenvalue"].values.tobytes()
        if count % 4 == 0 or count == writes - 1:
            grown = tmp_path / f"grown-{count}"
            shutil.copytree(study, grown)
            if count % 8 == 0:
                # Another axis grows next, and publishes nothing of what the first one left.
                laid_out(other, grown)
                assert_readable(grown, d=[12, 20], gamma=[0.25, 0.5, 1.0])
            laid_out(one, grown)
            laid_out(other, grown)
            assert_readable(grown, d=[12, 20, 8, 16], gamma=[0.25, 0.5, 1.0])
            assert_same_cube(open_cube(grown), open_cube(straight))


def test_growths_of_two_axes_in_turn_killed_three_hundred_times(small_sweep, tmp_path, monkeypatch):
    random_ = random.Random(4)
    record = {"columns": False, "levels": ["sample"]}
    study = tmp_path / "study"
    axes = {"d": [12], "gamma": [0.5]}

    def sweep(**more):
        grid = {name: axes[name] + more.get(name, []) for name in axes}
        return small_sweep(record=record, grid={**grid, "rho": [1.0], "pooling": ["mean"], "replicates": 1})

    laid_out(sweep(), study)
    with killed_at(monkeypatch, 10**6) as done:
        shutil.copytree(study, tmp_path / "trial")
        laid_out(sweep(d=[14]), tmp_path / "trial")
    kills = 0
    while kills < 300:
        name, value = (("d", 10 + 2 * len(axes["d"]) + 2), ("gamma", 1.0 + len(axes["gamma"])))[kills % 2]
        before = published(study)
        with killed_at(monkeypatch, random_.randrange(1, done[0])), pytest.raises(Killed):
            laid_out(sweep(**{name: [value]}), study)
        kills += 1
        assert published(study) == before
        group = zarr.open_group(str(study / "cube.zarr"), mode="r", use_consolidated=True)
        assert {axis: group[axis][...].tolist() for axis in axes} == axes
        assert group["V"][...].tolist() == [[2 * round(d)] for d in axes["d"]]
        if kills % 50 == 0:
            laid_out(sweep(**{name: [value]}), study)
            axes[name].append(value)
            assert_readable(study, **axes)
    assert [len(values) for values in axes.values()] != [1, 1]


def test_a_growth_killed_before_its_sweep_file_writes_that_later(small_sweep, tmp_path, monkeypatch):
    base, more = small_sweep(), small_sweep(grid={"d": [12, 16, 20]})
    study = tmp_path / "study"
    laid_out(base, study)
    shutil.copytree(study, tmp_path / "trial")
    with killed_at(monkeypatch, 10**6) as done:
        laid_out(more, tmp_path / "trial")
    with killed_at(monkeypatch, done[0]), pytest.raises(Killed):
        laid_out(more, study)
    assert published(study) == published(tmp_path / "trial")
    laid_out(more, study)
    assert (study / "sweep.toml").read_text() == (tmp_path / "trial/sweep.toml").read_text()


def test_a_dead_run_can_write_nothing_into_a_study_that_has_grown(small_sweep, tmp_path):
    base, more = small_sweep(), small_sweep(grid={"replicates": 5})
    study = tmp_path / "study"
    laid_out(base, study)
    stale = load(study)
    job = Job(stale.recipe, stale.cube, stale.token, stale.plan, False, 60.0, study / "stop")
    task = Task(tuple((item.block, item.stored) for item in stale.pending()))
    # A worker that outlives its run has one task in work; the next run grows the study meanwhile.
    laid_out(more, study)
    with pytest.raises(StoppedError, match="another run has taken over"):
        perform_here(job, task)
    assert not list((study / "cube.zarr/column_status").glob("c.*"))
    outcome = run(more, study)
    assert not outcome.failures
    assert (open_cube(study)["column_status"] == 1).all()


def test_a_column_of_its_own_process_ends_with_the_worker_that_watches_it(tmp_path):
    """kill -9 of a worker while a column hangs in a process of its own leaves no process behind."""
    script = tmp_path / "watcher.py"
    script.write_text(WATCHER)
    watcher = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        child = int(watcher.stdout.readline())
        assert psutil.pid_exists(child)
    finally:
        watcher.kill()
        watcher.wait()
        watcher.stdout.close()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(child)


WATCHER = """
import threading
import time

import psutil

from eigensweep.pipeline.isolation import Limits, isolated


class Hang:
    def column(self, *asked):
        import time
        print("hanging", flush=True)
        time.sleep(3600)


class Recipe:
    ensemble, seed = Hang(), 0


class Request:
    level, point, replicate = "sample", {}, 0


column = threading.Thread(target=isolated, args=(Recipe(), Request(), Limits(600.0)), daemon=True)
column.start()
# It is loaded once it has taken some time in Python.
while not (children := psutil.Process().children()) or children[0].cpu_times().user < 0.2:
    time.sleep(0.05)
time.sleep(0.5)
print(children[0].pid, flush=True)
time.sleep(3600)
"""
