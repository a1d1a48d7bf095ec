"""Kill runs at random instants, again and again, and count what a study loses: nothing.

Run ``python benchmarks/torture.py --cycles 200`` (about ten minutes on two cores), ``--json`` for figures
alone. A cycle is a kill -9 of a whole run (its process group), of its main process, which holds the scheduler
too, or of one worker, while it lays out its study, grows it (by sizes, gamma, rho, replicates or poolings) or
writes blocks and their status. After each the study is opened with plain xarray and every column that says
done is held against a study that nobody disturbed. Then the same sweep is run again, without any flag.

Most runs are forked from this process, warm and without threads, and work alone; the others are real local
clusters of two workers. Exits with 1 if anything at all was lost, wrong or unopenable.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
import mmap
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401 (loaded here, once for all that are forked)
import numpy as np
import psutil
import scipy.linalg  # noqa: F401 (the same)
import xarray as xr
from numpy.typing import NDArray

from eigensweep.cluster.local import local_client
from eigensweep.pipeline import chunks, cube, engine, preparation
from eigensweep.pipeline.attention_pooling import AttentionPooling
from eigensweep.pipeline.provenance import versions
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.views import open_cube

STAGES: tuple[dict[str, Any], ...] = (
    {},
    {"d": [6, 8]},
    {"gamma": [0.25, 0.5]},
    {"rho": [0.0, 0.5, 1.0, 3.0, 4.0]},
    {"replicates": 4},
    {"pooling": ["mean", "exponential(0.5)"]},
    {"replicates": 5},
    {"rho": [0.0, 0.25, 0.5, 1.0, 3.0, 4.0, 9.0]},
)
"""What each sweep asks for beyond the one before: values in the middle and at the end of each axis."""
PHASES = ("start", "prepare", "template", "growth", "run", "column", "data", "status")
AIMS = {"any": PHASES, "layout": ("template", "growth"), "run": ("run",), "status": ("status",)}
"""Where a kill is aimed at: a random time after such a phase was reached."""
KINDS = {
    "alone": "the whole run, one process",
    "whole": "the whole run, a local cluster",
    "main": "the main process with the scheduler, a local cluster",
    "worker": "a worker, a local cluster",
}
TABLES = ("kills", "phases")
WORKERS = 2
SEED = 20260507


Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Journaled(AttentionPooling):
    """Attention pooling that writes down every column that it is asked for."""

    journal: str = ""

    def column(self, level: str, point: Any, seed: int, replicate: int) -> Any:
        """Compute a column, and say so first."""
        _enter("column")
        line = _key("" if level == "sample" else f"_{level}", (*point.values(), replicate)) + "\n"
        descriptor = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)
        return super().column(level, point, seed, replicate)


class Signpost:
    """A byte that a forked run shares with this process: where it is at work. On Dask's wire it is lost."""

    def __init__(self, byte: mmap.mmap | None = None) -> None:
        self.byte = byte

    def __reduce__(self) -> tuple[type[Signpost], tuple[()]]:
        return Signpost, ()


_signpost = Signpost()


def _enter(phase: str) -> None:
    if _signpost.byte is not None:
        _signpost.byte[0] = PHASES.index(phase)


def _key(suffix: str, labels: Iterable[Any]) -> str:
    return "|".join([suffix, *map(str, labels)])


def stages(journal: Path) -> list[Sweep]:
    """Make the sweeps that a study is grown through."""
    grid: dict[str, Any] = {"d": [8], "delta": 0.5, "gamma": [0.5], "rho": [0.0, 1.0, 3.0], "T": 4}
    grid |= {"pooling": ["mean"], "replicates": 3}
    found = []
    for change in STAGES:
        grid |= change
        model = {"ensemble": "attention-pooling", "correlation": {"kind": "prefix", "length": 2}}
        sweep = Sweep.from_dict({"name": "torture", "seed": SEED, "grid": grid, "model": model})
        kept = {f.name: getattr(sweep.ensemble, f.name) for f in fields(sweep.ensemble)}
        found.append(replace(sweep, ensemble=Journaled(**kept, journal=str(journal))))
    return found


