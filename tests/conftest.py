"""Small sweeps, and what it means for two cubes to be the same."""

import hashlib
import tomllib

import numpy as np
import pytest
import toy_ensemble
import zarr

from eigensweep.pipeline.models import ENSEMBLES
from eigensweep.pipeline.sweep import Sweep

SMALL = """\
name = "small"
seed = 7

[grid]
d = [12, 20]
delta = [0.5]
gamma = [0.25, 1.0]
rho = [0.0, 1.0, 3.0]
T = [4]
pooling = ["mean", "causal"]
replicates = 3

[model]
ensemble = "attention-pooling"
correlation = { kind = "prefix", length = 2 }
"""

TOY = """\
name = "toy"
seed = 11

[grid]
n = [8, 14]
beta = [0.5, 1.0]
flavour = ["plain", "sour"]
rho = [0.0, 0.5, 2.0]
replicates = 4

[model]
ensemble = "toy-wigner"
"""


def changed(text, changes):
    """Read TOML tables and change keys in them: ``grid={"rho": None}`` takes one away."""
    tables = tomllib.loads(text)
    for name, change in changes.items():
        if isinstance(change, dict):
            merged = {**tables.get(name, {}), **change}
            tables[name] = {key: value for key, value in merged.items() if value is not None}
        else:
            tables[name] = change
    return tables


@pytest.fixture(scope="session")
def small_sweep():
    """Make a sweep of attention pooling that runs in well under a second."""

    def make(base=".", **changes):
        return Sweep.from_dict(changed(SMALL, changes), base)

    return make


@pytest.fixture
def toy_sweep(monkeypatch):
    """Make a sweep of the toy ensemble, which the pipeline knows as long as the test runs."""
    monkeypatch.setitem(ENSEMBLES, "toy-wigner", toy_ensemble.configure)
    monkeypatch.setattr(toy_ensemble, "THREADS", [])
    monkeypatch.setattr(toy_ensemble, "ASKED", [])

    def make(**changes):
        return Sweep.from_dict(changed(TOY, changes))

    return make


@pytest.fixture(scope="session")
def chunk_bytes():
    """Hash every file of a cube but its metadata, by its path within."""

    def hashes(study):
        cube = study / "cube.zarr"
        return {
            str(path.relative_to(cube)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(cube.rglob("*"))
            if path.is_file() and path.name != "zarr.json"
        }

    return hashes


@pytest.fixture(scope="session")
def assert_same_cube():
    """Compare every variable and coordinate of two opened cubes bit for bit, times apart."""

    def same(one, other):
        assert set(one.variables) == set(other.variables)
        for name in one.variables:
            first, second = one[name], other[name]
            assert first.dims == second.dims, name
            assert first.dtype == second.dtype, name
            assert first.attrs == second.attrs, name
            if name.startswith("seconds"):
                assert first.shape == second.shape, name
                assert np.array_equal(np.isnan(first.values), np.isnan(second.values)), name
            elif first.dtype == object:
                assert first.values.tolist() == second.values.tolist(), name
            else:
                assert first.shape == second.shape, name
                assert first.values.tobytes() == second.values.tobytes(), name

    return same


@pytest.fixture(scope="session")
def cluster():
    """Start a Dask cluster of two worker processes, of one thread each, when it is asked for first."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as running,
        Client(running) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def raw_arrays():
    """Load a cube's arrays as they lie on disk, in storage order and unmasked."""

    def arrays(study):
        group = zarr.open_group(str(study / "cube.zarr"), mode="r", use_consolidated=True)
        return {name: np.asarray(array[...]) for name, array in group.arrays()}

    return arrays
