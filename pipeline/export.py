"""Exporting what is done: a tidy table as csv or parquet, or the whole cube as netCDF."""

from __future__ import annotations

import csv
import importlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import Fault, InputError, StudyError, nearest
from eigensweep.pipeline.schema import Names, coordinates
from eigensweep.pipeline.stored import Stored, open_stored
from eigensweep.pipeline.tiling import Region, fit, pieces
from eigensweep.pipeline.views import open_cube

if TYPE_CHECKING:
    import xarray as xr

NEEDS: dict[str, tuple[str, ...]] = {".csv": (), ".parquet": ("pyarrow",), ".nc": ("h5netcdf", "h5py")}
"""The kinds of file, by their ending, and the packages that each needs."""
CELLS = 1 << 16
"""Cells that are in memory at a time: a cell is one eigenvalue of one column at one signal strength."""
SLAB = 1 << 26
"""Bytes of an array that are in memory at a time on the way into netCDF."""

Rows = dict[str, NDArray[Any] | None]
"""Columns of a part of the table; None where a level lacks an axis."""


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Parameters
    ----------
    path : Path
        The file.
    rows : int
        Rows of the table; cells of the cube in netCDF.
    bytes : int
        Its size.
    """

    path: Path
    rows: int
    bytes: int


def export(study: str | Path, file: str | Path) -> Exported:
    """Write what is done in a cube into one file.

    Parameters
    ----------
    study : str or Path
        A study, its ``cube.zarr``, or a packed cube.
    file : str or Path
        Ends in ``.csv``, ``.parquet`` or ``.nc``. One of that name is replaced once all is written.

    Returns
    -------
    Exported
        The file, and how much it holds.

    Raises
    ------
    InputError
        If the ending is another one, the folder is not there, or a package is missing.
    StudyError
        If there is no cube, a chunk of it is damaged, or there is no room for the file.

    Notes
    -----
    The table has one row for every level, grid point, replicate, signal strength and ``top`` that is done,
    with ``eigenvalue``, ``overlap`` and every coordinate. A level that does not depend on an axis leaves it
    empty, and what the axis determines. Numbers are written so that they read back to the same bits.

    netCDF (version 4) holds the Dataset that :func:`~eigensweep.pipeline.open_cube` returns; its attributes
    that are no numbers or texts are written as JSON.
    """
    target = Path(file)
    _refuse(target)
    stored = open_stored(study)
    dataset = open_cube(study)
    write = {".csv": _write_csv, ".parquet": _write_parquet, ".nc": _write_netcdf}[target.suffix]
    with _beside(target) as temporary:
        rows = write(temporary, stored, dataset)
        size = temporary.stat().st_size
    return Exported(target, rows, size)


def _refuse(target: Path) -> None:
    if target.suffix not in NEEDS:
        reason = (
            f"the ending {target.suffix!r} names no kind of file" if target.suffix else "it has no ending"
        )
        raise InputError(Fault("FILE", str(target), reason, nearest(target.suffix, NEEDS)))
    if target.is_dir() or not target.absolute().parent.is_dir():
        reason = "it is a folder" if target.is_dir() else f"there is no folder {target.absolute().parent}"
        raise InputError(Fault("FILE", str(target), reason, "name a file in a folder that is there"))
    for package in NEEDS[target.suffix]:
        try:
            importlib.import_module(package)
        except ImportError:
            reason = f"{target.suffix} needs {package}, which is not installed"
            remedy = "pip install 'eigensweep[export]', or export csv"
            raise InputError(Fault("FILE", str(target), reason, remedy)) from None


def table(stored: Stored, dataset: xr.Dataset) -> Iterator[Rows]:
    """Lay a cube out as a tidy table, a part at a time.

    Parameters
    ----------
    stored : Stored
        Tells the levels.
    dataset : xarray.Dataset
        The cube, from :func:`~eigensweep.pipeline.open_cube`.

    Yields
    ------
    dict of str to array or None
        The table's columns, in their order.
    """
    for level in stored.levels:
        names, dims = Names(level), (*level.axes, "replicate", stored.signal, "top")
        sizes = [dataset.sizes[dim] for dim in dims]
        whole = tuple(slice(0, size) for size in sizes)
        for region in pieces(whole, fit(sizes, (1,) * len(dims), CELLS)):
            cut = dict(zip(dims, region, strict=True))
            with _reading(stored):
                value = dataset[names["eigenvalue"]].isel(cut).values
                overlap = dataset[names["overlap"]].isel(cut).values
            done = np.isfinite(value)
            if done.any():
                yield _rows(stored, dataset, level, region, done) | {
                    "eigenvalue": value[done],
                    "overlap": overlap[done],
                }


def columns(stored: Stored) -> list[str]:
    """Name the columns of the tidy table, in their order."""
    named = [variable.name for variable in coordinates(stored.ensemble, stored.signal)]
    return ["level", *named, "eigenvalue", "overlap"]


def _rows(stored: Stored, dataset: xr.Dataset, level: Level, region: Region, done: NDArray[np.bool_]) -> Rows:
    """Spell out the coordinates of the cells that are done."""
    dims = (*level.axes, "replicate", stored.signal, "top")
    places = {
        dim: found + part.start for dim, found, part in zip(dims, np.nonzero(done), region, strict=True)
    }
    rows: Rows = {"level": np.full(int(np.count_nonzero(done)), level.name, dtype=object)}
    for variable in coordinates(stored.ensemble, stored.signal):
        held = all(dim in places for dim in variable.dims)
        values = dataset[variable.name].values
        rows[variable.name] = values[tuple(places[dim] for dim in variable.dims)] if held else None
    return rows


def _write_csv(path: Path, stored: Stored, dataset: xr.Dataset) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns(stored))
        for rows in table(stored, dataset):
            size = len(rows["eigenvalue"] if rows["eigenvalue"] is not None else ())
            # Python writes a float with as many digits as tell it from every other.
            lists = [[""] * size if cells is None else cells.tolist() for cells in rows.values()]
            writer.writerows(zip(*lists, strict=True))
            count += size
    return count


def _write_parquet(path: Path, stored: Stored, dataset: xr.Dataset) -> int:
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    kinds = {"str": arrow.string(), "int64": arrow.int64(), "float64": arrow.float64()}
    types = {v.name: kinds[v.dtype] for v in coordinates(stored.ensemble, stored.signal)}
    types |= {"level": arrow.string(), "eigenvalue": arrow.float64(), "overlap": arrow.float64()}
    fields = []
    for name in columns(stored):
        notes = dataset[name].attrs if name in dataset.variables else {}
        fields.append(arrow.field(name, types[name], metadata={str(k): str(v) for k, v in notes.items()}))
    schema = arrow.schema(fields, metadata={"eigensweep": json.dumps(dataset.attrs)})
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in table(stored, dataset):
            size = len(rows["eigenvalue"] if rows["eigenvalue"] is not None else ())
            cells = [
                arrow.nulls(size, types[name])
                if rows[name] is None
                else arrow.array(_listed(rows[name]), types[name], from_pandas=False)
                for name in columns(stored)
            ]
            writer.write_table(arrow.Table.from_arrays(cells, schema=schema))
            count += size
    return count


def _write_netcdf(path: Path, stored: Stored, dataset: xr.Dataset) -> int:
    import dask

    # A part of an array at a time: a chunk for Dask is a run of the first axis.
    chunks = {}
    for name, array in dataset.data_vars.items():
        first = str(array.dims[0])
        width = array.dtype.itemsize * math.prod(array.shape[1:])
        chunks[name] = {first: max(1, SLAB // max(1, width))}
    plain = dataset.assign({name: dataset[name].chunk(chunk) for name, chunk in chunks.items()})
    for name in plain.coords:
        if plain[name].dtype.kind == "T":
            plain = plain.assign_coords({name: plain[name].astype(object)})
    plain.attrs = {key: _attribute(value) for key, value in dataset.attrs.items()}
    encoding = {name: {"zlib": True, "complevel": 1, "shuffle": True} for name in plain.data_vars}
    with _reading(stored), dask.config.set(scheduler="synchronous"):
        plain.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    return sum(dataset[Names(level)["eigenvalue"]].size for level in stored.levels)


def _listed(cells: NDArray[Any] | None) -> Any:
    assert cells is not None
    return cells if cells.dtype.kind in "if" else cells.tolist()


def _attribute(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else json.dumps(value)


@contextmanager
def _reading(stored: Stored) -> Iterator[None]:
    """Turn what codecs say of damaged bytes, each in its own way, into one error."""
    try:
        yield
    except (OSError, StudyError):
        raise
    except Exception as error:
        where = stored.folder or stored.path
        raise StudyError(
            f"{where}: a chunk can't be read ({type(error).__name__}: {error}); eigensweep verify it"
        ) from error


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Write a file beside its place, and rename it into it or leave nothing."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise StudyError(f"{target}: {error.strerror or error}; make room and export again") from error
    finally:
        temporary.unlink(missing_ok=True)
