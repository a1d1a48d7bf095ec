"""The books of worker jobs, against a queue of the tests' own: what is replaced, released, refused, told."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.cluster import handshake, roster
from eigensweep.cluster.credentials import hand_over
from eigensweep.cluster.jobqueue import RefusedError
from eigensweep.cluster.ledger import JOBS, OWNER, PREFIX, bury, opened
from eigensweep.cluster.profile import profile_from
from eigensweep.cluster.roster import Census, Roster
from eigensweep.cluster.slurm import Found, passes, refusal
from eigensweep.cluster.srun import check_allocation, step_command, step_name
from eigensweep.pipeline import provenance
from eigensweep.pipeline.errors import InputError, StudyError

TOKEN = "abc"


class Fake:
    """A queue that does what it is told; ``blind`` like one that can't be asked."""

    def __init__(self, tmp_path, blind=False):
        self.found, self.cancelled, self.refuse, self.silent = {}, [], None, False
        self.folder, self.blind = tmp_path, blind

    def submit(self, number):
        if self.refuse is not None:
            raise self.refuse
        self.found[str(100 + number)] = Found("PENDING", "Priority")
        return str(100 + number)

    def states(self, jobs):
        if self.blind or self.silent:
            return None
        return {job: self.found[job] for job in jobs if job in self.found}

    def cancel(self, jobs):
        self.cancelled += jobs
        for job in jobs:
            self.found[job] = Found("CANCELLED", "None")

    def clear(self):
        self.cancel(list(self.found))

    def logs(self, job):
        return [self.folder / f"{job}.log"]


class Desk:
    """A roster with its fake queue, a clock and what it told."""

    def __init__(self, tmp_path, jobs=2, cores=1, blind=False):
        self.queue, self.told, self.forgotten, self.now = Fake(tmp_path, blind), [], [], 1000.0
        self.roster = Roster(self.queue, jobs, cores, TOKEN, self.told.append, self.forgotten.extend)
        self.workers, self.unfinished, self.fed = {}, 50, False

    def step(self, seconds=1.0):
        self.now += seconds
        self.roster.step(self.now, Census(dict(self.workers), self.unfinished, self.fed))

    def live(self):
        return sorted(job.id for job in self.roster.jobs.values())

    def run_all(self):
        for job in self.roster.jobs.values():
            self.queue.found[job.id] = Found("RUNNING", "None")
            self.workers[f"{TOKEN}-{job.number}-r0"] = True

    def end(self, job, state="TIMEOUT"):
        self.queue.found[job] = Found(state, "None")
        self.workers.pop(f"{TOKEN}-{int(job) - 100}-r0", None)


@pytest.fixture
def desk(tmp_path):
    def make(**more):
        made = Desk(tmp_path, **more)
        made.step()
        return made

    return make


