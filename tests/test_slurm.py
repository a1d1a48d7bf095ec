"""Sweeps on a real SLURM: whatever is done to its jobs and nodes, the cube is the undisturbed one.

The SLURM is this machine's own (``tests/slurm/lab.py``): one controller, two nodes. Each test does one thing
to it and then asks three: is the cube right, is the queue empty, was the user told?
"""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import slow_ensemble
from slurm.lab import Lab, can_run

from eigensweep.cluster import connect, roster
from eigensweep.cluster.batch import batch_client
from eigensweep.cluster.handshake import FOLDER
from eigensweep.cluster.profile import profile_from
from eigensweep.pipeline import open_cube, run
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.schema import DONE, OUT_OF_MEMORY
from eigensweep.pipeline.tomltext import to_toml

HERE = Path(__file__).parent
if not (os.environ.get("CI") or os.environ.get("EIGENSWEEP_SLURM")):
    pytest.skip("set EIGENSWEEP_SLURM=1, as root on Debian, to start a SLURM here", allow_module_level=True)
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(240),
    # Dask leaves sockets to the garbage collector when a node dies under it.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SECONDS = 0.3
"""A column sleeps this long: the sweep takes some ten seconds, in which things can happen."""


@pytest.fixture(scope="session")
def running_lab(tmp_path_factory):
    assert not can_run(), can_run()
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        yield lab.up()
    finally:
        lab.down()


