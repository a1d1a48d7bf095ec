"""What ran: versions, machine and linear algebra, as JSON values."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "zarr", "dask", "xarray")


def now() -> str:
    """Return the time in UTC, to the second, in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of eigensweep, its commit where it runs from a checkout, Python and the packages beneath.

    Returns
    -------
    dict of str to str
        By name.
    """
    found = {"eigensweep": version(), "commit": _commit(), "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def version() -> str:
    """Version of eigensweep."""
    try:
        return importlib.metadata.version("eigensweep")
    except importlib.metadata.PackageNotFoundError:
        return "uninstalled"


def machine() -> dict[str, Any]:
    """Host, processor, job and the linear algebra libraries with their threads, in this process.

    Returns
    -------
    dict
        JSON values.
    """
    return {
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count() or 0,
        "process": os.getpid(),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "blas": blas(),
    }


def blas() -> list[dict[str, Any]]:
    """Thread pools of the linear algebra libraries that this process has loaded.

    Returns
    -------
    list of dict
        ``library``, ``version``, ``architecture``, ``threads`` of each.
    """
    from threadpoolctl import threadpool_info

    return [
        {
            "library": pool["internal_api"],
            "version": pool.get("version") or "unknown",
            "architecture": pool.get("architecture") or "unknown",
            "threads": pool["num_threads"],
        }
        for pool in threadpool_info()
    ]


def _commit() -> str:
    # An installed wheel has no repository above it, or somebody else's: ours holds this very file.
    here = Path(__file__).resolve()
    command = ["git", "-C", str(here.parent), "ls-files", "--error-unmatch", here.name]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
        head = [
            "git",
            "-C",
            str(here.parent),
            "describe",
            "--always",
            "--dirty",
            "--abbrev=12",
            "--exclude=*",
        ]
        return subprocess.run(head, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
