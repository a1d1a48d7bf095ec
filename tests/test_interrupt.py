"""Ctrl-C and SIGTERM: a clean stop, exit code 3, no process left, and the same command goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import faulty_command
import numpy as np
import pytest

from eigensweep.pipeline.engine import run
from eigensweep.pipeline.views import open_cube

SLOW = 0.4
"""Seconds that a column takes here."""
PROMISED = 5.0
"""Seconds, beyond the running column, within which a run ends."""
BUSY = 3.0
"""How much slower than promised a machine may be that does other things besides."""


@pytest.fixture
def words(small_sweep, tmp_path):
    """A run of a second or more per block, as typed."""
    sweep = small_sweep(grid={"d": [12], "replicates": 8})
    file = faulty_command.write(sweep, tmp_path / "small.toml")
    return sweep, ("run", file, "--study", tmp_path / "study", "--no-figures")


def begun(running, study, columns=1):
    """Wait until so many columns are stored, or at least begun."""

    def holds():
        assert running.process.poll() is None, running.output()
        return len(list((study / "cube.zarr").glob("column_status*/c.*"))) >= columns

    faulty_command.until(holds)


def assert_resumes(sweep, study, assert_same_cube, tmp_path):
    """See that the study is valid as it is and whole after one more run."""
    seen = open_cube(study).load()
    done = seen["column_status"].values == 1
    assert (np.isfinite(seen["mode_value"].values[..., 0]) == done).all()
    assert not done.all()
    assert not list(study.glob("stop*"))
    assert not (study / "lock").exists()
    assert not run(sweep, study).failures
    run(sweep, tmp_path / "straight")
    assert_same_cube(open_cube(study), open_cube(tmp_path / "straight"))


CASES = [
    pytest.param(signal.SIGINT, True, ("--cluster", "serial"), id="ctrl-c, serial"),
    pytest.param(signal.SIGTERM, False, ("--cluster", "serial"), id="sigterm to the main process, serial"),
    pytest.param(signal.SIGINT, True, ("--workers", "2"), id="ctrl-c, workers"),
    pytest.param(signal.SIGTERM, True, ("--workers", "2"), id="sigterm to all, workers"),
    pytest.param(signal.SIGTERM, False, ("--workers", "2"), id="sigterm to the main process, workers"),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("number", "group", "where"), CASES)
def test_a_signal_stops_a_run_cleanly(words, tmp_path, assert_same_cube, number, group, where):
    sweep, typed = words
    study = tmp_path / "study"
    running = faulty_command.start(tmp_path, *typed, *where, slow=SLOW, bundle=0.0)
    try:
        begun(running, study)
        start = time.monotonic()
        running.send(number, group)
        assert running.wait() == 3, running.output()
        assert time.monotonic() - start < SLOW + PROMISED * BUSY
        assert running.left() == []
    finally:
        running.kill()
    assert "interrupted; what is done stays done" in running.output()
    assert "Traceback" not in running.output()
    assert_resumes(sweep, study, assert_same_cube, tmp_path)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("where", [("--cluster", "serial"), ("--workers", "2")], ids=["serial", "workers"])
def test_a_second_ctrl_c_ends_at_once(words, tmp_path, where):
    sweep, typed = words
    study = tmp_path / "study"
    # Columns that never end: only the second signal does.
    running = faulty_command.start(tmp_path, *typed, *where, slow=600.0)
    try:
        faulty_command.until(lambda: (study / "log.jsonl").exists())
        time.sleep(1.0)
        running.send(signal.SIGINT, group=True)
        time.sleep(1.0)
        assert running.process.poll() is None
        start = time.monotonic()
        running.send(signal.SIGINT, group=True)
        assert running.wait() == 3, running.output()
        assert time.monotonic() - start < PROMISED * BUSY
        assert running.left() == []
    finally:
        running.kill()
    assert not run(sweep, study).failures
    assert (open_cube(study)["column_status"] == 1).all()


@pytest.mark.timeout(240)
def test_a_signal_while_workers_start_leaves_none(words, tmp_path):
    _, typed = words
    running = faulty_command.start(tmp_path, *typed, "--workers", "2")
    try:
        faulty_command.until(lambda: len(running.processes()) >= 3)
        running.send(signal.SIGTERM, group=False)
        assert running.wait() == 3, running.output()
        assert running.left() == []
    finally:
        running.kill()
    assert not (tmp_path / "study" / "lock").exists()


@pytest.mark.timeout(240)
def test_a_column_apart_is_ended_with_its_run(words, tmp_path):
    """A column hangs in a process of its own while its run is killed: neither stays."""
    _, typed = words
    journal = tmp_path / "journal"
    journal.mkdir()
    running = faulty_command.start(
        tmp_path, *typed, "--workers", "1", faults={0: "exit", 1: "hang"}, journal=str(journal)
    )
    try:
        # The exit is met twice, by a worker and apart; the hang only apart.
        faulty_command.until(lambda: any(path.name.split("-")[3] == "1" for path in journal.glob("sample-*")))
        running.process.kill()
        running.wait()
        assert running.left(10.0) == []
    finally:
        running.kill()


def test_a_signal_in_a_python_session_is_a_keyboard_interrupt(small_sweep, tmp_path):
    sweep = small_sweep(grid={"replicates": 4})
    before = signal.getsignal(signal.SIGTERM)

    def interrupt(progress):
        if progress.done:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eigensweep.pipeline.engine.BUNDLE_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            run(sweep, tmp_path / "study", watch=interrupt)
    assert signal.getsignal(signal.SIGTERM) is before
    done = (open_cube(tmp_path / "study")["column_status"] == 1).sum()
    assert 0 < done < 32
    assert not run(sweep, tmp_path / "study").failures


@pytest.mark.timeout(240)
def test_a_scheduler_that_dies_ends_the_run_and_the_next_goes_on(words, tmp_path, assert_same_cube):
    sweep, typed = words
    study, file = tmp_path / "study", tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    loopback = ("--host", "127.0.0.1")
    server = [sys.executable, "-m", "distributed.cli.dask_scheduler", *loopback, "--port", "0"]
    server += ["--no-dashboard", "--scheduler-file", str(file)]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", *loopback, "--nthreads", "1"]
    worker += ["--no-nanny", "--no-dashboard", "--scheduler-file", str(file), "--death-timeout", "5"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment, "cwd": tmp_path}
    with subprocess.Popen(server, **quiet) as scheduler, subprocess.Popen(worker, **quiet) as only:
        try:
            faulty_command.until(file.exists)
            running = faulty_command.start(tmp_path, *typed, "--cluster", file, slow=SLOW, bundle=0.0)
            try:
                begun(running, study)
                scheduler.kill()
                assert running.wait(120) == 3, running.output()
            finally:
                running.kill()
        finally:
            scheduler.kill()
            only.kill()
    # Dask's client logs of its own what it sees; the last word is ours.
    told = running.output().splitlines()[-1]
    assert told.startswith("eigensweep: the scheduler ")
    assert told.endswith("run again")
    assert_resumes(sweep, study, assert_same_cube, tmp_path)
