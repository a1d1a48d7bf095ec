"""Job scripts, as text: what a batch system would be given."""

import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from eigensweep.cluster import connect, jobqueue, slurm
from eigensweep.cluster.credentials import Credentials
from eigensweep.cluster.ledger import Ledger
from eigensweep.cluster.profile import profile_from
from eigensweep.pipeline.errors import InputError
from eigensweep.pipeline.plan import Plan, Size
from eigensweep.pipeline.tomltext import to_toml
from eigensweep.workflows import planning, submitting

LEDGER = Ledger(Path("/shared/logs/.eigensweep-k3j"))
KEYS = Credentials(*(LEDGER.folder / name for name in ("ca.pem", "cert.pem", "key.pem")))
ADDRESS = "tls://10.0.0.1:41000"


def profile(kind, **changes):
    table = {"kind": kind, "jobs": 2, "cores": 4, "memory": "8GiB", "walltime": "26:30:00"}
    table |= {
        "partition": "short",
        "account": "physics",
        "python": "python3.11",
        "log_directory": "/shared/logs",
    }
    table |= {"directives": ["--thing=1"], "prologue": ["module load python"], "interface": "ib0"}
    if kind == "htcondor":
        table |= {"partition": "", "account": "", "directives": ['requirements = (Arch == "X86_64")']}
    return profile_from(table | changes)


@pytest.fixture(autouse=True)
def no_folders(monkeypatch):
    """dask-jobqueue makes the folder of the logs when it writes a script."""
    monkeypatch.setattr("os.makedirs", lambda *args, **kwargs: None)


def script(kind, **changes):
    return jobqueue.job_script(profile(kind, **changes), 7, ADDRESS, LEDGER, KEYS)


HEADERS = {
    "slurm": [
        "#SBATCH -J eigensweep-k3j",
        "#SBATCH -p short",
        "#SBATCH -A physics",
        "#SBATCH -n 1",
        "#SBATCH --cpus-per-task=4",
        "#SBATCH --mem=8G",
        "#SBATCH -t 26:30:00",
        "#SBATCH -o /shared/logs/eigensweep-k3j-%j.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --no-requeue",
        "#SBATCH --thing=1",
    ],
    "pbs": [
        "#PBS -N eigensweep-k3j",
        "#PBS -q short",
        "#PBS -A physics",
        "#PBS -l select=1:ncpus=4:mem=8192MB",
        "#PBS -l walltime=26:30:00",
        "#PBS -o /shared/logs/",
        "#PBS --thing=1",
    ],
    "sge": ["#$ -N eigensweep-k3j", "#$ -q short", "#$ -P physics", "#$ -l h_rt=26:30:00", "#$ --thing=1"],
    "lsf": [
        "#BSUB -J eigensweep-k3j",
        "#BSUB -q short",
        '#BSUB -P "physics"',
        "#BSUB -n 4",
        '#BSUB -R "span[hosts=1]"',
        "#BSUB -W 26:30",
        "#BSUB -o /shared/logs/k3j-7-r0-%J.out",
    ],
    "oar": [
        "#OAR -n eigensweep-k3j",
        "#OAR -q short",
        "#OAR --project physics",
        "#OAR -l /nodes=1/core=4,walltime=26:30:00",
        "#OAR --thing=1",
    ],
    "htcondor": [
        "MY.DaskWorkerCores = 4",
        "MY.DaskWorkerMemory = 8589934592",
        'requirements = (Arch == "X86_64")',
        "LogDirectory = /shared/logs",
        "Queue",
    ],
}


@pytest.mark.parametrize("kind", jobqueue.CLASSES)
def test_a_header_asks_for_what_the_profile_says(kind):
    lines = script(kind).splitlines()
    assert [line for line in HEADERS[kind] if line not in lines] == []


@pytest.mark.parametrize("kind", jobqueue.CLASSES)
def test_a_job_starts_one_process_of_one_thread_a_core(kind):
    text = script(kind)
    command = text[text.index("python3.11 -m distributed.cli.dask_worker") :]
    assert f"dask_worker {ADDRESS} --name k3j-7-r" in command
    for option in ("--nthreads 1 ", "--nworkers 4 ", "--memory-limit 2.00GiB ", "--death-timeout 60 "):
        assert option in command
    assert "--interface ib0" in command
    assert "--local-directory ${TMPDIR:-/tmp}" in command


