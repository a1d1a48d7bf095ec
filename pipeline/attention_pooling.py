"""The model of arXiv:2605.06826: attention pooling of tokens from a fixed two-class embedding table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from eigensweep.pipeline import counts, seeds
from eigensweep.pipeline.ensemble import Axis, Derived, Level, Point, Work
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.pooling import Scales, check_pooling, parse_pooling, scales
from eigensweep.pipeline.rankone import Column, decompose
from eigensweep.pipeline.seeds import Value
from eigensweep.pipeline.signs import Signs, parse_signs
from eigensweep.pipeline.table import KINDS, Table, sample_table

Array = NDArray[np.float64]

SHARED_BYTES = 1 << 26
"""Tables and sequences up to this size are kept for the next column that needs the same."""


@dataclass(frozen=True)
class Sequences:
    """The sequences of one replicate.

    Parameters
    ----------
    signs : (N, T) array of int8
        Latent signs xi.
    tokens : (N, T) array of int32
        Token of each position, drawn uniformly from the class that its sign names.
    """

    signs: NDArray[np.int8]
    tokens: NDArray[np.int32]


@dataclass(frozen=True)
class AttentionPooling:
    """Sequences of tokens from a two-class table, pooled by fixed weights into N vectors of size d.

    Parameters
    ----------
    tables : tuple of str
        Kinds of table; several make ``table`` an axis.
    correlations : tuple of str
        Canonical terms of sign distributions; several make ``correlation`` an axis.
    axes_named : frozenset of {"table", "correlation"}
        Which of the two are axes.
    files : mapping of str to array
        The arrays of files that poolings and correlations name.

    Notes
    -----
    The sample level is ``S/kappa`` with ``S = (1/N) sum_n c_n c_n'``; the population level is its
    expectation given the table, ``W + (alpha/kappa)(mu + g)(mu + g)' + ((1'w)^2/kappa) m m'`` with W the
    mean within-class covariance (Seddik, arXiv:2605.06826, Section 2; exact for class means g and m).
    """

    tables: tuple[str, ...]
    correlations: tuple[str, ...]
    axes_named: frozenset[str] = frozenset()
    files: Mapping[str, NDArray[np.generic]] = field(default_factory=dict, compare=False)

    name = "attention-pooling"
    source = "Seddik, arXiv:2605.06826, Section 2"

    @property
    def axes(self) -> tuple[Axis, ...]:
        """d, delta, gamma, then table and correlation where they are axes, T and pooling."""
        axes = [
            Axis("d", "int", "embedding dimension", _whole(2)),
            Axis("delta", "float", "ratio d/V of dimension to vocabulary size", _ratio),
            Axis("gamma", "float", "ratio d/N of dimension to number of sequences", _ratio),
            Axis("table", "str", "centering of the embedding table", _table),
            Axis("correlation", "str", "distribution of the latent signs", self._correlation),
            Axis("T", "int", "sequence length", _whole(1)),
            Axis("pooling", "str", "pooling of a sequence's tokens", self._pooling),
        ]
        optional = {"table", "correlation"} - self.axes_named
        return tuple(axis for axis in axes if axis.name not in optional)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The sample covariance and the population covariance given the table."""
        names = tuple(axis.name for axis in self.axes)
        population = tuple(name for name in names if name != "gamma")
        return (
            Level("sample", "", "", names, "arXiv:2605.06826, Theorems 1, 3 and 4"),
            Level("population", "population_", "_population", population, "arXiv:2605.06826, Theorem 2"),
        )

    @property
    def derived(self) -> tuple[Derived, ...]:
        """Sizes, realised ratios and the scales of each pooling."""
        weighing = self.gain_axes
        return (
            Derived("V", ("d", "delta"), "vocabulary size", "1", _vocabulary, "int"),
            Derived("N", ("d", "gamma"), "number of sequences", "1", _sequences, "int"),
            Derived("delta_realised", ("d", "delta"), "d/V", "1", lambda p: float(p["d"]) / _vocabulary(p)),
            Derived("gamma_realised", ("d", "gamma"), "d/N", "1", lambda p: float(p["d"]) / _sequences(p)),
            Derived("alpha", weighing, "signal strength w'Rw", "1", lambda p: self.scales(p).alpha),
            Derived("kappa", weighing, "noise scale w'w", "1", lambda p: self.scales(p).kappa),
            Derived(
                "weight_sum", weighing, "sum of the weights 1'w", "1", lambda p: self.scales(p).weight_sum
            ),
        )

    def options(self) -> dict[str, Any]:
        """Model options as JSON values, canonical."""
        options: dict[str, Any] = {"ensemble": self.name}
        if "table" not in self.axes_named:
            options["table"] = self.tables[0]
        if "correlation" not in self.axes_named:
            options["correlation"] = self.correlations[0]
        return options

    @property
    def gain_axes(self) -> tuple[str, ...]:
        """T and pooling, and correlation where it is an axis."""
        named = tuple(axis.name for axis in self.axes)
        return tuple(name for name in named if name in ("correlation", "T", "pooling"))

    def gain(self, point: Point) -> float:
        """alpha/kappa at a point: rho = gain |mu|^2."""
        return self.scales(point).gain

    def scales(self, point: Point) -> Scales:
        """alpha, kappa and 1'w at a point that holds T, pooling and correlation."""
        weights, correlation = self._weights(point)
        return scales(weights, correlation)

    def check(self, point: Point) -> list[Fault]:
        """Say why a point can't be sampled: sizes, or a pooling that this T or these signs refuse."""
        faults = check_pooling(
            parse_pooling(str(point["pooling"]), self.files), self._signs(point), int(point["T"])
        )
        kind = self._kind(point)
        least = 4 if kind == "class-centered" else 2
        V, N = _vocabulary(point), _sequences(point)
        if V < least:
            reason = f"at d = {point['d']} V = 2 round(d/(2 delta)) is {V}, and a {kind} table needs {least}"
            faults.append(Fault("grid.delta", str(point["delta"]), reason, "lower delta or raise d"))
        if N < 2:
            reason = (
                f"at d = {point['d']} the number of sequences N = round(d/gamma) is {N}, and 2 are needed"
            )
            faults.append(Fault("grid.gamma", str(point["gamma"]), reason, "lower gamma or raise d"))
        return faults

    def work(self, level: str, point: Point) -> Work:
        """Projected cost of one column."""
        d, V = int(point["d"]), _vocabulary(point)
        table = 8.0 * V * d
        # Reduction to tridiagonal form, its eigenvectors, and the table's normal deviates.
        seconds = 1.6e-10 * d**3 + 1.1e-8 * V * d + 1e-3
        square = 8.0 * d * d
        if level == "population":
            return Work(seconds + counts.SYRK * V * d * d, 2.0 * table + 4.0 * square)
        N, T = _sequences(point), int(point["T"])
        held = int(np.count_nonzero(self._weights(point)[0]))
        plan = counts.route(d, V, N, held)
        return Work(
            seconds + plan.seconds + 2e-8 * N * T, 2.0 * table + 4.0 * square + plan.bytes + 14.0 * N * T
        )

    def column(self, level: str, point: Point, seed: int, replicate: int) -> Column:
        """Sample one column.

        Parameters
        ----------
        level : {"sample", "population"}
            Which matrix.
        point : mapping
            A value for each axis of the level; gamma is not read at the population level.
        seed, replicate : int
            The sweep's seed and the replicate: with the point they fix every random number.

        Returns
        -------
        Column
            Its spectral column, in units of kappa.
        """
        table = self._table(point, seed, replicate)
        if level == "population":
            return self._population(point, table)
        N = _sequences(point)
        drawn = self._draw(point, seed, replicate)
        weights, correlation = self._weights(point)
        s = scales(weights, correlation)
        noise = table.noise(self._kind(point))
        matrix = counts.count_matrix(drawn.tokens, weights, noise.shape[0])
        S0 = counts.gram(matrix, noise, int(np.count_nonzero(weights))) / (N * s.kappa)
        pooled_signs = drawn.signs.astype(np.float64) @ weights
        length = float(np.sqrt(np.add.reduce(pooled_signs * pooled_signs)))
        h = np.zeros(noise.shape[1])
        if length > 0.0:
            h = noise.T @ (matrix.T @ (pooled_signs / length)) / np.sqrt(N * s.kappa)
            S0 = blas.dsyr(-1.0, h, a=S0, lower=1, overwrite_a=1)
        return decompose(S0, table.direction, h, length / np.sqrt(N * s.alpha))

    def _population(self, point: Point, table: Table) -> Column:
        V = table.within.shape[0]
        s = self.scales(point)
        difference, midpoint = table.residual_means(self._kind(point))
        W = blas.dsyrk(1.0 / V, table.within.T, lower=1)
        if midpoint.any():
            W = blas.dsyr(s.weight_sum**2 / s.kappa, midpoint, a=W, lower=1, overwrite_a=1)
        return decompose(W, table.direction, np.sqrt(s.gain) * difference, 1.0)

    def explain(self, point: Point, seed: int, replicate: int) -> dict[str, NDArray[np.generic]]:
        """Sample one column and return what it is made of.

        Parameters
        ----------
        point : mapping
            A value for each axis, and ``rho``.
        seed, replicate : int
            As in :meth:`column`.

        Returns
        -------
        dict of str to array
            ``E`` (d, V), ``tokens`` and ``signs`` (N, T), ``w`` (T,), ``C`` (N, d) pooled vectors, ``S``
            (d, d) not divided by kappa, ``mu`` (d,).
        """
        table = self._table(point, seed, replicate)
        drawn = self._draw(point, seed, replicate)
        weights, _ = self._weights(point)
        mu = np.sqrt(float(point["rho"]) / self.gain(point)) * table.direction
        V = table.within.shape[0]
        labels = np.where(np.arange(V) < V // 2, 1.0, -1.0)
        E = table.noise(self._kind(point)) + labels[:, None] * mu
        C = counts.count_matrix(drawn.tokens, weights, V) @ E
        S = C.T @ C / C.shape[0]
        return {
            "E": E.T,
            "tokens": drawn.tokens,
            "signs": drawn.signs,
            "w": weights,
            "C": C,
            "S": S,
            "mu": mu,
        }

    def _table(self, point: Point, seed: int, replicate: int) -> Table:
        d, V = int(point["d"]), _vocabulary(point)
        draw = _draw_table if 8 * d * V <= SHARED_BYTES else _draw_table.__wrapped__
        return draw(seed, d, float(point["delta"]), V, replicate)

    def _draw(self, point: Point, seed: int, replicate: int) -> Sequences:
        T, signs = int(point["T"]), self._signs(point)
        identity = {name: point[name] for name in ("d", "delta", "gamma", "T")}
        identity |= {"correlation": signs.realised(T), "replicate": replicate}
        N, V = _sequences(point), _vocabulary(point)
        draw = _draw_sequences if 5 * N * T <= SHARED_BYTES else _draw_sequences.__wrapped__
        return draw(seed, tuple(sorted(identity.items())), signs, N, T, V)

    def _weights(self, point: Point) -> tuple[Array, Array]:
        T, signs = int(point["T"]), self._signs(point)
        correlation = signs.correlation(T)
        return parse_pooling(str(point["pooling"]), self.files).weights(T, correlation), correlation

    def _signs(self, point: Point) -> Signs:
        return parse_signs(str(point.get("correlation", self.correlations[0])), self.files)

    def _kind(self, point: Point) -> str:
        return str(point.get("table", self.tables[0]))

    def _correlation(self, value: object) -> Value:
        if not isinstance(value, (str, Mapping)):
            raise ValueError('it is no table of keys; write a table such as { kind = "prefix", length = 8 }')
        return parse_signs(value, self.files).name

    def _pooling(self, value: object) -> Value:
        if not isinstance(value, str):
            raise ValueError('it is no text; write a pooling in quotes, such as "mean"')
        return parse_pooling(value, self.files).name


def configure(options: Mapping[str, Any], files: Mapping[str, NDArray[np.generic]]) -> AttentionPooling:
    """Make the ensemble from a sweep file's ``[model]`` table.

    Parameters
    ----------
    options : mapping
        ``table`` (default ``"class-centered"``) and ``correlation``, each a value or a list, which makes it
        an axis.
    files : mapping of str to array
        The arrays of files that the sweep names.

    Returns
    -------
    AttentionPooling
        The ensemble.

    Raises
    ------
    InputError
        With everything that is wrong with the options.
    """
    faults = [
        Fault(
            f"model.{key}", "", "attention-pooling has no such option", nearest(key, ("table", "correlation"))
        )
        for key in options
        if key not in ("ensemble", "table", "correlation")
    ]
    named: set[str] = set()
    shell = AttentionPooling(("class-centered",), (), files=files)

    def read(key: str, default: Any, parse: Any) -> tuple[str, ...]:
        given = options.get(key, default)
        if given is None:
            remedy = 'add one to [model], such as correlation = { kind = "prefix", length = 8 }'
            faults.append(Fault(f"model.{key}", "", "it is missing", remedy))
            return ()
        if isinstance(given, list):
            named.add(key)
        values: list[str] = []
        for value in given if isinstance(given, list) else [given]:
            try:
                values.append(parse(value))
            except ValueError as error:
                reason, _, remedy = str(error).partition("; ")
                faults.append(Fault(f"model.{key}", _written(value), reason, remedy))
        if isinstance(given, list) and not given:
            faults.append(Fault(f"model.{key}", "[]", "an axis needs a value", "name at least one"))
        return tuple(dict.fromkeys(values))

    tables = read("table", "class-centered", _table)
    correlations = read("correlation", None, shell._correlation)
    if faults:
        raise InputError(faults)
    return AttentionPooling(tables, correlations, frozenset(named), files)


@lru_cache(maxsize=2)
def _draw_table(seed: int, d: int, delta: float, V: int, replicate: int) -> Table:
    identity: dict[str, Value] = {"d": d, "delta": delta, "replicate": replicate}
    return sample_table(seeds.generator(seed, "table", identity), d, V)


@lru_cache(maxsize=2)
def _draw_sequences(
    seed: int, identity: tuple[tuple[str, Value], ...], signs: Signs, N: int, T: int, V: int
) -> Sequences:
    rng = seeds.generator(seed, "sequences", dict(identity))
    xi = signs.sample(rng, N, T)
    tokens = rng.integers(0, V // 2, size=(N, T), dtype=np.int32)
    tokens += (xi < 0) * np.int32(V // 2)
    return Sequences(xi, tokens)


def _vocabulary(point: Point) -> int:
    return 2 * round(float(point["d"]) / (2.0 * float(point["delta"])))


def _sequences(point: Point) -> int:
    return round(float(point["d"]) / float(point["gamma"]))


def _whole(least: int) -> Any:
    def parse(value: object) -> Value:
        whole = isinstance(value, (int, float)) and not isinstance(value, bool) and float(value).is_integer()
        if not whole or int(value) < least:  # type: ignore[call-overload]
            raise ValueError(f"it is not a whole number of at least {least}; write one")
        return int(value)  # type: ignore[call-overload,no-any-return]

    return parse


def _ratio(value: object) -> Value:
    number: float
    if isinstance(value, str):
        try:
            number = float(Fraction(value.replace(" ", "")))
        except (ValueError, ZeroDivisionError, OverflowError):
            raise ValueError('it is neither a number nor a fraction; write 0.5 or "768/50258"') from None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError('it is neither a number nor a fraction; write 0.5 or "768/50258"')
    if not 0.0 < number < np.inf:
        raise ValueError("an aspect ratio is positive and finite; write one above 0")
    return seeds.canonical(number)


def _table(value: object) -> str:
    if not isinstance(value, str) or value not in KINDS:
        raise ValueError(f"there is no such table; {nearest(str(value), KINDS)}")
    return value


def _written(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {item!r}" for key, item in value.items()) + " }"
    return repr(value)
