"""``eigensweep run``: a sweep through a cluster into a study, with its figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import StoppedError
from eigensweep.workflows import catalog, console
from eigensweep.workflows.live import display

if TYPE_CHECKING:
    from distributed import Client

    from eigensweep.pipeline.engine import Outcome

SHOWN_FAILURES = 10
"""Failures in the table at the end; the rest is counted."""


def run(
    written: str,
    study: Path | None,
    cluster: str,
    workers: int | None,
    retry: bool,
    quick: bool,
    figures: bool,
    as_json: bool,
) -> None:
    """Run a sweep, draw its figures and exit with the code that tells how it went."""
    sweep, folder = catalog.resolve(written, study)
    if quick:
        sweep = replace(catalog.quick(sweep), name=f"{sweep.name}-quick")
        folder = study or Path(sweep.name)
    from eigensweep.pipeline.study import check

    # What is wrong with the input is told before a cluster is started for it.
    check(sweep, folder)
    from eigensweep.pipeline.engine import run as run_sweep

    try:
        with _client(cluster, workers) as client, display(sweep.name) as watch:
            outcome = run_sweep(sweep, folder, client, retry_failed=retry, watch=watch)
    except KeyboardInterrupt:
        # Told here, since the command-line library would answer it with a code of its own.
        raise StoppedError(
            f"{folder}: interrupted; what is done stays done, the same command goes on"
        ) from None
    drawn = _draw(folder) if figures else []
    _report(outcome, drawn, as_json)
    console.leave(console.SOME_FAILED if outcome.failures else console.DONE)


@contextmanager
def _client(cluster: str, workers: int | None) -> Iterator[Client | None]:
    if cluster == "serial":
        yield None
        return
    from eigensweep.cluster import connect

    with connect(cluster, workers=workers) as client:
        yield client


def _draw(folder: Path) -> list[Path]:
    from eigensweep.workflows import drawing

    return drawing.draw_all(folder)


def _report(outcome: Outcome, drawn: list[Path], as_json: bool) -> None:
    progress = outcome.progress
    if as_json:
        failures = [asdict(failure) for failure in outcome.failures]
        told = {"study": outcome.study, **asdict(progress), "failures": failures, "figures": drawn}
        console.print_json(told)
        return
    if progress.total == 0:
        print(f"{outcome.study}: nothing to compute, the study holds all that the sweep asks for")
    else:
        print(f"{outcome.study}: {progress.done} columns in {console.duration(progress.seconds)}")
    for path in drawn:
        print(f"  {path}")
    print(f"  open_cube({str(outcome.study)!r}) in Python, or: eigensweep status {outcome.study}")
    if outcome.failures:
        _print_failures(outcome)


def _print_failures(outcome: Outcome) -> None:
    from eigensweep.pipeline.schema import STATUS_NAMES

    rows = [
        (
            failure.level,
            " ".join(f"{name}={value}" for name, value in failure.point.items()),
            failure.replicate,
            STATUS_NAMES[failure.status],
            failure.reason,
        )
        for failure in outcome.failures[:SHOWN_FAILURES]
    ]
    count = len(outcome.failures)
    console.print_table(
        f"{count} columns failed", ("level", "point", "replicate", "state", "reason"), rows, left=5
    )
    if count > SHOWN_FAILURES:
        print(f"  and {count - SHOWN_FAILURES} more")
    print(
        f"  reasons and commands are in {outcome.study}/failures.jsonl; run with --retry-failed to try again"
    )
