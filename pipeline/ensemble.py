"""What a model must tell so that it can be swept: its axes, its levels and how a column is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline.errors import Fault
from eigensweep.pipeline.rankone import Column
from eigensweep.pipeline.seeds import Value

Point = Mapping[str, Value]
"""One point of the grid without its rho: a canonical value for each axis that is in force."""


@dataclass(frozen=True)
class Axis:
    """A parameter of an ensemble that a sweep can vary.

    Parameters
    ----------
    name : str
        Its name in the sweep file and in the cube.
    kind : {"int", "float", "str"}
        What its coordinates are.
    long_name : str
        What it is, in words.
    parse : callable
        Turns what a sweep file says into the canonical value; raises ValueError with a text of the form
        ``"reason; remedy"``.
    default : Value, optional
        Where the grid does not name the axis. None: the grid must name it.
    units : str
        Its units.
    """

    name: str
    kind: Literal["int", "float", "str"]
    long_name: str
    parse: Callable[[Any], Value]
    default: Value | None = None
    units: str = "1"


@dataclass(frozen=True)
class Level:
    """A matrix of the model whose spectrum is kept, and the axes that it depends on.

    Parameters
    ----------
    name : str
        Its name in ``record.levels``.
    prefix : str
        Put before its variables' names in the cube: ``"population_"``; empty for the main level.
    suffix : str
        Put behind its bookkeeping variables' names: ``"_population"``; empty for the main level.
    axes : tuple of str
        The axes that it depends on, d first, in the ensemble's order.
    source : str
        Where its definition and theory are published.
    """

    name: str
    prefix: str
    suffix: str
    axes: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Derived:
    """A quantity that some axes determine, kept beside them as a coordinate.

    Parameters
    ----------
    name : str
        Its name in the cube.
    dims : tuple of str
        The axes that determine it, in the ensemble's order.
    long_name, units : str
        What it is and in which units.
    compute : callable
        From a point that holds those axes to the number.
    kind : {"float", "int"}
        What the numbers are.
    """

    name: str
    dims: tuple[str, ...]
    long_name: str
    units: str
    compute: Callable[[Point], float]
    kind: Literal["int", "float"] = "float"


@dataclass(frozen=True)
class Work:
    """What a column asks of the machine.

    Parameters
    ----------
    seconds : float
        CPU time on a recent x86-64 core; only ratios are relied on.
    bytes : float
        Peak memory in bytes.
    """

    seconds: float
    bytes: float


@runtime_checkable
class Ensemble(Protocol):
    """A spiked random-matrix model, as the sweep sees it.

    An ensemble only samples; what theory predicts for it lives in ``eigensweep.analysis``. It is a
    picklable value: workers receive it whole.
    """

    @property
    def name(self) -> str:
        """Name in ``model.ensemble``."""

    @property
    def source(self) -> str:
        """Where the model is published."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Parameter axes in storage order, d first. Without rho and replicate."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels that can be recorded."""

    @property
    def derived(self) -> tuple[Derived, ...]:
        """Coordinates that the axes determine."""

    def options(self) -> dict[str, Any]:
        """Model options as JSON values, canonical: two ensembles are the same iff these are."""

    @property
    def gain_axes(self) -> tuple[str, ...]:
        """Axes that the gain depends on, in their order."""

    def gain(self, point: Point) -> float:
        """Signal per unit of squared signal norm: ``rho = gain * mu2``."""

    def check(self, point: Point) -> list[Fault]:
        """Say why a point can't be sampled; empty if it can. Cheap: called for the whole product."""

    def work(self, level: str, point: Point) -> Work:
        """Projected cost of one column."""

    def column(self, level: str, point: Point, seed: int, replicate: int) -> Column:
        """Sample one column: the spectral column of ``level`` at ``point`` for one replicate."""

    def explain(self, point: Point, seed: int, replicate: int) -> dict[str, NDArray[np.generic]]:
        """Sample one column and return what it is made of, for a human to look into."""
