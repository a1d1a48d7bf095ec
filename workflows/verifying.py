"""``eigensweep verify``: whether a cube holds what it says, and what to do where it does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigensweep.workflows import console

if TYPE_CHECKING:
    from eigensweep.pipeline.findings import Report

SHOWN = 20
"""Findings in the table; the rest is counted. JSON has them all."""


def verify(study: Path, sample: int, mend: bool, as_json: bool) -> None:
    """Check a cube, print what was found and exit with the code that tells whether it is sound."""
    from eigensweep.pipeline.repair import repair
    from eigensweep.pipeline.verify import verify as check

    with counted("verify") as watch:
        report = (repair if mend else check)(study, sample=sample, watch=watch)
    if as_json:
        console.print_json(_told(study, report))
    else:
        _print(study, report, mend)
    console.leave(console.DONE if report.sound else console.SOME_FAILED)


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many columns are behind, where there is a terminal to show it on."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print(study: Path, report: Report, mended: bool) -> None:
    print(
        f"{study}: {report.chunks} files of {report.arrays} arrays read, {report.columns} columns checked, "
        f"{report.recomputed} of them computed again from their seeds"
    )
    _print_lacking(report)
    if report.rounded:
        print(f"  {report.rounded} comparisons hold to 1e-10 and not bit for bit: another machine's numbers")
    if report.leftovers:
        names = ", ".join(path.name for path in report.leftovers[:3])
        print(f"  {len(report.leftovers)} files belong to nothing and do no harm: {names}")
    if report.sound:
        print("  no damage")
        return
    _print_findings(report)
    if mended:
        print(f"  {report.repaired} columns are marked pending; run the sweep again to compute them")
        if report.elsewhere:
            print(f"  {report.elsewhere} of them are not in the last sweep; run the file that asked for them")
    else:
        for remedy in sorted({finding.remedy for finding in report.findings}):
            print(f"  {remedy}")


def _print_lacking(report: Report) -> None:
    from eigensweep.pipeline.schema import DONE, STATUS_NAMES

    for level, counts in report.states.items():
        shown = [
            f"{count} {name}"
            for number, (name, count) in enumerate(zip(STATUS_NAMES, counts.tolist(), strict=True))
            if count and number != DONE
        ]
        if shown:
            print(f"  {level} level: {', '.join(shown)}")
    if report.short:
        print(
            f"  {report.short} columns lack signal strengths that were asked for since; run the sweep again"
        )


def _print_findings(report: Report) -> None:
    rows = [
        (
            f"{finding.array}/{finding.chunk}",
            finding.level,
            " ".join(f"{name}={value}" for name, value in finding.point.items()),
            " ".join(map(str, finding.replicates)),
            finding.problem,
        )
        for finding in report.findings[:SHOWN]
    ]
    count = len(report.findings)
    head = ("file", "level", "point", "replicates", "problem")
    console.print_table(f"damage: {count} findings", head, rows, left=5)
    if count > SHOWN:
        print(f"  and {count - SHOWN} more; --json lists them all")


def _told(study: Path, report: Report) -> dict[str, Any]:
    from eigensweep.pipeline.schema import STATUS_NAMES

    states = {level: dict(zip(STATUS_NAMES, counts, strict=True)) for level, counts in report.states.items()}
    return {
        "study": study,
        "sound": report.sound,
        "packed": report.packed,
        "arrays": report.arrays,
        "files": report.chunks,
        "checked": report.columns,
        "recomputed": report.recomputed,
        "rounded": report.rounded,
        "short": report.short,
        "columns": states,
        "damage": [vars(finding) for finding in report.findings],
        "lacking": [
            {**vars(item), "status": STATUS_NAMES[item.status]} for item in report.lacking if item.status < 6
        ],
        "leftovers": report.leftovers,
        "repaired": report.repaired,
        "elsewhere": report.elsewhere,
    }
