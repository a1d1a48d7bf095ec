"""``eigensweep plan``: what a sweep will cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from eigensweep.workflows import catalog, console


def plan(written: str, study: Path | None, trial: bool, as_json: bool) -> None:
    """Print what a sweep will cost."""
    sweep, folder = catalog.resolve(written, study)
    from eigensweep.pipeline.plan import plan as project

    found = project(sweep, folder, trial=trial, worker_memory=_local_share())
    if as_json:
        told = {**asdict(found), "memory_per_worker": found.memory, "core_hours": found.core_hours}
        console.print_json(told)
        return
    state = "is there already" if found.exists else "will be made"
    print(f"{found.name}: the study {found.study} {state}")
    rows = [
        ("columns", f"{found.pending_columns} to compute of {found.columns}"),
        ("cells", f"{found.cells}"),
        ("blocks", f"{found.pending_blocks} to write of {found.blocks}"),
        ("memory per worker", console.size(found.memory)),
        ("disk, before compression", console.size(found.disk)),
        ("files", f"at most {found.files}"),
    ]
    if trial:
        rows.append(
            (
                "core-hours",
                f"{found.core_hours:.3g} ({console.duration(3600 * found.core_hours)} on one core)",
            )
        )
    console.print_table("cost", ("", ""), rows)
    sizes = [
        (
            item.d,
            item.columns,
            console.size(item.memory),
            f"{1e3 * item.trial_seconds:.3g} ms",
            item.core_hours,
        )
        for item in found.sizes
    ]
    if sizes:
        console.print_table("by size", ("d", "columns", "memory", "column", "core-hours"), sizes)
    for warning in found.warnings:
        console.say(f"warning: {warning}")


def _local_share() -> float:
    """Bytes of this machine that each of its workers may use."""
    from distributed.system import MEMORY_LIMIT

    from eigensweep.cluster.local import usable_cores

    return float(MEMORY_LIMIT) / usable_cores()
