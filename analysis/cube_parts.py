"""Parts of a cube as a figure or a table needs them: a level, a point, what is done, averages of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.schema import DONE

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

_LEVEL = re.compile(r"\(([^()]+) level\)$")
_OTHER = ("replicate", "rho", "mu2", "top")


@dataclass(frozen=True)
class CubeLevel:
    """A level that a cube holds.

    Parameters
    ----------
    name : str
        Its name, such as "sample".
    prefix : str
        Put before the names of its variables.
    axes : tuple of str
        Parameters that it varies over, size first.
    """

    name: str
    prefix: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A level of a cube at one point, several sizes apart.

    Parameters
    ----------
    level : CubeLevel
        The level.
    point : dict
        Values of the parameters that tell this part from the others.
    cube : Dataset
        The cube there.
    """

    level: CubeLevel
    point: dict[str, Any]
    cube: xr.Dataset


def levels_of(cube: xr.Dataset, wanted: str | Iterable[str] | None = None) -> list[CubeLevel]:
    """List the levels of a cube, those that depend on fewest parameters first.

    Parameters
    ----------
    cube : Dataset
        From `open_cube`.
    wanted : str or iterable of str, optional
        Names; all levels if not given.

    Returns
    -------
    list of CubeLevel
        The levels.

    Raises
    ------
    InputError
        If a wanted level is not in the cube, or there is none at all.
    """
    found, size = [], _size_of(cube)
    for variable in map(str, cube.data_vars):
        if variable.endswith("eigenvalue") and "top" in cube[variable].dims:
            prefix = variable.removesuffix("eigenvalue")
            said = _LEVEL.search(str(cube[variable].attrs.get("long_name", "")))
            axes = (size, *(str(dim) for dim in cube[variable].dims if dim not in (size, *_OTHER)))
            found.append(CubeLevel(said[1] if said else prefix.rstrip("_") or "sample", prefix, axes))
    if not found:
        reason = "it holds no eigenvalues"
        raise InputError(Fault("cube", "", reason, "open the study with eigensweep.pipeline.open_cube"))
    found.sort(key=lambda level: (len(level.axes), level.name))
    names = [level.name for level in found]
    chosen = names if wanted is None else [wanted] if isinstance(wanted, str) else list(wanted)
    for name in chosen:
        if name not in names:
            raise InputError(Fault("level", name, "the cube has no such level", nearest(name, names)))
    return [level for level in found if level.name in chosen]


def _size_of(cube: xr.Dataset) -> str:
    """Name of the size, which a sweep's grid lists first, also where a caller has fixed it already."""
    listed = [name for name in _tables(cube).get("grid", {}) if name not in ("replicates", *_OTHER)]
    held = [str(dim) for dim in cube.dims if dim not in _OTHER]
    return str(listed[0]) if listed and listed[0] in cube.coords else held[0] if held else ""


def _tables(cube: xr.Dataset) -> dict[str, Any]:
    sweeps = cube.attrs.get("sweeps") or [{}]
    tables: dict[str, Any] = sweeps[-1].get("sweep", {})
    return tables


def axes_of(cube: xr.Dataset) -> tuple[str, ...]:
    """List the parameters that a cube varies over, size first."""
    return max((level.axes for level in levels_of(cube)), key=len)


def varying(cube: xr.Dataset, names: Iterable[str]) -> list[str]:
    """Those of some parameters that have more than one value in a cube."""
    return [name for name in names if cube.sizes.get(name, 1) > 1]


def side_by_side(cube: xr.Dataset) -> list[str]:
    """Name the parameter that a figure shows in panels unless told otherwise: the last ratio that varies."""
    names = varying(cube, axes_of(cube)[1:])
    return [name for name in names if cube[name].dtype.kind == "f"][-1:]


def choose(
    cube: xr.Dataset, select: Mapping[str, Any] | None, free: Sequence[str], across: Sequence[str] = ()
) -> tuple[xr.Dataset, dict[str, Any]]:
    """Fix every parameter of a cube that a figure does not show several values of.

    Parameters
    ----------
    cube : Dataset
        From `open_cube`.
    select : mapping, optional
        From parameters to the value, or the list of values, to keep.
    free : sequence of str
        Parameters that keep all their values unless selected. Of the others the largest size, or the first
        value in the sweep's order, is kept.
    across : sequence of str
        The same, but one that is left with a single value is no dimension any more.

    Returns
    -------
    chosen : Dataset
        The part; nothing is read yet.
    fixed : dict
        The parameters left with one value, in the cube's order.

    Raises
    ------
    InputError
        If a parameter or value is not in the cube.
    """
    axes, wanted = axes_of(cube), dict(select or {})
    known = list(dict.fromkeys([*axes, *_scalars(cube)]))
    for name in wanted:
        if name not in known:
            raise InputError(Fault("select", name, "the cube has no such parameter", nearest(name, known)))
    fixed = {name: cube[name].item() for name in _scalars(cube)}
    for name in axes:
        if name not in cube.dims:
            continue
        values = cube[name].values.tolist()
        if name in wanted:
            several = isinstance(wanted[name], (list, tuple, np.ndarray))
            asked = list(wanted[name]) if several else [wanted[name]]
            places = [_place(name, value, values) for value in asked]
        elif name in free or name in across:
            places = list(range(len(values)))
        else:
            places = [_default(cube, name, values, name == axes[0])]
        one = len(places) == 1 and name not in free
        cube = cube.isel({name: places[0] if one else places})
        if len(places) == 1:
            fixed[name] = values[places[0]]
    return cube, {name: fixed[name] for name in known if name in fixed}


