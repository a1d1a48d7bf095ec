"""``eigensweep theory``: closed forms for one (delta, gamma)."""

from __future__ import annotations

from collections.abc import Sequence

from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.table import KINDS
from eigensweep.workflows import console, signals


def theory(delta: float, gamma: float, rho: Sequence[float], table: str, gain: float, as_json: bool) -> None:
    """Print bulk, thresholds, outliers and overlaps."""
    _check(delta, gamma, rho, table, gain)
    from eigensweep.analysis import ProductLaw, spike

    law, population = ProductLaw(delta, gamma), ProductLaw(delta, 0.0)
    bulk = [
        ("population", *map(float, population.support), float(population.atom)),
        ("sample", *map(float, law.support), float(law.atom)),
    ]
    thresholds = {
        "population": float(spike.population_threshold(delta, table=table, gain=gain)),
        "sample": float(spike.sample_threshold(delta, gamma, table=table, gain=gain)),
    }
    rows = [
        (
            r,
            float(spike.population_outlier(r, delta, table=table, gain=gain)),
            float(spike.population_overlap(r, delta, table=table, gain=gain)),
            float(spike.sample_outlier(r, delta, gamma, table=table, gain=gain)),
            float(spike.sample_overlap(r, delta, gamma, table=table, gain=gain)),
        )
        for r in rho
    ]
    head = ("rho", "population outlier", "population overlap", "sample outlier", "sample overlap")
    if as_json:
        edges = {name: {"lower": low, "upper": high, "atom": atom} for name, low, high, atom in bulk}
        spikes = [dict(zip(head, row, strict=True)) for row in rows]
        given = {"delta": delta, "gamma": gamma, "table": table, "gain": gain}
        console.print_json({**given, "bulk": edges, "threshold": thresholds, "spikes": spikes})
        return
    print(f"delta = {delta:g}, gamma = {gamma:g}, {table} table; eigenvalues in units of kappa")
    console.print_table("bulk", ("level", "lower edge", "upper edge", "atom at 0"), bulk)
    shown = [
        (name, value if value > 0 else f"{value:.6g}: always above") for name, value in thresholds.items()
    ]
    console.print_table("threshold in rho", ("level", "rho"), shown)
    if rows:
        console.print_table("outlier and squared overlap with u", head, rows, left=0)


def _check(delta: float, gamma: float, rho: Sequence[float], table: str, gain: float) -> None:
    faults = [
        Fault(f"--{name}", f"{value:g}", "it is not positive and finite", "write a number above 0")
        for name, value in (("delta", delta), ("gamma", gamma), ("gain", gain))
        if not 0.0 < value < float("inf")
    ]
    faults += signals.faults(rho)
    if table not in KINDS:
        faults.append(Fault("--table", table, "there is no such table", nearest(table, KINDS)))
    if faults:
        raise InputError(faults)