def _watched(tasks: Path) -> None:
    """Have the pipeline tell, in a forked run, where it is at work and how large its tasks are."""

    def told(owner: Any, name: str, phase: str) -> None:
        original = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            _enter(phase)
            return original(*args, **kwargs)

        setattr(owner, name, wrapper)

    told(preparation, "_prepare", "prepare")
    told(cube, "create", "template")
    told(cube, "publish", "growth")
    told(engine._Run, "__call__", "run")
    array = chunks.Chunks._array

    def announced(self: chunks.Chunks, name: str) -> Any:
        _enter("status" if name.startswith("column_status") else "data")
        return array(self, name)

    chunks.Chunks._array = announced  # type: ignore[method-assign]
    bundle = engine.bundle

    def counted(*args: Any) -> Iterator[Any]:
        for task in bundle(*args):
            with tasks.open("a") as file:
                file.write(f"{sum(block.wanted - block.first for block, _ in task.blocks)}\n")
            yield task

    engine.bundle = counted
    # Small tasks: many of them, and few columns in flight.
    engine.BUNDLE_SECONDS = 0.01


def _forked(body: Callable[[], Any], log: Path) -> int:
    """Run a function in a process of its own, in a session of its own."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        code = body() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(sweep: Sweep, life: Life, clustered: bool) -> int:
    _watched(life.tasks)
    if not clustered:
        return len(engine.run(sweep, life.study).failures)
    with local_client(WORKERS) as client:
        return len(engine.run(sweep, life.study, client).failures)


def _answer(question: Callable[[], Any], log: Path) -> Any:
    """Ask a function in a process of its own, lest this one gets threads, which forks don't like."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"

        def reply() -> None:
            answer.write_bytes(pickle.dumps(question()))

        code = Run(_forked(reply, log)).wait()
        return pickle.loads(answer.read_bytes()) if code == 0 else None


def examine(study: Path, undisturbed: Arrays) -> dict[str, Any]:
    """Open a study with plain xarray and hold what it calls done against an undisturbed one."""
    if not (study / "cube.zarr").exists():
        return {"done": {}, "wrong": 0}
    warnings.simplefilter("error")
    with dask.config.set(scheduler="synchronous"):
        plain = xr.open_zarr(study / "cube.zarr").load()
    done: dict[str, int] = {}
    wrong = 0
    for suffix in ("", "_population"):
        status = plain[f"column_status{suffix}"]
        count = plain[f"column_rho_count{suffix}"].values
        finished = status.values == 1
        wrong += int(np.count_nonzero(status.values > 1))
        labels = [plain[dim].values for dim in status.dims]
        for place in np.argwhere(finished):
            key = _key(suffix, (names[i] for names, i in zip(labels, place, strict=True)))
            done[key] = int(count[tuple(place)])
        bad = np.zeros(finished.shape, dtype=bool)
        for name in plain.data_vars:
            own = str(name).startswith("population_") or str(name).endswith("_population")
            if own != bool(suffix) or str(name).startswith(("seconds", "column_rho", "column_status")):
                continue
            bad |= _differs(plain[name], undisturbed, finished, count)
        wrong += int(np.count_nonzero(bad))
    seen = open_cube(study)
    for suffix, prefix in (("", ""), ("_population", "population_")):
        value = seen[f"{prefix}mode_value"].values[..., 0]
        wrong += int(np.count_nonzero((seen[f"column_status{suffix}"].values == 1) != np.isfinite(value)))
    return {"done": done, "wrong": wrong}


