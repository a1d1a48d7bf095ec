"""Pooled noise of sequences over a finite vocabulary: its Gram matrix, by the cheapest route.

Pooling is linear in the tokens, so the pooled noise is ``C = A Z`` with A the (N, V) matrix of weighted
token counts, T entries a row, and Z the (V, d) noise of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from scipy.sparse import csr_array

Array = NDArray[np.float64]

# Seconds per multiplication and addition, as measured with one thread on x86-64 with AVX2. Only their
# ratios matter, and only for speed. They are constants, never timed at run time: a route that depended on
# the machine's mood would make the last digits do so too.
SPARSE, GEMM, SYRK, PAIR = 0.55e-9, 0.05e-9, 0.025e-9, 6e-9
BLOCK = 1 << 22
"""Entries of pooled noise that are held at a time."""


@dataclass(frozen=True)
class Route:
    """A way to form the Gram matrix, with its projected cost.

    Parameters
    ----------
    name : {"sparse", "dense", "tokens"}
        Sparse product then Gram matrix; dense counts then Gram matrix; Gram matrix of the counts first
        (V x V), then the table on both sides.
    seconds : float
        Projected CPU time.
    bytes : float
        Projected peak of the arrays beyond the table and the result.
    """

    name: str
    seconds: float
    bytes: float


def route(d: int, V: int, N: int, T: int) -> Route:
    """Choose how to form the Gram matrix of pooled noise.

    Parameters
    ----------
    d, V, N : int
        Embedding dimension, vocabulary size, number of sequences.
    T : int
        Number of positions of nonzero weight.

    Returns
    -------
    Route
        The cheapest by projected CPU time; it depends on nothing but the arguments.
    """
    gram = SYRK * N * d * d
    rows = min(N, _block(d, V))
    entries = 12.0 * N * T
    choices = [
        Route("sparse", SPARSE * N * T * d + gram, entries + 8.0 * rows * d),
        Route("dense", GEMM * N * V * d + gram, entries + 8.0 * rows * (d + V)),
        Route(
            "tokens",
            PAIR * N * T * T + GEMM * (V * V * d + V * d * d),
            entries + 8.0 * V * (2 * V + d) + 12.0 * min(N * T * T, V * V),
        ),
    ]
    return min(choices, key=lambda choice: choice.seconds)


def count_matrix(tokens: NDArray[np.integer], weights: Array, V: int) -> csr_array:
    """Weighted token counts A of shape (N, V): entry (n, v) sums w_t over the positions t that hold v.

    Parameters
    ----------
    tokens : (N, T) array of int
        Token of each position, in [0, V).
    weights : (T,) array
        Pooling weights; positions of weight 0 are left out.
    V : int
        Vocabulary size.

    Returns
    -------
    scipy.sparse.csr_array
        A, with repeated tokens summed.
    """
    held = np.flatnonzero(weights)
    N = tokens.shape[0]
    indices = np.ascontiguousarray(tokens[:, held]).ravel()
    matrix = csr_array((np.tile(weights[held], N), indices, np.arange(N + 1) * held.size), shape=(N, V))
    matrix.sum_duplicates()
    return matrix


def gram(counts: csr_array, noise: Array, T: int) -> Array:
    """Gram matrix ``C'C`` of the pooled noise ``C = A Z``.

    Parameters
    ----------
    counts : csr_array of shape (N, V)
        A.
    noise : (V, d) array
        Z, one row a token.
    T : int
        Number of positions of nonzero weight: with the shapes, it chooses the route.

    Returns
    -------
    (d, d) array
        Fortran-ordered; only the lower triangle is filled.
    """
    N, V = counts.shape
    d = noise.shape[1]
    name = route(d, V, N, T).name
    if name == "tokens":
        square = (counts.T @ counts).toarray()
        # Symmetric in exact arithmetic; the reduction that follows reads one triangle.
        return np.asfortranarray(noise.T @ (square @ noise))
    result = np.zeros((d, d), order="F")
    step = _block(d, V)
    for start in range(0, N, step):
        rows = counts[start : start + step]
        pooled = (rows.toarray() if name == "dense" else rows) @ noise
        result = blas.dsyrk(1.0, pooled.T, beta=1.0, c=result, lower=1, overwrite_c=1)
    return result


def _block(d: int, V: int) -> int:
    return max(64, BLOCK // max(d, V))
