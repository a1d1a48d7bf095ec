"""``eigensweep plan``: what a sweep will cost."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.workflows import catalog, console

if TYPE_CHECKING:
    from eigensweep.cluster.profile import Profile
    from eigensweep.pipeline.plan import Plan

MARGIN = 3.0
"""Columns that a job should have time for: the trial is a mean, and a lost job costs its last column."""


def plan(written: str, study: Path | None, cluster: str, trial: bool, as_json: bool) -> None:
    """Print what a sweep will cost, and what a cluster would be asked for it."""
    sweep, folder = catalog.resolve(written, study)
    from eigensweep.pipeline.plan import plan as project

    profile = _profile(cluster)
    share = profile.worker_memory or None if profile else _local_share()
    found = project(sweep, folder, trial=trial, worker_memory=share)
    script = ""
    if profile is not None:
        found.warnings.extend(_walltime_warnings(profile, found))
        script = _script(profile)
    if as_json:
        told = {**asdict(found), "memory_per_worker": found.memory, "core_hours": found.core_hours}
        console.print_json({**told, **({"job_script": script} if script else {})})
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
    if script:
        print(f"what {cluster} would submit:\n{script}")
    for warning in found.warnings:
        console.say(f"warning: {warning}")


def _profile(cluster: str) -> Profile | None:
    if not cluster:
        return None
    from eigensweep.cluster.profile import read_profile

    return read_profile(cluster)


def _walltime_warnings(profile: Profile, found: Plan) -> list[str]:
    """Sizes whose columns a job's time limit would cut off again and again."""
    return [
        f"d = {size.d}: a column takes about {console.duration(size.trial_seconds)} and a job ends after "
        f"{console.duration(profile.seconds)}; give jobs a longer walltime"
        for size in found.sizes
        if profile.seconds and size.trial_seconds * MARGIN > profile.seconds
    ]


def _script(profile: Profile) -> str:
    """Write a job's script, with stand-ins for what is known when it is submitted."""
    from eigensweep.cluster import jobqueue
    from eigensweep.cluster.credentials import Credentials
    from eigensweep.cluster.ledger import PREFIX, Ledger

    ledger = Ledger(profile.log_directory / f"{PREFIX}RUN")
    credentials = Credentials(*(ledger.folder / f"{name}.pem" for name in ("ca_file", "cert", "key")))
    if profile.kind == "srun":
        from eigensweep.cluster.srun import step_command

        command = step_command(profile, 1, "tls://DRIVER:PORT", ledger, credentials, os.environ)
        return shlex.join(command)
    return jobqueue.job_script(profile, 1, "tls://DRIVER:PORT", ledger, credentials)


def _local_share() -> float:
    """Bytes of this machine that each of its workers may use."""
    from distributed.system import MEMORY_LIMIT

    from eigensweep.cluster.local import usable_cores

    return float(MEMORY_LIMIT) / usable_cores()
