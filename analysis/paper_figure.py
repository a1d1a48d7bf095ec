"""A matplotlib figure of its own: no pyplot, and text that stays text in vector files."""

from __future__ import annotations

import io
import threading
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

VECTOR_TEXT: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "ps.fonttype": 42}
"""Settings under which letters are kept as letters, to be searched, copied and edited."""

_SAVING = threading.Lock()


class PaperFigure(Figure):
    """A figure whose SVG and PDF files keep their text as text, whatever the user's settings.

    matplotlib reads these settings, which are the process's, while it saves; they are set for that moment
    only.
    """

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """Save as `matplotlib.figure.Figure.savefig` does.

        Parameters
        ----------
        fname : str, Path or file-like
            Where to.
        **kwargs
            Passed on.
        """
        with _SAVING, mpl.rc_context(VECTOR_TEXT):
            super().savefig(fname, **kwargs)

    def _repr_png_(self) -> bytes:
        """Show itself in a notebook, where pyplot would have to know the figure."""
        held = io.BytesIO()
        self.savefig(held, format="png", dpi=144)
        return held.getvalue()
