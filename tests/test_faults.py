"""Columns that misbehave, runs that meet, and workers that could do harm: each injected and counted."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections import Counter

import distributed.system
import faulty_command
import numpy as np
import psutil
import pytest
from dask.system import CPU_COUNT
from faulty_ensemble import faulty

from eigensweep.cluster.local import local_client
from eigensweep.pipeline import blocks, engine, lock
from eigensweep.pipeline.engine import run
from eigensweep.pipeline.errors import InputError, StudyError
from eigensweep.pipeline.isolation import Limits, isolated
from eigensweep.pipeline.kernel import ColumnFailedError, Recipe, Request
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.schema import DONE, FAILED, OUT_OF_MEMORY, PENDING, TIMED_OUT, WORKER_LOST
from eigensweep.pipeline.task import Job, Task, mark, perform_here
from eigensweep.pipeline.views import open_cube

ONE_POINT = {"d": [12], "gamma": [0.5], "pooling": ["mean"], "rho": [1.0, 3.0]}
WORKER_MEMORY = 450 * 2**20


@pytest.fixture(scope="module")
def workers():
    """Two workers as a local run has them, of little memory."""
    with pytest.MonkeyPatch.context() as patch:
        # A worker of one thread gets this machine's memory over its cores.
        patch.setattr(distributed.system, "MEMORY_LIMIT", WORKER_MEMORY * CPU_COUNT)
        with local_client(2) as client:
            yield client


@pytest.fixture
def short_blocks(monkeypatch):
    """Three replicates a block, a block a task."""
    monkeypatch.setattr(blocks, "LONGEST_RUN", 3)
    monkeypatch.setattr(engine, "BUNDLE_SECONDS", 0.0)


def calls(journal):
    """How often each (level, d, pooling, replicate) was computed."""
    return Counter(tuple(path.name.rsplit("-", 2)[0].split("-")) for path in journal.iterdir())


def replicate_calls(journal):
    return {int(key[3]): count for key, count in calls(journal).items() if key[0] == "sample"}


def recipe_of(sweep):
    return Recipe(sweep.ensemble, sweep.seed, "rho", sweep.signal_values, 3, True, 20)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def command(words):
    """Run a command that a user was told, as this Python's eigensweep."""
    program, *rest = shlex.split(words)
    assert program == "eigensweep"
    return subprocess.run(
        [sys.executable, "-m", "eigensweep.workflows", *rest], capture_output=True, text=True, timeout=60
    )


FAULTS = {1: "hang", 4: "memory", 7: "exit", 10: "segv", 13: "raise"}
"""By replicate. Each is in a block of its own; the first two begin on the two workers."""


