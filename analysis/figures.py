"""Figures of a cube: each function takes a Dataset, draws, and returns the Figure without writing a file.

They use matplotlib's objects and never pyplot, so that they work in threads and without a display. matplotlib
is imported when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eigensweep.analysis.bulk_spectrum import spectrum
from eigensweep.analysis.cells import cell_edges
from eigensweep.analysis.phase_diagram import phase_diagram
from eigensweep.analysis.pooling_comparison import pooling_comparison
from eigensweep.analysis.threshold_plot import thresholds
from eigensweep.analysis.transition_curves import transition

__all__ = [
    "KINDS",
    "cell_edges",
    "phase_diagram",
    "pooling_comparison",
    "spectrum",
    "thresholds",
    "transition",
]

KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "transition": (transition, "top eigenvalue and overlap against rho, with theory and its thresholds"),
    "spectrum": (spectrum, "histogram of all eigenvalues against the limit law, with edges and outlier"),
    "phase-diagram": (phase_diagram, "overlap over two parameters, with theory's boundaries"),
    "pooling": (pooling_comparison, "poolings side by side at one norm of the signal"),
}
"""What ``eigensweep plot KIND`` draws: the function of an opened cube, and a line of help."""
