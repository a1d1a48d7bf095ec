"""A spiked Wigner model with axes of its own: what the pipeline must carry without knowing it.

Importable by Dask's worker processes, since ``tests`` is on pytest's ``pythonpath``.
"""

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_info

from eigensweep.pipeline import seeds
from eigensweep.pipeline.ensemble import Axis, Derived, Level, Work
from eigensweep.pipeline.errors import Fault
from eigensweep.pipeline.rankone import decompose

SOURCE = "Baik, Ben Arous and Peche, Ann. Probab. 33 (2005)"
FLAVOURS = ("plain", "sour", "very sweet (1.0)")

THREADS: list[int] = []
"""Threads of each pool of linear algebra, as the columns of this process saw them."""
ASKED: list[tuple[str, str, int]] = []
"""(level, flavour, replicate) of the columns that this process computed."""


def _whole(value):
    if int(value) != value or value < 1:
        raise ValueError("it is no size; write a whole number")
    return int(value)


def _positive(value):
    if not value > 0:
        raise ValueError("it is not positive; write one that is")
    return seeds.canonical(float(value))


def _flavour(value):
    if value not in FLAVOURS:
        raise ValueError("there is no such flavour; choose another")
    return str(value)


@dataclass(frozen=True)
class Wigner:
    """Noise of variance beta/n an entry, plus rho u u'.

    ``poison`` names (flavour, parity) whose replicates raise. With three levels there is the diagonal of
    the noise and what is left without it, whose names are each other's endings.
    """

    poison: tuple[tuple[str, int], ...] = ()
    three: bool = False

    name = "toy-wigner"
    source = SOURCE

    @property
    def axes(self):
        return (
            Axis("n", "int", "matrix size", _whole),
            Axis("beta", "float", "variance of the noise", _positive, default=1.0),
            Axis("flavour", "str", "what it tastes of", _flavour, default="plain"),
        )

    @property
    def levels(self):
        main = Level("wigner", "", "", ("n", "beta", "flavour"), SOURCE)
        if not self.three:
            return (main,)
        return (
            main,
            Level("diagonal", "diagonal_", "_diagonal", ("n", "flavour"), SOURCE),
            Level("off_diagonal", "off_diagonal_", "_off_diagonal", ("n", "beta"), SOURCE),
        )

    @property
    def derived(self):
        return (
            Derived("edge", ("beta",), "upper edge of the semicircle", "1", lambda p: 2 * p["beta"] ** 0.5),
            Derived("entries", ("n",), "matrix entries", "1", lambda p: p["n"] ** 2, "int"),
        )

    def options(self):
        return {"ensemble": self.name, "three": self.three}

    @property
    def gain_axes(self):
        return ("beta",)

    def gain(self, point):
        return float(point["beta"])

    def check(self, point):
        if point["n"] >= 2:
            return []
        return [Fault("grid.n", str(point["n"]), "it is too small", "write 2 or more")]

    def work(self, level, point):
        return Work(1e-9 * point["n"] ** 3 + 1e-3, 32.0 * point["n"] ** 2)

    def noise(self, level, point, seed, replicate):
        """Noise matrix and direction of a column."""
        n = int(point["n"])
        parameters = {key: value for key, value in point.items() if key in ("n", "beta", "flavour")}
        rng = seeds.generator(seed, level, {**parameters, "replicate": replicate})
        u = rng.standard_normal(n)
        square = rng.standard_normal((n, n))
        matrix = np.sqrt(float(point.get("beta", 1.0)) / n) * (square + square.T) / np.sqrt(2.0)
        if level == "diagonal":
            matrix = np.diag(np.diag(matrix))
        if level == "off_diagonal":
            matrix = matrix - np.diag(np.diag(matrix))
        return matrix, u / np.linalg.norm(u)

    def column(self, level, point, seed, replicate):
        THREADS.extend(pool["num_threads"] for pool in threadpool_info())
        flavour = str(point.get("flavour", ""))
        ASKED.append((level, flavour, replicate))
        if (flavour, replicate % 2) in self.poison:
            raise ArithmeticError(f"{flavour} is poisoned")
        matrix, u = self.noise(level, point, seed, replicate)
        return decompose(np.asfortranarray(matrix), u, np.zeros_like(u), 1.0)

    def explain(self, point, seed, replicate):
        matrix, u = self.noise("wigner", point, seed, replicate)
        return {"S": matrix + float(point["rho"]) * np.outer(u, u)}


def configure(options, files):
    """Make the ensemble of a ``[model]`` table."""
    return Wigner(three=bool(options.get("three", False)))


def poisoned(sweep, *poison):
    """Return a sweep some of whose columns raise."""
    return replace(sweep, ensemble=replace(sweep.ensemble, poison=poison))