def _scalars(cube: xr.Dataset) -> list[str]:
    """Parameters that a caller has fixed already: scalar coordinates that the sweep's grid or model names."""
    tables = _tables(cube)
    named = {**tables.get("grid", {}), **tables.get("model", {})}
    return [
        str(name) for name in cube.coords if cube[name].ndim == 0 and name in named and name not in _OTHER
    ]


def _place(name: str, value: Any, values: list[Any]) -> int:
    for place, held in enumerate(values):
        number = isinstance(held, (int, float)) and isinstance(value, (int, float, np.number))
        if held == value or (number and np.isclose(held, float(value), rtol=1e-9, atol=0.0)):
            return place
    raise InputError(
        Fault(
            f"select.{name}", str(value), "the cube has no such value", nearest(str(value), map(str, values))
        )
    )


def _default(cube: xr.Dataset, name: str, values: list[Any], size: bool) -> int:
    if size:
        return values.index(max(values))
    asked = _tables(cube).get("grid", {}).get(name)
    first = asked[0] if isinstance(asked, list) and asked else values[0]
    return values.index(first) if first in values else 0


def parts_of(cube: xr.Dataset, levels: Sequence[CubeLevel], across: Sequence[str]) -> list[Part]:
    """Take a chosen cube apart into one part for each level and value of some parameters.

    Parameters
    ----------
    cube : Dataset
        From `choose`.
    levels : sequence of CubeLevel
        The levels.
    across : sequence of str
        Parameters of which every value makes a part, for the levels that depend on them.

    Returns
    -------
    list of Part
        Level by level.
    """
    parts = []
    for level in levels:
        names = [name for name in across if name in level.axes and name in cube.dims]
        for values in itertools.product(*(cube[name].values.tolist() for name in names)):
            point = dict(zip(names, values, strict=True))
            places = {name: cube[name].values.tolist().index(value) for name, value in point.items()}
            parts.append(Part(level, point, cube.isel(places)))
    return parts


def told(
    cube: xr.Dataset, fixed: Mapping[str, Any], levels: Sequence[CubeLevel], without: Sequence[str]
) -> dict[str, Any]:
    """Pick the fixed parameters for a heading: not those that no level drawn depends on."""
    matter = {name for level in levels for name in level.axes}
    idle = {*axes_of(cube)} - matter
    return {name: value for name, value in fixed.items() if name not in idle and name not in without}


def done(cube: xr.Dataset, level: CubeLevel, name: str) -> xr.DataArray:
    """Load a variable of a level, NaN where its column is not done.

    Parameters
    ----------
    cube : Dataset
        A cube or a part of one.
    level : CubeLevel
        The level.
    name : str
        The variable's name without the level's prefix.

    Returns
    -------
    DataArray
        In memory, with the size as a dimension even if the part has one size.
    """
    values = cube[f"{level.prefix}{name}"]
    status = f"column_status_{level.prefix.rstrip('_')}" if level.prefix else "column_status"
    if status in cube:
        # open_cube has masked it already; a cube that plain xarray opened has not.
        values = values.where(cube[status] == DONE)
    values = values.compute()
    size = level.axes[0]
    return values if size in values.dims or size not in values.coords else values.expand_dims(size)


def averages(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Average over the replicates that there are.

    Parameters
    ----------
    values : DataArray
        With the dimension ``replicate``; NaN where there is no value.

    Returns
    -------
    mean, error, count : DataArray
        Mean (NaN for no replicate), its standard error (NaN for fewer than two), number of replicates.
    """
    count = values.notnull().sum("replicate")
    mean = values.mean("replicate")
    squares = ((values - mean) ** 2).sum("replicate")
    variance = (squares / (count - 1.0).where(count > 1)) / count.where(count > 1)
    return mean, variance**0.5, count


def strengths(cube: xr.Dataset) -> tuple[str, Array]:
    """Signal strengths rho at one point of a cube, whichever signal the study has as its dimension.

    Parameters
    ----------
    cube : Dataset
        A part in which rho depends on nothing but its own dimension.

    Returns
    -------
    dimension : {"rho", "mu2"}
        The study's.
    rho : ndarray
        Along it.

    Raises
    ------
    InputError
        If the cube has neither.
    """
    for name in ("rho", "mu2"):
        if name in cube.dims:
            return name, np.asarray(cube["rho"].values, dtype=np.float64)
    reason = "it has no dimension rho or mu2"
    raise InputError(Fault("cube", "", reason, "keep the signal's dimension: select a range, not one value"))
