"""What an estimator of the transition answers with: a number and its interval, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAN = float("nan")

OK = "ok"
WIDE = "wide"
ALWAYS_ABOVE = "always above"
NEVER_RISES = "never rises"
NO_FOOT = "no points below"
TOO_FEW_SIZES = "too few sizes"
TOO_FEW_REPLICATES = "too few replicates"
NO_CROSSING = "no crossing"
NO_COLUMNS = "no columns"
NOT_SAMPLED = "not sampled"
NO_DATA = "no data"
FAILED = "failed"

STATUSES = {
    OK: "a threshold with its 95% interval",
    WIDE: "a threshold whose interval is wider than a quarter of it to either side",
    ALWAYS_ABOVE: "the outlier is there at rho = 0 already: there is no transition",
    NEVER_RISES: "the overlap never rises far enough",
    NO_FOOT: "no rho lies near or below the transition",
    TOO_FEW_SIZES: "too few matrix sizes, or too small ones",
    TOO_FEW_REPLICATES: "too few replicates for an interval",
    NO_CROSSING: "the scaled curves of two sizes do not cross",
    NO_COLUMNS: "the study keeps no spectral columns and its own rho do not suffice",
    NOT_SAMPLED: "the study does not record this level",
    NO_DATA: "no column of this cell is done",
    FAILED: "the fit did not end in a threshold",
}
"""Every status, and what it says."""


@dataclass(frozen=True)
class Estimate:
    """A threshold, its interval, and how it came about.

    Parameters
    ----------
    value : float
        rho_c, the signal strength at which the outlier leaves the bulk; NaN where ``status`` says why there
        is none.
    low, high : float
        Ends of its 95% interval.
    status : str
        A key of `STATUSES`.
    message : str
        What the status means here, and what to add to the sweep file to better it.
    method : str
        The estimator.
    dimensions : tuple of int
        The matrix sizes that it used.
    """

    value: float
    low: float
    high: float
    status: str
    message: str
    method: str
    dimensions: tuple[int, ...] = ()

    @property
    def error(self) -> float:
        """One standard error: a quarter of the interval."""
        return (self.high - self.low) / 4.0

    @property
    def half_width(self) -> float:
        """Half the interval's width relative to the value."""
        return (self.high - self.low) / (2.0 * self.value)


def refusal(status: str, message: str, method: str, dimensions: Sequence[int] = ()) -> Estimate:
    """Make the answer that holds no number.

    Parameters
    ----------
    status : str
        A key of `STATUSES`.
    message : str
        What is missing, and what to add.
    method : str
        The estimator.
    dimensions : sequence of int
        The matrix sizes that were looked at.

    Returns
    -------
    Estimate
        With NaN for its three numbers.
    """
    return Estimate(NAN, NAN, NAN, status, message, method, tuple(dimensions))
