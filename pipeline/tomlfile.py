"""A TOML file: its text, its tables, and on which line a key stands, so that a fault can say it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eigensweep.pipeline.errors import Fault, InputError

_LONGEST = 1 << 24
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_TOKEN = re.compile(r""" \"{3} | '{3} | "(?:\\.|[^"\\])*" | '[^']*' | \#.* | [\[\]{}] """, re.VERBOSE)


def read_text(path: Path) -> str:
    """Read a sweep file's text.

    Parameters
    ----------
    path : Path
        The file, UTF-8 with or without a byte order mark.

    Returns
    -------
    str
        Its text.

    Raises
    ------
    InputError
        If it can't be read.
    """
    reason, remedy = "", "check the path"
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
        if len(content) <= _LONGEST:
            return content.decode("utf-8-sig")
        reason, remedy = "it is above 16 MiB, no sweep file", "name the sweep file"
    except UnicodeDecodeError as error:
        reason, remedy = f"its byte {error.start} is not UTF-8", "save it as UTF-8"
    except FileNotFoundError:
        reason = "there is no such file"
    except IsADirectoryError:
        reason, remedy = "it is a folder", "name the sweep file in it"
    except OSError as error:
        reason, remedy = f"it can't be read ({error.strerror})", "check the path and its permissions"
    except ValueError:
        reason = "it is no path"
    raise InputError(Fault(str(path), "", reason, remedy))


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse a sweep file's text.

    Parameters
    ----------
    text : str
        The text.
    path : Path
        The file, for the message.

    Returns
    -------
    dict
        Its tables.

    Raises
    ------
    InputError
        If it is not TOML, with the line.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = re.sub(r" \(at .*\)$", "", str(error))
        at = re.search(r"\(at line ([0-9]+)", str(error))
        line = int(at.group(1)) if at else len(text.rstrip().splitlines())
        reason, remedy = (
            f"it is not valid TOML: {said[:1].lower()}{said[1:]}",
            "mend the line, or the one before",
        )
        raise InputError(Fault(str(path), "", reason, remedy, line or 1)) from None
    except (ValueError, RecursionError):
        reason = "it is nested too deeply or holds a number of too many digits"
        raise InputError(Fault(str(path), "", reason, "write it as the examples are")) from None


def key_lines(text: str) -> dict[str, int]:
    r"""Find the line of every table and key of a TOML text.

    Parameters
    ----------
    text : str
        The text. It need not be valid.

    Returns
    -------
    dict of str to int
        From dotted key, such as ``grid.delta``, to the first line it stands on, counted from 1. Keys
        within inline tables are left out.

    Examples
    --------
    >>> key_lines('name = "x"\n[grid]\ndelta = [0.5]\n')
    {'name': 1, 'grid': 2, 'grid.delta': 3}
    """
    lines: dict[str, int] = {}
    table: list[str] = []
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if depth <= 0 and not quote:
            header, key = _HEADER.match(line), _KEY.match(line)
            path = table + _parts(key.group(1)) if key else []
            if header:
                path = table = _parts(header.group(1))
            for length in range(1, len(path) + 1):
                lines.setdefault(".".join(path[:length]), number)
        depth, quote = _scan(line, depth, quote)
    return lines


def line_of(lines: Mapping[str, int], thing: str) -> int | None:
    """Find the line of a key, or of the innermost table around it that has one.

    Parameters
    ----------
    lines : mapping of str to int
        What :func:`key_lines` found.
    thing : str
        Dotted key.

    Returns
    -------
    int or None
        The line; None where neither stands in the file.

    Examples
    --------
    >>> line_of({"grid": 2, "grid.rho": 3}, "grid.rho.num"), line_of({"grid": 2}, "seed")
    (3, None)
    """
    while thing not in lines:
        thing, dot, _ = thing.rpartition(".")
        if not dot:
            return None
    return lines[thing]


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, dotted)]


def _scan(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Follow brackets and multi-line strings over a line: what is open behind it."""
    position = 0
    while True:
        if quote:
            end = line.find(quote, position)
            if end < 0:
                return depth, quote
            position, quote = end + len(quote), ""
        token = _TOKEN.search(line, position)
        if token is None:
            return depth, ""
        position = token.end()
        if token.group() in ('"""', "'''"):
            quote = token.group()
        elif token.group() in ("[", "{"):
            depth += 1
        elif token.group() in ("]", "}"):
            depth -= 1
