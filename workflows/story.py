"""``eigensweep status``: the story of a study, told from its folder alone."""

from __future__ import annotations

import json
from calendar import timegm
from dataclasses import dataclass
from pathlib import Path
from time import strptime, time
from typing import Any

from eigensweep.workflows import console

RECENT = 5
"""Events of the log that are shown."""


@dataclass(frozen=True)
class Story:
    """What a study's files tell.

    Parameters
    ----------
    sweep : str
        Name of the last sweep.
    seed : int
        Its seed.
    columns : dict of str to list of int
        Columns that it asks for, by level and state.
    running : list of str
        Who is at work: a run, or shares of one.
    dead : str
        Who stopped without notice; empty if nobody did.
    events : list of dict
        The log.
    failures : list of dict
        The failures.
    jobs : dict
        Worker jobs of the run at work; empty where there are none.
    """

    sweep: str
    seed: int
    columns: dict[str, list[int]]
    running: list[str]
    dead: str
    events: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    jobs: dict[str, Any]

    @property
    def rate(self) -> float:
        """Columns per second since the last run began; NaN where none is at work."""
        starts = [event for event in self.events if event["event"] == "start"]
        if not self.running or not starts:
            return float("nan")
        elapsed = time() - timegm(strptime(starts[-1]["time"], "%Y-%m-%dT%H:%M:%SZ"))
        done = starts[-1].get("columns", 0) - self.pending
        return max(0.0, done / elapsed) if elapsed > 0 else float("nan")

    @property
    def pending(self) -> int:
        """Columns that are still to compute."""
        return sum(counts[0] for counts in self.columns.values())

    @property
    def versions(self) -> list[str]:
        """Versions of the code that ran, in order."""
        seen = [event["versions"] for event in self.events if "versions" in event]
        return list(dict.fromkeys(f"{v.get('eigensweep')} ({v.get('commit')})" for v in seen))


def status(folder: Path, as_json: bool) -> None:
    """Print how far a study is, who works on it and what failed."""
    story = read(folder)
    if as_json:
        console.print_json(_plain(folder, story))
        return
    print(f"{folder}: sweep {story.sweep}, seed {story.seed}")
    for line in _who(story):
        print(f"  {line}")
    from eigensweep.pipeline.schema import STATUS_NAMES

    rows = [(level, sum(counts), *counts) for level, counts in story.columns.items()]
    console.print_table("columns", ("level", "asked", *STATUS_NAMES), rows)
    if story.jobs.get("jobs"):
        table = [(job["id"], job["state"], job["reason"], job["works"]) for job in story.jobs["jobs"]]
        console.print_table("worker jobs", ("job", "state", "reason", "works"), table, left=4)
        lost = f"{story.jobs['lost']} of {story.jobs['submitted']} jobs were lost"
        print(f"  logs in {story.jobs['logs']}; {lost}")
    shown = [(event["time"], event["event"], _details(event)) for event in story.events[-RECENT:]]
    if shown:
        console.print_table("latest events", ("time", "event", ""), shown, left=3)
    if len(story.versions) > 1:
        console.say(f"warning: runs of this study used different code: {', '.join(story.versions)}")
    if story.failures:
        print(f"  {len(story.failures)} failures so far, the last: {story.failures[-1]['reason']}")
        print(f"  look into it: {story.failures[-1]['command']}")


def read(folder: Path) -> Story:
    """Read a study's story.

    Parameters
    ----------
    folder : Path
        The study.

    Returns
    -------
    Story
        What its files tell, without a connection to whoever works on it.
    """
    from eigensweep.pipeline import lock
    from eigensweep.pipeline.study import FAILURES, JOBS, LOCK, LOG, load

    study = load(folder)
    living = lock.living(folder, LOCK) + lock.living(folder, f"{LOCK}.share-*-of-[0-9]*")
    holder = lock.read(folder / LOCK)
    alive = any(path.name == LOCK for path, _ in living)
    jobs = _lines(folder / JOBS)
    return Story(
        sweep=study.sweep.name,
        seed=study.sweep.seed,
        columns={level: counts.tolist() for level, counts in study.tally().items()},
        running=[
            f"{path.name.removeprefix(LOCK).lstrip('.')} {who.describe()}".strip() for path, who in living
        ],
        dead=holder.describe() if holder is not None and not alive else "",
        events=_lines(folder / LOG),
        failures=_lines(folder / FAILURES),
        jobs=jobs[-1] if jobs else {},
    )


def _who(story: Story) -> list[str]:
    lines = [f"running: {who}" for who in story.running]
    if story.rate > 0:
        left = console.duration(story.pending / story.rate)
        lines.append(f"{story.rate:.2f} columns a second, {left} left")
    if story.dead:
        lines.append(f"stopped without notice: {story.dead}")
    return lines


def _plain(folder: Path, story: Story) -> dict[str, Any]:
    from eigensweep.pipeline.schema import STATUS_NAMES

    states = {level: dict(zip(STATUS_NAMES, counts, strict=True)) for level, counts in story.columns.items()}
    return {
        "study": folder,
        "sweep": story.sweep,
        "columns": states,
        "running": story.running[0] if story.running else None,
        "rate": story.rate,
        "jobs": story.jobs,
        "events": story.events[-RECENT:],
        "versions": story.versions,
        "failures": len(story.failures),
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            # A line that a killed run left half written says nothing any more.
            continue
    return found


def _details(event: dict[str, Any]) -> str:
    shown = {k: v for k, v in event.items() if k in ("columns", "share", "done", "failed", "seconds")}
    return ", ".join(f"{key} {value}" for key, value in shown.items())
