"""The study's folder: what it holds, what it refuses, and the story that it tells."""

import errno
import json
import shlex
import tomllib

import numpy as np
import pytest
import toy_ensemble
from toy_ensemble import poisoned

from eigensweep.pipeline import cube as cubes
from eigensweep.pipeline import open_cube, run
from eigensweep.pipeline.blocks import fresh_layout
from eigensweep.pipeline.errors import InputError, StoppedError, StudyError
from eigensweep.pipeline.kernel import Failure
from eigensweep.pipeline.preparation import asked_layout, check, prepared
from eigensweep.pipeline.provenance import machine, now, version, versions
from eigensweep.pipeline.study import column_command, load
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.tomltext import to_toml

TINY = {"d": [12], "gamma": [0.5], "pooling": ["mean"], "replicates": 2}


def test_a_study_holds_what_it_should(small_sweep, tmp_path):
    run(small_sweep(grid=TINY), tmp_path / "deep" / "er" / "s")
    study = tmp_path / "deep" / "er" / "s"
    assert sorted(path.name for path in study.iterdir()) == ["cube.zarr", "log.jsonl", "sweep.toml"]
    assert Sweep.from_toml(study / "sweep.toml").digest == small_sweep(grid=TINY).digest


def test_it_is_loaded_as_it_was_published(small_sweep, tmp_path):
    sweep = small_sweep(grid={**TINY, "gamma": [1.0, 0.5], "rho": [2.0, 1.0]})
    run(sweep, tmp_path)
    study = load(tmp_path)
    assert study.sweep.digest == sweep.digest
    assert study.plan.layout == asked_layout(sweep)
    layout = study.plan.layout
    assert layout == fresh_layout(sweep.axes, "rho", sweep.signal_values, 2, 3)
    assert layout.axes["gamma"] == (1.0, 0.5)
    assert all(type(value) is int for value in layout.axes["d"])
    assert study.recipe.signal_values == (1.0, 2.0)
    assert study.recipe.ensemble == sweep.ensemble


@pytest.mark.parametrize("grid", [{"rho": None, "mu2": [0.5]}, {"replicates": {"12": 5}}])
@pytest.mark.parametrize("record", [{}, {"columns": False}, {"levels": ["population"], "top": 40}])
def test_every_kind_of_layout_reads_back(grid, record, small_sweep, tmp_path):
    sweep = small_sweep(grid={**TINY, **grid}, record=record)
    with prepared(sweep, tmp_path) as study:
        assert study.plan.layout == asked_layout(sweep)
    assert load(tmp_path).plan.layout == asked_layout(sweep)


def test_the_sweep_file_is_the_last_run(small_sweep, tmp_path):
    run(small_sweep(grid=TINY), tmp_path)
    other = small_sweep(grid={**TINY, "gamma": [2.0]})
    run(other, tmp_path)
    assert Sweep.from_toml(tmp_path / "sweep.toml").digest == other.digest
    assert load(tmp_path).sweep.digest == other.digest
    assert open_cube(tmp_path).gamma.values.tolist() == [0.5, 2.0]


def test_files_that_a_sweep_names_are_kept(small_sweep, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    weights = np.array([1.0, 0.5, 0.25, 0.0])
    np.save(home / "w.npy", weights)
    sweep = small_sweep(home, grid={**TINY, "pooling": ["mean", "file(w.npy)"]})
    run(sweep, tmp_path / "s")
    assert np.array_equal(np.load(tmp_path / "s" / "inputs" / "w.npy"), weights)
    # The study needs the original no more.
    (home / "w.npy").unlink()
    study = load(tmp_path / "s")
    assert study.sweep.digest == sweep.digest
    assert not list(study.pending())
    assert float(open_cube(tmp_path / "s").kappa.sel(T=4, pooling="file(w.npy)")) == pytest.approx(1.3125)
    assert run(study.sweep, tmp_path / "s").progress.total == 0
    # Another file of the same name is another model.
    np.save(home / "w.npy", 2 * weights)
    with pytest.raises(InputError, match=r"inputs\.w\.npy"):
        run(small_sweep(home, grid={**TINY, "pooling": ["file(w.npy)"]}), tmp_path / "s")
    assert np.array_equal(np.load(tmp_path / "s" / "inputs" / "w.npy"), weights)


def test_a_folder_that_holds_something_else_is_refused(small_sweep, tmp_path):
    (tmp_path / "thesis.tex").write_text("...")
    (tmp_path / "data").mkdir()
    with pytest.raises(InputError) as caught:
        run(small_sweep(grid=TINY), tmp_path)
    (fault,) = caught.value.faults
    assert fault.thing == "study"
    assert fault.value == str(tmp_path)
    assert fault.reason == "it holds something that is no study (data, thesis.tex)"
    assert "--study" in fault.remedy
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "thesis.tex"]


def test_a_file_is_no_study(small_sweep, tmp_path):
    (tmp_path / "s").write_text("x")
    for ask in (run, check):
        with pytest.raises(InputError, match="it is a file; name another folder"):
            ask(small_sweep(grid=TINY), tmp_path / "s")
    assert (tmp_path / "s").read_text() == "x"


