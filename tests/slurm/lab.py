"""A real SLURM on this machine, in a folder and on ports of its own, for the tests.

    python tests/slurm/lab.py up FOLDER       starts it and says how to use it
    python tests/slurm/lab.py down FOLDER     cancels its jobs and stops it

Needs root, since slurmd starts jobs as their users; Debian's packages are installed if they are missing.
No systemd, no control groups, no network beyond this machine.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PORT = 28600
NODES, CPUS, MEMORY = 2, 2, 3000
KILL_WAIT = 4

CONFIGURATION = """\
ClusterName=eigensweep
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/pgid
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobSubmitPlugins=lua
ReturnToService=2
SlurmdTimeout=6
KillWait={kill_wait}
MinJobAge=3600
DefMemPerCPU=256
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr={address} Port=[{first}-{last}] \\
 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# Stands for the accounting limits of a site, which would take a database: the folder's file "limit" holds how
# many more jobs are accepted. (The plugin's own list of jobs is a second old.)
SUBMIT_LIMIT = """\
function slurm_job_submit(job, partitions, user)
   local file = io.open("{folder}/limit", "r")
   if file == nil then return slurm.SUCCESS end
   local left = tonumber(file:read("*l"))
   file:close()
   if left <= 0 then return 2050 end           -- ESLURM_ACCOUNTING_POLICY
   file = io.open("{folder}/limit", "w")
   file:write(left - 1)
   file:close()
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
   return slurm.SUCCESS
end

return slurm.SUCCESS
"""


class Lab:
    """A private SLURM.

    Parameters
    ----------
    folder : Path
        Where it keeps everything.
    """

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.env["PATH"] += ":/usr/sbin:/sbin"
        self._silent = set()

    def up(self):
        """Install, configure and start it, and wait until its nodes are idle."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        _install(self.folder)
        (self.folder / "state").mkdir(exist_ok=True)
        host = socket.gethostname().partition(".")[0]
        port = _free_ports(NODES + 1)
        values = {
            "nodes": NODES,
            "cpus": CPUS,
            "memory": MEMORY,
            "kill_wait": KILL_WAIT,
            "folder": self.folder,
        }
        values |= {"host": host, "address": socket.gethostbyname(host), "port": port}
        values |= {"first": port + 1, "last": port + NODES}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
        (self.folder / "job_submit.lua").write_text(SUBMIT_LIMIT.replace("{folder}", str(self.folder)))
        self._munge()
        self.call("slurmctld", "-f", self.env["SLURM_CONF"])
        for node in range(1, NODES + 1):
            self.start_node(f"n{node}")
        self.wait_until(lambda: self.idle_nodes() == NODES, 60, "the nodes are not ready")
        return self

    def down(self):
        """Cancel all jobs and stop its daemons; its own only, by their pid files."""
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            self.call("scancel", "--quiet", "--user=root")
            self.wait_until(lambda: not self.jobs(), 30, "")
        for path in [*self.folder.glob("slurmd-*.pid"), self.folder / "slurmctld.pid"]:
            self._kill(path, 15)
        for step in self._steps():
            with contextlib.suppress(ProcessLookupError):
                os.kill(step, 9)
        self._kill(self.folder / "munged.pid", 15)

    def call(self, *command, check=True):
        """Run a command of this SLURM and return what it printed."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=60, check=False, cwd=self.folder
        )
        if check and done.returncode != 0:
            raise subprocess.SubprocessError(f"{command}: {done.stderr or done.stdout}")
        return done.stdout

    def jobs(self, name=""):
        """Ids of jobs that have not ended."""
        options = [f"--name={name}"] if name else []
        return self.call("squeue", "--noheader", "--format=%A", *options).split()

    def running(self, name=""):
        """Ids of jobs that run."""
        options = [f"--name={name}"] if name else []
        return self.call("squeue", "--noheader", "--states=RUNNING", "--format=%A", *options).split()

    def show(self, job):
        """All that the controller knows of a job, by field."""
        text = self.call("scontrol", "--oneliner", "show", "job", job)
        return dict(item.split("=", 1) for item in text.split() if "=" in item)

    def node_of(self, job):
        """Node that a job runs on."""
        return self.show(job)["NodeList"]

    def idle_nodes(self):
        """How many nodes can take jobs."""
        states = self.call("sinfo", "--noheader", "--Node", "--format=%N|%t", check=False).split()
        return sum(line.partition("|")[2] in ("idle", "mix", "alloc", "comp") for line in set(states))

    def start_node(self, node):
        """Start a node's daemon."""
        self.call("slurmd", "-f", self.env["SLURM_CONF"], "-N", node)

    def silence_node(self, node):
        """Kill a node's daemon and stop all that runs on it: no connection is closed, nothing answers."""
        self._kill(self.folder / f"slurmd-{node}.pid", 9)
        for step in self._steps(node):
            for process in _descendants(step):
                self._silent.add(process)
                os.kill(process, 19)

    def heal(self):
        """Bring every node and limit back, and wait until no job is left."""
        (self.folder / "limit").unlink(missing_ok=True)
        for process in self._silent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, 9)
        self._silent.clear()
        for node in (f"n{number}" for number in range(1, NODES + 1)):
            if not _lives(self.folder / f"slurmd-{node}.pid", self.folder):
                self.start_node(node)
            self.call("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        self.call("scancel", "--quiet", "--user=root")
        self.wait_until(lambda: not self.jobs() and self.idle_nodes() == NODES, 60, "the lab does not heal")

    def wait_until(self, ready, seconds, complaint):
        """Wait for something."""
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"{complaint}\n{self.call('squeue', '--states=all', check=False)}"
            time.sleep(0.1)

    def _munge(self):
        key, socket_path = self.folder / "munge.key", self.folder / "munge.sock"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(256))
        options = {"socket": socket_path, "key-file": key, "pid-file": self.folder / "munged.pid"}
        options |= {"log-file": self.folder / "munged.log", "seed-file": self.folder / "munged.seed"}
        self.call("munged", "--force", "--num-threads=2", *(f"--{k}={v}" for k, v in options.items()))

    def _kill(self, path, number):
        if not _lives(path, self.folder):
            path.unlink(missing_ok=True)
            return
        process = int(path.read_text())
        for signal in (number, 9):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal)
            end = time.monotonic() + 10
            while _lives(path, self.folder) and time.monotonic() < end:
                time.sleep(0.05)
        path.unlink(missing_ok=True)

    def _steps(self, node=""):
        """Processes that hold this SLURM's job steps, on one node or on all."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if not (folder / "cmdline").read_bytes().startswith(b"slurmstepd:"):
                    continue
                environment = (folder / "environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={self.folder / 'slurm.conf'}".encode() not in environment:
                    continue
                if not node or any(name.endswith(f"slurmd-{node}.log") for name in _open_files(folder)):
                    found.append(int(folder.name))
        return found


def can_run():
    """Say why SLURM can't run here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root, to start slurmd"
    if not shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin:/sbin") and not shutil.which(
        "apt-get"
    ):
        return "needs slurmctld, and there is no apt-get to install it with"
    return ""


