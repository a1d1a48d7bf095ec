"""TOML text of a sweep: the standard library reads TOML and does not write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(tables: Mapping[str, Any]) -> str:
    """Write a mapping of scalars, lists and tables as TOML.

    Parameters
    ----------
    tables : mapping
        Values are strings, numbers, booleans, lists of these, or mappings; a mapping at the top becomes a
        table, one further down an inline table.

    Returns
    -------
    str
        The text; ``tomllib.loads`` gives the mapping back.

    Examples
    --------
    >>> print(to_toml({"name": "a", "grid": {"d": [100, 200], "replicates": {"100": 4}}}), end="")
    name = "a"
    <BLANKLINE>
    [grid]
    d = [100, 200]
    replicates = { 100 = 4 }
    """
    lines = [
        f"{_key(key)} = {_value(value)}" for key, value in tables.items() if not isinstance(value, Mapping)
    ]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines += [
                "",
                f"[{_key(name)}]",
                *(f"{_key(key)} = {_value(value)}" for key, value in table.items()),
            ]
    return "\n".join(lines).lstrip("\n") + "\n"


def _key(key: str) -> str:
    bare = bool(key) and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if bare else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # A basic TOML string is a JSON string, DEL apart.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(_value(item) for item in value) + "]"