@pytest.mark.parametrize("kind", jobqueue.CLASSES)
def test_the_user_s_lines_come_first_and_linear_algebra_has_one_thread(kind):
    text = script(kind)
    order = ["module load python", "export EIGENSWEEP_RUN=/shared/logs/.eigensweep-k3j"]
    order += ["export OPENBLAS_NUM_THREADS=1", "python3.11 -m"]
    places = [text.index(piece) for piece in order]
    assert places == sorted(places)


@pytest.mark.parametrize("kind", jobqueue.CLASSES)
def test_what_a_worker_says_is_encrypted_and_its_pages_stay_on_the_loopback(kind):
    text = script(kind)
    for option in ("--protocol tls ", f"--tls-key {KEYS.key} ", f"--tls-cert {KEYS.certificate} "):
        assert option in text
    assert "--dashboard-address 127.0.0.1:0" in text
    assert "--preload eigensweep.cluster.handshake" in text


def test_a_requeued_job_s_workers_have_a_name_of_their_own():
    assert "--name k3j-7-r${SLURM_RESTART_COUNT:-0} " in script("slurm")
    assert jobqueue.job_number("k3j", "k3j-7-r1-3") == 7
    assert jobqueue.job_number("k3j", "k3jx-7-r1") is None


def test_what_the_user_keeps_for_dask_elsewhere_changes_nothing(monkeypatch):
    import dask

    before = script("slurm", account="", partition="")
    with dask.config.set({"jobqueue.slurm.account": "other", "jobqueue.slurm.queue": "other"}):
        assert script("slurm", account="", partition="") == before
    assert "other" not in before


def test_a_container_s_python_is_a_command():
    assert "apptainer exec image.sif python -m distributed" in script(
        "slurm", python="apptainer exec image.sif python"
    )