def _install(folder):
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if all(shutil.which(name, path=path) for name in ("slurmctld", "slurmd", "sbatch", "munged")):
        return
    # Otherwise the packages' own scripts would start daemons.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        with (folder / "install.log").open("w") as log:
            for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *PACKAGES]):
                subprocess.run(
                    ["apt-get", *command], stdout=log, stderr=log, check=True, env=environment, timeout=300
                )
    finally:
        if ours:
            policy.unlink()


def _free_ports(count):
    """First of so many ports in a row that nobody listens on."""
    for first in range(PORT, PORT + 3000, 20):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise OSError("no free ports")


def _lives(path, folder):
    """Whether a pid file names a living process of this lab."""
    with contextlib.suppress(OSError, ValueError):
        process = int(path.read_text())
        return str(folder).encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def _open_files(process):
    links = (process / "fd").iterdir()
    names = []
    for link in links:
        with contextlib.suppress(OSError):
            names.append(str(link.readlink()))
    return names


def _descendants(process):
    """A process and all below it, the youngest last."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [process]
    for one in found:
        found += children.get(one, [])
    return found


def main():
    """Start or stop a lab by hand."""
    command, folder = sys.argv[1], Path(sys.argv[2])
    lab = Lab(folder)
    if command == "down":
        lab.down()
        return
    with (Path(folder).parent / f".{Path(folder).name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lab.up()
    print(f"export SLURM_CONF={lab.env['SLURM_CONF']}")
    print(lab.call("sinfo"), end="")


if __name__ == "__main__":
    main()
