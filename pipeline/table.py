"""The embedding table of a two-class vocabulary: what tokens are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KINDS = ("class-centered", "centered", "raw")
"""How much of the finite table's mean noise is removed: each class's, the overall one's, none."""


@dataclass(frozen=True, eq=False)
class Table:
    """An embedding table E = mu s' + Z, up to the length of mu.

    Token v has the embedding ``s_v mu + z_v``; the first half of the vocabulary is the class s = +1, the
    second half s = -1.

    Parameters
    ----------
    direction : (d,) array
        Hidden unit direction u = mu/|mu|.
    within : (V, d) array
        Noise of each token about the mean noise of its class.
    difference : (d,) array
        g = Z s/V, half the difference of the class means.
    midpoint : (d,) array
        m = Z 1/V, the overall mean.
    """

    direction: Array
    within: Array
    difference: Array
    midpoint: Array

    def residual_means(self, kind: str) -> tuple[Array, Array]:
        """Return what is left of g and of m in a table of this kind.

        Parameters
        ----------
        kind : {"class-centered", "centered", "raw"}
            The table.

        Returns
        -------
        difference, midpoint : (d,) array
            Zero where the kind removes them.
        """
        zero = np.zeros_like(self.difference)
        return (
            zero if kind == "class-centered" else self.difference,
            self.midpoint if kind == "raw" else zero,
        )

    def noise(self, kind: str) -> Array:
        """Return the tokens' noise z_v, one row a token.

        Parameters
        ----------
        kind : {"class-centered", "centered", "raw"}
            The table.

        Returns
        -------
        (V, d) array
            The noise; read-only where it is shared with the table.
        """
        if kind == "class-centered":
            return self.within
        difference, midpoint = self.residual_means(kind)
        half = self.within.shape[0] // 2
        noise = np.empty_like(self.within)
        np.add(self.within[:half], midpoint + difference, out=noise[:half])
        np.add(self.within[half:], midpoint - difference, out=noise[half:])
        return noise


def sample_table(rng: np.random.Generator, d: int, V: int) -> Table:
    """Draw an embedding table.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness; u is drawn first, then Z token by token.
    d : int
        Embedding dimension.
    V : int
        Vocabulary size, even.

    Returns
    -------
    Table
        u uniform on the sphere; noise standard normal (Seddik, arXiv:2605.06826, Section 2).
    """
    direction = rng.standard_normal(d)
    direction /= np.sqrt(np.add.reduce(direction * direction))
    within = rng.standard_normal((V, d))
    half = V // 2
    plus = np.add.reduce(within[:half], axis=0) / half
    minus = np.add.reduce(within[half:], axis=0) / half
    within[:half] -= plus
    within[half:] -= minus
    for array in (direction, within):
        array.flags.writeable = False
    return Table(direction, within, 0.5 * (plus - minus), 0.5 * (plus + minus))
