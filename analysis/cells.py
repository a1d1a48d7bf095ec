"""Cells of a grid as a picture needs them: explicit edges, on even, uneven and logarithmic axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_SPAN = 8.0
"""An axis is drawn logarithmic if its values span more than this factor and lie more evenly so."""


def axis_scale(values: ArrayLike) -> str:
    """Choose the scale on which some values lie most evenly.

    Parameters
    ----------
    values : (n,) array_like
        Ascending.

    Returns
    -------
    {"linear", "log"}
        The scale.

    Examples
    --------
    >>> axis_scale([0.1, 0.2, 0.5, 1.0, 2.0]), axis_scale([0.5, 1.0, 1.5])
    ('log', 'linear')
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 3 or array.min() <= 0 or array.max() < _SPAN * array.min():
        return "linear"
    gaps, ratios = np.diff(array), np.diff(np.log(array))
    return "log" if np.std(ratios) / np.mean(ratios) < np.std(gaps) / np.mean(gaps) else "linear"


def cell_edges(values: ArrayLike, scale: str = "linear") -> Array:
    """Edges of the cells around some values: midpoints, geometric ones on a logarithmic scale.

    Parameters
    ----------
    values : (n,) array_like
        Ascending, n >= 1.
    scale : {"linear", "log"}
        Of the axis. On it each outer cell is as wide beyond its value as within.

    Returns
    -------
    (n + 1,) ndarray
        Edges. Where no value is negative, no edge is.

    Raises
    ------
    ValueError
        If the values do not ascend, or are not positive on a logarithmic scale.

    Examples
    --------
    >>> cell_edges([1.0, 2.0, 4.0]).tolist()
    [0.5, 1.5, 3.0, 5.0]
    >>> cell_edges([1.0, 4.0, 16.0], "log").round(6).tolist()
    [0.5, 2.0, 8.0, 32.0]
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or np.any(np.diff(array) <= 0):
        raise ValueError("values: cells need a one-dimensional, ascending array; sort it, without duplicates")
    if scale == "log":
        if array[0] <= 0:
            raise ValueError(f"values: {array[0]:g} has no place on a logarithmic scale; use a linear one")
        return np.asarray(np.exp(_around(np.log(array), 0.1)))
    edges = _around(array, 0.1 * abs(array[0]) or 0.5)
    return edges if array[0] < 0 else np.maximum(edges, 0.0)


def _around(values: Array, half: float) -> Array:
    """Midpoints, and beyond the ends as far as within; a single value's cell reaches ``half`` each way."""
    if values.size == 1:
        return np.asarray([values[0] - half, values[0] + half])
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])