@pytest.mark.parametrize("kind", [kind for kind in jobqueue.CLASSES if kind != "htcondor"])
def test_a_script_is_a_valid_shell_script(kind):
    done = subprocess.run(["bash", "-n"], input=script(kind), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_is_as_before_after_the_library_came():
    code = (
        "import signal; before = signal.getsignal(signal.SIGINT)\n"
        "from eigensweep.cluster import jobqueue\n"
        "package = jobqueue.library()\n"
        "assert signal.getsignal(signal.SIGINT) is before\n"
        "assert package.SLURMCluster.job_cls.submit_command == 'sbatch'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_library_comes_outside_the_main_thread_too():
    code = (
        "import threading\nfrom eigensweep.cluster import jobqueue\nfound = []\n"
        "one = threading.Thread(target=lambda: found.append(jobqueue.library()))\n"
        "one.start(); one.join(); assert found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_batch_system_s_refusal_is_told_in_its_words(monkeypatch, tmp_path):
    command = tmp_path / "qsub"
    command.write_text("#!/bin/sh\necho 'qsub: Unknown queue' >&2\nexit 170\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(jobqueue.RefusedError, match=r"^qsub: Unknown queue$"):
        jobqueue.submit(profile("pbs"), 1, ADDRESS, LEDGER, KEYS)


def test_another_batch_system_s_job_is_submitted_and_its_id_read(monkeypatch, tmp_path):
    command = tmp_path / "qsub"
    command.write_text(f'#!/bin/sh\ncat "$1" > {tmp_path}/script\necho 8812.server\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    job = jobqueue.submit(profile("pbs"), 1, ADDRESS, LEDGER, KEYS)
    assert job == "8812"
    assert "#PBS -l walltime=26:30:00" in (tmp_path / "script").read_text()


def test_no_variable_of_the_outer_job_sizes_an_inner_one():
    outer = {"SLURM_CONF": "c", "SLURM_CPUS_PER_TASK": "1", "SBATCH_MEM_PER_CPU": "9", "HOME": "h"}
    assert slurm.environment(outer) == {"SLURM_CONF": "c", "HOME": "h"}


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("slurm", ["-n 1", "--cpus-per-task=1", "--mem=2G"]),
        ("srun", ["-n 2", "--cpus-per-task=4", "--mem-per-cpu=2048M"]),
    ],
)
def test_a_driver_s_job_holds_its_workers_only_with_srun(kind, size):
    chain = submitting.Chain(
        "/home/me/a sweep.toml", Path("/scratch/study"), Path("/home/me/slurm.toml"), 1, 24
    )
    text = submitting.driver_script(profile(kind), chain)
    lines = text.splitlines()
    expected = [
        f"-J {chain.name}",
        f"-o /shared/logs/{chain.name}-%j.log",
        "-t 26:30:00",
        "-p short",
        "-A physics",
    ]
    expected += ["--no-requeue", "--signal=B:TERM@120", "--thing=1", *size]
    assert [option for option in expected if f"#SBATCH {option}" not in lines] == []
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[-2] == "module load python"
    assert lines[-1] == (
        "exec python3.11 -m eigensweep.workflows.submitting '--sweep=/home/me/a sweep.toml' "
        "--study=/scratch/study --cluster=/home/me/slurm.toml --fruitless=1 --done=24"
    )


def test_drivers_are_named_by_their_study_s_place():
    names = {submitting.Chain("s", Path(place), Path("p")).name for place in ("/a/study x", "/b/study x")}
    assert len(names) == 2
    assert all(re.fullmatch(r"eigensweep-study_x-[0-9a-f]{6}", name) for name in names)


def test_a_short_walltime_leaves_a_short_warning():
    text = submitting.driver_script(
        profile("slurm", walltime="00:02:00"), submitting.Chain("s", Path("/a"), Path("p"))
    )
    assert "--signal=B:TERM@12\n" in text


def test_only_slurm_takes_a_driver(tmp_path):
    path = tmp_path / "pbs.toml"
    path.write_text('kind = "pbs"\nmemory = "2GiB"\nwalltime = "01:00:00"\n')
    with pytest.raises(InputError, match="submits its driver to SLURM only"):
        submitting.submit("quickstart", None, str(path), as_json=False)
    path.write_text('kind = "srun"\n')
    with pytest.raises(InputError) as caught:
        submitting.submit("quickstart", None, str(path), as_json=False)
    assert [fault.thing for fault in caught.value.faults] == ["walltime", "memory", "jobs"]


def test_the_tasks_of_an_allocation_are_those_of_one(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    path = tmp_path / "srun.toml"
    path.write_text('kind = "srun"\n')
    with pytest.raises(InputError, match="start within sbatch or salloc"), connect(str(path)):
        pass


def test_a_plan_shows_the_script_and_warns_of_what_will_not_fit(tmp_path, monkeypatch, small_sweep, capsys):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(to_toml(small_sweep().to_dict()))
    Path("slurm.toml").write_text('kind = "slurm"\ncores = 8\nmemory = "1GiB"\nwalltime = "04:00:00"\n')
    planning.plan("small.toml", None, "slurm.toml", trial=False, as_json=False)
    shown = capsys.readouterr()
    assert "#SBATCH -t 04:00:00" in shown.out
    assert "--nworkers 8" in shown.out
    assert "a worker needs about 0.2 GiB and may use 0.1 GiB" in shown.err
    assert not Path("logs").exists()


def test_a_plan_warns_of_columns_longer_than_a_job(monkeypatch, tmp_path, small_sweep):
    found = Plan("s", tmp_path, False, 1, 1, 1, 1, 1, 1.0, 1, [Size(800, 1, 1e9, 3000.0, 1.0)])
    [told] = planning._walltime_warnings(profile("slurm", walltime="01:00:00"), found)
    assert "a column takes about 50 min 0 s and a job ends after 1 h 0 min" in told
    assert planning._walltime_warnings(profile("slurm", walltime="04:00:00"), found) == []


def test_a_profile_s_script_depends_on_nothing_else():
    texts = {script("slurm") for _ in range(2)}
    found = []
    one = threading.Thread(target=lambda: found.append(script("slurm")))
    one.start()
    one.join()
    assert texts == set(found)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    smaller = jobqueue.job_script(replace(profile("slurm"), jobs=1), 7, ADDRESS, LEDGER, KEYS)
    assert texts == {smaller}
