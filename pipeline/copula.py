"""Gaussian copula: the correlation matrix R of fair signs, and of Gaussians that have those signs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-8
"""How far R may be from symmetric, unit diagonal and, times T, from one that the copula can make."""


def matrix_fault(R: NDArray[np.float64]) -> tuple[str, str]:
    """Say why signs can't have R as their correlation matrix by a Gaussian copula.

    Parameters
    ----------
    R : ndarray of float64
        What should be a correlation matrix, shape (T, T).

    Returns
    -------
    reason, remedy : str
        Empty if they can. Whether signs of another making could have R is not answered.

    Examples
    --------
    >>> matrix_fault(np.array([[1.0, 0.2], [0.3, 1.0]]))[0]
    'it is not symmetric: entry [0, 1] = 0.2, entry [1, 0] = 0.3'
    """
    if R.ndim != 2 or R.shape[0] != R.shape[1] or R.size == 0:
        return f"its shape {R.shape} is not that of a square matrix", "save a T x T array with numpy.save"
    bad = np.argwhere(~np.isfinite(R) | (np.abs(R) > 1 + TOLERANCE))
    if bad.size:
        t, s = (int(index) for index in bad[0])
        return f"its entry [{t}, {s}] = {R[t, s]!s} is not in [-1, 1]", "give correlations"
    t, s = (int(index) for index in np.unravel_index(np.argmax(np.abs(R - R.T)), R.shape))
    if abs(R[t, s] - R[s, t]) > TOLERANCE:
        reason = f"it is not symmetric: entry [{t}, {s}] = {R[t, s]!s}, entry [{s}, {t}] = {R[s, t]!s}"
        return reason, "make them equal"
    t = int(np.argmax(np.abs(np.diagonal(R) - 1)))
    if abs(R[t, t] - 1) > TOLERANCE:
        return f"its diagonal is not 1: entry [{t}, {t}] = {R[t, t]!s}", "divide by the standard deviations"
    if np.linalg.eigvalsh(latent(R))[0] < -TOLERANCE * len(R):
        reason = "the Gaussian copula cannot make it: sin(pi R/2) is not positive semidefinite"
        return reason, "weaken its correlations or use another kind of signs"
    return "", ""


def tidy(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Remove rounding from R: exactly symmetric, exactly unit diagonal, entries in [-1, 1].

    Parameters
    ----------
    R : ndarray of float64, shape (T, T)
        Correlation matrix to within the tolerance.

    Returns
    -------
    ndarray of float64, shape (T, T)
        The correlation matrix.

    Examples
    --------
    >>> tidy(np.array([[1 + 1e-9]]))
    array([[1.]])
    """
    exact = np.clip((R + R.T) / 2, -1.0, 1.0)
    np.fill_diagonal(exact, 1.0)
    return exact


def latent(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlation sin(pi R/2) of Gaussians whose signs have correlation R (the arcsine law).

    Parameters
    ----------
    R : ndarray of float64, shape (T, T)
        Correlation matrix of the signs.

    Returns
    -------
    ndarray of float64, shape (T, T)
        Correlation matrix of the Gaussians, if it is positive semidefinite.

    Examples
    --------
    >>> latent(np.array([[1.0, 1 / 3], [1 / 3, 1.0]])).round(12)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    gaussian: NDArray[np.float64] = np.sin(np.pi * tidy(R) / 2)
    return gaussian


def latent_root(R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Square root A of the Gaussians' correlation matrix, A A' = sin(pi R/2).

    Parameters
    ----------
    R : ndarray of float64, shape (T, T)
        Correlation matrix of the signs.

    Returns
    -------
    ndarray of float64, shape (T, rank)
        A. Directions of no variance to within the tolerance are left out: as rounding noise they would
        tell apart signs that are one and the same.

    Examples
    --------
    >>> latent_root(np.ones((3, 3))).shape
    (3, 1)
    """
    values, vectors = np.linalg.eigh(latent(R))
    keep = values > TOLERANCE * len(R)
    root: NDArray[np.float64] = vectors[:, keep] * np.sqrt(values[keep])
    return root
