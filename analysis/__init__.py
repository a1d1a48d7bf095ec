"""What theory predicts, what a cube shows, and whether they agree."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigensweep.analysis import figures, spike, tracy_widom
    from eigensweep.analysis.laws import ProductLaw
    from eigensweep.analysis.transitions import fit_transitions

_HOMES = {"ProductLaw": "laws", "fit_transitions": "transitions"}
_MODULES = ("figures", "spike", "tracy_widom")

__all__ = ["ProductLaw", "figures", "fit_transitions", "spike", "tracy_widom"]


def __getattr__(name: str) -> Any:
    # Late, so that the theory is at hand without matplotlib and xarray.
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
