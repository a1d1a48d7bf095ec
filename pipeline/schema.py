"""The cube's variables: names, dimensions, types and what each means. Nothing here touches a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eigensweep.pipeline.ensemble import Ensemble, Level

MODE_CHUNK = 4096
"""Modes in a chunk: all of them in any column that one node decomposes whole."""

PENDING, DONE, FAILED, TIMED_OUT, WORKER_LOST, OUT_OF_MEMORY = range(6)
STATUS_NAMES = ("pending", "done", "failed", "timed out", "worker lost", "out of memory")
"""What the values of ``column_status`` mean, by their number."""

Signal = Literal["rho", "mu2"]

FAMILY_SOURCE = "rank-one family S(rho) = S0 + v v', v = h + sqrt(rho) a u"
LEGEND = "state of the column: " + ", ".join(f"{number} {name}" for number, name in enumerate(STATUS_NAMES))


@dataclass(frozen=True)
class Variable:
    """An array of the cube.

    Parameters
    ----------
    name : str
        Its name.
    dims : tuple of str
        Its dimensions.
    dtype : str
        numpy type, or ``"str"``.
    fill : float, int or str
        What an unwritten cell reads as.
    long_name, units, source : str
        Its documentation, kept as attributes.
    coordinate : bool
        Whether it is a coordinate.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    fill: float | int | str
    long_name: str
    units: str
    source: str
    coordinate: bool = False


@dataclass(frozen=True)
class Names:
    """The variables of one level, by role.

    Parameters
    ----------
    level : Level
        The level.
    """

    level: Level

    def __getitem__(self, role: str) -> str:
        if role == "seconds" or role.startswith("column_"):
            return f"{role}{self.level.suffix}"
        return f"{self.level.prefix}{role}"


BOOKKEEPING = ("column_digest", "column_rho_count", "seconds")
MODES = ("mode_value", "mode_signal", "mode_noise", "signal_amplitude")
PAIRS = ("eigenvalue", "overlap")


def level_variables(level: Level, signal: Signal, columns: bool) -> dict[str, Variable]:
    """List the arrays of one level, by role, in the order in which a block writes them.

    Parameters
    ----------
    level : Level
        The level.
    signal : {"rho", "mu2"}
        The study's signal dimension.
    columns : bool
        Whether spectral columns are kept.

    Returns
    -------
    dict of str to Variable
        Data first, then the bookkeeping, ``column_status`` last: a reader that sees "done" finds the rest.
    """
    names = Names(level)
    column = (*level.axes, "replicate")
    pair, mode = (*column, signal, "top"), (*column, "mode")
    nan, theory, family, note = float("nan"), level.source, FAMILY_SOURCE, "eigensweep's bookkeeping"
    rows: list[tuple[str, tuple[str, ...], str, float | int, str, str, str]] = [
        ("eigenvalue", pair, "float64", nan, "leading eigenvalues, descending", "kappa", theory),
        ("overlap", pair, "float64", nan, "squared overlaps of the eigenvectors with u", "1", theory),
    ]
    if columns:
        rows += [
            ("mode_value", mode, "float64", nan, "eigenvalues of S0, descending", "kappa", family),
            ("mode_signal", mode, "float64", nan, "projections of u on S0's eigenvectors", "1", family),
            ("mode_noise", mode, "float64", nan, "projections of h on them", "sqrt(kappa)", family),
            ("signal_amplitude", column, "float64", nan, "a of the family", "1", family),
        ]
    rows += [
        ("column_digest", column, "uint64", 0, "hash of coordinates and stored column", "1", note),
        ("column_rho_count", column, "uint32", 0, f"{signal} values filled, in storage order", "1", note),
        ("seconds", column, "float64", nan, "time per column", "s", note),
        ("column_status", column, "uint8", PENDING, LEGEND, "1", note),
    ]
    return {
        role: Variable(names[role], dims, dtype, fill, f"{words} ({level.name} level)", units, source)
        for role, dims, dtype, fill, words, units, source in rows
    }


def coordinates(ensemble: Ensemble, signal: Signal) -> list[Variable]:
    """List the cube's coordinates.

    Parameters
    ----------
    ensemble : Ensemble
        The model.
    signal : {"rho", "mu2"}
        The study's signal dimension; the other is a coordinate over it and what the gain depends on.

    Returns
    -------
    list of Variable
        The axes, replicate, the signal, ``top``, the ensemble's derived quantities and the other signal.
    """
    types: dict[str, tuple[str, float | int | str]] = {
        "int": ("int64", -1),
        "float": ("float64", float("nan")),
        "str": ("str", ""),
    }
    source = ensemble.source
    result = [
        Variable(axis.name, (axis.name,), *types[axis.kind], axis.long_name, axis.units, source, True)
        for axis in ensemble.axes
    ]
    nan = float("nan")
    words = {"rho": "signal strength, gain times mu2", "mu2": "squared norm of the signal"}
    result += [
        Variable("replicate", ("replicate",), "int64", -1, "Monte Carlo replicate", "1", source, True),
        Variable("top", ("top",), "int64", -1, "rank of the eigenvalue, 0 the largest", "1", source, True),
        Variable(signal, (signal,), "float64", nan, words[signal], "1", source, True),
    ]
    result += [
        Variable(item.name, item.dims, *types[item.kind], item.long_name, item.units, source, True)
        for item in ensemble.derived
    ]
    other = "mu2" if signal == "rho" else "rho"
    dims = (*ensemble.gain_axes, signal)
    result.append(Variable(other, dims, "float64", nan, words[other], "1", source, True))
    return result
