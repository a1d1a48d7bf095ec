"""Repairing a study: what is damaged is taken out, so that the next run computes it again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from numpy.typing import NDArray

from eigensweep.pipeline import cube as cubes
from eigensweep.pipeline import lock
from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import Fault, InputError, StudyError
from eigensweep.pipeline.findings import Report
from eigensweep.pipeline.recovery import asked_columns, true_layout
from eigensweep.pipeline.schema import PENDING
from eigensweep.pipeline.stored import Stored, open_stored
from eigensweep.pipeline.study import LOCK, load
from eigensweep.pipeline.tiling import Region
from eigensweep.pipeline.verify import RESTORE, SAMPLE, Watch, verify

DEBRIS = (".partial", ".tmp")
"""What the names of files end in that a killed writer leaves."""

Place = tuple[tuple[int, ...], int]
"""Where a block lies along the axes, and its run of replicates."""


def repair(study: str | Path, *, sample: int = SAMPLE, watch: Watch | None = None) -> Report:
    """Check a study and take out what is damaged, so that the next run computes it again.

    Parameters
    ----------
    study : str or Path
        A study or its ``cube.zarr``. It is locked meanwhile.
    sample, watch
        See :func:`eigensweep.pipeline.verify.verify`.

    Returns
    -------
    Report
        What was found, all of it mended where its remedy does not say otherwise.

    Raises
    ------
    InputError
        If it is a packed cube, which is never written again.
    StudyError
        If a run is at work on the study, or there is none.

    Notes
    -----
    A damaged column is marked pending before anything else of it is touched, so that at no moment a cell
    that is marked done is wrong. Coordinates are written anew from the sweeps; chunks that can't be read
    are removed; columns beside a damaged one keep their bits.
    """
    stored = open_stored(study)
    folder = stored.folder
    if folder is None:
        reason = "it is a packed cube, which is never written again"
        raise InputError(Fault("verify", f"--repair {study}", reason, "pack the studies again"))
    with lock.hold(folder / LOCK):
        _refuse_shares(folder)
        report = verify(folder, sample=sample, watch=watch)
        if any(finding.array == cubes.METADATA for finding in report.findings):
            return report
        # The study may have grown while another held the lock.
        stored = open_stored(folder)
        layout = true_layout(stored)
        _mend_coordinates(stored, layout, report)
        for level in stored.levels:
            _reset_level(stored, layout, level, report)
        for path in report.leftovers:
            if path.suffix in DEBRIS and path.is_file():
                path.unlink()
        if report.findings:
            load(folder).note("repair", findings=len(report.findings), columns=report.repaired)
    return report


def _refuse_shares(folder: Path) -> None:
    """Refuse to write beside shares, which hold locks of their own."""
    for path, holder in lock.living(folder, f"{LOCK}.share-*-of-[0-9]*"):
        if path.suffix.rpartition("-")[2].isdigit():
            raise StudyError(
                f"{folder}: a share is at work here ({holder.describe()}); wait for it or stop it"
            )


def _mend_coordinates(stored: Stored, layout: Layout, report: Report) -> None:
    """Write metadata and coordinates anew if any of them is damaged."""
    damaged = [f for f in report.findings if not f.level and f.remedy != RESTORE]
    if not damaged:
        return
    for finding in damaged:
        # A chunk that is longer than the axis is read before it is written, damaged or not.
        (stored.path / finding.array / finding.chunk).unlink(missing_ok=True)
    published = stored.document["attributes"]
    kept = {key: value for key, value in published.items() if key not in ("eigensweep_format", "coordinates")}
    cubes.publish(stored.path, stored.plan(layout), kept)


def _reset_level(stored: Stored, layout: Layout, level: Level, report: Report) -> None:
    asked = asked_columns(stored, level, layout, stored.sweeps)
    last = asked_columns(stored, level, layout, [stored.sweep])
    for (index, run), replicates in _blocks(report, level, layout).items():
        first, stop = run * layout.run, min((run + 1) * layout.run, layout.replicates)
        region = (*(slice(i, i + 1) for i in index), slice(first, stop))
        spoiled = np.isin(np.arange(first, stop), replicates)
        _reset(stored, level, region, spoiled)
        wanted = spoiled & asked[region].ravel()
        report.repaired += int(np.count_nonzero(wanted))
        report.elsewhere += int(np.count_nonzero(wanted & ~last[region].ravel()))


def _blocks(report: Report, level: Level, layout: Layout) -> dict[Place, list[int]]:
    """Sort the replicates that a level's findings spoil by the block that they lie in."""
    found: dict[Place, list[int]] = {}
    for finding in report.findings:
        if finding.level == level.name:
            index = tuple(layout.axes[name].index(finding.point[name]) for name in level.axes)
            found.setdefault((index, finding.replicates[0] // layout.run), []).extend(finding.replicates)
    return found


def _reset(stored: Stored, level: Level, region: Region, spoiled: NDArray[np.bool_]) -> None:
    """Mark some columns of a block pending, then clear them; remove what can't be read."""
    group = zarr.open_group(str(stored.path), mode="r+", use_consolidated=True)
    pending = spoiled
    # The status comes first: nothing that is marked done is touched while it is.
    for role, name in stored.roles(level).items():
        values, broken = stored.load(name, region)
        for piece in broken:
            (stored.path / name / piece.chunk).unlink(missing_ok=True)
        array = group[name]
        assert isinstance(array, zarr.Array)
        rows = values.reshape(spoiled.size, -1)
        if role == "column_status":
            rows[spoiled] = PENDING
            pending = rows.ravel() == PENDING
        rows[pending] = array.fill_value
        array[region] = rows.reshape(values.shape)
