"""What ``eigensweep status`` tells of a study, from its folder alone."""

import json
import os
import socket

import pytest

from eigensweep.pipeline import run
from eigensweep.pipeline.provenance import now
from eigensweep.workflows import story


@pytest.fixture
def study(small_sweep, tmp_path):
    run(small_sweep(grid={"d": [12], "pooling": ["mean"], "gamma": [0.5]}), tmp_path / "study")
    return tmp_path / "study"


def append(path, **line):
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def test_a_finished_study_is_at_rest(study):
    told = story.read(study)
    assert (told.running, told.dead, told.pending, told.jobs) == ([], "", 0, {})
    assert [event["event"] for event in told.events] == ["start", "end"]
    assert len(told.versions) == 1
    assert not told.rate > 0


def test_code_that_changed_between_runs_is_warned_of(study, capsys):
    append(study / "log.jsonl", time=now(), event="start", versions={"eigensweep": "0.0.1", "commit": "abc"})
    assert len(story.read(study).versions) == 2
    story.status(study, as_json=False)
    printed = capsys.readouterr()
    assert "different code" in printed.err
    assert "0.0.1 (abc)" in printed.err


def test_worker_jobs_are_shown(study, capsys):
    jobs = [{"id": "17", "state": "RUNNING", "reason": "", "works": True}]
    told = {"time": now(), "logs": "logs", "jobs": jobs, "submitted": 3, "lost": 2, "stillborn": 0}
    (study / "jobs.json").write_text(json.dumps(told), encoding="utf-8")
    story.status(study, as_json=False)
    printed = capsys.readouterr().out
    assert "RUNNING" in printed
    assert "2 of 3 jobs were lost" in printed
    story.status(study, as_json=True)
    assert json.loads(capsys.readouterr().out)["jobs"]["jobs"] == jobs


def test_who_died_without_notice_is_named(study, capsys):
    gone = {"host": socket.gethostname(), "process": 2**22 + 1, "job": "", "started": now(), "identity": "x"}
    (study / "lock").write_text(json.dumps(gone), encoding="utf-8")
    story.status(study, as_json=False)
    assert "stopped without notice" in capsys.readouterr().out


def test_a_torn_line_of_the_log_is_passed_over(study):
    with (study / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"time": "20')
    assert [event["event"] for event in story.read(study).events] == ["start", "end"]


def test_a_run_at_work_has_a_rate(study, monkeypatch):
    from eigensweep.pipeline import lock

    append(study / "log.jsonl", time="2020-01-01T00:00:00Z", event="start", columns=10)
    with lock.hold(study / "lock"):
        told = story.read(study)
        assert [str(os.getpid()) in who for who in told.running] == [True]
        assert told.rate > 0