@pytest.mark.parametrize(
    "state", ["TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "FAILED"]
)
def test_a_job_that_worked_and_ended_is_replaced(desk, state):
    one = desk()
    one.run_all()
    one.step()
    one.end("101", state)
    one.step()
    assert one.live() == ["102", "103"]
    assert f"job 101 was lost ({state})" in one.told[-1]


def test_a_silent_controller_loses_no_job(desk):
    one = desk()
    one.run_all()
    one.step()
    one.queue.silent = True
    for _ in range(5):
        one.step()
    assert one.live() == ["101", "102"]
    assert one.roster.counts.submitted == 2


def test_workers_of_an_ended_job_are_forgotten_even_if_they_never_left(desk):
    one = desk()
    one.run_all()
    one.step()
    one.queue.found["101"] = Found("NODE_FAIL", "None")
    one.step()
    assert one.forgotten == [f"{TOKEN}-1-r0"]


def test_a_requeued_job_keeps_its_place(desk):
    one = desk()
    one.run_all()
    one.step()
    one.end("101", "PENDING")
    one.step()
    assert one.live() == ["101", "102"]
    assert "was requeued" in one.told[-1]


def test_jobs_that_bring_no_worker_end_the_run_with_the_log(desk, tmp_path):
    one = desk(jobs=5)
    (tmp_path / "103.log").write_text("a line\nno such module\n")
    for job in ("101", "102", "103"):
        one.end(job, "FAILED")
    with pytest.raises(
        StudyError, match=r"(?s)job 103 brought no worker: it ended \(FAILED\).*no such module"
    ):
        one.step()


def test_one_bad_node_does_not_end_a_run_that_works(desk):
    one = desk(jobs=3)
    one.run_all()
    one.step()
    for _ in range(2):
        one.end(one.live()[-1], "FAILED")
        one.step()
        one.step(600.0)
        one.workers = {f"{TOKEN}-{job.number}-r0": True for job in one.roster.jobs.values()}
        one.step()
    assert len(one.live()) == 3


def test_after_a_job_that_brought_no_worker_the_next_waits_a_little(desk):
    one = desk()
    one.run_all()
    one.step()
    one.end("102")
    one.step()
    one.end("103", "FAILED")
    one.step()
    assert one.live() == ["101"]
    one.step(roster.PAUSE * 2 + 1)
    assert one.live() == ["101", "104"]


def test_a_running_job_whose_workers_never_come_is_given_up(desk):
    one = desk(jobs=1)
    one.queue.found["101"] = Found("RUNNING", "None")
    one.step()
    one.step(roster.SILENT - 10)
    assert one.live() == ["101"]
    with pytest.raises(StudyError, match="none of its workers came in 600 s"):
        one.step(20)
    assert "101" in one.queue.cancelled


def test_a_refusal_for_good_is_an_error_only_before_the_first_job(tmp_path):
    one = Desk(tmp_path)
    one.queue.refuse = RefusedError("Invalid account", passing=False)
    with pytest.raises(StudyError, match="refuses the job: Invalid account"):
        one.step()
    two = Desk(tmp_path)
    two.step()
    two.run_all()
    two.step()
    two.queue.refuse = RefusedError("Invalid account", passing=False)
    two.end("101")
    two.step()
    assert two.live() == ["102"]
    assert "no further job now: Invalid account" in two.told[-1]


def test_a_limit_is_tried_again_ever_more_rarely(tmp_path):
    one = Desk(tmp_path)
    one.queue.refuse = RefusedError("AssocMaxSubmitJobLimit", passing=True)
    tries = []
    submit = one.queue.submit
    one.queue.submit = lambda number: (tries.append(one.now), submit(number))[1]
    for _ in range(2000):
        one.step()
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps[:4] == [5, 10, 20, 40]
    assert max(gaps) == roster.LONGEST_PAUSE
    assert len(one.told) == 1
    one.queue.refuse = None
    one.step(roster.LONGEST_PAUSE)
    assert len(one.live()) == 2


def test_waiting_jobs_first_then_idle_ones_are_released_and_none_replaced(desk):
    one = desk(jobs=3)
    one.run_all()
    one.queue.found["103"] = Found("PENDING", "Priority")
    del one.workers[f"{TOKEN}-3-r0"]
    one.step()
    one.fed, one.unfinished = True, 1
    one.workers[f"{TOKEN}-1-r0"] = False
    one.step()
    assert one.queue.cancelled == []
    one.step(roster.DRY + 1)
    assert one.queue.cancelled == ["103", "101"]
    del one.workers[f"{TOKEN}-1-r0"]
    for _ in range(10):
        one.step()
        assert one.live() == ["102"]
    assert not [line for line in one.told if "lost" in line]


def test_a_job_that_is_lost_at_the_end_is_replaced_too(desk):
    one = desk()
    one.run_all()
    one.step()
    one.fed, one.unfinished = True, 2
    one.step(roster.DRY + 1)
    one.end("101")
    one.step()
    assert one.live() == ["102", "103"]


def test_nothing_is_released_while_tasks_are_held_back(desk):
    one = desk(jobs=3)
    one.run_all()
    one.fed, one.unfinished = False, 1
    for _ in range(10):
        one.step(5.0)
    assert one.queue.cancelled == []


def test_between_two_sweeps_jobs_stay(desk):
    one = desk()
    one.run_all()
    one.step()
    one.fed, one.unfinished = True, 0
    for _ in range(10):
        one.step(5.0)
    assert one.live() == ["101", "102"]


def test_a_queue_that_can_t_be_asked_is_known_by_its_workers(desk):
    one = desk(blind=True)
    one.run_all()
    one.step()
    del one.workers[f"{TOKEN}-1-r0"]
    one.step(roster.VANISHED - 10)
    assert one.live() == ["101", "102"]
    one.step(20)
    assert one.live() == ["102", "103"]
    assert one.queue.cancelled == ["101"]


def test_it_is_told_why_jobs_wait_and_once(desk):
    one = desk()
    for _ in range(5):
        one.step()
    assert one.told == ["waiting in the queue: 2 job(s), Priority"]


@given(
    st.lists(st.sampled_from(["run", "end", "kill", "fail", "wait", "silence"]), max_size=40),
    st.integers(1, 4),
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_never_more_jobs_than_asked_for(tmp_path_factory, events, jobs):
    one = Desk(tmp_path_factory.mktemp("log"), jobs=jobs)
    with contextlib.suppress(StudyError):
        for event in events:
            one.queue.silent = event == "silence"
            if event == "run":
                one.run_all()
            if event in ("end", "kill", "fail") and one.live():
                states = {"end": "TIMEOUT", "kill": "CANCELLED", "fail": "FAILED"}
                one.end(one.live()[0], states[event])
            one.step(roster.LONGEST_PAUSE if event == "wait" else 1.0)
            alive = [job for job in one.queue.found if one.queue.found[job].live]
            assert len(alive) <= jobs
            assert set(alive) == set(one.live()) or one.queue.silent


# ------------------------------------------------------------ the private folder


def test_a_run_s_folder_is_private_and_goes(tmp_path):
    with opened(tmp_path / "logs", "slurm") as ledger:
        hand_over(ledger.folder)
        assert oct(ledger.folder.stat().st_mode & 0o777) == "0o700"
        modes = {oct(path.stat().st_mode & 0o777) for path in ledger.folder.glob("*.pem")}
        assert modes == {"0o600"}
        assert len(list(ledger.folder.glob("*.pem"))) == 3
        assert bury(tmp_path / "logs", lambda *args: pytest.fail("it lives")) == []
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_killed_run_s_jobs_are_found_and_a_living_one_s_are_left(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from eigensweep.cluster.ledger import opened\n"
        f"with opened(Path({str(tmp_path)!r}), 'slurm') as ledger:\n"
        "    ledger.add('17'); ledger.add('18'); print(ledger.token, flush=True); time.sleep(600)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    token = other.stdout.readline().strip()
    cancelled = []
    assert bury(tmp_path, lambda *args: cancelled.append(args)) == []
    other.kill()
    other.wait()
    other.stdout.close()
    found = bury(tmp_path, lambda kind, ledger, jobs: cancelled.append((kind, ledger.token, jobs)))
    assert found == ["17", "18"]
    assert cancelled == [("slurm", token, ["17", "18"])]
    assert list(tmp_path.iterdir()) == []


def test_a_run_elsewhere_is_dead_once_it_has_been_silent_for_long(tmp_path):
    folder = tmp_path / f"{PREFIX}xyz"
    folder.mkdir(mode=0o700)
    owner = folder / OWNER
    owner.write_text(json.dumps({"host": "another", "process": 1, "born": "1", "kind": "slurm"}))
    assert bury(tmp_path, lambda *args: None) == []
    long_ago = time.time() - 600
    os.utime(owner, (long_ago, long_ago))
    (folder / JOBS).write_text("5\n")
    assert bury(tmp_path, lambda *args: None) == ["5"]


def test_a_folder_that_can_t_be_made_is_the_user_s_to_mend(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="log_directory"), opened(tmp_path / "file", "slurm"):
        pass


# ------------------------------------------------------------ handshake, SLURM's words, srun


def test_equal_processes_agree_and_each_difference_is_named():
    here = handshake.report()
    assert here["threads"] == 1
    assert handshake.differences(here, json.loads(json.dumps(here))) == []
    there = {**here, "code": "another", "python": "3.9.1", "threads": 8, "blas": ["mkl 2024"]}
    told = handshake.differences(here, there)
    assert [line.split()[0] for line in told] == ["python", "code", "its", "its"]
    assert "mkl 2024" in told[2]
    assert "8 threads" in told[3]


def test_the_code_is_told_apart_by_its_sources_not_its_place(tmp_path):
    base = tmp_path / "eigensweep"
    for name, source in (("cluster", handshake.__file__), ("pipeline", provenance.__file__)):
        shutil.copytree(Path(source).parent, base / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = "from eigensweep.cluster.handshake import code_digest; print(code_digest())"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def digest():
        return subprocess.check_output([sys.executable, "-c", code], env=env, text=True, cwd=tmp_path).strip()

    assert digest() == handshake.code_digest()
    with (base / "pipeline" / "signs.py").open("a") as file:
        file.write("# changed\n")
    assert digest() != handshake.code_digest()


def test_a_limit_passes_and_a_wrong_name_does_not():
    limits = [
        "sbatch: error: AssocMaxSubmitJobLimit",
        "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size)",
        "QOSMaxSubmitJobPerUserLimit",
        "Unable to contact slurm controller (connect failure)",
        "Slurm temporarily unable to accept job, sleeping and retrying.",
        "Socket timed out on send/recv operation",
    ]
    faults = [
        "Invalid partition name specified",
        "Invalid account or account/partition combination specified",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "Memory specification can not be satisfied",
    ]
    assert all(passes(words) for words in limits)
    assert not any(passes(words) for words in faults)
    assert refusal("sbatch: error: a\nsbatch: error: b\nsbatch: error: a\n") == "a; b"


def test_the_tasks_of_an_allocation_are_started_as_one_step(tmp_path):
    with pytest.raises(InputError, match="start within sbatch or salloc"):
        check_allocation({})
    profile = profile_from({"kind": "srun", "cores": 2, "memory": "4GiB", "python": "python"})
    with opened(tmp_path, "srun") as ledger:
        _, keys = hand_over(ledger.folder)
        environment = {"SLURM_JOB_ID": "12", "SLURM_NTASKS": "5"}
        command = step_command(profile, 3, "tls://n1:4000", ledger, keys, environment)
        later = step_command(
            profile, 3, "tls://n1:4000", ledger, keys, environment | {"SLURM_RESTART_COUNT": "1"}
        )
    assert command[0] == "srun"
    assert {"--ntasks=5", "--cpus-per-task=2", "--kill-on-bad-exit=1"} <= set(command)
    script = command[-1]
    assert "tls://n1:4000" in script
    assert "--nworkers 2" in script
    assert f"--memory-limit {2 * 2**30}B" in script
    assert "${SLURM_PROCID}" in script
    assert step_name({"SLURM_JOB_ID": "12"}) == "12-r0"
    assert [part for part in command if part not in later] == [
        f"--output={profile.log_directory}/eigensweep-12-r0-3-%t.log"
    ]
