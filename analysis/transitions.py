"""Where the transition is, at every point of a cube's grid, beside where theory puts it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eigensweep.analysis import continuation, crossing
from eigensweep.analysis import estimate as answers
from eigensweep.analysis.cube_parts import CubeLevel, levels_of
from eigensweep.analysis.cube_samples import samples_of, seed_of
from eigensweep.analysis.estimate import Estimate, refusal
from eigensweep.analysis.predictions import prediction_for
from eigensweep.analysis.samples import Gridded, Sample
from eigensweep.pipeline import seeds
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.redraws import DEFAULT

if TYPE_CHECKING:
    import xarray as xr

Estimator = Callable[[Sequence[Sample], np.random.Generator], Estimate]

METHODS: dict[str, Estimator] = {"continuation": continuation.estimate, "crossing": crossing.estimate}
"""Estimators by name. *continuation* is the one to trust: its intervals are calibrated and narrow.
*crossing* assumes less and says less: a check."""

_NUMBERS = {
    "threshold": "estimated signal strength at the transition",
    "low": "lower end of its 95% interval",
    "high": "upper end of its 95% interval",
    "theory": "theoretical threshold at the largest size's realised parameters",
    "z": "threshold minus theory, in standard errors",
}


def fit_transitions(
    cube: xr.Dataset,
    level: str | Iterable[str] | None = None,
    method: str = "continuation",
    *,
    redraws: int = DEFAULT,
) -> xr.Dataset:
    """Estimate the threshold rho_c at every point of a cube's grid.

    Parameters
    ----------
    cube : Dataset
        From `eigensweep.pipeline.open_cube`, or a part of it. Columns that are not done are left out.
    level : str or iterable of str, optional
        Levels to fit; all that the cube holds if not given.
    method : {"continuation", "crossing"}
        The estimator.
    redraws : int
        More directions u drawn for each stored column: 8 halve the overlap's variance. Give 0 for an
        ensemble whose u is not uniform and independent of its noise.

    Returns
    -------
    Dataset
        Over ``level`` and the grid's axes without size, signal and replicate: ``threshold``, the ends
        ``low`` and ``high`` of its 95% interval, ``theory``, ``z`` (threshold minus theory, in quarters of
        the interval), ``method``, ``status`` (see `eigensweep.analysis.estimate.STATUSES`) and ``message``,
        which says what to add to the sweep file. A level repeats its value along axes that it does not
        depend on. Where there is no number the status says why.

    Raises
    ------
    InputError
        If the method is unknown or the cube holds no level at all.
    """
    import xarray as xr

    if method not in METHODS:
        raise InputError(Fault("method", method, "there is no such estimator", nearest(method, METHODS)))
    held = {found.name: found for found in levels_of(cube)}
    wanted = list(held) if level is None else [level] if isinstance(level, str) else list(level)
    size = next(iter(held.values())).axes[0]
    axes = [name for name in max((h.axes for h in held.values()), key=len)[1:] if name in cube.dims]
    parts = [
        _fit_level(cube, held[name], axes, method, redraws)
        if name in held
        else _not_sampled(cube, name, axes, method)
        for name in wanted
    ]
    fits = xr.concat(parts, dim=xr.Variable("level", np.array(wanted, dtype=object)))
    for name, words in _NUMBERS.items():
        fits[name].attrs = {"long_name": words, "units": "1"}
    coordinates = {name: cube[name] for name in cube.coords if size not in cube[name].dims}
    kept = {name: c for name, c in coordinates.items() if set(c.dims) <= set(axes)}
    return fits.assign_coords(kept).assign_attrs(method=method, redraws=redraws)


def _fit_level(
    cube: xr.Dataset, level: CubeLevel, axes: Sequence[str], method: str, redraws: int
) -> xr.Dataset:
    """Fit every point of one level."""
    own = [name for name in level.axes[1:] if name in axes]
    answers_by_place: dict[tuple[int, ...], Estimate] = {}
    for place in itertools.product(*(range(cube.sizes[name]) for name in own)):
        part = cube.isel(dict(zip(own, place, strict=True)))
        other = [name for name in axes if name not in own]
        answers_by_place[place] = _fit_point(part.isel(dict.fromkeys(other, 0)), level, method, redraws)
    table = _table(cube, own, answers_by_place)
    table["theory"] = _theory(cube, level, own)
    error = (table["high"] - table["low"]) / 4.0
    table["z"] = (table["threshold"] - table["theory"]) / error
    return _spread(table, cube, axes)


def _fit_point(cube: xr.Dataset, level: CubeLevel, method: str, redraws: int) -> Estimate:
    samples, notes = samples_of(cube, level, redraws)
    identity: dict[str, Any] = {
        name: cube[name].item() for name in level.axes[1:] if name in cube.coords and cube[name].ndim == 0
    }
    rng = seeds.generator(seed_of(cube), "resample", {**identity, "level": level.name, "method": method})
    found = METHODS[method](samples, rng)
    if np.isnan(found.value) and any(isinstance(s, Gridded) and s.replicates for s in samples):
        notes.append(
            "no spectral columns were kept here: with columns = true under [record] any rho can be asked"
        )
    message = "; ".join([found.message, *notes])
    return Estimate(found.value, found.low, found.high, found.status, message, found.method, found.dimensions)


def _not_sampled(cube: xr.Dataset, name: str, axes: Sequence[str], method: str) -> xr.Dataset:
    words = f'the study does not record this level; add "{name}" to levels under [record] in a new study'
    table = _table(cube, [], {(): refusal(answers.NOT_SAMPLED, words, method)})
    table["theory"] = table["threshold"]
    table["z"] = table["threshold"]
    return _spread(table, cube, axes)


def _table(cube: xr.Dataset, axes: Sequence[str], found: Mapping[tuple[int, ...], Estimate]) -> xr.Dataset:
    import xarray as xr

    shape = tuple(cube.sizes[name] for name in axes)
    columns: dict[str, np.ndarray[Any, Any]] = {
        name: np.full(shape, np.nan) for name in ("threshold", "low", "high")
    }
    columns |= {name: np.empty(shape, dtype=object) for name in ("method", "status", "message")}
    for place, answer in found.items():
        for name, column in columns.items():
            column[place] = getattr(answer, "value" if name == "threshold" else name)
    return xr.Dataset({name: (tuple(axes), column) for name, column in columns.items()})


def _theory(cube: xr.Dataset, level: CubeLevel, axes: Sequence[str]) -> xr.DataArray:
    """Theoretical threshold over a level's axes, at the largest size; NaN for a model without theory."""
    import xarray as xr

    size = level.axes[0]
    largest = cube.isel({size: int(np.argmax(cube[size].values))}) if size in cube.dims else cube
    theory = prediction_for(largest)
    if theory is None or level.name not in theory.levels:
        return xr.DataArray(np.nan)
    return theory.threshold(level.name).reset_coords(drop=True).astype(np.float64)


def _spread(table: xr.Dataset, cube: xr.Dataset, axes: Sequence[str]) -> xr.Dataset:
    """Repeat a table along the axes that it lacks, in the grid's order."""
    table = table.drop_vars([name for name in table.coords if name not in axes])
    table = table.assign_coords({name: cube[name].values for name in axes})
    shape = {name: cube.sizes[name] for name in axes}
    return table.map(
        lambda column: column.expand_dims({n: s for n, s in shape.items() if n not in column.dims}).transpose(
            *axes
        )
    )
