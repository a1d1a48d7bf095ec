"""What a cube's coordinates must be: from its sweeps and, where a coordinate is lost, from the receipts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.evidence import receipt_holds
from eigensweep.pipeline.kernel import Recipe
from eigensweep.pipeline.schema import DONE, Names
from eigensweep.pipeline.seeds import Value, canonical
from eigensweep.pipeline.stored import Stored
from eigensweep.pipeline.sweep import Sweep

PROBES = 5
"""Done columns that are asked for each value of an axis that is in doubt."""

Axes = dict[str, tuple[Value, ...]]


def true_layout(stored: Stored) -> Layout:
    """Find a cube's axes in storage order, though coordinates may be damaged.

    Parameters
    ----------
    stored : Stored
        The cube.

    Returns
    -------
    Layout
        As its columns were computed.

    Raises
    ------
    StudyError
        If its metadata contradict themselves.

    Notes
    -----
    Which values an axis holds follows from the sweeps that the cube has seen. Their order is the stored
    one if that can be read and holds just these values. Else it is found from the columns: the digest of
    each binds it to its coordinates, so that a place's value is the one with which the digest comes out.
    The signal is in no digest; its order is that of the other signal coordinate, its gain times it.
    """
    asked = _asked(stored)
    if stored.packed:
        asked = {name: _ascending(values) for name, values in asked.items()}
    _refuse_contradiction(stored, asked)
    axes: Axes = {}
    doubtful = []
    for axis in stored.ensemble.axes:
        values = axis_values(stored, axis.name)
        intact = values is not None and set(values) == set(asked[axis.name])
        axes[axis.name] = values if values is not None and intact else asked[axis.name]
        # Two chunks of one coordinate that changed places hold the right values in the wrong order.
        if not intact or len(axes[axis.name]) > stored.array(axis.name).chunks[0]:
            doubtful.append(axis.name)
    signal = _signal_values(stored, asked[stored.signal], axes)
    layout = stored.layout(axes, signal)
    if doubtful and not stored.packed:
        layout = stored.layout(_identified(stored, layout, doubtful), signal)
    return layout


def recipe_of(stored: Stored, layout: Layout) -> Recipe:
    """Say what a cube's numbers depend on."""
    return Recipe(
        ensemble=stored.ensemble,
        seed=stored.sweep.seed,
        signal=layout.signal,
        signal_values=layout.signal_values,
        top=layout.top,
        columns=stored.columns,
        modes=layout.modes,
    )


def point_at(level: Level, layout: Layout, index: Sequence[int]) -> dict[str, Value]:
    """Name the grid point at a place of a level's arrays."""
    return {name: layout.axes[name][i] for name, i in zip(level.axes, index, strict=False)}


def axis_values(stored: Stored, name: str) -> tuple[Value, ...] | None:
    """Read an axis; None where a chunk of it can't be read.

    Parameters
    ----------
    stored : Stored
        The cube.
    name : str
        The axis, or the signal.

    Returns
    -------
    tuple of Value or None
        Canonical values in storage order.
    """
    values, broken = stored.load(name)
    return None if broken else tuple(canonical(value) for value in values.tolist())


def asked_columns(stored: Stored, level: Level, layout: Layout, sweeps: Sequence[Sweep]) -> NDArray[np.bool_]:
    """Mark the columns of a level that some sweeps ask for.

    Parameters
    ----------
    stored : Stored
        The cube.
    level : Level
        The level.
    layout : Layout
        Its axes.
    sweeps : sequence of Sweep
        The sweeps.

    Returns
    -------
    array of bool
        Over the column's dimensions.
    """
    result = np.zeros(stored.shape(level), dtype=bool)
    size, *others = level.axes
    where = {name: {value: i for i, value in enumerate(values)} for name, values in layout.axes.items()}
    for sweep in sweeps:
        rest = [[where[name][value] for value in sweep.axes[name]] for name in others]
        for d, count in sweep.replicate_counts.items():
            result[np.ix_([where[size][d]], *rest, range(count))] = True
    return result


def _asked(stored: Stored) -> Axes:
    """Join the values that the sweeps ask for, in the order in which they came."""
    entries = stored.document["attributes"]["sweeps"]
    began = [entry.get("provenance", {}).get("first_run", "") for entry in entries]
    order = sorted(range(len(entries)), key=began.__getitem__)
    sweeps: list[Sweep] = [stored.sweeps[i] for i in order]
    asked: Axes = {}
    for axis in stored.ensemble.axes:
        asked[axis.name] = tuple(dict.fromkeys(v for sweep in sweeps for v in sweep.axes[axis.name]))
    asked[stored.signal] = tuple(dict.fromkeys(v for sweep in sweeps for v in sweep.signal_values))
    return asked


