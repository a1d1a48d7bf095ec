"""The cube on disk: laid out whole before the first task, grown by one coordinator, published by a rename."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.ensemble import Ensemble, Level
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.schema import MODE_CHUNK, Signal, Variable, coordinates, level_variables
from eigensweep.pipeline.seeds import Value, canonical

FORMAT = 1
"""Version of the cube's schema."""
METADATA = "zarr.json"
COORDINATE_CHUNK = 16
"""Values of a coordinate's axis in a chunk, where the axis is not longer from the start."""


@dataclass(frozen=True)
class Plan:
    """What a cube must hold: its variables and its axes.

    Parameters
    ----------
    ensemble : Ensemble
        The model.
    layout : Layout
        The axes as stored.
    levels : tuple of Level
        The recorded levels.
    columns : bool
        Whether spectral columns are kept.
    """

    ensemble: Ensemble
    layout: Layout
    levels: tuple[Level, ...]
    columns: bool

    def variables(self) -> list[Variable]:
        """List every array of the cube, coordinates first."""
        found = coordinates(self.ensemble, self.layout.signal)
        for level in self.levels:
            found += level_variables(level, self.layout.signal, self.columns).values()
        return found

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """Shape of an array."""
        return tuple(self.layout.size(dim) for dim in variable.dims)

    def chunks(self, variable: Variable) -> tuple[int, ...]:
        """Chunk shape of an array; only the first publication asks for it."""
        layout = self.layout
        if variable.coordinate:
            least = {layout.signal: layout.signal_chunk, "replicate": 4096}
            return tuple(max(layout.size(dim), least.get(dim, COORDINATE_CHUNK)) for dim in variable.dims)
        whole = {
            "replicate": layout.run,
            layout.signal: layout.signal_chunk,
            "top": layout.top,
            "mode": max(MODE_CHUNK, layout.modes),
        }
        return tuple(whole.get(dim, 1) for dim in variable.dims)

    def values(self, variable: Variable) -> NDArray[Any]:
        """Values of a coordinate, over its dimensions."""
        layout, name = self.layout, variable.name
        if name in layout.axes:
            return np.asarray(layout.axes[name], dtype=object if variable.dtype == "str" else variable.dtype)
        if name in ("replicate", "top"):
            return np.arange(layout.size(name), dtype=np.int64)
        if name == layout.signal:
            return np.asarray(layout.signal_values, dtype=np.float64)
        derived = {item.name: item for item in self.ensemble.derived}
        if name in derived:
            return self._tabulate(variable, variable.dims, derived[name].compute)
        gain = self._tabulate(variable, variable.dims[:-1], self.ensemble.gain)[..., None]
        signal = np.asarray(layout.signal_values)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(signal / gain if layout.signal == "rho" else signal * gain)

    def _tabulate(self, variable: Variable, dims: Sequence[str], compute: Any) -> NDArray[Any]:
        shape = tuple(self.layout.size(dim) for dim in dims)
        table = np.full(shape, variable.fill, dtype=variable.dtype)
        for index in np.ndindex(shape):
            point = {dim: self.layout.axes[dim][i] for dim, i in zip(dims, index, strict=True)}
            try:
                table[index] = compute(point)
            except (ArithmeticError, ValueError, IndexError):
                # A combination of the union that no sweep asked for need not make sense.
                table[index] = variable.fill
        return table


