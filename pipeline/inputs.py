"""Inputs: the arrays in files beside a sweep file that it names, read without trusting them."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 28
"""A file of more bytes is refused."""

_TERM = re.compile(r"\s*file\s*\((.*)\)\s*", re.DOTALL)
_REMEDY = "save a numeric array with numpy.save"


@dataclass(frozen=True, eq=False)
class Input:
    """A file that a sweep names.

    Parameters
    ----------
    path : Path
        Where it was read, absolute.
    digest : str
        SHA-256 of its bytes, hexadecimal.
    array : ndarray
        What it holds.
    """

    path: Path
    digest: str
    array: NDArray[np.generic]


def named_files(tree: Any, thing: str) -> Iterator[tuple[str, str]]:
    """Find the files that values name, as ``"file(NAME)"`` or ``{kind = "file", path = "NAME"}``.

    Parameters
    ----------
    tree : mapping, list or scalar
        Values of a sweep file.
    thing : str
        Dotted key of the tree.

    Yields
    ------
    thing, name : str
        Where a file is named, and its name as written.

    Examples
    --------
    >>> list(named_files({"pooling": ["mean", "file(w.npy)"]}, "grid"))
    [('grid.pooling', 'w.npy')]
    """
    if isinstance(tree, str):
        match = _TERM.fullmatch(tree)
        if match:
            yield thing, match.group(1).strip()
    elif isinstance(tree, Mapping):
        if tree.get("kind") == "file" and isinstance(tree.get("path"), str):
            yield thing, tree["path"]
        for key, value in tree.items():
            yield from named_files(value, f"{thing}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            yield from named_files(value, thing)


def read_input(name: str, base: Path) -> Input:
    """Read a file that a sweep names.

    Parameters
    ----------
    name : str
        As written: relative to the sweep file's folder, and within it.
    base : Path
        That folder.

    Returns
    -------
    Input
        The file. Its digest and its array come from one reading.

    Raises
    ------
    ValueError
        If it lies elsewhere, can't be read or holds no plain array: ``"reason; remedy"``.
    """
    parts = PurePosixPath(name).parts
    absolute = PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive != ""
    if not parts or absolute or ".." in parts or "\0" in name:
        reason = f"the file {name!r} does not lie in the sweep file's folder"
        raise ValueError(f"{reason}; copy it there and name it relative to that folder")
    path = (base / name).absolute()
    try:
        if not path.exists():
            raise ValueError(f"the file {path} does not exist; put it there or mend its name")
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise ValueError(f"{path} is not a file of at most {LARGEST >> 20} MiB; {_REMEDY}")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the file {path} can't be read ({error.strerror}); check its permissions") from None
    return Input(path, hashlib.sha256(content).hexdigest(), _array(content, path))


def _array(content: bytes, path: Path) -> NDArray[np.generic]:
    if not content.startswith(np.lib.format.MAGIC_PREFIX):
        raise ValueError(f"the file {path} is not in numpy's .npy format; {_REMEDY}")
    try:
        # Objects would be unpickled, and a pickle can run any code.
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        objects = "Object arrays" in str(error)
        what = "holds Python objects" if objects else "is damaged or cut short"
        raise ValueError(f"the file {path} {what}; {_REMEDY}") from None
    return np.asarray(array)
