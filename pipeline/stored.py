"""A cube as it lies on disk, a study's or a packed one: read piece by piece, whatever state it is in."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.cube import METADATA, Plan, read_metadata
from eigensweep.pipeline.ensemble import Ensemble, Level
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.schema import Names, Signal, level_variables
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.study import CUBE, INPUTS, joined_ensemble
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.tiling import Region, chunk_name, fit, pieces

PACKED = "packed"
"""The attribute that a packed cube has and a study's has not."""


@dataclass(frozen=True)
class Broken:
    """A piece of an array that can't be read.

    Parameters
    ----------
    chunk : str
        The file it lies in, such as ``c.0.2.1.5``.
    region : tuple of slice
        What it covers.
    reason : str
        What the codecs said.
    """

    chunk: str
    region: Region
    reason: str


@dataclass(frozen=True)
class Stored:
    """A cube on disk, as it was published last.

    Parameters
    ----------
    path : Path
        The cube.
    folder : Path or None
        The study around it; None for a packed cube.
    document : mapping
        Its metadata.
    token : str
        Names the publication.
    sweeps : tuple of Sweep
        Those that it has seen, the last run last.
    ensemble : Ensemble
        The model, with every file that any of them names.
    """

    path: Path
    folder: Path | None
    document: Mapping[str, Any]
    token: str
    sweeps: tuple[Sweep, ...]
    ensemble: Ensemble

    @property
    def packed(self) -> bool:
        """Whether it was packed: sharded, sorted and never written again."""
        return PACKED in self.document["attributes"]

    @property
    def inputs(self) -> Path:
        """Where the files lie that its sweeps name."""
        return (self.folder or self.path) / INPUTS

    @property
    def sweep(self) -> Sweep:
        """The sweep that was run last."""
        return self.sweeps[-1]

    @property
    def signal(self) -> Signal:
        """Its signal dimension."""
        return self.sweep.signal

    @property
    def columns(self) -> bool:
        """Whether it keeps spectral columns."""
        return bool(self.sweep.record.columns)

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels that it holds."""
        return tuple(level for level in self.ensemble.levels if level.name in self.sweep.record.levels)

    @cached_property
    def group(self) -> zarr.Group:
        """Its arrays."""
        return zarr.open_group(str(self.path), mode="r", use_consolidated=True)

    def array(self, name: str) -> zarr.Array[Any]:
        """Open one of its arrays."""
        if name not in self._opened:
            array = self.group[name]
            assert isinstance(array, zarr.Array)
            self._opened[name] = array
        return self._opened[name]

    @cached_property
    def _opened(self) -> dict[str, zarr.Array[Any]]:
        return {}

    def roles(self, level: Level) -> dict[str, str]:
        """Names of a level's arrays, by role, in the order in which a reader is safe: the status first."""
        roles = [*level_variables(level, self.signal, self.columns)]
        return {role: Names(level)[role] for role in reversed(roles)}

    def shape(self, level: Level) -> tuple[int, ...]:
        """How many columns a level has room for along each of their dimensions."""
        return tuple(self.array(Names(level)["column_status"]).shape)

    def load(self, name: str, region: Region = ()) -> tuple[NDArray[Any], list[Broken]]:
        """Read a part of an array, whatever state it is in.

        Parameters
        ----------
        name : str
            The array.
        region : tuple of slice
            What to read along its first dimensions; the others are read whole.

        Returns
        -------
        values : array
            As an unwritten cell reads where nothing can be read.
        broken : list of Broken
            The chunks that can't be read.

        Raises
        ------
        StudyError
            If the filesystem refuses: that is no damage.
        """
        array = self.array(name)
        full = (*region, *(slice(0, size) for size in array.shape[len(region) :]))
        found, reason = _attempt(array, full)
        if found is not None:
            return found, []
        values = np.full([_length(part) for part in full], array.fill_value, dtype=array.dtype)
        broken = []
        for piece in pieces(full, array.chunks):
            found, reason = _attempt(array, piece)
            if found is None:
                broken.append(Broken(chunk_name(array, piece), piece, reason))
            else:
                values[tuple(_shifted(part, whole) for part, whole in zip(piece, full, strict=True))] = found
        return values, broken

    def take(self, name: str, places: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
        """Read an intact array at some places.

        Parameters
        ----------
        name : str
            The array.
        places : sequence of (n,) array of int
            Along each of its first dimensions, in any order; the others are read whole.

        Returns
        -------
        array
            Over the product of the places.

        Raises
        ------
        StudyError
            If a chunk can't be read.
        """
        array = self.array(name)
        try:
            key: Any = (*places, *(slice(None),) * (array.ndim - len(places)))
            return np.asarray(array.oindex[key])
        except Exception as error:
            raise StudyError(
                f"{self.folder or self.path}: {name} can't be read ({type(error).__name__}: {error}); "
                "eigensweep verify it"
            ) from error

    def tiles(self, level: Level, columns: int) -> Iterator[Region]:
        """Cut a level into regions of whole chunks.

        Parameters
        ----------
        level : Level
            The level.
        columns : int
            About how many columns a region holds; one chunk of the bookkeeping is the least.

        Yields
        ------
        tuple of slice
            Along the column's dimensions.
        """
        status = self.array(Names(level)["column_status"])
        tile = fit(status.shape, status.chunks, columns)
        yield from pieces(tuple(slice(0, size) for size in status.shape), tile)

    def layout(self, axes: Mapping[str, tuple[Value, ...]], signal_values: tuple[float, ...]) -> Layout:
        """Lay out its axes.

        Parameters
        ----------
        axes : mapping of str to tuple of Value
            Values of the ensemble's axes in storage order.
        signal_values : tuple of float
            Values of the signal in storage order.

        Returns
        -------
        Layout
            With the chunks that its arrays have.
        """
        names = Names(self.levels[0])
        status, pairs = self.array(names["column_status"]), self.array(names["eigenvalue"])
        largest = max(int(size) for size in next(iter(axes.values())))
        modes = [self.array(Names(level)["mode_value"]).shape[-1] for level in self.levels if self.columns]
        return Layout(
            axes=axes,
            signal=self.signal,
            signal_values=signal_values,
            replicates=status.shape[-1],
            run=status.chunks[-1],
            signal_chunk=pairs.chunks[-2],
            top=pairs.shape[-1],
            modes=max([largest, *modes]),
        )

    def plan(self, layout: Layout) -> Plan:
        """Say what it must hold."""
        return Plan(self.ensemble, layout, self.levels, self.columns)


def open_stored(study: str | Path) -> Stored:
    """Open a study's cube or a packed one, without reading any chunk.

    Parameters
    ----------
    study : str or Path
        A study, its ``cube.zarr``, or a packed cube.

    Returns
    -------
    Stored
        The cube.

    Raises
    ------
    StudyError
        If there is no cube of a known format.
    InputError
        If a file that its sweep names is missing or not the one that it was run with.
    """
    path = Path(study)
    if (path / CUBE).exists() or not (path / METADATA).exists():
        path = path / CUBE
    document, token = read_metadata(path)
    folder = None if PACKED in document["attributes"] else path.parent
    inputs = (folder or path) / INPUTS
    sweeps = tuple(Sweep.from_dict(e["sweep"], base=inputs) for e in document["attributes"]["sweeps"])
    names = [name for sweep in sweeps for name in sweep.inputs]
    return Stored(path, folder, document, token, sweeps, joined_ensemble(sweeps[-1], names, inputs))


def _attempt(array: zarr.Array[Any], region: Region) -> tuple[NDArray[Any] | None, str]:
    try:
        return np.asarray(array[region]), ""
    except OSError as error:
        if error.errno != errno.EIO:
            raise StudyError(f"{error.filename or array.name}: {error.strerror}; mend that first") from error
        return None, "the disk can't read it"
    except Exception as error:
        # Each codec has its own way to say that bytes make no sense, down to TypeError.
        return None, f"{type(error).__name__}: {error}".splitlines()[0]


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def _shifted(part: slice, whole: slice) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
