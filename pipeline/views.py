"""The cube as a researcher opens it: sorted, masked by status, and at any rho."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import ArrayLike, NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from eigensweep.pipeline import cube as cubes
from eigensweep.pipeline.chunks import read_whole
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.rankone import Column
from eigensweep.pipeline.redraws import directions
from eigensweep.pipeline.schema import DONE
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.study import CUBE
from eigensweep.pipeline.sweep import Sweep

Array = NDArray[np.float64]


def open_cube(study: str | Path, *, chunks: Any = None) -> xr.Dataset:
    """Open a study's cube, also while it is being filled.

    Parameters
    ----------
    study : str or Path
        A study or its ``cube.zarr``.
    chunks : optional
        Passed to :meth:`xarray.Dataset.chunk`: ``{}`` or ``"auto"`` for Dask arrays. Without it values are
        read when they are used, and only those.

    Returns
    -------
    xarray.Dataset
        Every axis ascending. Cells that are not done read NaN, whatever lies on disk.

    Raises
    ------
    StudyError
        If there is no cube of a known format.

    Notes
    -----
    ``xarray.open_zarr`` opens it as well. This function adds the order and the mask; it reads the status
    before it hands out any data, so that a cell's data are never older than its status.
    """
    path = Path(study)
    path = path / CUBE if (path / CUBE).exists() or not (path / cubes.METADATA).exists() else path
    document, _ = cubes.read_metadata(path)
    group = zarr.open_group(str(path), mode="r", use_consolidated=True)
    metadata = document["consolidated_metadata"]["metadata"]
    states = _states(path, group, metadata)
    extra = set(document["attributes"]["coordinates"].split())
    variables: dict[str, xr.Variable] = {}
    for name, described in metadata.items():
        array = group[name]
        assert isinstance(array, zarr.Array)
        dims = tuple(described["dimension_names"])
        state = _state_of(name, dims, states)
        data: Any
        if name in extra or dims == (name,):
            data = np.asarray(array[...])
        elif name.startswith("column_"):
            data = states[name] if name in states else indexing.LazilyIndexedArray(_Stored(array, None, None))
        else:
            count = state[1] if "top" in dims else None
            data = indexing.LazilyIndexedArray(_Stored(array, state[0], count))
        variables[name] = xr.Variable(dims, data, described["attributes"])
    coordinates = {name: v for name, v in variables.items() if name in extra or v.dims == (name,)}
    data_vars = {name: v for name, v in variables.items() if name not in coordinates}
    attributes = {k: v for k, v in document["attributes"].items() if k != "coordinates"}
    dataset = _sorted(xr.Dataset(data_vars, coordinates, attributes))
    return dataset if chunks is None else dataset.chunk(chunks)


class _Stored(BackendArray):
    """An array on disk, read where it is indexed and masked by its columns' state."""

    def __init__(
        self, array: zarr.Array[Any], done: NDArray[np.bool_] | None, count: NDArray[np.uint32] | None
    ) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = np.dtype(array.dtype)
        self._done = done
        self._count = count

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        single = tuple(i for i, k in enumerate(key) if isinstance(k, (int, np.integer)))
        outer = tuple(slice(int(k), int(k) + 1) if i in single else k for i, k in enumerate(key))
        data = np.asarray(self.array.oindex[outer])
        if self._done is not None:
            places = [np.arange(size)[k] for size, k in zip(self.shape, outer, strict=True)]
            columns = self._done.ndim
            keep = self._done[np.ix_(*places[:columns])]
            keep = keep.reshape(keep.shape + (1,) * (data.ndim - columns))
            if self._count is not None:
                filled = self._count[np.ix_(*places[:columns])][..., None, None]
                keep = keep & (places[columns][:, None] < filled)
            data = np.where(keep, data, np.nan)
        return data.squeeze(axis=single) if single else data


