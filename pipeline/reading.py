"""Reading: the parts of a sweep from the tables of a sweep file, with everything that is wrong in them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.ensemble import Ensemble
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.grid import LARGEST, check_points, fault, read_values, shown
from eigensweep.pipeline.inputs import named_files, read_input
from eigensweep.pipeline.models import ENSEMBLES
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.sweepfile import TABLES, Grid, Header, Limits, Model, Record, missing, validate
from eigensweep.pipeline.terms import whole
from eigensweep.pipeline.tomlfile import line_of

SIGNALS = ("rho", "mu2")
"""Names that the signal axis may have."""

_RANK = {name: rank for rank, name in enumerate(TABLES)}


def read_parts(mapping: Mapping[str, Any], base: Path, lines: Mapping[str, int]) -> dict[str, Any]:
    """Read the parts of a sweep and check them together.

    Parameters
    ----------
    mapping : mapping
        The tables of a sweep file, with Python's own lists and numbers.
    base : Path
        Folder of the files that it names.
    lines : mapping of str to int
        Lines of its keys, for messages.

    Returns
    -------
    dict
        The fields of :class:`eigensweep.pipeline.sweep.Sweep`.

    Raises
    ------
    InputError
        With everything that is wrong.
    """
    reading = _Reading(mapping, base)
    parts = reading.parts()
    if not reading.faults:
        return parts
    faults = [replace(one, line=line_of(lines, one.thing)) for one in dict.fromkeys(reading.faults)]
    combined = set(reading.combined)

    def order(one: Fault) -> tuple[bool, int, int]:
        # The file's order, but combinations come last, since they belong to several lines.
        table = one.thing.partition(".")[0]
        return replace(one, line=None) in combined, one.line or 0, _RANK.get(table, -1)

    raise InputError(sorted(faults, key=order))


class _Reading:
    """Goes through the tables, collects faults, and goes on with what is sound."""

    def __init__(self, mapping: Mapping[str, Any], base: Path) -> None:
        self.base = base
        self.faults: list[Fault] = []
        self.combined: list[Fault] = []
        self.unread: set[str] = set()
        self.substituted = False
        self.raw: dict[str, Any] = {name: mapping.get(name, {}) for name in TABLES}
        self.faults += [missing(name) for name in ("grid", "model") if name not in mapping]
        keys = {key: value for key, value in mapping.items() if key not in TABLES}
        self.header = self._validated(Header, keys, "")
        forms = {"grid": Grid, "model": Model, "record": Record, "limits": Limits}
        self.tables: dict[str, Any] = {}
        for name, form in forms.items():
            if name in mapping or form in (Record, Limits):
                self.tables[name] = self._validated(form, self.raw[name], name)
        self.grid, self.model = (
            self.raw[name] if isinstance(self.raw[name], Mapping) else {} for name in ("grid", "model")
        )

    def _validated(self, form: Any, table: Any, thing: str) -> Any:
        found, faults = validate(form, table, thing)
        self.faults += faults
        return found

    def parts(self) -> dict[str, Any]:
        files, digests, arrays = self._inputs()
        ensemble = self._ensemble(arrays)
        axes, in_model = self._axes(ensemble) if ensemble else ({}, frozenset())
        signal, values = self._signal()
        counts = self._replicates(ensemble, axes)
        record = self._record(ensemble)
        sound = {name: [value for value in axes[name] if not self._spoilt(value)] for name in axes}
        if ensemble and not self._spoilt(self.model) and not self.substituted and all(sound.values()):
            self.combined = check_points(ensemble, sound)
            self.faults += self.combined
        return {
            "name": self.header.name if self.header else "",
            "seed": self.header.seed if self.header else 0,
            "ensemble": ensemble,
            "axes": axes,
            "signal": signal,
            "signal_values": values,
            "replicate_counts": counts,
            "record": record,
            "limits": self.tables.get("limits"),
            "files": files,
            "inputs": digests,
            "axes_in_model": in_model,
        }

    def _inputs(self) -> tuple[dict[str, Path], dict[str, str], dict[str, NDArray[np.generic]]]:
        named = [*named_files(self.grid, "grid"), *named_files(self.model, "model")]
        files: dict[str, Path] = {}
        digests: dict[str, str] = {}
        arrays: dict[str, NDArray[np.generic]] = {}
        for thing, name in named:
            if name in arrays:
                continue
            try:
                found = read_input(name, self.base)
                files[name], digests[name], arrays[name] = found.path, found.digest, found.array
            except ValueError as error:
                self.faults.append(fault(thing, name, error))
                # An empty array stands in, so that its name is known and not refused once more.
                arrays[name] = np.zeros(0)
                self.unread.add(name)
        self._pins({name: digests.get(name) for name in arrays})
        return files, dict(sorted(digests.items())), arrays

    def _spoilt(self, value: Any) -> bool:
        """Whether a value names a file that couldn't be read."""
        return bool(self.unread) and any(name in self.unread for _, name in named_files(value, ""))

    def _pins(self, digests: Mapping[str, str | None]) -> None:
        pins = self.raw["inputs"]
        if not isinstance(pins, Mapping):
            self.faults.append(
                Fault("inputs", shown(pins), "it is a value where a table belongs", "remove it")
            )
            return
        for name, pin in pins.items():
            if name not in digests:
                reason = "the sweep names no such file"
                self.faults.append(Fault(f"inputs.{name}", shown(pin), reason, "remove it"))
            elif digests[name] not in (None, pin):
                reason = f"the file's SHA-256 is {digests[name]}"
                self.faults.append(
                    Fault(f"inputs.{name}", shown(pin), reason, "restore the file of that digest")
                )

    def _ensemble(self, arrays: Mapping[str, NDArray[np.generic]]) -> Ensemble | None:
        form = self.tables.get("model")
        if form is None:
            return None
        if form.ensemble not in ENSEMBLES:
            remedy = nearest(form.ensemble, ENSEMBLES)
            self.faults.append(
                Fault("model.ensemble", shown(form.ensemble), "there is no such ensemble", remedy)
            )
            return None
        try:
            return ENSEMBLES[form.ensemble](self.model, arrays)
        except InputError as error:
            self.faults += error.faults
            self.substituted = True
            wrong = {one.thing for one in error.faults}
        # Without the options that are wrong the axes may be known still, and the grid can be read.
        sound = {key: value for key, value in self.model.items() if f"model.{key}" not in wrong}
        with contextlib.suppress(InputError):
            return ENSEMBLES[form.ensemble](sound, arrays)
        return None

    def _axes(self, ensemble: Ensemble) -> tuple[dict[str, tuple[Value, ...]], frozenset[str]]:
        axes: dict[str, tuple[Value, ...]] = {}
        in_model: set[str] = set()
        for axis in ensemble.axes:
            thing, raw = f"grid.{axis.name}", self.grid.get(axis.name)
            if axis.name not in self.grid and isinstance(self.model.get(axis.name), list):
                thing, raw = f"model.{axis.name}", self.model[axis.name]
                in_model.add(axis.name)
            elif axis.name not in self.grid:
                if axis.default is None:
                    remedy = f"add {axis.name}, the {axis.long_name}"
                    self.faults.append(Fault(thing, "", "it is missing", remedy))
                axes[axis.name] = () if axis.default is None else (axis.default,)
                continue
            axes[axis.name], faults = read_values(thing, raw, axis.parse, axis.kind)
            self.faults += faults
        for key in self.grid:
            if key not in axes and key not in (*SIGNALS, "replicates"):
                remedy = nearest(str(key), (*axes, *SIGNALS, "replicates"))
                if key in ensemble.options():
                    remedy = "write it below [model], where a list makes it an axis"
                self.faults.append(
                    Fault(f"grid.{key}", shown(self.grid[key]), "there is no such axis", remedy)
                )
        return axes, frozenset(in_model)

    def _signal(self) -> tuple[str, tuple[float, ...]]:
        given = [name for name in SIGNALS if name in self.grid]
        if len(given) == 2:
            remedy = "keep rho, the signal of each pooling, or mu2, one signal norm for all"
            value = shown(self.grid["mu2"])
            self.faults.append(Fault("grid.mu2", value, "it is given together with rho", remedy))
        if not given and "grid" in self.tables:
            self.faults.append(
                Fault("grid.rho", "", "it is missing", "add rho or mu2, the signal's strengths")
            )
        values: tuple[Value, ...] = ()
        for name in given:
            values, faults = read_values(f"grid.{name}", self.grid[name], _strength, "float")
            self.faults += faults
        return (given or ["rho"])[0], tuple(sorted(float(value) for value in values))

    def _replicates(self, ensemble: Ensemble | None, axes: Mapping[str, Any]) -> dict[int, int]:
        thing, raw = "grid.replicates", self.grid.get("replicates")
        sizes = axes.get(ensemble.axes[0].name, ()) if ensemble else ()
        if "replicates" not in self.grid:
            return {}
        if not isinstance(raw, Mapping):
            return dict.fromkeys(sizes, self._count(thing, raw))
        counts: dict[int, int] = {}
        for key, value in raw.items():
            try:
                counts[whole(str(key))] = self._count(f"{thing}.{key}", value)
            except ValueError:
                reason = "its key is no size d"
                self.faults.append(
                    Fault(f"{thing}.{key}", shown(value), reason, "write { 200 = 50 } for d = 200")
                )
        name = ensemble.axes[0].name if ensemble else "d"
        for size in sizes:
            if size not in counts:
                reason = f"it has no entry for {name} = {size}"
                self.faults.append(Fault(thing, shown(raw), reason, f"add {size} = a number of replicates"))
        for size in counts:
            if sizes and size not in sizes:
                reason = f"{name} = {size} is not in the grid"
                self.faults.append(
                    Fault(f"{thing}.{size}", str(counts[size]), reason, f"remove it or add {name}")
                )
        return {size: counts.get(size, 1) for size in sizes}

    def _count(self, thing: str, raw: Any) -> int:
        sound = isinstance(raw, int) and not isinstance(raw, bool) and 1 <= raw <= LARGEST
        if not sound:
            reason = f"it is not a whole number from 1 to {LARGEST}"
            self.faults.append(Fault(thing, shown(raw), reason, "write how many replicates to draw"))
        return raw if sound else 1

    def _record(self, ensemble: Ensemble | None) -> Record | None:
        record: Record | None = self.tables.get("record")
        table = self.raw["record"] if isinstance(self.raw["record"], Mapping) else {}
        asked = table.get("levels")
        if ensemble is None or not isinstance(asked, (list, type(None))):
            return record
        names = [level.name for level in ensemble.levels]
        for name in asked or ():
            if isinstance(name, str) and name not in names:
                remedy = nearest(name, names)
                self.faults.append(Fault("record.levels", shown(name), "there is no such level", remedy))
        if asked == []:
            self.faults.append(Fault("record.levels", "[]", "it is empty", "name at least one level"))
        kept = tuple(name for name in names if asked is None or name in asked)
        return record.model_copy(update={"levels": kept}) if record else None


def _strength(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it is not a number; write one of at least 0")
    if value < 0:
        raise ValueError("it is negative; write 0 or more, for the signal is a squared length")
    return float(value)
