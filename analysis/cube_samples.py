"""From a cube to what an estimator is given: the columns of each size that are done, at one point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis.cube_parts import CubeLevel, done
from eigensweep.analysis.samples import Columns, Gridded, Sample
from eigensweep.pipeline.redraws import directions

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

MOST_COMPANIONS = 3
GAP = 1.5
"""Above the bulk's edge a gap is 0.7 of the next two together; an outlier's is larger than this."""


def seed_of(cube: xr.Dataset) -> int:
    """Seed of the sweep that made a cube; 0 for a cube that does not tell."""
    sweeps = cube.attrs.get("sweeps") or [{}]
    return int(sweeps[-1].get("sweep", {}).get("seed", 0))


def samples_of(cube: xr.Dataset, level: CubeLevel, redraws: int) -> tuple[list[Sample], list[str]]:
    """Take the replicates of each size out of a cube at one point.

    Parameters
    ----------
    cube : Dataset
        A cube in which every parameter of the level but the size has one value.
    level : CubeLevel
        The level.
    redraws : int
        More directions u for each column.

    Returns
    -------
    samples : list of Sample
        One a size, without columns that are pending or failed: columns, or the sweep's own rho where the
        study keeps none.
    notes : list of str
        What is missing, for the user.
    """
    size = level.axes[0]
    samples: list[Sample] = []
    notes: list[str] = []
    whole = cube if size in cube.dims else cube.expand_dims(size)
    for place, dimension in enumerate(whole[size].values.tolist()):
        part = whole.isel({size: place})
        sample = _columns(part, level, int(dimension), redraws) or _gridded(part, level, int(dimension))
        asked = _asked(cube, int(dimension), int(cube.sizes.get("replicate", 1)))
        if sample.replicates < asked:
            missing = f"{asked - sample.replicates} of {asked}"
            notes.append(f"{missing} columns at {size} = {dimension} are pending or failed")
        samples.append(sample)
    columns = [s for s in samples if isinstance(s, Columns) and s.replicates]
    if columns:
        modes = companions(max(columns, key=lambda s: s.dimension).value)
        samples = [s.without(modes) if isinstance(s, Columns) and modes else s for s in samples]
    return samples, notes


def companions(value: Array) -> int:
    """Count the outliers that the noise has without any signal, such as that of a raw table's mean.

    Parameters
    ----------
    value : (n, d) array
        Eigenvalues of S0 of each replicate, descending.

    Returns
    -------
    int
        The last of the top three eigenvalues that stands apart from the next ones, in the median replicate.
    """
    if value.shape[1] < 4 * MOST_COMPANIONS:
        return 0
    lone = value[:, :MOST_COMPANIONS] - value[:, 1 : MOST_COMPANIONS + 1]
    next_two = value[:, 1 : MOST_COMPANIONS + 1] - value[:, 3 : MOST_COMPANIONS + 3]
    apart = np.flatnonzero(np.median(lone - GAP * next_two, axis=0) > 0.0)
    return int(apart[-1]) + 1 if apart.size else 0


def keeps_means(cube: xr.Dataset) -> bool:
    """Whether the table's class means stay in the noise, and with them a signal of the noise's own."""
    model = (cube.attrs.get("sweeps") or [{}])[-1].get("sweep", {}).get("model", {})
    table = cube["table"].item() if "table" in cube.coords else model.get("table")
    return table in ("centered", "raw")


def _asked(cube: xr.Dataset, dimension: int, most: int) -> int:
    """How many replicates of a size the study was asked for."""
    counts = []
    for entry in cube.attrs.get("sweeps") or []:
        asked = entry.get("sweep", {}).get("grid", {}).get("replicates", 0)
        counts.append(int(asked.get(str(dimension), 0)) if isinstance(asked, dict) else int(asked))
    return min(max(counts, default=most) or most, most)


def _columns(cube: xr.Dataset, level: CubeLevel, dimension: int, redraws: int) -> Columns | None:
    if f"{level.prefix}mode_value" not in cube:
        return None
    names = ("mode_value", "mode_signal", "mode_noise", "signal_amplitude")
    arrays = [_by_replicate(done(cube, level, name), level) for name in names]
    numbers = _numbers(cube)
    value, signal, noise = (array[:, :dimension] for array in arrays[:3])
    amplitude = arrays[3]
    whole = np.isfinite(amplitude)
    for modes in (value, signal, noise):
        whole &= np.isfinite(modes).all(axis=1)
    if not whole.any():
        return None
    value, signal, noise, amplitude = (part[whole] for part in (value, signal, noise, amplitude))
    seed = seed_of(cube)
    drawn = [
        np.concatenate([u[None], directions(seed, level.name, dimension, int(r), redraws)])
        for u, r in zip(signal, numbers[whole], strict=True)
    ]
    along = "update" if keeps_means(cube) else "signal"
    parts = [np.ascontiguousarray(part) for part in (value, noise)]
    return Columns(parts[0], np.array(drawn), parts[1], amplitude, along)


def _gridded(cube: xr.Dataset, level: CubeLevel, dimension: int) -> Gridded:
    """Make a sample of the sweep's own rho; of no replicate if nothing is done."""
    # Without columns the noise's own outlier can't be taken out: the overlaps of all kept pairs are summed.
    overlap = done(cube, level, "overlap")
    overlap = overlap.sum("top", skipna=False) if keeps_means(cube) else overlap.isel(top=0)
    signal = "rho" if "rho" in overlap.dims else "mu2"
    rho = np.asarray(cube["rho"].values, dtype=np.float64)
    table = _by_replicate(overlap, level, signal)
    if rho.ndim != 1:
        return Gridded(dimension, np.zeros(0), np.zeros((0, 0)))
    order = np.argsort(rho)
    # A column that lacks a rho, as after a growth that was cut short, is no replicate yet.
    table = table[np.isfinite(table).all(axis=1)][:, order]
    return Gridded(dimension, rho[order], table)


def _numbers(cube: xr.Dataset) -> NDArray[np.int64]:
    if "replicate" in cube.coords:
        return np.atleast_1d(np.asarray(cube["replicate"].values, dtype=np.int64))
    return np.arange(cube.sizes.get("replicate", 1), dtype=np.int64)


def _by_replicate(values: xr.DataArray, level: CubeLevel, last: str = "mode") -> Array:
    """Values with replicate first and at most one more dimension."""
    if level.axes[0] in values.dims:
        values = values.isel({level.axes[0]: 0})
    if "replicate" not in values.dims:
        values = values.expand_dims("replicate")
    order = ["replicate", *([last] if last in values.dims else [])]
    return np.asarray(values.transpose(*order).values, dtype=np.float64)