def _differs(found: xr.DataArray, undisturbed: Arrays, finished: Any, count: Any) -> Any:
    """Say which finished columns of a variable differ from the undisturbed study's in any bit."""
    where = []
    for dim in found.dims:
        if dim in found.coords:
            order = {value: i for i, value in enumerate(undisturbed[str(dim)].tolist())}
            where.append([order[value] for value in found[dim].values.tolist()])
        else:
            where.append(list(range(found.sizes[dim])))
    expected = undisturbed[str(found.name)][np.ix_(*where)]
    same = found.values == expected
    if found.dtype.kind == "f":
        same |= np.isnan(found.values) & np.isnan(expected)
    if "rho" in found.dims:
        pending = np.arange(found.sizes["rho"]) >= count[..., None]
        same |= pending[..., None]
    return finished & ~same.reshape(*finished.shape, -1).all(axis=-1)


def arrays(study: Path) -> Arrays:
    """Load every variable and coordinate of a cube, sorted."""
    return {str(name): variable.values for name, variable in open_cube(study).load().variables.items()}


def identical(study: Path, undisturbed: Arrays) -> bool:
    """Say whether a cube is the undisturbed one, bit for bit, times apart."""
    found = arrays(study)
    return set(found) == set(undisturbed) and all(
        found[name].shape == undisturbed[name].shape
        and (
            found[name].tolist() == undisturbed[name].tolist()
            if found[name].dtype == object
            else found[name].tobytes() == undisturbed[name].tobytes()
        )
        for name in found
        if not name.startswith("seconds")
    )


def leftovers(study: Path) -> int:
    """Count what killed runs left lying about."""
    names = [path.name for path in study.rglob("*")]
    return sum(name.endswith((".partial", ".tmp")) or name.startswith("lock") for name in names)


@dataclass
class Figures:
    """What a torture counts."""

    cycles: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)
    unopenable: int = 0
    wrong: int = 0
    lost: int = 0
    refused: int = 0
    redone: int = 0
    most_redone_by_a_kill: int = 0
    beyond_flight: int = 0
    columns: int = 0
    studies: int = 0
    different: int = 0
    leftovers: int = 0
    processes_left: int = 0
    seconds: float = 0.0

    @property
    def bad(self) -> int:
        """How much went wrong."""
        lost = self.unopenable + self.wrong + self.lost + self.refused + self.beyond_flight
        return lost + self.different + self.leftovers + self.processes_left


@dataclass
class Life:
    """A study and what is known of it.

    Parameters
    ----------
    study : Path
        The study.
    journal : Path
        What was computed for it, a line a column.
    done : dict of str to int
        Its done columns, as seen last, with how many rho of each are filled.
    before : int
        Lines of the journal before the latest run.
    """

    study: Path
    journal: Path
    done: dict[str, int] = field(default_factory=dict)
    before: int = 0

    @property
    def tasks(self) -> Path:
        """Sizes of the latest run's tasks."""
        return self.journal.with_suffix(".tasks")

    def calls(self) -> list[str]:
        """List the columns that were computed, as often as they were."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def largest(self) -> int:
        """Columns of the largest task of the latest run."""
        return max(map(int, self.tasks.read_text().split()), default=0) if self.tasks.exists() else 0


@dataclass
class Run:
    """A forked run.

    Parameters
    ----------
    process : int
        Its process, which leads a session.
    code : int, optional
        How it ended, once it has.
    """

    process: int
    code: int | None = None

    def over(self) -> bool:
        """Say whether it has ended."""
        if self.code is None:
            found, status = os.waitpid(self.process, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if found else None
        return self.code is not None

    def wait(self) -> int:
        """Wait for its end."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return self.code


