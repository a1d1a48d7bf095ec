"""What a sweep will cost, before it runs: columns, blocks, memory, disk, files, core-hours."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eigensweep.pipeline.blocks import Block, blocks
from eigensweep.pipeline.schema import level_variables
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.study import asked_layout, check
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.task import one_thread

BASE_BYTES = 180e6
"""A worker process with nothing to do: Python, numpy, scipy, zarr and Dask."""
BESIDE_FILES = 150
"""Files of a study beside those of its blocks: metadata, coordinates, logs and figures."""


@dataclass(frozen=True)
class Size:
    """What the columns of one size d cost.

    Parameters
    ----------
    d : int
        The size.
    columns : int
        Columns of that size that are still to compute, over all levels.
    memory : float
        Projected peak of a worker at work on the dearest of them, in bytes.
    trial_seconds : float
        Time of one column, measured now on this machine; the mean over its levels and over the cheapest
        and dearest points. NaN without a trial.
    core_hours : float
        Projected CPU time of all of them.
    """

    d: int
    columns: int
    memory: float
    trial_seconds: float
    core_hours: float


@dataclass(frozen=True)
class Plan:
    """What a sweep will cost.

    Parameters
    ----------
    name : str
        The sweep.
    study : Path
        Where it will live.
    exists : bool
        Whether the study is there already.
    columns, blocks : int
        What the sweep asks for.
    pending_columns, pending_blocks : int
        What the study lacks of it.
    cells : int
        Entries of the cube that the sweep asks for: columns times rho values.
    disk : float
        Projected bytes of the pending blocks, before compression.
    files : int
        Projected files of the study.
    sizes : list of Size
        Per d, largest first.
    warnings : list of str
        What the user should know before running.
    """

    name: str
    study: Path
    exists: bool
    columns: int
    blocks: int
    pending_columns: int
    pending_blocks: int
    cells: int
    disk: float
    files: int
    sizes: list[Size] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def memory(self) -> float:
        """Projected peak of a worker, in bytes."""
        return max((size.memory for size in self.sizes), default=BASE_BYTES)

    @property
    def core_hours(self) -> float:
        """Projected CPU time of all pending columns."""
        return sum(size.core_hours for size in self.sizes)


def plan(
    sweep: Sweep, study: str | Path | None = None, *, trial: bool = True, worker_memory: float | None = None
) -> Plan:
    """Say what a sweep will cost, without touching the study.

    Parameters
    ----------
    sweep : Sweep
        What is asked.
    study : str or Path, optional
        The study's folder; the sweep's name if not given. What it holds already costs nothing.
    trial : bool
        Whether a column of each size is timed now. Without it there are no core-hours.
    worker_memory : float, optional
        Bytes that a worker may use; a size that needs more is warned of.

    Returns
    -------
    Plan
        The projection.

    Raises
    ------
    InputError
        If the sweep contradicts the study or the folder holds something else.
    """
    folder = Path(study if study is not None else sweep.name)
    there = check(sweep, folder)
    layout = asked_layout(sweep)
    levels = tuple(level for level in sweep.ensemble.levels if level.name in sweep.record.levels)
    counts: dict[Value, int] = {d: sweep.replicates_of(d) for d in sweep.replicate_counts}
    if there is not None:
        layout = there.plan.layout.grown(layout)
    asked = list(blocks(layout, levels, sweep.axes, counts))
    pending = asked if there is None else _pending(sweep, folder, asked)
    sizes, warnings = _sizes(sweep, pending, trial, worker_memory)
    columns = sum(block.wanted - block.first for block in asked)
    roles = sum(len(level_variables(level, layout.signal, sweep.record.columns)) for level in levels) / len(
        levels
    )
    width = 8 * (2 * len(layout.signal_values) * layout.top + 3 * layout.modes * sweep.record.columns + 4)
    pending_columns = sum(block.wanted - block.first for block in pending)
    return Plan(
        name=sweep.name,
        study=folder,
        exists=there is not None,
        columns=columns,
        blocks=len(asked),
        pending_columns=pending_columns,
        pending_blocks=len(pending),
        cells=columns * len(sweep.signal_values),
        disk=float(width * pending_columns),
        files=round(roles * len(asked)) + BESIDE_FILES,
        sizes=sizes,
        warnings=warnings,
    )


def _pending(sweep: Sweep, folder: Path, asked: list[Block]) -> list[Block]:
    from dataclasses import replace

    study = check(sweep, folder)
    assert study is not None
    grown = study.plan.layout.grown(asked_layout(sweep))
    if grown.signal_values != study.plan.layout.signal_values:
        return asked
    stored = replace(study, sweep=sweep, plan=replace(study.plan, layout=grown))
    return [block for block, _ in stored.pending()]


def _sizes(
    sweep: Sweep, pending: list[Block], trial: bool, limit: float | None
) -> tuple[list[Size], list[str]]:
    ensemble = sweep.ensemble
    grouped: dict[int, Counter[tuple[str, tuple[tuple[str, Value], ...]]]] = {}
    for block in pending:
        counter = grouped.setdefault(int(block.point[0][1]), Counter())
        counter[(block.level, block.point)] += block.wanted - block.first
    sizes, warnings = [], []
    for d, points in sorted(grouped.items(), reverse=True):
        work = {key: ensemble.work(key[0], dict(key[1])) for key in points}
        stored = 8.0 * 64 * (3 * d + 6 * len(sweep.signal_values))
        memory = BASE_BYTES + max(item.bytes for item in work.values()) + stored
        scale = _trial(sweep, work) if trial else float("nan")
        seconds = sum(work[key].seconds * count for key, count in points.items()) * scale
        columns = sum(points.values())
        sizes.append(Size(d, columns, memory, seconds / columns, seconds / 3600.0))
        if limit is not None and memory > limit:
            warnings.append(
                f"d = {d}: a worker needs about {memory / 2**30:.1f} GiB and may use {limit / 2**30:.1f} GiB; "
                "give workers more memory, fewer of them, or lower d"
            )
        if trial and seconds / columns > sweep.limits.seconds_per_column:
            warnings.append(
                f"d = {d}: a column takes about {seconds / columns:.0f} s and may take "
                f"{sweep.limits.seconds_per_column:.0f} s; raise limits.seconds_per_column"
            )
    return sizes, warnings


def _trial(sweep: Sweep, work: Mapping[tuple[str, tuple[tuple[str, Value], ...]], object]) -> float:
    """Time the cheapest and the dearest column of a size: measured over projected seconds."""
    ensemble = sweep.ensemble
    keys = sorted(work, key=lambda key: ensemble.work(key[0], dict(key[1])).seconds)
    projected = measured = 0.0
    with one_thread():
        for level, values in dict.fromkeys((keys[0], keys[-1])):
            point = dict(values)
            rho = [v if sweep.signal == "rho" else v * ensemble.gain(point) for v in sweep.signal_values]
            start = time.perf_counter()
            ensemble.column(level, point, sweep.seed, 0).eigenpairs(rho, sweep.record.top)
            measured += time.perf_counter() - start
            projected += ensemble.work(level, point).seconds
    return measured / projected
