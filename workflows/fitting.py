"""``eigensweep fit``: where the transitions are, beside where theory puts them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.workflows import console

if TYPE_CHECKING:
    import xarray as xr

CSV, JSON = "fits.csv", "fits.json"
NUMBERS = ("threshold", "low", "high", "theory", "z")
WHY = {
    "continuation": (
        "continuation of the odds of the mean overlap, dressed for finite d: its 95% intervals are calibrated"
    ),
    "crossing": "crossing of d^(1/3) times the mean overlap: an independent check, with wide intervals",
}


def fit(study: Path, level: str, method: str, redraws: int, as_json: bool) -> None:
    """Fit every transition of a study, print the table and leave it in the study."""
    if redraws < 0:
        raise InputError(Fault("--redraws", str(redraws), "it is negative", "write 0 or more"))
    if method not in WHY:
        raise InputError(Fault("--method", method, "there is no such estimator", nearest(method, WHY)))
    from eigensweep.pipeline.study import load

    sweep = load(study).sweep
    recorded = sweep.record.levels
    if level and level not in recorded:
        raise InputError(Fault("--level", level, "the study records no such level", nearest(level, recorded)))
    axes = {item.name: item.axes for item in sweep.ensemble.levels}
    found = rows(fits_of(study, level, method, redraws), axes)
    _write(study, found, method, redraws)
    if as_json:
        console.print_json({"study": study, "method": method, "redraws": redraws, "fits": found})
        return
    _print(study, found, method)


def fits_of(study: Path, level: str = "", method: str = "continuation", redraws: int = 8) -> xr.Dataset:
    """Fit every transition of a study.

    Parameters
    ----------
    study : Path
        The study.
    level : str
        The level; all of them if empty.
    method : str
        The estimator.
    redraws : int
        More directions drawn for each stored column.

    Returns
    -------
    xarray.Dataset
        From :func:`eigensweep.analysis.fit_transitions`.
    """
    from eigensweep.analysis import fit_transitions
    from eigensweep.pipeline import open_cube

    return fit_transitions(open_cube(study), level or None, method, redraws=redraws)


def rows(fits: xr.Dataset, known: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """List the fits of a Dataset.

    Parameters
    ----------
    fits : xarray.Dataset
        From :func:`fits_of`.
    known : mapping of str to sequence of str
        The axes that each level depends on.

    Returns
    -------
    list of dict
        One a point of the grid; a level is listed once along axes that it does not depend on.
    """
    import numpy as np

    found, seen = [], set()
    axes = [str(name) for name in fits["threshold"].dims]
    for place in np.ndindex(*(fits.sizes[name] for name in axes)):
        cell = fits.isel(dict(zip(axes, place, strict=True)))
        level = str(cell["level"].item())
        point = {name: cell[name].item() for name in axes if name == "level" or name in known[level]}
        answer: dict[str, Any] = {name: float(cell[name]) for name in NUMBERS}
        answer |= {name: str(cell[name].item()) for name in ("status", "message")}
        identity = json.dumps(point, sort_keys=True, default=str)
        if identity not in seen:
            seen.add(identity)
            found.append({**point, **answer})
    return found


def _write(study: Path, found: list[dict[str, Any]], method: str, redraws: int) -> None:
    from eigensweep.pipeline.errors import StoppedError

    names = list(dict.fromkeys(name for row in found for name in row))
    try:
        with (study / CSV).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, restval="")
            writer.writeheader()
            writer.writerows(found)
        told = {"method": method, "redraws": redraws, "fits": console.plain(found)}
        (study / JSON).write_text(json.dumps(told, indent=1, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise StoppedError(f"{study}: the fits can't be written there ({error.strerror or error})") from None


def _print(study: Path, found: list[dict[str, Any]], method: str) -> None:
    shown = list(dict.fromkeys(name for row in found for name in row if name != "message"))
    points = [name for name in shown if name not in (*NUMBERS, "status")]
    varying = [name for name in points if len({row.get(name, "") for row in found}) > 1 or name == "level"]
    head = (*varying, "threshold", "95% interval", "theory", "z", "status")
    table = [
        (
            *(row.get(name, "") for name in varying),
            *_answer(row),
        )
        for row in found
    ]
    console.print_table("transitions in rho", head, table, left=len(varying))
    print(f"  {method}: {WHY[method]}")
    counted = [row for row in found if row["z"] == row["z"]]
    if counted:
        within = sum(row["low"] <= row["theory"] <= row["high"] for row in counted)
        print(f"  {within} of {len(counted)} intervals hold the theory")
    notes = dict.fromkeys(f"{row['status']}: {row['message']}" for row in found if row["status"] != "ok")
    for note in list(notes)[:10]:
        print(f"  {note}")
    print(f"  written to {study / CSV} and {study / JSON}")


def _answer(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    numbers = {name: f"{row[name]:.4g}" if row[name] == row[name] else "" for name in NUMBERS}
    interval = f"{numbers['low']} to {numbers['high']}" if numbers["low"] else ""
    z = f"{row['z']:+.1f}" if row["z"] == row["z"] else ""
    return numbers["threshold"], interval, numbers["theory"], z, row["status"]
