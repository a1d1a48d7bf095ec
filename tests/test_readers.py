"""Readers that open a study while a run fills and grows it: no error, no half block, nothing taken back."""

import subprocess
import sys
import time
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr

from eigensweep.pipeline.views import open_cube

PASSES = 200
"""Openings, at the least, while a run writes."""

WRITER = """
import os
import sys
import time

sys.path.insert(0, {tests!r})
from conftest import SMALL, changed
from eigensweep.pipeline import blocks, engine
from eigensweep.pipeline.sweep import Sweep

blocks.LONGEST_RUN = 2
engine.BUNDLE_SECONDS = 0.0
study, over = sys.argv[1:]
grid = dict(d=[6], gamma=[0.5], pooling=["mean"], rho=[1.0], replicates=2)
changes = [
    {{}}, dict(d=[6, 8]), dict(replicates=3),
]
for number in range(200):
    # Once all axes have grown, more and more rho values: every block is written again each time.
    rho = dict(rho=[1.0, *(2.0 + 0.5**k for k in range(number - len(changes)))])
    grid |= changes[number] if number < len(changes) else rho
    sweep = Sweep.from_dict(changed(SMALL, dict(grid=grid, record=dict(levels=["sample"]))))
    engine.run(sweep, study, watch=lambda progress: time.sleep(0.02))
    if os.path.exists(over):
        break
"""


@pytest.fixture
def written(tmp_path):
    """A study that another process grows for as long as the test lasts, beginning with its template."""
    script, over, log = tmp_path / "writer.py", tmp_path / "over", tmp_path / "log"
    script.write_text(WRITER.format(tests=str(Path(__file__).parent)))
    with log.open("w") as file:
        writer = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "study"), str(over)], stdout=file, stderr=file
        )
    try:
        yield tmp_path / "study", writer
        over.touch()
        assert writer.wait(120) == 0, log.read_text()
    finally:
        writer.kill()
        writer.wait()


def plain(study):
    """Open and load as anybody would."""
    with dask.config.set(scheduler="synchronous"):
        return xr.open_zarr(study / "cube.zarr").load()


def masked(study):
    """Open and load as eigensweep does, and see that nothing done is missing and nothing else is there."""
    found = open_cube(study).load()
    done = found["column_status"].values == 1
    for name in ("mode_value", "mode_signal", "mode_noise"):
        first = found[name].values[..., 0]
        assert (np.isfinite(first) == done).all(), name
    assert (np.isfinite(found["signal_amplitude"].values) == done).all()
    filled = np.isfinite(found["eigenvalue"].values).all(axis=-1)
    assert (filled == np.isfinite(found["overlap"].values).all(axis=-1)).all()
    # A done column has some rho values, and has them in storage order.
    assert (filled.any(axis=-1) == done).all()
    assert (np.diff(found["d"].values) > 0).all()
    assert (np.diff(found["rho"].values) > 0).all()
    return found


@pytest.mark.timeout(240)
def test_a_reader_never_meets_an_error_nor_a_done_cell_without_its_numbers(written):
    study, writer = written
    while not (study / "cube.zarr").exists():
        assert writer.poll() is None
        time.sleep(0.01)
    passes, grown, before, first = 0, 0, None, {}
    while passes < PASSES:
        found = (plain, masked)[passes % 2](study)
        passes += 1
        shape = tuple(sorted(found.sizes.items()))
        grown += shape != before
        before = shape
        # Whatever was seen once is seen again, to the bit.
        for key, value in seen(found).items():
            assert first.setdefault(key, value) == value
    assert writer.poll() is None
    assert grown >= 4
    # Two d, three replicates.
    assert len(first) == 6


def seen(found):
    """The digests of the columns that are done, by their coordinates."""
    status, digest = found["column_status"], found["column_digest"]
    labels = [found[dim].values for dim in status.dims]
    return {
        tuple(str(names[i]) for names, i in zip(labels, place, strict=True)): int(digest.values[tuple(place)])
        for place in np.argwhere(status.values == 1)
        if digest.values[tuple(place)]
    }
