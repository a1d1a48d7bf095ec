"""The progress of a run, as a live line in a terminal and as plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eigensweep.workflows.console import duration, say

if TYPE_CHECKING:
    from rich.table import Table

    from eigensweep.pipeline.engine import Progress

PLAIN_SECONDS = 10.0
"""Seconds between two plain lines."""


@contextmanager
def display(name: str) -> Iterator[Callable[[Progress], None]]:
    """Show a run's progress on standard error.

    Parameters
    ----------
    name : str
        What runs.

    Yields
    ------
    callable
        To be called with the progress after every task.
    """
    if not sys.stderr.isatty():
        yield _plain(name)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=False) as live:
        yield lambda progress: live.update(_table(name, progress))


def rate(progress: Progress) -> float:
    """Columns per second so far."""
    return (progress.done + progress.failed) / progress.seconds if progress.seconds > 0 else 0.0


def time_left(progress: Progress) -> float:
    """Seconds until the end at the rate so far; NaN where there is none yet."""
    speed = rate(progress)
    left = progress.total - progress.done - progress.failed
    return left / speed if speed > 0 else float("nan")


def _plain(name: str) -> Callable[[Progress], None]:
    last = -float("inf")

    def show(progress: Progress) -> None:
        nonlocal last
        over = progress.done + progress.failed >= progress.total
        if progress.total == 0 or (not over and time.monotonic() - last < PLAIN_SECONDS):
            return
        if last == -float("inf") and progress.dashboard:
            say(f"{name}: dashboard at {progress.dashboard}")
        last = time.monotonic()
        say(f"{name}: {_summary(progress)}")

    return show


def _summary(progress: Progress) -> str:
    failed = f", {progress.failed} failed" if progress.failed else ""
    left = (
        "" if progress.done + progress.failed >= progress.total else f", {duration(time_left(progress))} left"
    )
    workers = f"{progress.workers} worker" + ("s" if progress.workers != 1 else "")
    return (
        f"{progress.done} of {progress.total} columns{failed}, {rate(progress):.1f} a second, {workers}, "
        f"{duration(progress.seconds)}{left}"
    )


def _table(name: str, progress: Progress) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    finished = progress.done + progress.failed
    grid.add_row(f"[bold]{name}", ProgressBar(total=max(1, progress.total), completed=finished, width=40))
    grid.add_row("columns", f"{progress.done} of {progress.total}")
    if progress.failed:
        grid.add_row("failed", f"[red]{progress.failed}")
    grid.add_row("rate", f"{rate(progress):.1f} a second on {progress.workers} worker(s)")
    grid.add_row("time", f"{duration(progress.seconds)}, {duration(time_left(progress))} left")
    if progress.dashboard:
        grid.add_row("dashboard", progress.dashboard)
    return grid
