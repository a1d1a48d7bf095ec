"""The ensembles that a sweep file can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigensweep.pipeline import attention_pooling
from eigensweep.pipeline.ensemble import Ensemble

Configure = Callable[[Mapping[str, Any], Mapping[str, NDArray[np.generic]]], Ensemble]

ENSEMBLES: dict[str, Configure] = {"attention-pooling": attention_pooling.configure}
"""From a name in ``model.ensemble`` to what makes the ensemble of a ``[model]`` table and its files."""
