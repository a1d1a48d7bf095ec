"""How the odds of the overlap bend near the transition at finite size: universal functions, from a file.

``analysis/dressing.json`` is made by ``benchmarks/dressing.py`` from the spiked Gaussian orthogonal ensemble.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

Array = NDArray[np.float64]


@lru_cache(maxsize=1)
def _splines() -> tuple[CubicSpline, CubicSpline, float, float]:
    text = resources.files("eigensweep.analysis").joinpath("dressing.json").read_text(encoding="utf-8")
    document = json.loads(text)
    x = np.array(document["x"])
    spline = CubicSpline(x, np.column_stack([document[name] for name in ("f0", "f1", "f2")]))
    return spline, spline.derivative(), float(x[0]), float(x[-1])


def functions(x: Array) -> tuple[Array, Array]:
    """Evaluate the universal functions and their derivatives.

    Parameters
    ----------
    x : array
        Distance from the threshold in units of its width.

    Returns
    -------
    value : (..., 3) array
        f0, f1 and f2: the odds of the mean overlap of a spiked GOE matrix of size n, times n^(1/3), are
        ``f0(x) + eps f1(x) + eps^2 f2(x)`` with eps = n^(-1/3) and x = (theta^2 - 1)/eps. f0 tends to x far
        above the threshold and to 0 far below. Outside the tabulated range they continue linearly.
    slope : (..., 3) array
        Their derivatives.
    """
    spline, derivative, low, high = _splines()
    inside = np.clip(x, low, high)
    slope = np.asarray(derivative(inside))
    return np.asarray(spline(inside)) + slope * (x - inside)[..., None], slope


def dressed(s: Array, scale: Array, bend: Array) -> tuple[Array, Array, Array, Array]:
    """Finite-size odds at a distance s from the threshold, and their derivatives.

    Parameters
    ----------
    s : array
        The odds in the limit, continued through zero to negative values below the threshold.
    scale : array
        eps: the width of the transition in s at this size, proportional to d^(-1/3).
    bend : array
        c1: the model's eps of the corrections, relative to the spiked GOE's.

    Returns
    -------
    odds : array
        ``eps (f0(x) + c1 eps f1(x) + (c1 eps)^2 f2(x))`` with x = s/eps.
    by_s, by_log_scale, by_bend : array
        Its derivatives.
    """
    x = s / scale
    value, slope = functions(x)
    small = bend * scale
    curve = value[..., 0] + small * (value[..., 1] + small * value[..., 2])
    by_s = slope[..., 0] + small * (slope[..., 1] + small * slope[..., 2])
    by_small = value[..., 1] + 2.0 * small * value[..., 2]
    return scale * curve, by_s, scale * (curve + small * by_small - x * by_s), scale * scale * by_small