@pytest.mark.timeout(240)
def test_each_column_that_misbehaves_fails_alone(
    small_sweep, tmp_path, workers, short_blocks, assert_same_cube
):
    plain = small_sweep(
        grid={**ONE_POINT, "replicates": 15},
        record={"levels": ["sample"]},
        limits={"seconds_per_column": 7.0},
    )
    journal, study = tmp_path / "journal", tmp_path / "study with spaces"
    journal.mkdir()
    outcome = run(faulty(plain, faults=FAULTS, journal=str(journal)), study, workers)

    expected = dict.fromkeys(range(15), DONE)
    expected |= {1: TIMED_OUT, 4: OUT_OF_MEMORY, 7: WORKER_LOST, 10: WORKER_LOST, 13: FAILED}
    found = open_cube(study)
    assert found["column_status"].values.ravel().tolist() == list(expected.values())
    assert outcome.progress.done == 10
    assert {failure.replicate: failure.status for failure in outcome.failures} == {
        replicate: status for replicate, status in expected.items() if status != DONE
    }
    assert np.isnan(found["mode_value"].isel(replicate=list(FAULTS))).all()
    run(plain, tmp_path / "undisturbed")
    whole = open_cube(tmp_path / "undisturbed")
    kept = [replicate for replicate, status in expected.items() if status == DONE]
    for name in ("eigenvalue", "overlap", "mode_value", "column_digest"):
        assert found[name].isel(replicate=kept).values.tobytes() == (
            whole[name].isel(replicate=kept).values.tobytes()
        ), name

    # A block whose process died was computed up to the fault, and then once more, each column apart. One
    # that waited on a worker which another block took down was not begun, and is computed apart at once.
    count = replicate_calls(journal)
    assert [count[replicate] for replicate in (0, 1, 3, 4)] == [2, 2, 2, 2]
    assert count[6] == count[7] <= 2
    assert count[9] == count[10] <= 2
    assert [count[replicate] for replicate in (2, 5, 8, 11, 12, 13, 14)] == [1] * 7

    told = {line["replicate"]: line for line in lines(study / "failures.jsonl")}
    assert set(told) == set(FAULTS)
    for replicate, line in told.items():
        assert line["status"] == expected[replicate]
        assert line["seed"] == plain.seed
        assert line["level"] == "sample"
        assert line["parameters"] == {"d": 12, "delta": 0.5, "gamma": 0.5, "T": 4, "pooling": "mean"}
    assert told[13]["reason"] == "ValueError: a scripted fault"
    assert "_misbehave" in told[13]["log"]
    assert told[13]["log"].endswith("ValueError: a scripted fault")
    assert "longer than 7 s" in told[1]["reason"]
    assert "MiB" in told[4]["reason"]
    assert "code 3" in told[7]["reason"]
    assert "SIGSEGV" in told[10]["reason"]
    shown = command(told[13]["command"])
    assert shown.returncode == 0, shown.stderr
    assert "replicate 13" in shown.stdout
    assert "it is failed" in " ".join(shown.stdout.split())

    again = run(plain, study)
    assert again.progress.total == 0
    mended = run(plain, study, retry_failed=True)
    assert (mended.progress.done, mended.failures) == (5, [])
    assert_same_cube(open_cube(study), whole)


def test_healthy_columns_are_computed_once(small_sweep, tmp_path, workers, short_blocks):
    journal = tmp_path / "journal"
    journal.mkdir()
    sweep = faulty(small_sweep(grid={"gamma": [0.5], "replicates": 4}), journal=str(journal))
    run(sweep, tmp_path / "study", workers)
    # Two levels, two d, two poolings and four replicates.
    assert len(calls(journal)) == 2 * 2 * 2 * 4
    assert set(calls(journal).values()) == {1}


def test_a_worker_that_is_killed_costs_its_tasks_only(
    small_sweep, tmp_path, workers, short_blocks, assert_same_cube
):
    journal = tmp_path / "journal"
    journal.mkdir()
    plain = small_sweep(grid={**ONE_POINT, "replicates": 18}, record={"levels": ["sample"]})
    killed = []

    def kill_one(progress):
        if progress.done >= 3 and not killed:
            pid = next(iter(workers.run(os.getpid).values()))
            killed.append(pid)
            psutil.Process(pid).kill()

    outcome = run(faulty(plain, slow=0.05, journal=str(journal)), tmp_path / "study", workers, watch=kill_one)
    assert killed
    assert not outcome.failures
    assert sum(replicate_calls(journal).values()) <= 18 + 3
    run(plain, tmp_path / "undisturbed")
    assert_same_cube(open_cube(tmp_path / "study"), open_cube(tmp_path / "undisturbed"))


def test_a_receipt_that_is_lost_costs_no_column(small_sweep, tmp_path):
    """A worker stores a task and dies before its receipt is fetched: Dask has the task performed again."""
    journal, study = tmp_path / "journal", tmp_path / "study"
    journal.mkdir()
    plain = small_sweep(grid={**ONE_POINT, "replicates": 6}, record={"levels": ["sample"]})
    sweep = faulty(plain, faults={4: "raise"}, journal=str(journal))
    with prepared(sweep, study) as held:
        job = Job(held.recipe, held.cube, held.token, held.plan, False, 60.0, study / "stop")
        task = Task(tuple((item.block, item.stored) for item in held.pending()))
        receipts = [perform_here(job, task) for _ in range(2)]
        mark(job, task, WORKER_LOST, "never")
    for receipt in receipts:
        assert receipt.computed == 5
        assert [failure.replicate for failure in receipt.failures] == [4]
    assert replicate_calls(journal) == dict.fromkeys(range(6), 1) | {4: 2}
    assert open_cube(study)["column_status"].values.ravel().tolist() == [1, 1, 1, 1, FAILED, 1]


