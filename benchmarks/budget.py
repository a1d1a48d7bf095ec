"""Count the files of a study of 10^4 columns, and time how long one of 10^5 takes to open.

Run ``python benchmarks/budget.py`` (a few minutes on one core, 2 GB of scratch at most), ``--json`` for
figures alone. Both studies are of tiny columns: what is counted is the storage. Exits with 1 if there are
more than 20 files a block and 300 beside, or if opening takes 2 s or more.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from eigensweep.pipeline.engine import run
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.study import load
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.views import open_cube

SIZES = {
    10**4: {"d": [4, 6], "gamma": np.linspace(0.5, 1.0, 24), "replicates": 200},
    10**5: {"d": [4, 6], "gamma": np.linspace(0.5, 1.0, 249), "replicates": 200},
}
"""Grids whose columns, of both levels, are this many."""


def sweep(columns: int) -> Sweep:
    """Make a sweep of so many tiny columns."""
    grid = {"delta": 0.5, "rho": [1.0], "T": 2, "pooling": "mean"}
    grid |= {name: np.asarray(values).tolist() for name, values in SIZES[columns].items()}
    model = {"ensemble": "attention-pooling", "correlation": {"kind": "prefix", "length": 2}}
    return Sweep.from_dict({"name": "budget", "seed": 1, "grid": grid, "model": model})


def measure(columns: int, folder: Path) -> dict[str, Any]:
    """Run a sweep and measure its study."""
    asked, study = sweep(columns), folder / str(columns)
    start = time.perf_counter()
    outcome = run(asked, study)
    seconds = time.perf_counter() - start
    with prepared(asked, study) as held:
        blocks = sum(1 for _ in held.blocks())
    files = sum(len(names) for _, _, names in os.walk(study))
    folders = sum(len(names) for _, names, _ in os.walk(study))
    size = sum(path.stat().st_size for path in study.rglob("*") if path.is_file())
    found = {"columns": outcome.progress.done, "blocks": blocks, "files": files, "folders": folders}
    found |= {"MiB": round(size / 2**20, 1), "run, s": round(seconds, 1)}
    for name, action in {
        "open_cube, s": lambda: open_cube(study),
        "xr.open_zarr, s": lambda: xr.open_zarr(study / "cube.zarr"),
        "pending blocks, s": lambda: list(load(study).pending()),
    }.items():
        start = time.perf_counter()
        action()
        found[name] = round(time.perf_counter() - start, 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eigensweep-budget-") as folder:
        found = [measure(columns, Path(folder)) for columns in SIZES]
    if asked.json:
        print(json.dumps(found, indent=1))
    else:
        for name in found[0]:
            print(f"{name:>20}" + "".join(f"{figures[name]:>12}" for figures in found))
    within = all(figures["files"] <= 20 * figures["blocks"] + 300 for figures in found)
    sys.exit(not within or found[-1]["open_cube, s"] >= 2.0)


if __name__ == "__main__":
    main()