def _states(path: Path, group: zarr.Group, metadata: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Load the states and counts of every level, before anything else is looked at."""
    names = [n for n in metadata if n.startswith(("column_status", "column_rho_count"))]
    # The status before the count, the reverse of how they are written: a column that is seen done is seen
    # with all its cells, and cells that are seen counted are there when the data is read.
    states = {}
    for name in sorted(names, reverse=True):
        array = group[name]
        assert isinstance(array, zarr.Array)
        states[name] = read_whole(path / name, array)
    return states


def _state_of(
    name: str, dims: Sequence[str], states: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.bool_] | None, NDArray[np.uint32] | None]:
    """Find what masks a variable: the state of the level whose prefix or suffix its name carries."""
    if "replicate" not in dims:
        return None, None
    suffixes = sorted(
        (s.removeprefix("column_status") for s in states if "status" in s), key=len, reverse=True
    )
    for suffix in suffixes:
        prefix = f"{suffix[1:]}_" if suffix else ""
        if name.startswith(prefix) or name.endswith(suffix):
            status = states[f"column_status{suffix}"]
            if status.ndim == list(dims).index("replicate") + 1:
                return status == DONE, states[f"column_rho_count{suffix}"]
    return None, None


def _sorted(dataset: xr.Dataset) -> xr.Dataset:
    orders = {}
    for name in dataset.dims:
        if name in dataset.coords:
            order = np.argsort(dataset[name].values, kind="stable")
            if not np.array_equal(order, np.arange(order.size)):
                orders[name] = order
    return dataset.isel(orders) if orders else dataset


def prefixes(cube: xr.Dataset) -> list[str]:
    """List the name prefixes of the levels whose spectral columns a cube holds: ``""`` is the sample."""
    return sorted(str(name).removesuffix("mode_value") for name in cube if str(name).endswith("mode_value"))


def cube_at(cube: xr.Dataset, rho: ArrayLike, *, top: int | None = None, redraws: int = 0) -> xr.Dataset:
    """Eigenvalues and overlaps at any rho, exactly, from the stored columns: nothing is sampled.

    Parameters
    ----------
    cube : xarray.Dataset
        From :func:`open_cube`; with Dask arrays the result is lazy.
    rho : (n,) array_like
        Signal strengths, non-negative.
    top : int, optional
        Leading eigenpairs; as many as the cube keeps if not given.
    redraws : int
        More directions u for each column, drawn from a stream of its own: eigenvalues and overlaps are then
        averages over the sampled u and these, of smaller variance. 8 is a good number, for an ensemble
        whose u is uniform and independent of its noise, as attention pooling's is.

    Returns
    -------
    xarray.Dataset
        ``eigenvalue`` and ``overlap`` of each level over its column's dimensions, ``rho`` and ``top``. NaN
        where the column is not done.

    Raises
    ------
    InputError
        If the cube keeps no columns, a rho is negative or not finite, or redraws are asked of a cube
        without its seed or its replicates' numbers.
    """
    strengths = _checked(rho)
    kept = int(cube.sizes.get("top", 1)) if top is None else top
    seed = _redraw_seed(cube) if redraws else 0
    result = {}
    for prefix in _with_columns(cube):

        def pairs(*parts: Any, level: str = prefix.rstrip("_") or "sample") -> Any:
            def one(column: Column, replicate: int) -> tuple[Array, Array]:
                drawn = directions(seed, level, column.dimension, replicate, redraws) if redraws else ()
                each = [column, *(replace(column, signal=u) for u in drawn)]
                found = [item.eigenpairs(strengths, kept) for item in each]
                values, overlaps = (
                    np.add.reduce(part, axis=0) / len(each) for part in zip(*found, strict=True)
                )
                return values, overlaps

            return _each(parts, one, (strengths.size, kept), 2)

        value, overlap = _over_columns(
            cube, prefix, pairs, [["rho", "top"]] * 2, {"rho": strengths.size, "top": kept}
        )
        for name, array in (("eigenvalue", value), ("overlap", overlap)):
            attributes = cube[prefix + name].attrs if prefix + name in cube else {}
            result[prefix + name] = array.assign_attrs(attributes)
    return _labelled(cube, result, rho=strengths, top=np.arange(kept))


def spectrum_at(cube: xr.Dataset, rho: ArrayLike) -> xr.Dataset:
    """All eigenvalues at any rho, exactly, from the stored columns.

    Parameters
    ----------
    cube : xarray.Dataset
        From :func:`open_cube`.
    rho : (n,) array_like
        Signal strengths, non-negative.

    Returns
    -------
    xarray.Dataset
        ``eigenvalue`` of each level over its column's dimensions, ``rho`` and ``mode``, descending, in
        units of kappa; NaN beyond d and where the column is not done.

    Raises
    ------
    InputError
        If the cube keeps no columns, or a rho is negative or not finite.
    """
    strengths = _checked(rho)
    result = {}
    for prefix in _with_columns(cube):
        modes = int(cube.sizes["mode"])

        def values(*parts: Any, modes: int = modes) -> Any:
            return _each(
                parts, lambda column, _: column.eigenpairs(strengths, modes), (strengths.size, modes), 1
            )

        (value,) = _over_columns(
            cube, prefix, values, [["rho", "mode"]], {"rho": strengths.size, "mode": modes}
        )
        words = f"all eigenvalues, descending ({prefix.rstrip('_') or 'sample'} level)"
        result[f"{prefix}eigenvalue"] = value.assign_attrs(long_name=words, units="kappa")
    return _labelled(cube, result, rho=strengths)


def sample_column(
    sweep: Sweep, *, replicate: int = 0, rho: float | None = None, **parameters: Value
) -> dict[str, NDArray[np.generic]]:
    """Sample one column again and return what it is made of, to look into.

    Parameters
    ----------
    sweep : Sweep
        The sweep that the column belongs to: its model and its seed.
    replicate : int
        The replicate.
    rho : float, optional
        The signal strength at which the matrices are formed; the sweep's largest if not given.
    **parameters
        A value for each axis; an axis with one value in the sweep may be left out.

    Returns
    -------
    dict of str to array
        For attention pooling: the table ``E`` (d, V), ``tokens`` and ``signs`` (N, T), weights ``w`` (T,),
        pooled vectors ``C`` (N, d), the sample covariance ``S`` (d, d) not divided by kappa, ``mu`` (d,).

    Raises
    ------
    InputError
        If a parameter is missing, unknown or outside its domain.
    """
    point = resolve_point(sweep, parameters)
    if rho is None:
        largest = sweep.signal_values[-1]
        rho = largest if sweep.signal == "rho" else sweep.ensemble.gain(point) * largest
    return sweep.ensemble.explain({**point, "rho": float(_checked(rho)[0])}, sweep.seed, replicate)


def resolve_point(sweep: Sweep, parameters: Mapping[str, Any]) -> dict[str, Value]:
    """Turn what a user names into a point of the ensemble's grid.

    Parameters
    ----------
    sweep : Sweep
        Supplies the ensemble, and the value of an axis that has only one.
    parameters : mapping
        Values as a user writes them.

    Returns
    -------
    dict of str to Value
        Canonical values of every axis, in order. They need not lie on the sweep's grid.

    Raises
    ------
    InputError
        With everything that is missing, unknown or outside its domain.
    """
    axes = {axis.name: axis for axis in sweep.ensemble.axes}
    faults = [
        Fault(name, repr(value), "the ensemble has no such axis", nearest(name, axes))
        for name, value in parameters.items()
        if name not in axes
    ]
    point: dict[str, Value] = {}
    for name, axis in axes.items():
        try:
            if name in parameters:
                point[name] = axis.parse(parameters[name])
            elif len(sweep.axes[name]) == 1:
                point[name] = sweep.axes[name][0]
            else:
                values = ", ".join(map(str, sweep.axes[name][:6]))
                faults.append(
                    Fault(name, "", "it is missing and the sweep has several", f"choose among: {values}")
                )
        except ValueError as error:
            reason, _, remedy = str(error).partition("; ")
            faults.append(Fault(name, repr(parameters[name]), reason, remedy))
    faults = faults or sweep.ensemble.check(point)
    if faults:
        raise InputError(faults)
    return point


def _checked(rho: ArrayLike) -> Array:
    values = np.atleast_1d(np.asarray(rho, dtype=np.float64))
    bad = ~(np.isfinite(values) & (values >= 0.0))
    if values.ndim != 1 or bad.any():
        shown = str(values[bad][0]) if bad.any() else f"an array of shape {values.shape}"
        reason = "a signal strength is a finite number of at least 0"
        raise InputError(Fault("rho", shown, reason, "give a one-dimensional array of such"))
    return values


def _redraw_seed(cube: xr.Dataset) -> int:
    sweeps = cube.attrs.get("sweeps")
    if sweeps and "replicate" in cube.coords:
        return int(sweeps[-1]["sweep"]["seed"])
    reason = "redraws need the study's seed and the numbers of its replicates"
    remedy = "keep the attributes and the coordinate replicate that open_cube gives, or leave redraws out"
    raise InputError(Fault("cube", "", reason, remedy))


def _with_columns(cube: xr.Dataset) -> list[str]:
    found = prefixes(cube)
    if not found:
        raise InputError(
            Fault(
                "cube",
                "",
                "it keeps no spectral columns",
                "set columns = true under [record] and run the sweep anew",
            )
        )
    return found


def _over_columns(
    cube: xr.Dataset, prefix: str, function: Any, core: list[list[str]], sizes: dict[str, int]
) -> tuple[xr.DataArray, ...]:
    modes = [cube[f"{prefix}mode_{role}"] for role in ("value", "signal", "noise")]
    if modes[0].chunks is not None:
        modes = [mode.chunk(mode=-1) for mode in modes]
    found = xr.apply_ufunc(
        function,
        *modes,
        cube[f"{prefix}signal_amplitude"],
        cube["replicate"] if "replicate" in cube.coords else 0,
        input_core_dims=[["mode"]] * 3 + [[], []],
        output_core_dims=core,
        exclude_dims={"mode"},
        dask="parallelized",
        output_dtypes=[np.float64] * len(core),
        dask_gufunc_kwargs={"output_sizes": sizes},
    )
    return found if isinstance(found, tuple) else (found,)


def _each(parts: Sequence[Array], function: Any, shape: tuple[int, int], keep: int) -> Any:
    """Apply a function of a column and its replicate to every column of some stacked arrays."""
    value, signal, noise, amplitude, replicate = (np.asarray(part) for part in parts)
    lead = amplitude.shape
    replicates = np.broadcast_to(replicate, lead).ravel()
    results = [np.full((amplitude.size, *shape), np.nan) for _ in range(keep)]
    flat = [part.reshape(-1, value.shape[-1]) for part in (value, signal, noise)]
    for row, a in enumerate(amplitude.ravel()):
        size = int(np.count_nonzero(np.isfinite(flat[0][row])))
        if np.isfinite(a) and size:
            modes = [np.ascontiguousarray(part[row, :size]) for part in flat]
            column = Column(modes[0], modes[1], modes[2], float(a))
            for result, found in zip(results, function(column, int(replicates[row])), strict=False):
                result[row] = found
    stacked = tuple(result.reshape(*lead, *shape) for result in results)
    return stacked if keep > 1 else stacked[0]


def _labelled(cube: xr.Dataset, arrays: Mapping[str, xr.DataArray], **axes: NDArray[Any]) -> xr.Dataset:
    result = xr.Dataset(dict(arrays)).assign_coords({name: (name, values) for name, values in axes.items()})
    for name in axes:
        if name in cube.coords and cube[name].dims == (name,):
            result[name].attrs.update(cube[name].attrs)
    return result.assign_attrs(cube.attrs)
