"""Random streams that depend on what is sampled, never on when, where or in which order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

Value = float | int | str

DIGITS = 12
"""Significant decimal digits that tell two coordinates apart."""


def canonical(value: Value) -> Value:
    """Round a coordinate to the decimal that stands for it.

    Parameters
    ----------
    value : float, int or str
        A coordinate as written or computed.

    Returns
    -------
    float, int or str
        Floats keep 12 significant decimal digits, with -0.0 written 0.0; the rest is returned as is.

    Examples
    --------
    >>> canonical(0.1 + 0.2) == canonical(0.3)
    True
    """
    if isinstance(value, (str, int)):
        return value
    return float(f"{float(value):.{DIGITS - 1}e}") + 0.0


def identity(name: str, parameters: Mapping[str, Value]) -> tuple[int, int, int, int]:
    """Hash a stream's name and parameters into a spawn key.

    Parameters
    ----------
    name : str
        What the stream is for, such as ``"table"``.
    parameters : mapping of str to float, int or str
        The parameters it depends on. Their order does not matter; 2 and 2.0 are the same.

    Returns
    -------
    tuple of four int
        128 bits of a cryptographic hash, as 32-bit words. Among 10^6 streams the chance that any two
        agree is below 10^-26.
    """
    values = {key: _word(canonical(value)) for key, value in parameters.items()}
    text = json.dumps([name, sorted(values.items())], separators=(",", ":"), ensure_ascii=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    a, b, c, d = (int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return a, b, c, d


def generator(seed: int, name: str, parameters: Mapping[str, Value]) -> np.random.Generator:
    """Make the random stream of a sweep that belongs to a name and its parameters.

    Parameters
    ----------
    seed : int
        The sweep's seed, non-negative.
    name : str
        What the stream is for.
    parameters : mapping of str to float, int or str
        The parameters it depends on, replicate included.

    Returns
    -------
    numpy.random.Generator
        A PCG64 generator; the same arguments give the same stream in every process.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=identity(name, parameters))
    return np.random.Generator(np.random.PCG64(sequence))


def _word(value: Value) -> str:
    if isinstance(value, str):
        return f"s:{value}"
    return f"f:{float(value):.{DIGITS - 1}e}"
