"""Reading and writing whole blocks of a cube: the data first, the status last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from eigensweep.pipeline.blocks import Block, Layout, guard
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.schema import level_variables


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

    def whole(self, level: str, role: str) -> NDArray[Any]:
        """Load one array of a level, all of it."""
        return np.asarray(self._array(self._variables[level][role].name)[...])

    def _array(self, name: str) -> zarr.Array[Any]:
        array = self._group[name]
        assert isinstance(array, zarr.Array)
        return array


@lru_cache(maxsize=8)
def _open(path: str, token: str) -> zarr.Group:
    return zarr.open_group(path, mode="r+", use_consolidated=True)
