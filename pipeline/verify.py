"""Verifying a cube: every chunk read, every number checked against what it must be."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.cube import METADATA, Plan
from eigensweep.pipeline.evidence import TOLERANCE
from eigensweep.pipeline.findings import Finding, Report
from eigensweep.pipeline.inspection import Inspector, remedy_of
from eigensweep.pipeline.recovery import recipe_of, true_layout
from eigensweep.pipeline.schema import Variable
from eigensweep.pipeline.stored import Stored, open_stored
from eigensweep.pipeline.study import INPUTS
from eigensweep.pipeline.threads import one_thread
from eigensweep.pipeline.tiling import chunk_name

SAMPLE = 16
"""Columns that are computed again from their seeds, unless told otherwise."""

RESTORE = "restore the file from a copy"

Watch = Callable[[int, int], None]
"""Told how many columns are checked and how many there are."""


def verify(study: str | Path, *, sample: int = SAMPLE, watch: Watch | None = None) -> Report:
    """Check all that a study's cube, or a packed cube, holds.

    Parameters
    ----------
    study : str or Path
        A study, its ``cube.zarr``, or a packed cube. It may be at work; nothing is written.
    sample : int
        How many columns are computed again from their seeds, drawn at random; the same ones each time.
    watch : callable, optional
        Told how many columns are checked and how many there are, as the check goes on.

    Returns
    -------
    Report
        Damage in ``findings``; what is merely not computed yet in ``states`` and ``lacking``.

    Raises
    ------
    StudyError
        If there is no cube, or its metadata can't be used.
    InputError
        If a file that its sweep names is missing or not the one that it was run with.

    Notes
    -----
    Every chunk of every array is read, and with it its checksum. Coordinates are compared with those that
    the sweeps ask for. For each column that is done, the digest must belong to its coordinates and its
    stored numbers, and eigenvalues and overlaps must follow from the stored spectral column, at every
    signal strength that is filled: to 1e-10, and bit for bit on the machine that computed them. The
    sample is compared with what the seeds give, to 1e-10 as well; a projection on an eigenvector whose
    eigenvalue has a close neighbour may differ by rounding over their gap. Of ``seconds`` only the
    presence can be checked: no digest covers it.
    """
    stored = open_stored(study)
    report = Report(stored.path, stored.packed)
    if not _check_sweeps(stored, report):
        return report
    layout = true_layout(stored)
    plan = stored.plan(layout)
    for variable in plan.variables():
        _check_metadata(stored, variable, report)
        _check_files(stored, variable.name, report)
        if variable.coordinate:
            _check_coordinate(stored, plan, variable, report)
    _list_strangers(stored, plan, report)
    inspectors = _inspect_levels(stored, layout, report, watch or (lambda done, total: None))
    _check_sample(stored, inspectors, sample)
    return report


def _check_sweeps(stored: Stored, report: Report) -> bool:
    """Say whether the sweeps, on which all else rests, are those that were written."""
    for entry in stored.document["attributes"]["sweeps"]:
        text = json.dumps(entry["sweep"], sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(text.encode()).hexdigest() != entry["digest"]:
            problem = (
                f"the sweep {entry['sweep'].get('name')} does not have the digest that is noted beside it"
            )
            report.findings.append(Finding(METADATA, "", "", {}, (), problem, RESTORE))
    return report.sound


def _check_metadata(stored: Stored, variable: Variable, report: Report) -> None:
    """Compare an array's own metadata with the consolidated ones: readers look at one or the other."""
    published = stored.document["consolidated_metadata"]["metadata"][variable.name]
    problem, remedy = "", remedy_of(stored)
    try:
        own = json.loads((stored.path / variable.name / METADATA).read_bytes())
        # A growth that was killed has made the array longer already; the next one sets it right.
        differing = [key for key in published if key != "shape" and own[key] != published[key]]
    except FileNotFoundError:
        problem = "it is missing"
    except (ValueError, KeyError, TypeError) as error:
        problem = f"it can't be read ({type(error).__name__}: {error})"
    else:
        if differing and _describes(own, variable) and not _describes(published, variable):
            problem, remedy = "the cube's own zarr.json says otherwise, and wrongly", RESTORE
        elif differing:
            problem = f"it differs from the cube's own zarr.json in {', '.join(differing)}"
    if problem:
        report.findings.append(Finding(variable.name, METADATA, "", {}, (), problem, remedy))


