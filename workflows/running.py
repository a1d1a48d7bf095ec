"""``eigensweep run``: a sweep through a cluster into a study, with its figures."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from eigensweep.pipeline.errors import Fault, InputError, StoppedError
from eigensweep.workflows import catalog, console
from eigensweep.workflows.live import display

if TYPE_CHECKING:
    from distributed import Client

    from eigensweep.pipeline.engine import Outcome

SHOWN_FAILURES = 10
"""Failures in the table at the end; the rest is counted."""


@dataclass(frozen=True)
class Options:
    """What a user chose beside the sweep.

    Parameters
    ----------
    cluster : str
        Where it runs.
    workers : int or None
        How many local worker processes.
    retry : bool
        Whether failed columns are tried again.
    share : str
        ``K/N``, or nothing.
    quick : bool
        Whether only a trial of the sweep is meant.
    figures : bool
        Whether figures are drawn at the end.
    as_json : bool
        Whether the outcome is printed as JSON.
    """

    cluster: str
    workers: int | None
    retry: bool
    share: str
    quick: bool
    figures: bool
    as_json: bool


def run(written: str, study: Path | None, options: Options) -> None:
    """Run a sweep, draw its figures and exit with the code that tells how it went."""
    share = _share(options.share)
    sweep, folder = catalog.resolve(written, study)
    if options.quick:
        sweep = replace(catalog.quick(sweep), name=f"{sweep.name}-quick")
        folder = study or Path(sweep.name)
    from eigensweep.pipeline.preparation import check

    # What is wrong with the input is told before a cluster is started for it.
    check(sweep, folder)
    from eigensweep.pipeline.engine import run as run_sweep

    cluster = "serial" if share else options.cluster
    try:
        with _terminable():
            with _client(cluster, options.workers, folder) as client, display(sweep.name) as watch:
                outcome = run_sweep(
                    sweep, folder, client, retry_failed=options.retry, share=share, watch=watch
                )
            # A share draws nothing: the others may still be at work.
            drawn = _draw(folder) if options.figures and not share else []
    except KeyboardInterrupt:
        # Told here, since the command-line library would answer it with a code of its own.
        raise StoppedError(
            f"{folder}: interrupted; what is done stays done, the same command goes on"
        ) from None
    _report(outcome, drawn, options.as_json)
    failed = outcome.failures or outcome.failed_before
    console.leave(console.SOME_FAILED if failed else console.DONE)


@contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does also while workers start and figures are drawn."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _share(written: str) -> tuple[int, int] | None:
    if not written:
        return None
    number, slash, count = written.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        reason = "it is not of the form K/N"
        raise InputError(Fault("--share", written, reason, "write one such as 3/16"))
    return int(number), int(count)


@contextmanager
def _client(cluster: str, workers: int | None, study: Path) -> Iterator[Client | None]:
    if cluster == "serial":
        yield None
        return
    from eigensweep.cluster import connect

    with connect(cluster, workers=workers, study=study) as client:
        yield client


def _draw(folder: Path) -> list[Path]:
    from eigensweep.workflows import drawing

    return drawing.draw_all(folder)


def _report(outcome: Outcome, drawn: list[Path], as_json: bool) -> None:
    progress = outcome.progress
    if as_json:
        failures = [asdict(failure) for failure in outcome.failures]
        told = {"study": outcome.study, **asdict(progress), "failures": failures, "figures": drawn}
        told["failed_before"] = outcome.failed_before
        console.print_json(told)
        return
    if progress.total == 0:
        held = (
            "but what failed before"
            if outcome.failed_before
            else "the study holds all that the sweep asks for"
        )
        print(f"{outcome.study}: nothing to compute, {held}")
    else:
        print(f"{outcome.study}: {progress.done} columns in {console.duration(progress.seconds)}")
    for path in drawn:
        print(f"  {path}")
    print(f"  open_cube({str(outcome.study)!r}) in Python, or: eigensweep status {outcome.study}")
    if outcome.failures:
        _print_failures(outcome)
    if outcome.failed_before:
        print(
            f"  {outcome.failed_before} columns failed in earlier runs; run with --retry-failed to try again"
        )


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