def test_serial_runs_mark_what_raises_and_what_hangs(small_sweep, tmp_path, short_blocks):
    journal = tmp_path / "journal"
    journal.mkdir()
    plain = small_sweep(
        grid={**ONE_POINT, "replicates": 6}, record={"levels": ["sample"]}, limits={"seconds_per_column": 0.5}
    )
    outcome = run(faulty(plain, faults={1: "raise", 4: "hang"}, journal=str(journal)), tmp_path / "study")
    status = open_cube(tmp_path / "study")["column_status"].values.ravel().tolist()
    assert status == [DONE, FAILED, DONE, DONE, TIMED_OUT, DONE]
    assert len(outcome.failures) == 2
    assert replicate_calls(journal) == dict.fromkeys(range(6), 1)


def test_a_done_column_that_cannot_be_extended_keeps_what_it_has(small_sweep, tmp_path):
    record = {"levels": ["sample"], "columns": False}
    plain = small_sweep(grid={**ONE_POINT, "replicates": 3}, record=record)
    study = tmp_path / "study"
    run(plain, study)
    before = open_cube(study).load()
    more = small_sweep(grid={**ONE_POINT, "replicates": 3, "rho": [1.0, 2.0, 3.0]}, record=record)
    outcome = run(faulty(more, faults={1: "raise"}), study)
    assert [failure.replicate for failure in outcome.failures] == [1]
    after = open_cube(study).load()
    assert (after["column_status"] == DONE).all()
    for name in ("eigenvalue", "overlap"):
        assert after[name].sel(rho=[1.0, 3.0]).values.tobytes() == before[name].values.tobytes()
    assert np.isnan(after["eigenvalue"].sel(rho=2.0).isel(replicate=1)).all()
    # It stays asked for, without a flag.
    assert run(more, study).progress.done == 1
    assert np.isfinite(open_cube(study)["eigenvalue"]).all()


def test_what_fails_everywhere_stops_early_and_says_so_once(small_sweep, tmp_path, short_blocks):
    journal, study = tmp_path / "journal", tmp_path / "study"
    journal.mkdir()
    plain = small_sweep(grid={**ONE_POINT, "replicates": 60}, record={"levels": ["sample"]})
    sweep = faulty(plain, faults=dict.fromkeys(range(60), "raise"), journal=str(journal))
    with pytest.raises(StudyError, match=r"first 21 columns all failed alike .*a scripted fault"):
        run(sweep, study)
    assert sum(replicate_calls(journal).values()) == 21
    assert len(lines(study / "failures.jsonl")) == 21
    assert [line["event"].split(":")[0] for line in lines(study / "log.jsonl")] == ["start", "stopped"]
    assert (open_cube(study)["column_status"] == PENDING).sum() == 39


def test_the_command_ends_with_1_and_a_table(small_sweep, tmp_path):
    sweep = small_sweep(grid={**ONE_POINT, "replicates": 4}, record={"levels": ["sample"]})
    file, study = faulty_command.write(sweep, tmp_path / "small.toml"), tmp_path / "study"
    words = ("run", file, "--study", study, "--cluster", "serial", "--no-figures")
    failing = faulty_command.start(tmp_path, *words, faults={2: "raise"})
    assert failing.wait() == 1, failing.output()
    printed = " ".join(failing.output().split())
    assert "1 columns failed" in printed
    assert "sample d=12 delta=0.5 gamma=0.5 T=4 pooling=mean 2 failed ValueError: a scripted fault" in printed
    assert "--retry-failed" in printed
    before = {
        path: path.read_bytes() for path in study.rglob("*") if path.is_file() and path.name != "log.jsonl"
    }
    # The same command twice: the same bytes, and nothing computed.
    same = faulty_command.start(tmp_path, *words)
    assert same.wait() == 1, same.output()
    assert "nothing to compute" in same.output()
    after = {
        path: path.read_bytes() for path in study.rglob("*") if path.is_file() and path.name != "log.jsonl"
    }
    assert after == before
    retry = faulty_command.start(tmp_path, *words, "--retry-failed")
    assert retry.wait() == 0, retry.output()
    assert (open_cube(study)["column_status"] == DONE).all()