class Torture:
    """Studies, one after the other, each grown under kills.

    Parameters
    ----------
    folder : Path
        Where they live.
    seed : int
        For the instants of the kills.
    clustered : float
        Share of the cycles whose run is a local cluster.
    """

    def __init__(self, folder: Path, seed: int, clustered: float) -> None:
        self.folder, self.clustered = folder, clustered
        self.random = random.Random(seed)
        self.figures = Figures()
        self.reference = folder / "undisturbed"
        self.undisturbed: Arrays = {}
        self.log = folder / "log"
        self.phase = mmap.mmap(-1, 1)
        self.usual = 1.0
        self.begun = 0
        self.due: list[str] = []

    def __call__(self, cycles: int) -> Figures:
        """Kill so many runs, and count."""
        start = time.monotonic()
        each = round(cycles * self.clustered / 3)
        self.due = ["whole", "main", "worker"] * each + ["alone"] * (cycles - 3 * each)
        self.random.shuffle(self.due)
        versions()  # asks git, once for all
        self._undisturbed()
        while self.figures.cycles < cycles:
            self._one_study(cycles)
            print(f"  {self.figures.cycles} of {cycles} cycles", file=sys.stderr)
        self.figures.seconds = round(time.monotonic() - start, 1)
        return self.figures

    def _undisturbed(self) -> None:
        for sweep in stages(self.folder / "undisturbed.journal"):
            began = time.monotonic()
            life = Life(self.reference, self.folder / "undisturbed.journal")
            if Run(_forked(lambda s=sweep, k=life: _run(s, k, False), self.log)).wait():
                raise RuntimeError(self.log.read_text()[-2000:])
            self.usual = time.monotonic() - began
        self.undisturbed = _answer(lambda: arrays(self.reference), self.log)

    def _one_study(self, cycles: int) -> None:
        figures = self.figures
        life = Life(self.folder / f"study-{figures.studies}", self.folder / f"journal-{figures.studies}")
        sweeps = stages(life.journal)
        for number, sweep in enumerate(sweeps):
            over = False
            # Growing on from a stage that was never finished is allowed, and as common as not.
            while not over and figures.cycles < cycles and self.random.random() < 0.95:
                over = self._cycle(sweep, life)
            if not over and (number + 1 == len(sweeps) or self.random.random() < 0.2):
                self._finish(sweep, life)
        self._examine(life, 0)
        figures.studies += 1
        figures.different += not _answer(lambda: identical(life.study, self.undisturbed), self.log)
        figures.leftovers += leftovers(life.study)
        calls = Counter(life.calls())
        figures.columns += len(calls)
        figures.redone += sum(calls.values()) - len(calls)

    def _cycle(self, sweep: Sweep, life: Life) -> bool:
        """Start a run and kill it; say whether the run came to its end nevertheless."""
        kind = self.due[-1]
        run = self._start(sweep, life, kind != "alone")
        phase = self._wait(run, kind)
        if phase is None:
            # Too late to kill it: it must have ended well.
            well = self._ended_well(run, kind)
            self._examine(life, 0)
            return well
        self.due.pop()
        survived = self._kill(run, kind)
        self.figures.cycles += 1
        _count(self.figures.phases, phase)
        self._examine(life, 1 if kind in ("alone", "worker") else WORKERS)
        return survived

    def _ended_well(self, run: Run, what: str) -> bool:
        """Say whether a run that nobody ended came to its end, and note it if not."""
        if run.wait() == 0:
            return True
        self.figures.refused += 1
        print(f"{what}: code {run.code}\n{self._told()[-3000:]}", file=sys.stderr)
        return False

    def _told(self) -> str:
        return self.log.read_text()[self.begun :] if self.log.exists() else ""

    def _finish(self, sweep: Sweep, life: Life) -> None:
        """Run to the end, undisturbed and without a flag."""
        self._ended_well(self._start(sweep, life, False), "undisturbed")

    def _start(self, sweep: Sweep, life: Life, clustered: bool) -> Run:
        life.before = len(life.calls())
        life.tasks.unlink(missing_ok=True)
        self.begun += len(self._told())
        _signpost.byte = self.phase
        _enter("start")
        return Run(_forked(lambda: _run(sweep, life, clustered), self.log))

    def _wait(self, run: Run, kind: str) -> str | None:
        """Wait for a random instant of a run; None if the run was over before."""
        alone = kind == "alone"
        aims = ("any", "run", "run", "layout", "status") if alone else ("run", "run", "run", "layout", "any")
        if kind == "worker":
            # A run whose workers don't even start has nothing to go on with, and says so.
            aims = ("run", "run", "layout")
        aim = self.random.choice(aims)
        skip = self.random.randrange(10) if aim == "status" else 0
        longest = {
            "layout": 0.1,
            "status": 0.003,
            "run": 0.7 * self.usual if alone else 1.0,
            "any": self.usual if alone else 6.0,
        }[aim]
        inside = False
        while not run.over():
            now = self._now()
            if now in AIMS[aim] and not inside:
                skip -= 1
                if skip < 0:
                    time.sleep(self.random.uniform(0.0, longest))
                    return None if run.over() else self._now()
            inside = now in AIMS[aim]
            time.sleep(0.0002)
        return None

    def _now(self) -> str:
        return PHASES[self.phase[0]]

    def _kill(self, run: Run, kind: str) -> bool:
        """Kill a part of a run, or all of it; say whether the run came to its end nevertheless."""
        session = [p for p in psutil.process_iter() if _session(p.pid) == run.process]
        workers = [p for p in session if "spawn_main" in _command(p)]
        survived = False
        # A run that is closing its cluster has no worker left to lose, but its own end.
        kind = "whole" if kind == "worker" and not workers else kind
        _count(self.figures.kills, KINDS[kind])
        if kind == "worker":
            self.random.choice(workers).send_signal(signal.SIGKILL)
            survived = self._ended_well(run, "after a worker's end")
        else:
            (os.kill if kind == "main" else os.killpg)(run.process, signal.SIGKILL)
            run.wait()
        _, left = psutil.wait_procs([p for p in session if p.pid != run.process], timeout=15)
        self.figures.processes_left += len(left)
        return survived

    def _examine(self, life: Life, flying: int) -> None:
        """Open the study and count what is wrong; ``flying`` tasks may have to be done again."""
        figures = self.figures
        found = _answer(lambda: examine(life.study, self.undisturbed), self.log)
        if found is None:
            figures.unopenable += 1
            print(self._told()[-3000:], file=sys.stderr)
            return
        done: dict[str, int] = found["done"]
        figures.wrong += found["wrong"]
        figures.lost += sum(done.get(key, 0) < count for key, count in life.done.items())
        calls = Counter(life.calls()[life.before :])
        again = sum(count for key, count in calls.items() if key not in done)
        again += sum(count - 1 for key, count in calls.items() if key in done)
        figures.most_redone_by_a_kill = max(figures.most_redone_by_a_kill, again)
        figures.beyond_flight += max(0, again - flying * life.largest())
        # What was done before is never computed again.
        figures.beyond_flight += sum(key in life.done for key in calls)
        life.done, life.before = done, len(life.calls())


def _count(table: dict[str, int], what: str) -> None:
    table[what] = table.get(what, 0) + 1


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except ProcessLookupError:
        return 0


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def report(figures: Figures) -> str:
    """Write the figures for a human."""
    told = asdict(figures)
    lines = [f"{name.replace('_', ' '):>24}  {value}" for name, value in told.items() if name not in TABLES]
    for name in TABLES:
        lines += [f"{count:>24}  {name}: {what}" for what, count in sorted(told[name].items())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=200, help="kills")
    parser.add_argument("--seed", type=int, default=1, help="of the kills' instants")
    parser.add_argument("--clusters", type=float, default=0.3, help="share of runs that are local clusters")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eigensweep-torture-") as folder:
        figures = Torture(Path(folder), asked.seed, asked.clusters)(asked.cycles)
    print(json.dumps(asdict(figures) | {"versions": versions()}, indent=1) if asked.json else report(figures))
    sys.exit(figures.bad > 0)


if __name__ == "__main__":
    main()
