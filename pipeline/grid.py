"""Grid: from what a sweep file says about an axis to its canonical values, and their combinations."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from eigensweep.pipeline.ensemble import Ensemble, Point
from eigensweep.pipeline.errors import Fault, nearest
from eigensweep.pipeline.seeds import Value, canonical

LARGEST = 1_000_000
"""An axis of more values, or a grid of more points, is refused."""

SHOWN = 20
"""So many refused combinations are told apart; the rest is counted."""

_RANGE = ("start", "stop", "num", "scale")
_PER_AXIS = 5
_DISTINCT = 1000

Kind = Literal["int", "float", "str"]


def plain(value: Any) -> Any:
    """Turn numpy arrays and scalars, tuples and ranges within a value into lists and Python's own.

    Parameters
    ----------
    value : object
        A value as a Python caller may give it.

    Returns
    -------
    object
        The same as a TOML or JSON reader would give it.

    Examples
    --------
    >>> plain({"rho": np.arange(2.0), "d": (100, 200)})
    {'rho': [0.0, 1.0], 'd': [100, 200]}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(item) for item in value]
    return value


def shown(value: Any) -> str:
    """Write a value for a message, as TOML writes it, cut to 60 characters.

    Examples
    --------
    >>> shown({"kind": "prefix", "length": True})
    '{ kind = "prefix", length = true }'
    """
    if isinstance(value, Mapping):
        text = "{ " + ", ".join(f"{key} = {shown(item)}" for key, item in value.items()) + " }"
    elif isinstance(value, list):
        text = "[" + ", ".join(shown(item) for item in value[:20]) + "]"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, int) and abs(value) > 10**50:
        text = "an integer of more than 50 digits"
    else:
        text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def fault(thing: str, value: Any, error: ValueError) -> Fault:
    """Make a fault of an error whose text is ``"reason; remedy"``."""
    reason, separator, remedy = str(error).rpartition("; ")
    return Fault(thing, shown(value), reason, remedy) if separator else Fault(thing, shown(value), remedy, "")


def read_values(
    thing: str, raw: Any, parse: Callable[[Any], Value], kind: Kind
) -> tuple[tuple[Value, ...], list[Fault]]:
    """Read the values of an axis.

    Parameters
    ----------
    thing : str
        The axis's name in messages, such as ``grid.delta``.
    raw : object
        A value, a list of them, or a table ``{start, stop, num, scale}`` with scale ``"linear"`` (default)
        or ``"log"``. On an axis of whole numbers a range is rounded to them.
    parse : callable
        From one value as written to the canonical one; raises ValueError with ``"reason; remedy"``.
    kind : {"int", "float", "str"}
        What the values are.

    Returns
    -------
    values : tuple
        The good ones, in the order given, without duplicates. 0.3 and 0.30000000000000004 are one.
    faults : list of Fault
        What is wrong with the others.

    Examples
    --------
    >>> read_values("grid.x", {"start": 0, "stop": 1, "num": 3}, float, "float")
    ((0.0, 0.5, 1.0), [])
    """
    try:
        items = _expand(raw, kind)
    except ValueError as error:
        return (), [fault(thing, raw, error)]
    values: dict[Value, None] = {}
    faults: list[Fault] = []
    for item in items:
        try:
            value = parse(_number(item) if kind != "str" else item)
            values[canonical(float(value)) if kind == "float" else value] = None
        except ValueError as error:
            faults.append(fault(thing, item, error))
    faults = list(dict.fromkeys(faults))
    if len(faults) > _PER_AXIS:
        more = Fault(
            thing, "", f"and {len(faults) - _PER_AXIS} more of its values are refused", "mend them too"
        )
        faults = [*faults[:_PER_AXIS], more]
    return tuple(values), faults