def test_a_column_over_its_memory_is_stopped_by_its_watch(small_sweep):
    sweep = faulty(small_sweep(), faults={0: "memory"})
    point = {"d": 12, "delta": 0.5, "gamma": 0.25, "T": 4, "pooling": "mean"}
    with pytest.raises(ColumnFailedError, match="MiB and may take 300 MiB") as caught:
        isolated(recipe_of(sweep), Request("sample", point, 0), Limits(60.0, 300 * 2**20))
    assert caught.value.status == OUT_OF_MEMORY


def test_the_second_run_is_refused_and_a_killed_one_succeeded_by_the_next(small_sweep, tmp_path):
    sweep = small_sweep()
    file, study = faulty_command.write(sweep, tmp_path / "small.toml"), tmp_path / "study"
    words = ("run", file, "--study", study, "--cluster", "serial", "--no-figures")
    first = faulty_command.start(tmp_path, *words, slow=0.3, bundle=0.0)
    try:
        faulty_command.until(lambda: (study / "cube.zarr").exists() and (study / "log.jsonl").exists())
        second = faulty_command.start(tmp_path, *words)
        assert second.wait() == 2
        assert f"process {first.process.pid} on {socket.gethostname()}" in second.output()
        with pytest.raises(StudyError, match="another run is at work"):
            run(sweep, study)
        assert first.process.poll() is None
    finally:
        first.kill()
    assert (study / "lock").exists()
    third = faulty_command.start(tmp_path, *words)
    assert third.wait() == 0, third.output()
    assert not (study / "lock").exists()
    assert (open_cube(study)["column_status"] == DONE).all()


def test_a_holder_on_another_machine_is_dead_once_its_heartbeat_is_stale(small_sweep, tmp_path):
    study = tmp_path / "study"
    study.mkdir()
    held = {"host": "elsewhere", "process": 1, "job": "77", "started": "now", "identity": "x"}
    (study / "lock").write_text(json.dumps(held))
    with pytest.raises(StudyError, match="process 1 on elsewhere, job 77"):
        run(small_sweep(), study)
    old = (study / "lock").stat().st_mtime - lock.STALE - 1
    os.utime(study / "lock", (old, old))
    assert not run(small_sweep(), study).failures


def test_a_lock_whose_process_id_has_a_new_owner_is_dead(small_sweep, tmp_path):
    study = tmp_path / "study"
    study.mkdir()
    with lock.hold(tmp_path / "probe") as mine:
        alive = {**vars(mine), "identity": "x"}
    (study / "lock").write_text(json.dumps(alive))
    with pytest.raises(StudyError, match="another run"):
        run(small_sweep(), study)
    if not mine.born:
        pytest.skip("this system does not tell when a process began")
    (study / "lock").write_text(json.dumps({**alive, "born": "another boot:1"}))
    assert not run(small_sweep(), study).failures


def test_shares_join_a_live_study_and_a_whole_run_does_not(small_sweep, tmp_path, assert_same_cube):
    # 48 columns of the sample and 24 of the population, by four processes, in an order of chance.
    sweep = small_sweep(grid={"replicates": 6})
    file, study = faulty_command.write(sweep, tmp_path / "small.toml"), tmp_path / "study"
    shares = [
        faulty_command.start(
            tmp_path, "run", file, "--study", study, "--share", f"{number}/4", bundle=0.0, slow=0.1
        )
        for number in (1, 2, 3)
    ]
    try:
        faulty_command.until(lambda: (study / "cube.zarr").exists())
        # The fourth joins while they write.
        run(sweep, study, share=(4, 4))
        for running in shares:
            assert running.wait() == 0, running.output()
    finally:
        for running in shares:
            running.kill()
    run(sweep, tmp_path / "straight")
    assert_same_cube(open_cube(study), open_cube(tmp_path / "straight"))
    assert run(sweep, study).progress.total == 0
    with lock.hold(study / "lock.share-1-of-4"):
        with pytest.raises(StudyError, match="another run is at work"):
            run(sweep, study, share=(1, 4))
        with pytest.raises(StudyError, match="share 1/4 is at work here"):
            run(sweep, study)
        with pytest.raises(StudyError, match="share 1/4 is at work here"):
            run(sweep, study, share=(1, 2))
        run(sweep, study, share=(2, 4))