def test_a_study_that_was_prepared_and_not_run_is_one(small_sweep, tmp_path):
    # What an earlier run may have left without a cube is no stranger's.
    for name in ("log.jsonl", "sweep.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / ".cube.zarr.tmp" / "d").mkdir(parents=True)
    assert check(small_sweep(grid=TINY), tmp_path) is None
    assert run(small_sweep(grid=TINY), tmp_path).progress.done == 4
    assert not (tmp_path / ".cube.zarr.tmp").exists()


def test_check_touches_nothing(small_sweep, tmp_path, chunk_bytes):
    assert check(small_sweep(), tmp_path / "s") is None
    assert not (tmp_path / "s").exists()
    run(small_sweep(grid=TINY), tmp_path / "s")
    kept = chunk_bytes(tmp_path / "s")
    study = check(small_sweep(), tmp_path / "s")
    assert study.plan.layout == asked_layout(small_sweep(grid=TINY))
    with pytest.raises(InputError, match="seed = 5: the study has 7; keep the study's, or start another"):
        check(small_sweep(seed=5), tmp_path / "s")
    assert chunk_bytes(tmp_path / "s") == kept


def test_loading_what_is_not_there(tmp_path):
    with pytest.raises(StudyError, match="there is no cube; run the sweep first or name another study"):
        load(tmp_path)


def test_a_full_disk_is_said_and_nothing_is_lost(small_sweep, tmp_path, monkeypatch, assert_same_cube):
    run(small_sweep(grid=TINY), tmp_path / "s")
    before = open_cube(tmp_path / "s").load()

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "s" / "x"))

    with monkeypatch.context() as patch:
        patch.setattr(cubes, "publish", full)
        with pytest.raises(StoppedError) as caught:
            run(small_sweep(), tmp_path / "s")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 's' / 'x'}: No space left on device; make room")
    assert message.endswith("what is done stays done")
    assert_same_cube(open_cube(tmp_path / "s"), before)
    assert not (tmp_path / "s" / "lock").exists()


def test_a_place_that_can_not_hold_a_folder(small_sweep, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoppedError, match="Not a directory; make room or make the folder writable"):
        run(small_sweep(grid=TINY), tmp_path / "file" / "s")


def test_pending_and_tally_before_between_and_after(toy_sweep, tmp_path):
    grid = {"n": [4], "beta": [1.0], "flavour": ["plain", "sour"], "replicates": 3}
    sweep = poisoned(toy_sweep(grid=grid), ("sour", 0))
    with prepared(sweep, tmp_path) as study:
        assert [(item.stored, item.columns) for item in study.pending()] == [(False, 3), (False, 3)]
        assert study.tally()["wigner"].tolist() == [6, 0, 0, 0, 0, 0]
    run(sweep, tmp_path)
    study = load(tmp_path)
    assert study.tally()["wigner"].tolist() == [0, 4, 2, 0, 0, 0]
    assert not list(study.pending())
    (item,) = study.pending(retry=True)
    assert (item.stored, item.columns) == (True, 2)
    more = toy_sweep(grid={**grid, "rho": [0.0, 0.5, 1.0, 2.0], "replicates": 4})
    with prepared(more, tmp_path) as study:
        # Runs of three replicates: sour's two failures stay as they are.
        found = [(dict(i.block.point)["flavour"], i.block.run, i.stored, i.columns) for i in study.pending()]
        assert found == [
            ("plain", 0, True, 3),
            ("sour", 0, True, 1),
            ("plain", 1, False, 1),
            ("sour", 1, False, 1),
        ]
        assert [item.extended for item in study.pending()] == [3, 1, 0, 0]
        assert study.tally()["wigner"].tolist() == [2, 4, 2, 0, 0, 0]
    assert not toy_ensemble.ASKED[6:]


def test_notes_are_lines_of_json(toy_sweep, tmp_path):
    run(toy_sweep(grid={"n": [4], "replicates": 1}), tmp_path)
    study = load(tmp_path)
    study.note("something", value="café")
    point = {"n": 4, "beta": 1.0, "flavour": "very sweet (1.0)"}
    study.note_failure(Failure("wigner", point, 3, 2, "ValueError: no", "line 1\nline 2"))
    last = json.loads((tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert (last["event"], last["value"]) == ("something", "café")
    (failure,) = (json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines())
    assert failure["parameters"] == point
    assert failure["log"] == "line 1\nline 2"
    words = shlex.split(failure["command"])
    assert words[:3] == ["eigensweep", "column", str(tmp_path)]
    assert words[3:] == ["n=4", "beta=1.0", "flavour=very sweet (1.0)", "replicate=3", "--level", "wigner"]
    assert column_command(tmp_path, Failure("wigner", {"n": 4}, 0, 2, "", "")) == (
        f"eigensweep column {tmp_path} n=4 replicate=0 --level wigner"
    )


def test_provenance_is_what_runs():
    import numpy
    import zarr

    told = versions()
    assert told["numpy"] == numpy.__version__
    assert told["zarr"] == zarr.__version__
    assert told["eigensweep"] == version()
    assert told["commit"]
    here = machine()
    assert here["blas"]
    assert json.loads(json.dumps(here)) == here
    assert len(now()) == len("2026-05-07T12:00:00Z")


def test_the_toml_text_reads_back(small_sweep):
    tables = {
        "name": 'quo"te\\ and \x7f',
        "empty": [],
        "grid": {"d": [1, 2], "x": [0.1, 1e-300, 1e22], "pooling": ["mean", "é"], "n": {"1": 2, "a b": True}},
        "a b": {"flag": False},
    }
    assert tomllib.loads(to_toml(tables)) == tables
    sweep = small_sweep(grid={"replicates": {"12": 2, "20": 3}})
    again = Sweep.from_dict(tomllib.loads(to_toml(sweep.to_dict())))
    assert again.digest == sweep.digest
