"""Job scripts, as text: what a batch system would be given."""

import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from eigensweep.cluster import jobqueue, slurm
from eigensweep.cluster.credentials import Credentials
from eigensweep.cluster.ledger import Ledger
from eigensweep.cluster.profile import profile_from

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
