"""What a sweep will cost, before it runs: columns, blocks, memory, disk, files, core-hours."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from eigensweep.pipeline.blocks import LONGEST_RUN, Block, Layout, blocks
from eigensweep.pipeline.ensemble import Work
from eigensweep.pipeline.preparation import asked_layout, check
from eigensweep.pipeline.schema import level_variables
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.study import Pending, Study
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.threads import one_thread

Spot = tuple[str, tuple[tuple[str, Value], ...]]
"""A level and a point of the grid."""

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
        Columns of that size that are still to sample, over all levels.
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
    if there is not None:
        layout = there.plan.layout.grown(layout)
    levels = tuple(level for level in sweep.ensemble.levels if level.name in sweep.record.levels)
    counts: dict[Value, int] = {d: sweep.replicates_of(d) for d in sweep.replicate_counts}
    asked = list(blocks(layout, levels, sweep.axes, counts))
    pending = _pending(sweep, there, layout, asked)
    sizes = _sizes(sweep, pending, trial)
    columns = sum(block.wanted - block.first for block in asked)
    pending_columns = sum(item.columns for item in pending)
    files = {level.name: len(level_variables(level, layout.signal, sweep.record.columns)) for level in levels}
    width = 8 * (2 * len(layout.signal_values) * layout.top + 3 * layout.modes * sweep.record.columns + 4)
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
        files=sum(files[block.level] for block in asked) + BESIDE_FILES,
        sizes=sizes,
        warnings=_warnings(sweep, sizes, worker_memory),
    )


def _pending(sweep: Sweep, there: Study | None, layout: Layout, asked: list[Block]) -> list[Pending]:
    if there is None:
        return [Pending(block, False, block.wanted - block.first) for block in asked]
    return list(replace(there, sweep=sweep, plan=replace(there.plan, layout=layout)).pending())


def _sizes(sweep: Sweep, pending: list[Pending], trial: bool) -> list[Size]:
    grouped: dict[int, Counter[Spot]] = {}
    for item in pending:
        counter = grouped.setdefault(int(item.block.point[0][1]), Counter())
        counter[(item.block.level, item.block.point)] += item.columns - item.extended
    sizes = []
    for d, spots in sorted(grouped.items(), reverse=True):
        work = {spot: sweep.ensemble.work(spot[0], dict(spot[1])) for spot in spots}
        # Beside the columns in work, the arrays of a block that waits to be stored.
        waiting = 8.0 * LONGEST_RUN * (3 * d + 2 * sweep.record.top * len(sweep.signal_values))
        memory = BASE_BYTES + max(need.bytes for need in work.values()) + waiting
        columns = sum(spots.values())
        scale = _trial(sweep, work) if trial else float("nan")
        seconds = scale * sum(work[spot].seconds * count for spot, count in spots.items())
        sizes.append(Size(d, columns, memory, seconds / columns if columns else 0.0, seconds / 3600.0))
    return sizes


def _warnings(sweep: Sweep, sizes: list[Size], memory: float | None) -> list[str]:
    found = []
    for size in sizes:
        if memory is not None and size.memory > memory:
            found.append(
                f"d = {size.d}: a worker needs about {size.memory / 2**30:.1f} GiB and may use "
                f"{memory / 2**30:.1f} GiB; give workers more memory, fewer of them, or lower d"
            )
        if size.trial_seconds > sweep.limits.seconds_per_column:
            found.append(
                f"d = {size.d}: a column takes about {size.trial_seconds:.0f} s and may take "
                f"{sweep.limits.seconds_per_column:.0f} s; raise limits.seconds_per_column"
            )
    return found


def _trial(sweep: Sweep, work: Mapping[Spot, Work]) -> float:
    """Time the cheapest and the dearest column of a size: measured over projected seconds."""
    ensemble = sweep.ensemble
    spots = sorted(work, key=lambda spot: work[spot].seconds)
    projected = measured = 0.0
    with one_thread():
        for spot in dict.fromkeys((spots[0], spots[-1])):
            level, point = spot[0], dict(spot[1])
            rho = [v if sweep.signal == "rho" else v * ensemble.gain(point) for v in sweep.signal_values]
            start = time.perf_counter()
            ensemble.column(level, point, sweep.seed, 0).eigenpairs(rho, sweep.record.top)
            measured += time.perf_counter() - start
            projected += work[spot].seconds
    return measured / projected
