"""What the command line prints, and the code that it exits with."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from eigensweep.pipeline.errors import EigensweepError, InputError, StoppedError

DONE, SOME_FAILED, WRONG_INPUT, INTERRUPTED = range(4)
"""Exit codes."""


@contextmanager
def reporting() -> Iterator[None]:
    """Turn what a user has to know into lines on standard error and an exit code."""
    try:
        yield
    except InputError as error:
        for fault in error.faults:
            say(f"eigensweep: {fault}")
        leave(WRONG_INPUT)
    except StoppedError as error:
        say(f"eigensweep: {error}")
        leave(INTERRUPTED)
    except EigensweepError as error:
        say(f"eigensweep: {error}")
        leave(WRONG_INPUT)
    except BrokenPipeError:
        # The reader of a pipe went away, as `head` does; nothing is wrong.
        sys.stderr.close()
        leave(DONE)


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr)


def leave(code: int) -> NoReturn:
    """Exit with a code."""
    raise SystemExit(code)


def print_json(value: Any) -> None:
    """Print JSON on standard output; what is not finite becomes null."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> None:
    """Print a table.

    Parameters
    ----------
    title : str
        Above it.
    head : sequence of str
        Names of its columns.
    rows : sequence of sequence
        Their entries.
    left : int
        How many leading columns are text.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(entry) for entry in row))
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(table)


def escape(entry: object) -> str:
    """Format a table's entry; brackets in it are text, not markup."""
    from rich.markup import escape as quoted

    return quoted(f"{entry:.6g}" if isinstance(entry, float) else str(entry))


def duration(seconds: float) -> str:
    """Write a time for a human.

    Examples
    --------
    >>> duration(7), duration(95), duration(7400), duration(float("nan"))
    ('7 s', '1 min 35 s', '2 h 3 min', 'unknown')
    """
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: float) -> str:
    """Write a number of bytes for a human.

    Examples
    --------
    >>> size(900), size(3 * 2**20)
    ('900 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def plain(value: Any) -> Any:
    """Turn a value into plain JSON; what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