def create(path: Path, plan: Plan, attributes: Mapping[str, Any]) -> None:
    """Lay out a cube.

    Parameters
    ----------
    path : Path
        Where; nothing must be there yet.
    plan : Plan
        What it holds.
    attributes : mapping
        Provenance, as JSON values.

    Notes
    -----
    It is built beside its place and renamed into it, so that it is there whole or not at all. What a
    killed run left of such a build is removed first: whoever lays out holds the study's lock.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        group = zarr.create_group(LocalStore(temporary), attributes=_attributes(plan, attributes))
        for variable in plan.variables():
            array = _create_array(group, plan, variable)
            if variable.coordinate:
                array[...] = plan.values(variable)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
            zarr.consolidate_metadata(group.store)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _create_array(group: zarr.Group, plan: Plan, variable: Variable) -> zarr.Array[Any]:
    typesize = 1 if variable.dtype == "str" else np.dtype(variable.dtype).itemsize
    return group.create_array(
        variable.name,
        shape=plan.shape(variable),
        chunks=plan.chunks(variable),
        dtype=str if variable.dtype == "str" else variable.dtype,
        fill_value=variable.fill,
        # The checksum comes last, so that it sees the very bytes on disk: blosc notices few flipped bits.
        compressors=[
            BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=typesize),
            Crc32cCodec(),
        ],
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=variable.dims,
        attributes={"long_name": variable.long_name, "units": variable.units, "source": variable.source},
    )


def read_metadata(path: Path) -> tuple[dict[str, Any], str]:
    """Read a cube's published metadata.

    Parameters
    ----------
    path : Path
        The cube.

    Returns
    -------
    document : dict
        The root ``zarr.json``.
    token : str
        Names this publication.

    Raises
    ------
    StudyError
        If there is no cube of a known format.
    """
    try:
        text = (path / METADATA).read_bytes()
        document = json.loads(text)
        version = document["attributes"]["eigensweep_format"]
    except FileNotFoundError:
        raise StudyError(f"{path}: there is no cube; run the sweep first or name another study") from None
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path}: this is not a cube of eigensweep ({type(error).__name__}: {error}); name another study"
        ) from None
    if version != FORMAT:
        raise StudyError(
            f"{path}: the cube has format {version} and this eigensweep reads {FORMAT}; "
            "use the version that wrote it"
        )
    return document, _token(text)


def publication(path: Path) -> str:
    """Name the publication of a cube's metadata that is on disk now.

    Parameters
    ----------
    path : Path
        The cube.

    Returns
    -------
    str
        As :func:`read_metadata` names it.

    Raises
    ------
    FileNotFoundError
        If there is no cube.
    """
    return _token((path / METADATA).read_bytes())


def _token(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def read_layout(path: Path, document: Mapping[str, Any], axes: Iterable[str], signal: Signal) -> Layout:
    """Read a cube's axes as they were published.

    Parameters
    ----------
    path : Path
        The cube.
    document : mapping
        Its metadata, from :func:`read_metadata`.
    axes : iterable of str
        The ensemble's axes.
    signal : {"rho", "mu2"}
        The signal dimension.

    Returns
    -------
    Layout
        The axes in storage order.
    """
    arrays = document["consolidated_metadata"]["metadata"]
    group = zarr.open_group(str(path), mode="r", use_consolidated=True)

    def values(name: str) -> tuple[Value, ...]:
        array = group[name]
        assert isinstance(array, zarr.Array)
        # tolist gives Python's own numbers and strings, which canonical() and JSON know.
        return tuple(canonical(value) for value in np.asarray(array[...]).tolist())

    pairs = next(a for a in arrays.values() if a["dimension_names"][-1] == "top" and len(a["shape"]) > 1)
    status = next(a for name, a in arrays.items() if name.startswith("column_status"))
    stored = {name: values(name) for name in axes}
    modes = [a["shape"][-1] for a in arrays.values() if a["dimension_names"][-1] == "mode"]
    largest = max(int(size) for size in next(iter(stored.values())))
    return Layout(
        axes=stored,
        signal=signal,
        signal_values=tuple(float(value) for value in values(signal)),
        replicates=status["shape"][-1],
        run=status["chunk_grid"]["configuration"]["chunk_shape"][-1],
        signal_chunk=pairs["chunk_grid"]["configuration"]["chunk_shape"][-2],
        top=pairs["shape"][-1],
        modes=max([largest, *modes]),
    )


def publish(path: Path, plan: Plan, attributes: Mapping[str, Any]) -> None:
    """Give a cube new axes and attributes.

    Parameters
    ----------
    path : Path
        The cube.
    plan : Plan
        What it must hold from now on; its axes continue the published ones.
    attributes : mapping
        Provenance, as JSON values.

    Notes
    -----
    Every array's own metadata and every coordinate are written first, at the new size whatever a killed
    growth left of them; the group's consolidated metadata, which alone readers look at, last, by one
    rename. No chunk of data is touched.
    """
    document, _ = read_metadata(path)
    arrays = document["consolidated_metadata"]["metadata"]
    for variable in plan.variables():
        metadata = arrays[variable.name]
        metadata["shape"] = list(plan.shape(variable))
        _replace(path / variable.name / METADATA, metadata)
    for variable in plan.variables():
        if variable.coordinate:
            array = zarr.open_array(str(path / variable.name), mode="r+")
            array[...] = plan.values(variable)
    document["attributes"] = _attributes(plan, attributes)
    _replace(path / METADATA, document)


def sweep_up(path: Path) -> None:
    """Remove files that killed writers left half written; nobody reads them, and they would add up.

    Parameters
    ----------
    path : Path
        The cube.
    """
    for left in path.glob("*/*.partial"):
        left.unlink(missing_ok=True)


def _attributes(plan: Plan, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Add what makes xarray see the coordinates that are no dimension."""
    extra = [v.name for v in plan.variables() if v.coordinate and v.dims != (v.name,)]
    return {"eigensweep_format": FORMAT, "coordinates": " ".join(extra), **attributes}


def _replace(path: Path, document: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
    temporary.replace(path)