def test_a_share_leaves_the_files_alone_that_others_are_writing(small_sweep, tmp_path):
    sweep, study = small_sweep(), tmp_path / "study"
    run(sweep, study, share=(1, 2))
    unfinished = study / "cube.zarr/eigenvalue/c.0.partial"
    unfinished.write_bytes(b"half")
    with lock.hold(study / "lock.share-1-of-2"):
        run(sweep, study, share=(2, 2))
        assert unfinished.exists()
    run(sweep, study, share=(2, 2))
    assert not unfinished.exists()


def test_nothing_listens_beyond_this_machine(workers):
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        connection.laddr.ip
        for process in family
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    # A scheduler, its dashboard, two nannies and two workers, at the least.
    assert len(listening) >= 6
    assert set(listening) == {"127.0.0.1"}
    assert workers.dashboard_link.startswith("http://127.0.0.1:")


def test_every_worker_computes_on_one_thread(workers):
    from eigensweep.pipeline.provenance import blas

    found = workers.run(blas)
    assert len(found) == 2
    for pools in found.values():
        assert pools
        assert {pool["threads"] for pool in pools} == {1}


def test_a_hundred_equal_replicas_differ(small_sweep, tmp_path, workers, short_blocks):
    sweep = small_sweep(grid={**ONE_POINT, "d": [6], "replicates": 100}, record={"columns": False})
    run(sweep, tmp_path / "study", workers)
    found = open_cube(tmp_path / "study")
    for name in ("eigenvalue", "population_eigenvalue"):
        values = found[name].isel(rho=0, top=0).values.ravel()
        assert values.size == 100
        assert np.unique(values).size == 100


@pytest.fixture
def trap(tmp_path):
    """A folder, such as somebody's checkout, whose packages have the names of ours."""
    for name in ("eigensweep", "eigensweep/pipeline", "pipeline", "cluster", "numpy"):
        (tmp_path / "trap" / name).mkdir(parents=True)
        (tmp_path / "trap" / name / "__init__.py").write_text("raise ImportError('the wrong package')\n")
    return tmp_path / "trap"


def test_workers_run_this_package_whatever_lies_in_the_current_folder(small_sweep, tmp_path, trap):
    sweep = small_sweep(grid=ONE_POINT, record={"levels": ["sample"]})
    file = faulty_command.write(sweep, trap / "small.toml")
    running = faulty_command.start(tmp_path, "run", file, "--workers", "1", "--no-figures", cwd=trap)
    assert running.wait(90) == 0, running.output()
    assert "wrong package" not in running.output()
    assert (open_cube(trap / "small")["column_status"] == DONE).all()


def test_a_column_of_its_own_process_runs_this_package_too(small_sweep, trap, monkeypatch):
    monkeypatch.chdir(trap)
    sweep, point = small_sweep(), {"d": 12, "delta": 0.5, "gamma": 0.25, "T": 4, "pooling": "mean"}
    apart = isolated(recipe_of(sweep), Request("sample", point, 0), Limits(60.0))
    here = sweep.ensemble.column("sample", point, sweep.seed, 0)
    assert apart.value.tobytes() == here.value.tobytes()


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", "..", ".", "", "a\0b", "-rf"])
def test_a_sweep_name_stays_in_its_folder(small_sweep, name):
    with pytest.raises(InputError):
        small_sweep(name=name)