@pytest.fixture
def lab(running_lab, monkeypatch):
    """The SLURM, whole and with nothing in its queue; and with nothing in it afterwards."""
    monkeypatch.setenv("SLURM_CONF", running_lab.env["SLURM_CONF"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    running_lab.heal()
    yield running_lab
    left = running_lab.jobs()
    running_lab.heal()
    assert left == [], "jobs were left in the queue"


@pytest.fixture(scope="session")
def plain(small_sweep):
    """The sweep of all tests here: 18 blocks."""
    return small_sweep(grid={"d": [12, 16, 20], "replicates": 2})


@pytest.fixture(scope="session")
def undisturbed(plain, tmp_path_factory):
    """Its cube, computed in this process."""
    study = tmp_path_factory.mktemp("undisturbed") / "study"
    run(plain, study)
    return open_cube(study).load()


@pytest.fixture
def told():
    return []


@pytest.fixture
def profile(tmp_path):
    def make(**changes):
        table = {"kind": "slurm", "jobs": 2, "cores": 1, "memory": "600MiB", "walltime": "00:10:00"}
        return profile_from(table | {"log_directory": str(tmp_path / "logs")} | changes)

    return make


@pytest.fixture
def study(tmp_path):
    return tmp_path / "study"


def after(*acts):
    """Make a watch that acts when so many columns are done: pairs of the number and what to do."""
    left = list(acts)

    def watch(progress):
        if left and progress.done >= left[0][0]:
            left.pop(0)[1]()

    return watch


@pytest.fixture
def disturbed(lab, plain, profile, study, told, undisturbed, assert_same_cube):
    """Run the sweep, do something to it on the way, and compare its cube."""

    def go(*acts, **changes):
        sweep = slow_ensemble.slowed(plain, slow=SECONDS)
        with batch_client(profile(**changes), told.append) as client:
            outcome = run(sweep, study, client, watch=after(*acts))
        assert outcome.failures == []
        assert lab.jobs() == []
        assert_same_cube(open_cube(study).load(), undisturbed)

    return go


def says(told, pattern):
    return [line for line in told if re.search(pattern, line)]


# ------------------------------------------------------------ as it should be


def test_a_profile_runs_a_sweep_and_leaves_nothing(
    lab, plain, study, tmp_path, monkeypatch, undisturbed, assert_same_cube
):
    monkeypatch.chdir(tmp_path)
    table = {"kind": "slurm", "cores": 2, "memory": "1200MiB", "walltime": "00:10:00"}
    Path("slurm.toml").write_text(to_toml(table))
    seen = {}

    def look():
        seen["private"] = [oct(path.stat().st_mode & 0o777) for path in Path("logs").glob(".eigensweep-*")]
        seen["keys"] = {oct(path.stat().st_mode & 0o777) for path in Path("logs").glob(".eigensweep-*/*.pem")}
        seen["open"] = open_to_all()

    with connect("slurm.toml") as client:
        assert client.scheduler.address.startswith("tls://")
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        run(slow_ensemble.slowed(plain, slow=0.1), study, client, watch=after((2, look)))
    assert lab.jobs() == []
    assert_same_cube(open_cube(study).load(), undisturbed)
    assert seen["private"] == ["0o700"]
    assert seen["keys"] == {"0o600"}
    # At least the scheduler, and two nannies with their workers.
    assert len(seen["open"]) >= 5
    assert all(seen["open"].values()), seen["open"]
    assert list(Path("logs").glob(".eigensweep-*")) == []
    assert len(list(Path("logs").glob("eigensweep-*.log"))) == 1


def open_to_all():
    """Ports beyond the loopback that the run listens on, and whether what speaks there is encrypted."""
    import psutil

    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or FOLDER in process.environ():
                for one in process.net_connections(kind="tcp"):
                    if one.status == psutil.CONN_LISTEN and not one.laddr.ip.startswith(("127.", "::1")):
                        found[one.laddr] = is_encrypted(one.laddr)
    return found


def is_encrypted(address):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, timeout=5) as raw, context.wrap_socket(raw):
            return True
    except ssl.SSLError as error:
        # It speaks TLS and wants our certificate.
        return "CERTIFICATE" in str(error).upper() or "ALERT" in str(error).upper()
    except OSError:
        return False


def test_idle_jobs_are_released_while_the_last_block_is_in_work(lab, plain, profile, study, told):
    sweep = slow_ensemble.slowed(plain, slow=0.05, dawdler=11.0)
    counts = []
    with batch_client(profile(), told.append) as client:
        over = threading.Event()

        def count():
            while not over.wait(0.5):
                counts.append(len(lab.running()))

        counting = threading.Thread(target=count)
        counting.start()
        run(sweep, study, client)
        over.set()
        counting.join()
    assert max(counts) == 2
    assert counts[-1] == 1
    assert says(told, "released")


# ------------------------------------------------------------ lost jobs


def test_cancelled_jobs_are_replaced_one_or_all(lab, disturbed, told):
    def cancel_one():
        lab.call("scancel", lab.running()[0])

    def cancel_all():
        lab.call("scancel", *lab.running())

    disturbed((2, cancel_one), (12, cancel_all))
    lost = says(told, r"job \d+ was lost \(CANCELLED.*another one takes its place")
    assert len(lost) in (2, 3)
    assert says(told, f"{2 + len(lost)} jobs in all, {len(lost)} lost")


def test_a_job_of_two_processes_is_replaced(lab, disturbed, told):
    disturbed((2, lambda: lab.call("scancel", *lab.running())), jobs=1, cores=2, memory="1200MiB")
    assert len(says(told, r"job \d+ was lost")) == 1


def test_jobs_that_reach_their_walltime_are_replaced(lab, disturbed, told):
    def end_soon():
        for job in lab.running():
            lab.call("scontrol", "update", f"jobid={job}", "EndTime=now+3")
        lab.wait_until(lambda: says(told, "lost"), 90, "no job ended")

    disturbed((2, end_soon))
    assert says(told, r"job \d+ was lost \(TIMEOUT")


def test_a_node_set_down_is_done_without(lab, disturbed, told):
    def down():
        node = lab.node_of(lab.running()[0])
        lab.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    disturbed((2, down))
    assert says(told, r"job \d+ was lost \(NODE_FAIL")


def test_a_node_that_falls_silent_is_done_without(lab, disturbed, told):
    """Its processes answer nothing and close nothing: only the queue can tell."""
    disturbed((2, lambda: lab.silence_node(lab.node_of(lab.running()[0]))))
    assert says(told, r"job \d+ was lost \((NODE_FAIL|CANCELLED)")


def test_a_requeued_job_is_waited_for(lab, disturbed, told):
    def requeue():
        job = lab.running()[0]
        lab.call("scontrol", "requeue", job)
        lab.wait_until(lambda: says(told, "requeued"), 20, "nothing was told")
        lab.call("scontrol", "update", f"jobid={job}", "StartTime=now")

    disturbed((2, requeue), directives=["--requeue"])
    assert len(says(told, r"job \d+ was requeued")) == 1
    assert not says(told, "lost")


def test_a_column_that_eats_memory_is_marked_and_the_rest_is_right(
    lab, plain, profile, study, told, undisturbed
):
    sweep = slow_ensemble.slowed(plain, slow=0.05, hoarder=True)
    with batch_client(profile(), told.append) as client:
        outcome = run(sweep, study, client)
    assert lab.jobs() == []
    cube = open_cube(study).load()
    bad = dict(zip(("d", "gamma", "pooling", "replicate"), slow_ensemble.LAST, strict=True))
    assert (cube.column_status.sel(bad) == OUT_OF_MEMORY).all()
    assert len(outcome.failures) == (cube.column_status != DONE).sum() == 1
    for name in ("column_digest", "column_digest_population"):
        done = cube[name.replace("digest", "status")] == DONE
        assert (cube[name] == undisturbed[name]).where(done, True).all()


# ------------------------------------------------------------ jobs that never work


def test_a_prologue_that_fails_is_told_with_its_log(lab, plain, profile, study, told):
    lines = ["echo 'module: no such module: python/2.4' >&2", "exit 7"]
    with pytest.raises(StudyError) as caught, batch_client(profile(prologue=lines), told.append) as client:
        run(plain, study, client)
    assert re.search(r"job \d+ brought no worker: it ended \(FAILED, NonZeroExitCode\)", str(caught.value))
    assert "no such module: python/2.4" in str(caught.value)
    assert re.search(r"logs/eigensweep-\w+-\d+\.log", str(caught.value))
    assert not study.exists()
    assert lab.jobs() == []


def test_a_wrong_python_is_told_with_its_log(lab, plain, profile, study, told):
    with (
        pytest.raises(StudyError, match=r"nopython: .*not found"),
        batch_client(profile(python="nopython"), told.append) as client,
    ):
        run(plain, study, client)
    assert lab.jobs() == []


def test_a_refusal_is_told_in_sbatch_s_words(lab, plain, profile, study, told):
    with (
        pytest.raises(StudyError, match="Invalid partition name specified"),
        batch_client(profile(partition="nowhere"), told.append) as client,
    ):
        run(plain, study, client)
    assert lab.jobs() == []


def test_jobs_that_all_fail_later_end_the_run(lab, plain, profile, study, told, tmp_path, monkeypatch):
    """The first workers come; then the environment breaks, and nothing would ever work again."""
    broken = tmp_path / "broken"
    lines = [f"if [ -e {broken} ]; then echo 'the disk is gone'; exit 9; fi"]

    def wreck():
        broken.touch()
        lab.call("scancel", *lab.running())

    monkeypatch.setattr(roster, "PAUSE", 0.1)
    sweep = slow_ensemble.slowed(plain, slow=SECONDS)
    with (
        pytest.raises(StudyError, match="the disk is gone"),
        batch_client(profile(prologue=lines), told.append) as client,
    ):
        run(sweep, study, client, watch=after((2, wreck)))
    assert lab.jobs() == []
    assert (open_cube(study).column_status == DONE).any()


def test_a_worker_with_another_numpy_is_refused(lab, plain, profile, study, told, tmp_path):
    other = tmp_path / "other" / "numpy-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    lines = [f"export PYTHONPATH={other.parent}:$PYTHONPATH"]
    with (
        pytest.raises(StudyError, match=r"numpy is 0\.0\.1 there and \d"),
        batch_client(profile(prologue=lines), told.append) as client,
    ):
        run(plain, study, client)
    assert not study.exists()
    assert lab.jobs() == []


def test_a_submit_limit_means_fewer_jobs(lab, disturbed, told):
    (lab.folder / "limit").write_text("2")
    disturbed(jobs=4)
    assert len(says(told, r"no further job now: .*submit limit.*2 of 4 jobs are there")) == 1


# ------------------------------------------------------------ the driver itself


@pytest.fixture
def command_line(lab, tmp_path):
    """Start the command line in a folder of its own, with sweeps that take their time."""
    table = {"kind": "slurm", "jobs": 2, "cores": 1, "memory": "600MiB", "walltime": "00:10:00"}
    (tmp_path / "slurm.toml").write_text(to_toml(table))

    def start(*arguments, slow=SECONDS, **more):
        path = [str(HERE), str(HERE / "slurm" / "site"), os.environ.get("PYTHONPATH", "")]
        env = {**lab.env, "PYTHONPATH": os.pathsep.join(path), slow_ensemble.SECONDS: str(slow)}
        # No terminal, and none of the allocation that the tests may run in.
        return subprocess.Popen(
            [sys.executable, "-m", "eigensweep.workflows", *arguments],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **more,
        )

    return start


@pytest.fixture
def sweep_file(plain, tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(to_toml(plain.to_dict()))
    return path.name


def columns_done(study):
    """Columns that are stored, once there is a study."""
    return len(list(study.glob("cube.zarr/*column_status/c.*")))


RUN = ("--cluster", "slurm.toml", "--study", "study", "--no-figures")


def test_a_killed_driver_s_jobs_are_found_by_the_next(
    lab, command_line, sweep_file, study, undisturbed, assert_same_cube
):
    first = command_line("run", sweep_file, *RUN)
    lab.wait_until(lambda: columns_done(study) >= 3, 60, "nothing was computed")
    first.kill()
    first.communicate()
    second = command_line("run", sweep_file, *RUN)
    out = second.communicate(timeout=120)[0]
    assert second.returncode == 0, out
    assert "a run that was killed left jobs behind, cancelled now" in out
    assert_same_cube(open_cube(study).load(), undisturbed)


def test_ctrl_c_ends_the_driver_and_empties_the_queue(
    lab, command_line, sweep_file, plain, study, undisturbed, assert_same_cube
):
    first = command_line("run", sweep_file, *RUN)
    lab.wait_until(lambda: columns_done(study) >= 2, 60, "nothing was computed")
    first.send_signal(signal.SIGINT)
    out = first.communicate(timeout=60)[0]
    assert first.returncode == 3, out
    assert lab.jobs() == []
    assert 2 <= columns_done(study) < 18
    run(plain, study)
    assert_same_cube(open_cube(study).load(), undisturbed)


def test_sigterm_while_jobs_wait_empties_the_queue(lab, command_line, sweep_file, study):
    for node in ("n1", "n2"):
        lab.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    waiting = command_line("run", sweep_file, *RUN)
    lab.wait_until(lambda: len(lab.jobs()) == 2, 60, "nothing was submitted")
    time.sleep(2.0)
    waiting.terminate()
    out = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 3, out
    assert "waiting in the queue: 2 job(s)" in out
    assert lab.jobs() == []
    assert not study.exists()


def test_shares_in_a_job_array_make_the_same_cube(
    lab, sweep_file, study, tmp_path, undisturbed, assert_same_cube
):
    command = f"{sys.executable} -m eigensweep.workflows run {sweep_file} --study study"
    line = f"{command} --share $SLURM_ARRAY_TASK_ID/3"
    lab.call("sbatch", "--array=1-3", f"--chdir={tmp_path}", "--output=share-%a.log", "--wrap", line)
    lab.wait_until(lambda: not lab.jobs(), 120, "the shares did not end")
    logs = "".join(path.read_text() for path in tmp_path.glob("share-*.log"))
    assert "Traceback" not in logs, logs
    assert_same_cube(open_cube(study).load(), undisturbed)


# ------------------------------------------------------------ the tasks of one allocation


@pytest.fixture
def allocation(lab, sweep_file, tmp_path):
    """Submit a job of two tasks that runs the sweep on its own tasks."""
    (tmp_path / "srun.toml").write_text(to_toml({"kind": "srun", "memory": "600MiB", "jobs": 2}))
    path = os.pathsep.join([str(HERE), str(HERE / "slurm" / "site"), os.environ.get("PYTHONPATH", "")])

    def submit():
        script = tmp_path / "allocation.sh"
        script.write_text(
            f"#!/bin/bash\nexport PYTHONPATH={path} {slow_ensemble.SECONDS}=0.6\n"
            f"exec {sys.executable} -m eigensweep.workflows run {sweep_file} --study study --no-figures "
            "--cluster srun.toml\n"
        )
        options = [
            "--parsable",
            "-N2",
            "-n2",
            "--mem=1300M",
            "--output=driver.log",
            "--open-mode=append",
            "--requeue",
        ]
        return lab.call("sbatch", f"--chdir={tmp_path}", *options, str(script)).strip()

    return submit


def a_task():
    """Process of a worker task: the one that its own processes descend from."""
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        if "distributed.cli.dask_worker" in (process.info["cmdline"] or []):
            return process.pid
    raise AssertionError("no worker runs")


def test_the_tasks_of_an_allocation_survive_a_dead_task_and_a_requeue(
    lab, allocation, study, tmp_path, undisturbed, assert_same_cube
):
    job = allocation()
    lab.wait_until(lambda: columns_done(study) >= 2, 60, "nothing was computed")
    os.kill(a_task(), signal.SIGKILL)
    log = tmp_path / "driver.log"
    lost = f"job {job}-r0-1 was lost (ENDED, srun exited with"
    lab.wait_until(lambda: lost in log.read_text(), 60, "the end of the step was not told")
    done = columns_done(study)
    lab.wait_until(lambda: columns_done(study) > done, 60, "the step was not started again")
    lab.call("scontrol", "requeue", job)
    lab.wait_until(lambda: lab.show(job)["JobState"] == "PENDING", 60, "it was not requeued")
    lab.call("scontrol", "update", f"jobid={job}", "StartTime=now")
    lab.wait_until(lambda: not lab.jobs(), 120, "the job did not end")
    assert lab.show(job)["JobState"] == "COMPLETED", log.read_text()
    assert lab.show(job)["Restarts"] == "1"
    assert_same_cube(open_cube(study).load(), undisturbed)
    events = [json.loads(line)["event"] for line in (study / "log.jsonl").read_text().splitlines()]
    assert events.count("start") == 2


# ------------------------------------------------------------ the driver as a job


def submitted(command_line, sweep_file, **more):
    done = command_line("submit", sweep_file, "--cluster", "slurm.toml", "--study", "study", "--json", **more)
    out = done.communicate(timeout=60)[0]
    assert done.returncode == 0, out
    return json.loads(out)


def drivers(lab, name):
    return lab.call("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%A").split()


def test_drivers_follow_each_other_until_all_is_done(
    lab, command_line, sweep_file, study, tmp_path, undisturbed, assert_same_cube
):
    """The first reaches its walltime, the second is killed, the third ends."""
    # SLURM looks at walltimes every half a minute: there has to be work for longer.
    first = submitted(command_line, sweep_file, slow=2.2)
    lab.wait_until(lambda: columns_done(study) >= 2, 90, "nothing was computed")
    assert len(lab.jobs(first["name"])) == 2
    lab.call("scontrol", "update", f"jobid={first['job']}", "EndTime=now+3")
    lab.wait_until(lambda: first["job"] not in lab.jobs(), 60, "the first driver did not end")
    log = Path(first["log"]).read_text()
    assert "goes on" in log, log
    done = columns_done(study)
    lab.wait_until(lambda: columns_done(study) > done, 90, "the second computed nothing")
    lab.call("scancel", "--signal=KILL", "--batch", lab.running(first["name"])[0])
    lab.wait_until(lambda: not lab.jobs(), 120, "the drivers did not end")
    states = [lab.show(job)["JobState"] for job in sorted(drivers(lab, first["name"]), key=int)]
    assert states[2:] == ["COMPLETED", "CANCELLED"], states
    assert_same_cube(open_cube(study).load(), undisturbed)


def test_a_driver_that_fails_has_no_successor(lab, command_line, sweep_file, study, tmp_path):
    table = {"kind": "slurm", "memory": "600MiB", "walltime": "00:10:00"}
    lines = ['[ -n "$EIGENSWEEP_RUN" ] || case $SLURM_JOB_NAME in eigensweep-study-*) ;; *) exit 7;; esac']
    (tmp_path / "slurm.toml").write_text(to_toml(table | {"prologue": lines}))
    first = submitted(command_line, sweep_file)
    lab.wait_until(lambda: not lab.jobs(), 90, "the drivers did not end")
    assert len(drivers(lab, first["name"])) == 2
    assert "brought no worker" in Path(first["log"]).read_text()
    assert lab.show(first["job"])["ExitCode"] == "2:0"


def test_drivers_that_finish_nothing_come_to_an_end(lab, command_line, sweep_file, study, tmp_path):
    """Each is killed before it has done a thing: there is a last one all the same."""
    table = {"kind": "slurm", "memory": "600MiB", "walltime": "00:10:00"}
    (tmp_path / "slurm.toml").write_text(to_toml(table))
    first = submitted(command_line, sweep_file, slow=600)
    killed = set()

    def kill_all():
        for job in set(lab.running(first["name"])) - killed:
            if len(lab.jobs(first["name"])) == 2:
                killed.add(job)
                lab.call("scancel", "--signal=KILL", "--batch", job)
        return not lab.jobs(first["name"])

    lab.wait_until(kill_all, 150, "the drivers did not end")
    last = sorted(tmp_path.glob(f"logs/{first['name']}-*.log"))[-1]
    assert "drivers in a row finished no column" in last.read_text()
    assert len(drivers(lab, first["name"])) == 4
    lab.wait_until(lambda: not lab.jobs(), 90, "workers were left")
