"""The command line with columns that misbehave, in a process of its own, and what tests ask of one.

``python faulty_command.py run ...`` is ``eigensweep run ...`` whose attention pooling is
:class:`faulty_ensemble.FaultyPooling`, as the environment says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, fields
from pathlib import Path

import faulty_ensemble
import psutil

from eigensweep.pipeline import engine, models
from eigensweep.pipeline.tomltext import to_toml

SCRIPT = "EIGENSWEEP_TEST_SCRIPT"
MARK = "EIGENSWEEP_TEST_MARK"


def script():
    """Make the columns misbehave as the environment says."""
    told = json.loads(os.environ.get(SCRIPT, "{}"))
    faults = {int(replicate): fault for replicate, fault in told.get("faults", {}).items()}
    plain = models.ENSEMBLES["attention-pooling"]

    def configure(options, files):
        made = plain(options, files)
        kept = {field.name: getattr(made, field.name) for field in fields(made)}
        return faulty_ensemble.FaultyPooling(
            **kept, faults=faults, slow=told.get("slow", 0.0), journal=told.get("journal", "")
        )

    models.ENSEMBLES["attention-pooling"] = configure
    engine.BUNDLE_SECONDS = told.get("bundle", engine.BUNDLE_SECONDS)


@dataclass
class Command:
    """A command line at work, in a session of its own.

    ``mark`` is in the environment of each of its processes, whatever session these move to.
    """

    process: subprocess.Popen
    mark: str
    log: Path

    def processes(self):
        """List its processes that live."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def left(self, seconds=5.0):
        """List what still lives that many seconds after its end."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def wait(self, seconds=60.0):
        """Wait for its end and return the exit code."""
        return self.process.wait(seconds)

    def output(self):
        """What it has printed, on both streams."""
        return self.log.read_text()

    def kill(self):
        """Kill all of it."""
        for process in self.processes():
            process.kill()
        self.process.wait()

    def send(self, number, group):
        """Send a signal to its process group, or to its main process alone."""
        (os.killpg if group else os.kill)(self.process.pid, number)


def write(sweep, path):
    """Write a sweep's file."""
    path.write_text(to_toml(sweep.to_dict()))
    return path


def start(folder, *words, cwd=None, **told):
    """Start a command; ``told`` is how its columns misbehave."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, SCRIPT: json.dumps(told), MARK: mark, "PYTHONWARNINGS": "default"}
    log = Path(folder) / f"{mark}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, __file__, *map(str, words)],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
    return Command(process, mark, log)


def until(condition, seconds=60.0):
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("it never came to hold")
        time.sleep(0.01)
    return found


if __name__ == "__main__":
    # Whoever starts tests in the background hands on a Ctrl-C that is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    script()
    from eigensweep.workflows.main import main

    main()
