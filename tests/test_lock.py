"""One writer of a study's metadata, and what becomes of a dead one's lock."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from eigensweep.pipeline import lock, run
from eigensweep.pipeline.errors import StudyError

HOLDER = """
import sys, time
from pathlib import Path
from eigensweep.pipeline import lock
with lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def write(path, **changes):
    holder = {
        "host": "node17",
        "process": 4242,
        "job": "991",
        "started": "2026-05-07T12:00:00Z",
        "identity": "f00d",
        **changes,
    }
    path.write_text(json.dumps(holder))
    return holder


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    path = tmp_path / "lock"
    assert lock.read(path) is None
    with lock.hold(path) as holder:
        assert lock.read(path) == holder
        assert (holder.host, holder.process, holder.job) == (socket.gethostname(), os.getpid(), "77")
        assert lock.is_alive(path, holder)
        assert [p.name for p in tmp_path.iterdir()] == ["lock"]
    assert not list(tmp_path.iterdir())


def test_it_goes_when_the_body_fails(tmp_path):
    with pytest.raises(RuntimeError), lock.hold(tmp_path / "lock"):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_a_second_holder_is_refused_and_told_of_the_first(tmp_path, holder):
    with pytest.raises(StudyError) as caught, lock.hold(tmp_path / "lock"):
        pass
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: another run is at work here (process {holder.pid} on ")
    assert socket.gethostname() in message
    assert message.endswith("wait for it or stop it")
    assert lock.read(tmp_path / "lock").process == holder.pid
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_the_same_process_is_refused_too(tmp_path):
    with lock.hold(tmp_path / "lock"):
        with pytest.raises(StudyError, match=f"process {os.getpid()} on"), lock.hold(tmp_path / "lock"):
            pass
        assert lock.read(tmp_path / "lock") is not None


def test_a_run_on_a_live_study_is_refused(tmp_path, holder, small_sweep):
    with pytest.raises(StudyError, match=f"another run is at work here .process {holder.pid} on"):
        run(small_sweep(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_a_killed_process_lock_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    dead = lock.read(tmp_path / "lock")
    assert dead.process == holder.pid
    assert not lock.is_alive(tmp_path / "lock", dead)
    with lock.hold(tmp_path / "lock") as mine:
        assert lock.read(tmp_path / "lock") == mine
        assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_a_run_goes_on_where_a_killed_one_left_its_lock(tmp_path, holder, toy_sweep):
    holder.kill()
    holder.wait()
    outcome = run(toy_sweep(grid={"n": [4], "replicates": 1}), tmp_path)
    assert outcome.progress.done == outcome.progress.total > 0
    assert not (tmp_path / "lock").exists()


def test_another_hosts_holder_lives_as_long_as_its_heart_beats(tmp_path):
    path = tmp_path / "lock"
    write(path)
    with (
        pytest.raises(StudyError, match="process 4242 on node17, job 991, since 2026-05-07"),
        lock.hold(path),
    ):
        pass
    now = time.time()
    os.utime(path, (now, now - lock.STALE + 20))
    with pytest.raises(StudyError, match="node17"), lock.hold(path):
        pass
    os.utime(path, (now, now - lock.STALE - 5))
    with lock.hold(path) as mine:
        assert lock.read(path) == mine


def test_the_heart_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)
    path = tmp_path / "lock"
    with lock.hold(path):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 20
        while path.stat().st_mtime < time.time() - 60 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert path.stat().st_mtime > time.time() - 60


def test_another_holders_lock_is_left_alone(tmp_path):
    # Whoever was taken over, being thought dead, must not remove its successor's lock.
    path = tmp_path / "lock"
    with lock.hold(path):
        other = write(path)
    assert json.loads(path.read_text()) == other


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": "x"}'])
def test_an_unreadable_lock_counts_as_one_until_it_is_stale(text, tmp_path):
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(StudyError, match="unknown host"), lock.hold(path):
        pass
    os.utime(path, (0, 0))
    with lock.hold(path) as mine:
        assert lock.read(path) == mine


def test_of_many_only_one_takes_over(tmp_path):
    path = tmp_path / "lock"
    write(path, host=socket.gethostname(), process=2**22 + 7)
    started, taken, refused = threading.Barrier(8), [], []
    over = threading.Event()

    def attempt():
        started.wait()
        try:
            with lock.hold(path) as mine:
                taken.append(mine)
                over.wait(20)
        except StudyError as error:
            refused.append(str(error))
            if len(refused) == 7:
                over.set()

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert len(refused) == 7
    assert not list(tmp_path.iterdir())


def test_patience_waits_for_a_holder_to_let_go(tmp_path):
    path = tmp_path / "lock"
    held, over = threading.Event(), threading.Event()

    def keep():
        with lock.hold(path):
            held.set()
            over.wait(20)

    thread = threading.Thread(target=keep)
    thread.start()
    assert held.wait(20)
    threading.Timer(0.3, over.set).start()
    with lock.hold(path, patience=20.0) as mine:
        assert lock.read(path) == mine
    thread.join()
