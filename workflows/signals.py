"""Signal strengths that a user types."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eigensweep.pipeline.errors import Fault


def faults(rho: Sequence[float]) -> list[Fault]:
    """Say which values of ``--rho`` are no signal strengths."""
    return [
        Fault("--rho", f"{value:g}", "it is not a finite number of at least 0", "write one")
        for value in rho
        if not 0.0 <= value < math.inf
    ]
