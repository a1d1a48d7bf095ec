"""More signal directions for a stored column, at O(d) each.

Where u is uniform on the sphere and independent of S0 and h, any other uniform direction would have done as
well. Overlaps averaged over u and a few redraws have a smaller variance than those of u alone. (It is so
for every table of attention pooling, whose tables and sequences never see u.) In the eigenbasis of S0 a
uniform direction is a normalised vector of independent normals: the column suffices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline import seeds

Array = NDArray[np.float64]

DEFAULT = 8
"""More of them add little: the noise of S0 itself remains."""


def directions(seed: int, level: str, dimension: int, replicate: int, count: int) -> Array:
    """Draw unit vectors in the eigenbasis of a column's S0.

    Parameters
    ----------
    seed : int
        The sweep's seed.
    level : str
        The column's level.
    dimension : int
        The column's size d.
    replicate : int
        The replicate. Columns that differ in other parameters share their directions, as poolings share
        their sequences: differences between them are sharper for it.
    count : int
        How many; the first few of a larger count are those of a smaller one.

    Returns
    -------
    (count, d) array
        Uniform on the sphere.

    Examples
    --------
    >>> directions(7, "sample", 200, 0, 8).shape
    (8, 200)
    """
    rng = seeds.generator(seed, "redraw", {"level": level, "d": dimension, "replicate": replicate})
    normals = rng.standard_normal((count, dimension))
    return np.asarray(normals / np.sqrt(np.add.reduce(normals**2, axis=1))[:, None])
