"""What an estimator is given: the spectral columns of one matrix size, and the overlaps they answer with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eigensweep.analysis.topmode import top_overlap
from eigensweep.pipeline.rankone import Column

Array = NDArray[np.float64]


class Sample(Protocol):
    """Replicates of one size: all that an estimator of the transition sees."""

    @property
    def dimension(self) -> int:
        """The matrices' size d."""

    @property
    def replicates(self) -> int:
        """How many independent replicates there are."""

    @property
    def scale(self) -> float:
        """A signal strength of the order of the noise, to start a search from."""

    def overlap(self, rho: Array) -> Array:
        """Squared overlap of each replicate at each rho: (replicates, rho)."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The spectral columns of one size, one a replicate, each with several directions u.

    Parameters
    ----------
    value : (n, d) array
        Eigenvalues of S0, descending, in units of kappa.
    signal : (n, k, d) array
        Projections of k unit directions on their eigenvectors: the sampled u first, then its redraws, which
        are as good as it where u is uniform and independent of S0 and h.
    noise : (n, d) array
        Projections of h, in units of sqrt(kappa).
    amplitude : (n,) array
        a in ``v = h + sqrt(rho) a u``.
    along : {"signal", "update"}
        What the overlaps are with: u, or the whole update v. Where h has a part along the signal of its
        own, as the class means of a finite table give it, u is but a part of what the outlier follows.
    """

    value: Array
    signal: Array
    noise: Array
    amplitude: Array
    along: str = "signal"

    @property
    def dimension(self) -> int:
        """The matrices' size d."""
        return int(self.value.shape[1])

    @property
    def replicates(self) -> int:
        """How many replicates there are."""
        return int(self.value.shape[0])

    @property
    def scale(self) -> float:
        """A signal strength of the order of the noise: the top eigenvalue of S0 over a^2."""
        gain = float(np.median(self.amplitude)) ** 2
        return float(np.median(self.value[:, 0])) / gain if gain > 0.0 else 1.0

    def sketch(self, replicates: int | None = None) -> Columns:
        """Return the columns with the sampled u alone: cheaper, for a first look.

        Parameters
        ----------
        replicates : int, optional
            How many, from the first; all if not given.

        Returns
        -------
        Columns
            A part of these.
        """
        part = slice(replicates)
        parts = (self.value[part], self.signal[part, :1], self.noise[part], self.amplitude[part])
        return Columns(*parts, along=self.along)

    def overlap(self, rho: Array) -> Array:
        """Squared overlap of the top eigenvector, averaged over the directions.

        Parameters
        ----------
        rho : (m,) array
            Signal strengths, non-negative.

        Returns
        -------
        (n, m) array
            One row a replicate.
        """
        found = top_overlap(self.value, self.signal, self.noise, self.amplitude, rho, along=self.along)
        return np.asarray(found.mean(axis=1))

    def passing(self, level: Array) -> Array:
        """Signal strengths from which on the top eigenvalue exceeds a level.

        Parameters
        ----------
        level : (m,) array
            In units of kappa.

        Returns
        -------
        (n, k, m) array
            For each replicate and direction; 0 where the top eigenvalue always exceeds the level, infinite
            where it never does.
        """
        n, k, _ = self.signal.shape
        result = np.empty((n, k, level.size))
        for r in range(n):
            for i in range(k):
                a = float(self.amplitude[r])
                result[r, i] = Column(self.value[r], self.signal[r, i], self.noise[r], a).passing(level)
        return result

    @cached_property
    def standing(self) -> Array:
        """Squared overlap with h of the top eigenvector at rho = 0: (n,).

        Large where the matrix without signal has an outlier along h already.
        """
        alone = replace(self.sketch(), along="update").overlap(np.zeros(1))[:, 0]
        return np.where(self.noise.any(axis=1), alone, 0.0)

    def without(self, modes: int) -> Columns:
        """Leave out the leading eigenvectors of S0: outliers that the noise has of its own.

        Parameters
        ----------
        modes : int
            How many.

        Returns
        -------
        Columns
            The columns of the matrix restricted to the space orthogonal to those eigenvectors.
        """
        signal = self.signal[:, :, modes:]
        length = np.sqrt(np.add.reduce(signal**2, axis=2))
        scaled = signal / length[:, :, None]
        return replace(self, value=self.value[:, modes:], signal=scaled, noise=self.noise[:, modes:])


@dataclass(frozen=True, eq=False)
class Gridded:
    """Overlaps of one size on a grid of rho, where there are no columns to ask for others.

    Parameters
    ----------
    dimension : int
        The matrices' size d.
    rho : (m,) array
        Signal strengths, ascending.
    table : (n, m) array
        Squared overlaps, one row a replicate, without NaN.
    """

    dimension: int
    rho: Array
    table: Array

    @property
    def replicates(self) -> int:
        """How many replicates there are."""
        return int(self.table.shape[0])

    @property
    def scale(self) -> float:
        """A signal strength of the order of the noise: the middle of the grid."""
        return float(np.median(self.rho))

    def overlap(self, rho: Array) -> Array:
        """Squared overlap of each replicate at values of the grid.

        Parameters
        ----------
        rho : (m,) array
            Values that the grid holds.

        Returns
        -------
        (n, m) array
            One row a replicate.

        Raises
        ------
        ValueError
            If the grid does not hold a value.
        """
        index = np.searchsorted(self.rho, rho).clip(0, self.rho.size - 1)
        if not np.array_equal(self.rho[index], rho):
            msg = f"rho = {rho!r}: not all of it is on the grid of d = {self.dimension}; keep to its values"
            raise ValueError(msg)
        return self.table[:, index]
