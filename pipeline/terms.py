"""Short terms that a sweep file speaks in, such as ``prefix(8)``, with their numbers and arrays."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.errors import nearest
from eigensweep.pipeline.seeds import canonical

_TERM = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def split_term(text: str, known: Iterable[str]) -> tuple[str, str | None]:
    """Split ``"name(argument)"`` or ``"name"`` into its parts.

    Parameters
    ----------
    text : str
        The term.
    known : iterable of str
        The names that it may have.

    Returns
    -------
    name : str
        One of ``known``.
    argument : str or None
        What stands between the brackets, stripped; None where there are none.

    Raises
    ------
    ValueError
        If it has another form or an unknown name: ``"reason; remedy"``.

    Examples
    --------
    >>> split_term("exponential( 0.5 )", ["mean", "exponential"])
    ('exponential', '0.5')
    >>> split_term("mean", ["mean", "exponential"])
    ('mean', None)
    """
    names = list(known)
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a text; write name or name(argument)")
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form name or name(argument); {nearest(text, names)}")
    name, argument = match.group(1), match.group(2)
    if name not in names:
        raise ValueError(f"there is no {name!r}; {nearest(name, names)}")
    return name, None if argument is None else argument.strip()


def real(value: Any) -> float:
    """Read a finite real number, canonical to 12 significant digits.

    Parameters
    ----------
    value : int, float or str
        A number, or its decimal text.

    Returns
    -------
    float
        The canonical number.

    Raises
    ------
    ValueError
        If it is no finite number: ``"reason; remedy"``. Booleans are none.

    Examples
    --------
    >>> real("0.30000000000000004")
    0.3
    """
    number = math.nan
    if isinstance(value, (int, float, str, np.integer, np.floating)) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number; write a decimal number")
    return float(canonical(number))


def whole(value: Any, least: int = 1) -> int:
    """Read a whole number.

    Parameters
    ----------
    value : int or str
        A number, or its decimal text.
    least : int
        The smallest that is allowed.

    Returns
    -------
    int
        The number.

    Raises
    ------
    ValueError
        If it is not whole or too small: ``"reason; remedy"``. Booleans and floats are refused.

    Examples
    --------
    >>> whole("8")
    8
    """
    integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    decimal = isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value) is not None
    if not (integer or decimal):
        raise ValueError(f"{value!r} is not a whole number; write an integer of at least {least}")
    number = int(value)
    if number < least:
        raise ValueError(f"{number} is below {least}; write an integer of at least {least}")
    return number


def real_array(array: Any) -> NDArray[np.float64]:
    """Read an array of real numbers.

    Parameters
    ----------
    array : array_like
        Integers, booleans or floats of any shape.

    Returns
    -------
    ndarray of float64
        A read-only contiguous copy of the same shape.

    Raises
    ------
    ValueError
        If it holds anything but real numbers: ``"reason; remedy"``.

    Examples
    --------
    >>> real_array([1, 2]).dtype
    dtype('float64')
    """
    given = np.asarray(array)
    if given.dtype.kind not in "fiub":
        raise ValueError(f"it holds {given.dtype}, not real numbers; save a float64 array with numpy.save")
    copy = np.array(given, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def array_digest(array: NDArray[np.float64]) -> str:
    """Name an array by its content.

    Parameters
    ----------
    array : ndarray of float64
        Any shape.

    Returns
    -------
    str
        32 hexadecimal digits that depend on shape and values only.

    Examples
    --------
    >>> array_digest(np.zeros(2)) == array_digest(np.zeros(3))
    False
    """
    # The shape comes first so that reshaped arrays differ; adding 0.0 makes -0.0 and 0.0 one value.
    content = np.ascontiguousarray(array + 0.0, dtype="<f8").tobytes()
    return hashlib.blake2b(repr(array.shape).encode() + content, digest_size=16).hexdigest()
