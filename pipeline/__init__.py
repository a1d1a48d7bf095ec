"""What is asked, what is sampled, how it is decomposed, where it is kept and how it is run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigensweep.pipeline.engine import Outcome, Progress, run
    from eigensweep.pipeline.errors import EigensweepError, Fault, InputError, StudyError
    from eigensweep.pipeline.rankone import Column, decompose
    from eigensweep.pipeline.sweep import Sweep
    from eigensweep.pipeline.views import cube_at, open_cube, sample_column, spectrum_at

_HOMES = {
    "Column": "rankone",
    "EigensweepError": "errors",
    "Fault": "errors",
    "InputError": "errors",
    "Outcome": "engine",
    "Progress": "engine",
    "StudyError": "errors",
    "Sweep": "sweep",
    "cube_at": "views",
    "decompose": "rankone",
    "open_cube": "views",
    "run": "engine",
    "sample_column": "views",
    "spectrum_at": "views",
}

__all__ = [
    "Column",
    "EigensweepError",
    "Fault",
    "InputError",
    "Outcome",
    "Progress",
    "StudyError",
    "Sweep",
    "cube_at",
    "decompose",
    "open_cube",
    "run",
    "sample_column",
    "spectrum_at",
]


def __getattr__(name: str) -> Any:
    # Late, so that `eigensweep --help` and a worker that only computes need not load xarray and zarr.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