def check_points(ensemble: Ensemble, axes: Mapping[str, Sequence[Value]]) -> list[Fault]:
    """Ask the ensemble about every point of the grid.

    Parameters
    ----------
    ensemble : Ensemble
        The model.
    axes : mapping of str to sequence
        Canonical values of each of its axes.

    Returns
    -------
    list of Fault
        Each different fault once, with the number of points that have it; at most 20, and one that
        counts the rest.
    """
    total = math.prod(len(values) for values in axes.values())
    if total > LARGEST:
        reason = f"it has {total} points, and at most {LARGEST} are taken"
        return [Fault("grid", "", reason, "thin out an axis or split the sweep")]
    found: Counter[Fault] = Counter()
    for values in itertools.product(*axes.values()):
        faults = _check(ensemble, dict(zip(axes, values, strict=True)))
        if faults:
            found.update(faults)
            if len(found) > _DISTINCT:
                break
    faults = [_counted(one, count, total) for one, count in itertools.islice(found.items(), SHOWN)]
    if len(found) > SHOWN:
        least = "at least " if len(found) > _DISTINCT else ""
        reason = f"and {least}{len(found) - SHOWN} more kinds of combinations are refused"
        faults.append(Fault("grid", "", reason, "mend those above first"))
    return faults


def _check(ensemble: Ensemble, point: Point) -> list[Fault]:
    try:
        return ensemble.check(point)
    except ArithmeticError:
        reason, remedy = "it is so far from 1 that the model's numbers overflow", "choose a moderate one"
        extreme = {f"grid.{key}": value for key, value in point.items() if not _moderate(value)}
        if not extreme:
            return [Fault("grid", shown(dict(point)), reason, remedy)]
        return [Fault(thing, shown(value), reason, remedy) for thing, value in extreme.items()]


def _moderate(value: Value) -> bool:
    return isinstance(value, str) or value == 0 or 1e-12 < abs(value) < 1e12


def _counted(one: Fault, count: int, total: int) -> Fault:
    return one if count == 1 else replace(one, reason=f"{one.reason} (in {count} of {total} combinations)")


def _expand(raw: Any, kind: Kind) -> Sequence[Any]:
    if isinstance(raw, Mapping) and "kind" not in raw:
        return _expand_range(raw, kind)
    items = raw if isinstance(raw, list) else [raw]
    if not items:
        raise ValueError("it is empty; name at least one value")
    if len(items) > LARGEST:
        raise ValueError(f"it has {len(items)} values; name at most {LARGEST}")
    return items


def _expand_range(table: Mapping[str, Any], kind: Kind) -> Sequence[Any]:
    for key in table:
        if key not in _RANGE:
            raise ValueError(f"a range has no key {key!r}; {nearest(str(key), _RANGE)}")
    missing = [key for key in _RANGE[:3] if key not in table]
    if missing:
        raise ValueError(f"the range lacks {' and '.join(missing)}; write {{ start, stop, num }}")
    if kind == "str":
        raise ValueError("a range is of numbers; write a list")
    start, stop = (_endpoint(key, table[key]) for key in ("start", "stop"))
    num, scale = table["num"], table.get("scale", "linear")
    if isinstance(num, bool) or not isinstance(num, int) or not 1 <= num <= LARGEST:
        raise ValueError(f"num = {shown(num)} is no whole number from 1 to {LARGEST}; write one")
    if scale not in ("linear", "log"):
        raise ValueError(f"there is no scale {shown(scale)}; {nearest(str(scale), ('linear', 'log'))}")
    if scale == "log" and not (start > 0 and stop > 0):
        raise ValueError('a range with scale = "log" needs start and stop above 0; write such')
    values = np.geomspace(start, stop, num) if scale == "log" else np.linspace(start, stop, num)
    # A zero in the middle comes out as rounding noise, which 12 significant digits would keep.
    values[np.abs(values) < 1e-13 * max(abs(start), abs(stop))] = 0.0
    exact = [float(canonical(value)) for value in values.tolist()]
    return [round(value) for value in exact] if kind == "int" else exact


def _endpoint(key: str, value: Any) -> float:
    if isinstance(value, str):
        raise ValueError(f"{key} = {shown(value)} is not a number; write a decimal number")
    try:
        return float(_number(value))
    except (ValueError, TypeError):
        raise ValueError(f"{key} = {shown(value)} is not a finite number; write one") from None


def _number(value: Any) -> Any:
    """Refuse what no number may be, whatever the axis; leave the rest to the axis."""
    if isinstance(value, bool):
        raise ValueError("it is true or false, not a number; write a number")
    if isinstance(value, (int, float)) and not abs(value) <= 1e300:
        raise ValueError("it is not a finite number; write one")
    if isinstance(value, int) and abs(value) > 1 << 53:
        raise ValueError(
            "it is above 2^53, where whole numbers are no longer told apart; write a smaller one"
        )
    return value
