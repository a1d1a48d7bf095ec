"""The sweep: what is asked, read from a sweep file and checked to the last combination."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from eigensweep.pipeline.ensemble import Ensemble
from eigensweep.pipeline.errors import Fault, InputError
from eigensweep.pipeline.grid import plain, shown
from eigensweep.pipeline.models import ENSEMBLES
from eigensweep.pipeline.reading import read_parts
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.sweepfile import Limits, Record, schema
from eigensweep.pipeline.tomlfile import key_lines, parse_toml, read_text


@dataclass(frozen=True)
class Sweep:
    """What is asked: a grid, replicates, a model and what to record of it.

    A checked, picklable value, every column of which can be sampled; :meth:`from_toml` and
    :meth:`from_dict` make it. Two ask for the same iff their digests agree.

    Parameters
    ----------
    name : str
        The study's folder, unless another is given.
    seed : int
        Every random number follows from it.
    ensemble : Ensemble
        The model.
    axes : dict of str to tuple
        Canonical values of each of the ensemble's axes, in its order; the values in the user's order
        without duplicates.
    signal : {"rho", "mu2"}
        The dimension along which the signal strength varies.
    signal_values : tuple of float
        Its values, ascending.
    replicate_counts : dict of int to int
        Number of replicates of each d.
    record : Record
        What is kept: ``levels``, ``top``, ``columns``.
    limits : Limits
        What a column may take: ``seconds_per_column``.
    files : dict of str to Path
        Files that the sweep names: where they were read, absolute.
    inputs : dict of str to str
        SHA-256 of their bytes.
    axes_in_model : frozenset of str
        Axes that stand below ``[model]``, where a list makes an option an axis.

    Examples
    --------
    >>> sweep = Sweep.from_dict({
    ...     "name": "transition",
    ...     "grid": {"d": [200, 400], "delta": 0.5, "gamma": [0.25, 1.0], "T": 16, "pooling": "mean",
    ...              "rho": {"start": 0.2, "stop": 4.0, "num": 77}, "replicates": {"200": 80, "400": 40}},
    ...     "model": {"ensemble": "attention-pooling", "correlation": {"kind": "prefix", "length": 8}},
    ... })
    >>> sweep.axes["gamma"], len(sweep.signal_values), sweep.replicates_of(400)
    ((0.25, 1.0), 77, 40)
    """

    name: str
    seed: int
    ensemble: Ensemble
    axes: dict[str, tuple[Value, ...]]
    signal: Literal["rho", "mu2"]
    signal_values: tuple[float, ...]
    replicate_counts: dict[int, int]
    record: Record
    limits: Limits
    files: dict[str, Path] = field(default_factory=dict, compare=False)
    inputs: dict[str, str] = field(default_factory=dict)
    axes_in_model: frozenset[str] = frozenset()

    @classmethod
    def from_toml(cls, path: str | Path) -> Sweep:
        """Read a sweep file.

        Parameters
        ----------
        path : str or Path
            The file. Other files that it names are looked for beside it.

        Returns
        -------
        Sweep
            The sweep.

        Raises
        ------
        InputError
            With everything that is wrong, each with its line where it has one.
        """
        place = Path(path)
        text = read_text(place)
        return cls(**read_parts(parse_toml(text, place), place.parent, key_lines(text)))

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], base: str | Path = ".") -> Sweep:
        """Make a sweep from a mapping laid out like a sweep file.

        Parameters
        ----------
        mapping : mapping
            The tables; numpy arrays, tuples and ranges stand for lists.
        base : str or Path
            Folder in which the files that it names are looked for.

        Returns
        -------
        Sweep
            The sweep.

        Raises
        ------
        InputError
            With everything that is wrong.
        """
        if not isinstance(mapping, Mapping):
            raise InputError(Fault("sweep", shown(mapping), "it is no mapping", "give a sweep file's tables"))
        return cls(**read_parts(plain(mapping), Path(base), {}))

    @property
    def replicates(self) -> int:
        """Largest number of replicates of any d."""
        return max(self.replicate_counts.values())

    def replicates_of(self, d: int) -> int:
        """Return the number of replicates of one d."""
        return self.replicate_counts[d]

    def to_dict(self) -> dict[str, Any]:
        """Lay the sweep out like a sweep file, every value canonical, every list expanded and sorted."""
        counts = {str(d): count for d, count in sorted(self.replicate_counts.items())}
        one = len(set(counts.values())) == 1
        grid: dict[str, Any] = {"replicates": self.replicates if one else counts}
        grid[self.signal] = list(self.signal_values)
        model = {**self.ensemble.options(), "ensemble": self.ensemble.name}
        for name, values in self.axes.items():
            table = model if name in self.axes_in_model else grid
            table[name] = sorted(values)
        tables = {
            "name": self.name,
            "seed": self.seed,
            "grid": grid,
            "model": model,
            "record": {**self.record.model_dump(), "levels": list(self.record.levels)},
            "limits": self.limits.model_dump(),
        }
        return {**tables, "inputs": dict(self.inputs)} if self.inputs else tables

    def to_json(self) -> str:
        """Write the sweep as canonical JSON, which :meth:`from_dict` reads back once it is parsed."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Describe the sweep file for editors, as JSON Schema."""
        return schema(ENSEMBLES)

    def contradictions(self, other: Sweep) -> list[Fault]:
        """Say why this sweep can't go on in the study of another.

        Seed, model, record, signal axis, the axes' names and the content of files must agree. Grid,
        replicates, limits and name may differ.

        Parameters
        ----------
        other : Sweep
            The study's.

        Returns
        -------
        list of Fault
            One for each key that differs.
        """
        mine, theirs = _pinned(self), _pinned(other)
        remedy = "keep the study's, or start another with --study"
        faults = []
        for key in sorted({*mine, *theirs}):
            # A file that only one of them names contradicts nothing.
            skip = key.startswith("inputs.") and not (key in mine and key in theirs)
            if skip or mine.get(key) == theirs.get(key):
                continue
            value = shown(mine[key]) if key in mine else ""
            reason = f"the study has {shown(theirs[key])}" if key in theirs else "the study has none"
            faults.append(Fault(key, value, reason, remedy))
        return faults


def _pinned(sweep: Sweep) -> dict[str, Any]:
    """Collect what a study holds fixed for ever, by dotted key."""
    pinned: dict[str, Any] = {"seed": sweep.seed, "grid": [*sweep.axes, sweep.signal]}
    pinned |= {f"model.{key}": value for key, value in sweep.ensemble.options().items()}
    pinned["model.ensemble"] = sweep.ensemble.name
    pinned |= {f"record.{key}": value for key, value in sweep.record.model_dump().items()}
    pinned["record.levels"] = list(sweep.record.levels)
    pinned |= {f"inputs.{name}": digest for name, digest in sweep.inputs.items()}
    return pinned