def _describes(metadata: Mapping[str, Any], variable: Variable) -> bool:
    attributes = {"long_name": variable.long_name, "units": variable.units, "source": variable.source}
    return bool(metadata["attributes"] == attributes and tuple(metadata["dimension_names"]) == variable.dims)


def _check_files(stored: Stored, name: str, report: Report) -> None:
    """Count an array's files and list those that are no chunks of it."""
    array = stored.array(name)
    lengths = array.shards or array.chunks
    grid = [math.ceil(size / length) for size, length in zip(array.shape, lengths, strict=True)]
    known = re.compile(r"c(\.\d+)*")
    report.arrays += 1
    for path in sorted((stored.path / name).iterdir()):
        if known.fullmatch(path.name):
            place = [int(part) for part in path.name.split(".")[1:]]
            if len(place) == len(grid) and all(i < size for i, size in zip(place, grid, strict=True)):
                report.chunks += 1
                continue
        if path.name != METADATA:
            report.leftovers.append(path)


def _list_strangers(stored: Stored, plan: Plan, report: Report) -> None:
    known = {METADATA, INPUTS, *(variable.name for variable in plan.variables())}
    report.leftovers += sorted(path for path in stored.path.iterdir() if path.name not in known)


def _check_coordinate(stored: Stored, plan: Plan, variable: Variable, report: Report) -> None:
    """Compare a coordinate with what the sweeps ask for."""
    values, broken = stored.load(variable.name)
    for piece in broken:
        problem = f"it can't be read ({piece.reason})"
        finding = Finding(variable.name, piece.chunk, "", {}, (), problem, remedy_of(stored))
        report.findings.append(finding)
    if broken:
        return
    expected = plan.values(variable)
    if values.tolist() == expected.tolist():
        return
    exact = variable.dtype != "float64"
    if not exact and np.allclose(values, expected, rtol=TOLERANCE, atol=0.0, equal_nan=True):
        report.rounded += 1
        return
    array = stored.array(variable.name)
    chunk = chunk_name(array, (slice(0, 1),) * array.ndim)
    gone = not (stored.path / variable.name / chunk).exists()
    problem = "the chunk is missing" if gone else "it is not what the sweeps ask for"
    report.findings.append(Finding(variable.name, chunk, "", {}, (), problem, remedy_of(stored)))


def _inspect_levels(stored: Stored, layout: Layout, report: Report, watch: Watch) -> list[Inspector]:
    total = sum(math.prod(stored.shape(level)) for level in stored.levels)
    behind = 0

    def advance(columns: int) -> None:
        nonlocal behind
        behind += columns
        watch(behind, total)

    inspectors = []
    for level in stored.levels:
        inspector = Inspector(stored, level, layout, recipe_of(stored, layout), report)
        inspector.inspect(advance)
        inspectors.append(inspector)
    return inspectors


def _check_sample(stored: Stored, inspectors: Sequence[Inspector], sample: int) -> None:
    """Compute some columns that seem good again from their seeds."""
    good = [(i, tuple(map(int, place))) for i in inspectors for place in np.argwhere(i.good)]
    rng = np.random.default_rng(int(stored.token, 16))
    chosen = sorted(rng.choice(len(good), size=min(sample, len(good)), replace=False))
    with one_thread():
        for number in chosen:
            inspector, place = good[number]
            inspector.recompute(place)
