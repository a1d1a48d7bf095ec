"""Reading and writing whole blocks of a cube: the data first, the status last."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from eigensweep.pipeline.blocks import Block, Layout, guard
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.schema import level_variables

CHECK, BLOSC_HEADER = 4, 16
"""Bytes of a chunk's checksum, which comes last, and of what blosc says of itself, which comes first."""


class Chunks:
    """The arrays of a study's cube, for a process that reads and writes blocks.

    Parameters
    ----------
    path : Path
        The cube.
    token : str
        Names the publication of the cube's metadata that is meant: a process opens each only once.
    layout : Layout
        The axes as stored.
    levels : mapping of str to Level
        The recorded levels.
    columns : bool
        Whether spectral columns are kept.
    """

    def __init__(
        self, path: Path, token: str, layout: Layout, levels: Mapping[str, Level], columns: bool
    ) -> None:
        self._layout = layout
        self._path = path
        self._group = _open(str(path), token)
        self._variables = {
            name: level_variables(level, layout.signal, columns) for name, level in levels.items()
        }

    def write(self, block: Block, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Store a block.

        Parameters
        ----------
        block : Block
            Which; it must be whole chunks.
        arrays : mapping of str to array
            By role, the block's replicates first.

        Raises
        ------
        StudyError
            If the block is not whole chunks.
        """
        guard(block, self._layout)
        lead = (1,) * len(block.index)
        # The order of the schema: whoever sees a status sees the data that it speaks of.
        for role, variable in self._variables[block.level].items():
            array = arrays[role]
            self._array(variable.name)[block.selection] = array.reshape(lead + array.shape)

    def read(self, block: Block, roles: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
        """Load a block.

        Parameters
        ----------
        block : Block
            Which.
        roles : iterable of str, optional
            Which of its arrays; all if not given.

        Returns
        -------
        dict of str to array
            By role, the block's replicates first.
        """
        variables = self._variables[block.level]
        result = {}
        for role in variables if roles is None else roles:
            array = np.asarray(self._array(variables[role].name)[block.selection])
            result[role] = array.reshape(array.shape[len(block.index) :])
        return result

    def holds(self, block: Block) -> bool:
        """Say whether a block was stored, be it in part."""
        name = self._variables[block.level]["column_status"].name
        return (self._path / name / f"c.{block.key}").exists()

    def whole(self, level: str, role: str) -> NDArray[Any]:
        """Load one array of a level, all of it."""
        name = self._variables[level][role].name
        return read_whole(self._path / name, self._array(name))

    def _array(self, name: str) -> zarr.Array[Any]:
        array = self._group[name]
        assert isinstance(array, zarr.Array)
        return array


def read_whole(path: Path, array: zarr.Array[Any]) -> NDArray[Any]:
    """Load all of an array whose chunks are many and small, as states and counts are.

    Parameters
    ----------
    path : Path
        Its folder.
    array : zarr.Array
        The array.

    Returns
    -------
    array
        Of the array's shape; what is not there reads as its fill value.

    Notes
    -----
    zarr takes half a millisecond for each chunk, whatever its size, and a study has thousands. Chunks of
    numbers, compressed as this package does it, are decoded here in a tenth of that. Whatever is otherwise,
    damage included, is left to zarr, which says what it is.
    """
    ours = [BloscCodec, Crc32cCodec]
    if array.shards is None and array.dtype.kind in "iuf" and [type(c) for c in array.compressors] == ours:
        # Who installed another library for the checksum has one that only zarr knows.
        with contextlib.suppress(ValueError, OSError, RuntimeError, ImportError):
            return _decoded(path, array)
    return np.asarray(array[...])


def _decoded(path: Path, array: zarr.Array[Any]) -> NDArray[Any]:
    checksum = importlib.import_module("google_crc32c").value
    decompress = importlib.import_module("numcodecs.blosc").decompress
    found = np.full(array.shape, array.fill_value, dtype=array.dtype)
    stored, sizes, shape = array.dtype.newbyteorder("<"), array.chunks, array.shape
    with os.scandir(path) as entries:
        listed = [(entry.name, entry.path) for entry in entries]
    for name, file in listed:
        if not name.startswith("c.") or name.endswith(".partial"):
            continue
        first = [int(i) * size for i, size in zip(name[2:].split("."), sizes, strict=True)]
        if any(start >= size for start, size in zip(first, shape, strict=True)):
            # Written into a study that has grown since this array was opened.
            continue
        with open(file, "rb") as opened:  # noqa: PTH123 (Path would take as long again as all the rest)
            text = opened.read()
        body, check = text[:-CHECK], text[-CHECK:]
        if len(body) <= BLOSC_HEADER or int.from_bytes(check, "little") != checksum(body):
            raise ValueError(f"{file}: its checksum is another")
        chunk = np.frombuffer(decompress(body), stored).reshape(sizes)
        target = found[tuple(slice(start, start + n) for start, n in zip(first, sizes, strict=True))]
        target[...] = chunk[tuple(slice(0, size) for size in target.shape)]
    return found


@lru_cache(maxsize=8)
def _open(path: str, token: str) -> zarr.Group:
    return zarr.open_group(path, mode="r+", use_consolidated=True)
