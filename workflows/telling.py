"""``eigensweep status`` and ``eigensweep workflows``: what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eigensweep.workflows import catalog, console

RECENT = 5
"""Events of the log that are shown."""


def status(folder: Path, as_json: bool) -> None:
    """Print how far a study is, who works on it and what failed."""
    from eigensweep.pipeline import lock
    from eigensweep.pipeline.schema import STATUS_NAMES
    from eigensweep.pipeline.study import FAILURES, LOCK, LOG, load

    study = load(folder)
    tally = {level: counts.tolist() for level, counts in study.tally().items()}
    holder = lock.read(folder / LOCK)
    alive = holder is not None and lock.is_alive(folder / LOCK, holder)
    events, failures = _lines(folder / LOG), _lines(folder / FAILURES)
    if as_json:
        states = {level: dict(zip(STATUS_NAMES, counts, strict=True)) for level, counts in tally.items()}
        running = holder.describe() if holder is not None and alive else None
        told = {"study": folder, "sweep": study.sweep.name, "columns": states, "running": running}
        console.print_json({**told, "events": events[-RECENT:], "failures": len(failures)})
        return
    print(f"{folder}: sweep {study.sweep.name}, seed {study.sweep.seed}")
    if holder is not None:
        print(f"  {'running' if alive else 'stopped without notice'}: {holder.describe()}")
    rows = [(level, sum(counts), *counts) for level, counts in tally.items()]
    console.print_table("columns", ("level", "asked", *STATUS_NAMES), rows)
    shown = [(event["time"], event["event"], _details(event)) for event in events[-RECENT:]]
    if shown:
        console.print_table("latest events", ("time", "event", ""), shown, left=3)
    if failures:
        print(f"  {len(failures)} failures so far, the last: {failures[-1]['reason']}")
        print(f"  look into it: {failures[-1]['command']}")


def workflows(name: str, as_json: bool) -> None:
    """List the packaged sweeps, or print one."""
    if name:
        print(catalog.text(name), end="")
        return
    found = [{"name": item, "description": catalog.describe(item)} for item in catalog.names()]
    if as_json:
        console.print_json(found)
        return
    console.print_table("packaged sweeps", ("name", ""), [tuple(item.values()) for item in found], left=2)
    print("  eigensweep run NAME runs one; eigensweep workflows NAME prints it, to edit")


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            # A line that a killed run left half written says nothing any more.
            continue
    return found


def _details(event: dict[str, Any]) -> str:
    shown = {k: v for k, v in event.items() if k in ("columns", "done", "failed", "seconds")}
    return ", ".join(f"{key} {value}" for key, value in shown.items())