def _ascending(values: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(sorted(values, key=lambda value: value if isinstance(value, str) else float(value)))


def _refuse_contradiction(stored: Stored, asked: Axes) -> None:
    replicates = stored.shape(stored.levels[0])[-1]
    sizes = {name: (stored.array(name).shape[0], len(values)) for name, values in asked.items()}
    sizes["replicate"] = (replicates, max(sweep.replicates for sweep in stored.sweeps))
    for name, (held, wanted) in sizes.items():
        if held != wanted:
            raise StudyError(
                f"{stored.path}: zarr.json says that {name} has {held} values and that its sweeps asked for "
                f"{wanted}; restore that file from a copy"
            )


def _signal_values(stored: Stored, asked: Sequence[Value], axes: Axes) -> tuple[float, ...]:
    expected = [float(value) for value in asked]
    values = axis_values(stored, stored.signal)
    if values is not None and set(values) == set(expected):
        return tuple(float(value) for value in values)
    if stored.packed:
        return tuple(sorted(expected))
    other, broken = stored.load("mu2" if stored.signal == "rho" else "rho")
    if not broken:
        dims = stored.ensemble.gain_axes
        for index in np.ndindex(other.shape[:-1]):
            if not np.isfinite(other[index]).all():
                continue
            gain = stored.ensemble.gain({name: axes[name][i] for name, i in zip(dims, index, strict=True)})
            found = other[index] * gain if stored.signal == "rho" else other[index] / gain
            nearest = [int(np.argmin(np.abs(np.asarray(expected) - value))) for value in found]
            if np.isfinite(found).all() and sorted(nearest) == list(range(len(expected))):
                return tuple(expected[i] for i in nearest)
    return tuple(expected)


def _identified(stored: Stored, layout: Layout, doubtful: Sequence[str]) -> Axes:
    """Find the order of doubtful axes from the digests of columns that are done."""
    recipe = recipe_of(stored, layout)
    found: dict[str, dict[int, Value]] = {name: {} for name in doubtful}
    for level in stored.levels:
        names = [name for name in doubtful if name in level.axes]
        for index in _probes(stored, level, names):
            places = {name: index[level.axes.index(name)] for name in names}
            if all(place in found[name] for name, place in places.items()):
                continue
            parts = _column_parts(stored, level, index)
            if parts is None:
                continue
            for candidate in itertools.product(*(_first(layout.axes[n], places[n]) for n in names)):
                point = point_at(level, layout, index) | dict(zip(names, candidate, strict=True))
                if receipt_holds(recipe, level.name, point, index[-1], parts):
                    for name, value in zip(names, candidate, strict=True):
                        found[name][places[name]] = value
                    break
    return {**layout.axes, **{name: _completed(layout.axes[name], found[name]) for name in doubtful}}


def _probes(stored: Stored, level: Level, names: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """List a few columns that are done at every place of some axes."""
    status, _ = stored.load(Names(level)["column_status"])
    for name in names:
        axis = level.axes.index(name)
        for place in range(status.shape[axis]):
            done = np.argwhere(np.take(status, [place], axis=axis) == DONE)
            for index in done[:: max(1, len(done) // PROBES)]:
                index[axis] = place
                yield tuple(int(i) for i in index)


def _column_parts(stored: Stored, level: Level, index: Sequence[int]) -> Mapping[str, NDArray[Any]] | None:
    region = tuple(slice(i, i + 1) for i in index)
    parts = {}
    for role, name in stored.roles(level).items():
        values, broken = stored.load(name, region)
        if broken:
            return None
        parts[role] = values[(0,) * len(index)]
    return parts


def _first(values: Sequence[Value], place: int) -> list[Value]:
    """Put the value that is probably the right one before the others."""
    return [values[place], *(value for i, value in enumerate(values) if i != place)]


def _completed(values: tuple[Value, ...], found: Mapping[int, Value]) -> tuple[Value, ...]:
    """Give the places that nothing is known of the values that are left, in their order."""
    if len(set(found.values())) != len(found):
        return values
    rest = iter([value for value in values if value not in set(found.values())])
    return tuple(found[i] if i in found else next(rest) for i in range(len(values)))
