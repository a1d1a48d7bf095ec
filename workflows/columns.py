"""``eigensweep column``: one column alone, from its seeds, beside what is stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.workflows import catalog, console, signals

if TYPE_CHECKING:
    from eigensweep.pipeline.seeds import Value
    from eigensweep.pipeline.sweep import Sweep

SHOWN = 9
"""Signal strengths that are shown where none is named."""


def column(written: str, parameters: Sequence[str], level: str, rho: Sequence[float], as_json: bool) -> None:
    """Compute one column and print it."""
    if wrong := signals.faults(rho):
        raise InputError(wrong)
    sweep, folder = catalog.resolve(written)
    chosen = _level(sweep, level)
    point, replicate = _parse(sweep, parameters)
    from eigensweep.pipeline.threads import one_thread

    strengths = sorted(rho) or _some(sweep, point)
    start = time.perf_counter()
    with one_thread():
        found = sweep.ensemble.column(chosen, point, sweep.seed, replicate)
        value, overlap = found.eigenpairs(strengths, sweep.record.top)
    seconds = time.perf_counter() - start
    agrees = _compare(folder, sweep, chosen, point, replicate, found)
    names = [f"eigenvalue {k}" for k in range(sweep.record.top)] + [
        f"overlap {k}" for k in range(sweep.record.top)
    ]
    rows = [
        [float(r), *map(float, v), *map(float, o)] for r, v, o in zip(strengths, value, overlap, strict=True)
    ]
    if as_json:
        told = {"level": chosen, "point": point, "replicate": replicate, "seconds": seconds, "stored": agrees}
        console.print_json({**told, "cells": [dict(zip(["rho", *names], row, strict=True)) for row in rows]})
        return
    shown = ", ".join(f"{name}={item}" for name, item in point.items())
    title = f"{chosen} level, {shown}, replicate {replicate}: {seconds:.3f} s"
    console.print_table(title, ("rho", *names), rows, left=0)
    print(f"  {agrees}")


def _level(sweep: Sweep, written: str) -> str:
    levels = sweep.record.levels
    if written and written not in levels:
        raise InputError(
            Fault("--level", written, "the sweep records no such level", nearest(written, levels))
        )
    main = sweep.ensemble.levels[0].name
    return written or (main if main in levels else levels[0])


def _parse(sweep: Sweep, parameters: Sequence[str]) -> tuple[dict[str, Value], int]:
    from eigensweep.pipeline.views import resolve_point

    given: dict[str, Any] = {}
    for item in parameters:
        name, equals, text = item.partition("=")
        if not equals:
            raise InputError(
                Fault("column", item, "it is not of the form NAME=VALUE", "write one such as d=200")
            )
        given[name] = _number(text)
    replicate = given.pop("replicate", 0)
    if not isinstance(replicate, int) or replicate < 0:
        reason = "it is not a whole number of at least 0"
        raise InputError(Fault("replicate", str(replicate), reason, "write one such as replicate=3"))
    # A level that an axis says nothing to, such as gamma to the population, still needs a point of the grid.
    for axis, values in sweep.axes.items():
        given.setdefault(axis, values[0])
    return resolve_point(sweep, given), replicate


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _some(sweep: Sweep, point: dict[str, Value]) -> list[float]:
    values = sweep.signal_values
    step = max(1.0, (len(values) - 1) / (SHOWN - 1))
    gain = 1.0 if sweep.signal == "rho" else sweep.ensemble.gain(point)
    return [gain * values[round(i * step)] for i in range(SHOWN) if round(i * step) < len(values)]


def _compare(
    folder: Path, sweep: Sweep, level: str, point: dict[str, Value], replicate: int, found: Any
) -> str:
    """Say whether the study holds the same column."""
    import numpy as np

    from eigensweep.pipeline.schema import DONE, STATUS_NAMES, Names
    from eigensweep.pipeline.study import CUBE
    from eigensweep.pipeline.views import open_cube

    if not (folder / CUBE).is_dir():
        return "no study holds it yet"
    names = Names(next(item for item in sweep.ensemble.levels if item.name == level))
    cube = open_cube(folder)
    where = {name: value for name, value in point.items() if name in cube[names["column_status"]].dims}
    where["replicate"] = replicate
    try:
        stored = cube.sel(where)
    except KeyError:
        return f"{folder} does not hold it"
    state = int(stored[names["column_status"]])
    if state != DONE:
        return f"in {folder} it is {STATUS_NAMES[state]}"
    if names["mode_value"] not in cube:
        return f"{folder} keeps no spectral columns to compare with"
    kept = [
        stored[names[role]].values[: found.dimension] for role in ("mode_value", "mode_signal", "mode_noise")
    ]
    pairs = list(zip(kept, (found.value, found.signal, found.noise), strict=True))
    if all(np.array_equal(a, b) for a, b in pairs):
        return f"the same, bit for bit, as in {folder}"
    worst = max(float(np.max(np.abs(a - b))) for a, b in pairs)
    return (
        f"it differs from {folder} by up to {worst:.1e}; another machine, or run eigensweep verify {folder}"
    )
