"""Profiles: read, and refused with everything that is wrong at once."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.cluster.profile import clock, parse_memory, parse_walltime, profile_from, read_profile
from eigensweep.pipeline.errors import InputError

WHOLE = """\
kind = "slurm"            # pbs, sge, lsf, htcondor, oar; srun
jobs = 20
cores = 8
memory = "32GiB"
walltime = "04:00:00"
partition = "main"
account = "physics"
directives = ["--constraint=cpu"]
prologue = ["module load python/3.11"]
python = "apptainer exec image.sif python"
interface = "ib0"
local_directory = "$TMPDIR"
log_directory = "logs"
"""
BATCH = {"kind": "slurm", "memory": "2GiB", "walltime": "01:00:00"}


def faults(table):
    with pytest.raises(InputError) as caught:
        profile_from(table)
    return {fault.thing: str(fault) for fault in caught.value.faults}


def test_every_key_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("slurm.toml").write_text(WHOLE)
    profile = read_profile("slurm.toml")
    assert (profile.kind, profile.jobs, profile.cores) == ("slurm", 20, 8)
    assert (profile.memory, profile.worker_memory) == (32 * 2**30, 4 * 2**30)
    assert (profile.seconds, profile.walltime) == (4 * 3600, "04:00:00")
    assert (profile.partition, profile.account, profile.interface) == ("main", "physics", "ib0")
    assert profile.directives == ("--constraint=cpu",)
    assert profile.prologue == ("module load python/3.11",)
    assert profile.python == "apptainer exec image.sif python"
    assert profile.local_directory == "$TMPDIR"
    assert profile.log_directory == tmp_path / "logs"


def test_what_is_left_out_has_a_default():
    profile = profile_from(BATCH)
    assert (profile.jobs, profile.cores, profile.python) == (1, 1, sys.executable)
    assert profile.partition == profile.account == profile.interface == ""
    assert profile.log_directory.is_absolute()
    assert profile_from({"kind": "srun"}).jobs == 0


def test_everything_wrong_is_told_at_once_with_its_line(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        'kind = "slurn"\njobz = 3\ncores = 0\nmemory = "32 parsecs"\nwalltime = "4h"\n'
        'log_directory = "my logs"\npython = 3\n'
    )
    with pytest.raises(InputError) as caught:
        read_profile(path)
    told = [str(fault) for fault in caught.value.faults]
    assert told[0] == "line 1: kind = \"slurn\": there is no such kind; did you mean 'slurm'?"
    assert told[1] == "line 2: jobz = 3: there is no such key; did you mean 'jobs'?"
    assert [fault.line for fault in caught.value.faults] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("kind", ["slurm", "pbs", "sge", "lsf", "oar"])
def test_a_batch_system_needs_memory_and_walltime(kind):
    assert set(faults({"kind": kind})) == {"memory", "walltime"}


def test_a_directive_is_written_without_its_prefix():
    assert "leave that out" in faults({**BATCH, "directives": ["#SBATCH --qos=x"]})["directives"]


@pytest.mark.parametrize("key", ["prologue", "directives"])
def test_a_line_may_not_smuggle_in_another(key):
    assert "one line for each" in faults({**BATCH, key: ["module load x\n#SBATCH -n 99"]})[key]


@pytest.mark.parametrize("key", ["partition", "account", "interface", "local_directory", "log_directory"])
def test_a_blank_would_split_an_option(key):
    assert "holds a blank" in faults({**BATCH, key: "a b"})[key]


def test_htcondor_knows_no_partition():
    told = faults({"kind": "htcondor", "memory": "2GiB", "partition": "main", "directives": ["--x"]})
    assert "requirements" in told["partition"]
    assert "name = value" in told["directives"]


def test_a_missing_file_and_a_broken_one_are_told(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_profile(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text('kind = "slurm"\njobs = = 2\n')
    with pytest.raises(InputError, match="line 2"):
        read_profile(tmp_path / "broken.toml")


@given(st.integers(1, 10**7))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_a_time_survives_writing_and_reading(seconds):
    assert parse_walltime(clock(seconds)) == seconds


@pytest.mark.parametrize("text", ["4h", "04:00", "", "00:00:00", "04:60:00", "-04:00:00", "4:0:0:0"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="no time limit"):
        parse_walltime(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32GiB", 32 * 2**30),
        ("32G", 32 * 2**30),
        ("32GB", 32 * 10**9),
        ("512 MiB", 2**29),
        ("1.5T", 3 * 2**39),
    ],
)
def test_memory_has_a_unit(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["32", "32 parsecs", "32gib", "-1GiB", "1MiB", "", "1e3GiB"])
def test_what_is_no_memory_is_refused(text):
    with pytest.raises(ValueError, match="; write"):
        parse_memory(text)
