"""Where a sweep runs: on this machine, or through a scheduler that runs already."""

from __future__ import annotations

from eigensweep.cluster.connection import connect

__all__ = ["connect"]
