"""A run computes what its study lacks, on whatever it runs, and the cube does not show on what."""

import contextlib
import itertools
import json

import numpy as np
import pytest
import toy_ensemble
from threadpoolctl import threadpool_info, threadpool_limits
from toy_ensemble import poisoned

from eigensweep.pipeline import engine, executors, open_cube, run
from eigensweep.pipeline.errors import StudyError
from eigensweep.pipeline.preparation import prepared
from eigensweep.pipeline.schema import DONE, FAILED
from eigensweep.pipeline.study import load

GRID = {"n": [6, 9], "beta": [0.5, 1.0, 2.0], "flavour": ["plain", "sour"], "replicates": 3}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def one_worker():
    """Start a cluster of one process, whose linear algebra is told to use two threads."""
    import dask
    from distributed import Client, LocalCluster

    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), 2)
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": threads}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as running,
        Client(running) as client,
    ):
        yield client


@pytest.fixture
def small_tasks(monkeypatch):
    """Make every block a task of its own."""
    monkeypatch.setattr(engine, "BUNDLE_SECONDS", 0.0)


def test_serial_one_worker_and_two_give_one_cube(
    small_sweep, tmp_path, one_worker, cluster, assert_same_cube, small_tasks
):
    sweep = small_sweep(grid={"pooling": ["mean", "optimal"]})
    clients = {"serial": None, "one": one_worker, "two": cluster}
    for name, client in clients.items():
        outcome = run(sweep, tmp_path / name, client)
        assert outcome.progress.done == outcome.progress.total == 36
        assert not outcome.failures
        assert run(sweep, tmp_path / name, client).progress.total == 0
    cubes = [open_cube(tmp_path / name) for name in clients]
    assert bool(np.isfinite(cubes[0].eigenvalue).all())
    for other in cubes[1:]:
        assert_same_cube(cubes[0], other)
    # Replicates differ: no two columns are one, and no worker repeated another's stream.
    digests = np.concatenate([cubes[0][name].values.ravel() for name in DIGESTS])
    assert np.unique(digests).size == digests.size


DIGESTS = ("column_digest", "column_digest_population")


def threads_of_columns():
    from threadpoolctl import threadpool_info

    return [pool["num_threads"] for pool in threadpool_info()] + toy_ensemble.THREADS


def test_a_workers_columns_see_one_thread(toy_sweep, tmp_path, one_worker):
    run(toy_sweep(grid=GRID), tmp_path / "s", one_worker)
    for seen in one_worker.run(threads_of_columns).values():
        assert len(seen) > len(threadpool_info())
        assert set(seen) == {1}


def test_this_process_columns_see_one_thread_and_afterwards_all(toy_sweep, tmp_path):
    with threadpool_limits(limits=2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        assert 2 in before
        run(toy_sweep(grid={**GRID, "n": [6]}), tmp_path / "s")
        assert [pool["num_threads"] for pool in threadpool_info()] == before
    assert toy_ensemble.THREADS
    assert set(toy_ensemble.THREADS) == {1}


@pytest.mark.parametrize("three", [False, True])
def test_a_toy_ensemble_with_other_axes_goes_through(three, toy_sweep, tmp_path, cluster, assert_same_cube):
    sweep = toy_sweep(grid=GRID, model={"three": three})
    run(sweep, tmp_path / "serial")
    run(sweep, tmp_path / "cluster", cluster)
    cube = open_cube(tmp_path / "serial")
    assert_same_cube(cube, open_cube(tmp_path / "cluster"))
    assert cube.eigenvalue.dims == ("n", "beta", "flavour", "replicate", "rho", "top")
    assert cube.edge.dims == ("beta",)
    assert cube.entries.values.tolist() == [36, 81]
    assert cube.mu2.dims == ("beta", "rho")
    assert cube.mu2.values == pytest.approx(cube.rho.values / cube.beta.values[:, None])
    names = ["", "diagonal_", "off_diagonal_"] if three else [""]
    for prefix in names:
        assert bool(np.isfinite(cube[f"{prefix}eigenvalue"]).all())
        status = cube[f"column_status{'_' + prefix.rstrip('_') if prefix else ''}"]
        assert bool((status == DONE).all())
    if three:
        assert cube.diagonal_overlap.dims == ("n", "flavour", "replicate", "rho", "top")
        assert cube.off_diagonal_mode_value.dims == ("n", "beta", "replicate", "mode")
    for n, beta, rho in itertools.product(GRID["n"], GRID["beta"], (0.0, 2.0)):
        point = {"n": n, "beta": beta, "flavour": "sour"}
        S = sweep.ensemble.explain({**point, "rho": rho}, sweep.seed, 1)["S"]
        stored = cube.eigenvalue.sel(point).sel(replicate=1, rho=rho).values
        assert stored == pytest.approx(np.linalg.eigvalsh(S)[::-1][:3], abs=1e-12)


def test_a_toy_study_grows_on_every_axis(toy_sweep, tmp_path, assert_same_cube):
    first = {"n": [6], "beta": [0.5, 2.0], "flavour": ["plain"], "rho": [0.0, 2.0], "replicates": 2}
    more = {
        "n": [4, 6],
        "beta": [0.5, 1.0, 2.0],
        "flavour": ["plain", "very sweet (1.0)"],
        "rho": [0.0, 0.3, 2.0],
        "replicates": 3,
    }
    model = {"three": True}
    run(toy_sweep(grid=first, model=model), tmp_path / "grown")
    for axis, values in more.items():
        run(toy_sweep(grid={**first, axis: values}, model=model), tmp_path / "grown")
    whole = toy_sweep(grid=more, model=model)
    run(whole, tmp_path / "grown")
    run(whole, tmp_path / "fresh")
    cube = open_cube(tmp_path / "grown")
    assert_same_cube(cube, open_cube(tmp_path / "fresh"))
    assert cube.flavour.values.tolist() == ["plain", "very sweet (1.0)"]


def test_axes_may_have_defaults(toy_sweep, tmp_path):
    sweep = toy_sweep(grid={"n": [5], "beta": None, "flavour": None, "replicates": 1})
    run(sweep, tmp_path / "s")
    cube = open_cube(tmp_path / "s")
    assert cube.beta.values.tolist() == [1.0]
    assert cube.flavour.values.tolist() == ["plain"]


def test_a_column_that_raises_fails_alone(toy_sweep, tmp_path, cluster, assert_same_cube):
    plain = toy_sweep(grid=GRID)
    sweep = poisoned(plain, ("sour", 1))
    run(plain, tmp_path / "sound")
    outcome = run(sweep, tmp_path / "serial")
    assert (outcome.progress.total, outcome.progress.done, outcome.progress.failed) == (36, 30, 6)
    assert {failure.replicate for failure in outcome.failures} == {1}
    cube, sound = open_cube(tmp_path / "serial"), open_cube(tmp_path / "sound")
    bad = np.zeros(cube.column_status.shape, dtype=bool)
    bad[:, :, 1, 1] = True
    assert cube.flavour.values.tolist() == ["plain", "sour"]
    assert np.array_equal(cube.column_status.values, np.where(bad, FAILED, DONE))
    for name in ("eigenvalue", "overlap", "mode_value", "mode_signal", "mode_noise", "signal_amplitude"):
        assert np.all(np.isnan(cube[name].values[bad])), name
        assert cube[name].values[~bad].tobytes() == sound[name].values[~bad].tobytes(), name
    assert not cube.column_digest.values[bad].any()
    # The same on a cluster.
    other = run(sweep, tmp_path / "cluster", cluster)
    assert other.progress.failed == 6
    assert_same_cube(cube, open_cube(tmp_path / "cluster"))
    for folder in ("serial", "cluster"):
        noted = lines(tmp_path / folder / "failures.jsonl")
        assert len(noted) == 6
        for line in noted:
            assert line["reason"] == "ArithmeticError: sour is poisoned"
            assert (line["level"], line["status"], line["seed"], line["replicate"]) == (
                "wigner",
                FAILED,
                11,
                1,
            )
            assert line["parameters"]["flavour"] == "sour"
            assert "sour is poisoned" in line["log"]
            assert "in column" in line["log"]
            assert line["command"].startswith(f"eigensweep column {tmp_path / folder} n=")
            assert "flavour=sour replicate=1 --level wigner" in line["command"]


def test_failed_columns_are_tried_again_on_request_only(toy_sweep, tmp_path, assert_same_cube):
    plain = toy_sweep(grid={**GRID, "n": [6]})
    run(poisoned(plain, ("sour", 1)), tmp_path / "s")
    before = open_cube(tmp_path / "s").load()
    toy_ensemble.ASKED.clear()
    assert run(plain, tmp_path / "s").progress.total == 0
    assert not toy_ensemble.ASKED
    # What was done is not done again, and what fails again stays marked.
    outcome = run(poisoned(plain, ("sour", 1)), tmp_path / "s", retry_failed=True)
    assert (outcome.progress.total, outcome.progress.done, outcome.progress.failed) == (3, 0, 3)
    assert set(toy_ensemble.ASKED) == {("wigner", "sour", 1)}
    assert_same_cube(open_cube(tmp_path / "s"), before)
    outcome = run(plain, tmp_path / "s", retry_failed=True)
    assert (outcome.progress.total, outcome.progress.done, outcome.progress.failed) == (3, 3, 0)
    run(plain, tmp_path / "fresh")
    assert_same_cube(open_cube(tmp_path / "s"), open_cube(tmp_path / "fresh"))
    assert run(plain, tmp_path / "s", retry_failed=True).progress.total == 0


def test_growth_leaves_failed_columns_as_they_are(toy_sweep, tmp_path, assert_same_cube):
    grid = {**GRID, "n": [6], "beta": [0.5]}
    plain = toy_sweep(grid=grid)
    more = toy_sweep(grid={**grid, "rho": [0.0, 0.3, 0.5, 2.0], "replicates": 5})
    run(poisoned(plain, ("sour", 1)), tmp_path / "s")
    toy_ensemble.ASKED.clear()
    run(more, tmp_path / "s")
    assert ("wigner", "sour", 1) not in toy_ensemble.ASKED
    assert {replicate for _, _, replicate in toy_ensemble.ASKED} == {3, 4}
    cube = open_cube(tmp_path / "s")
    assert bool((cube.column_status.sel(flavour="sour", replicate=1) == FAILED).all())
    assert bool(np.isnan(cube.eigenvalue.sel(flavour="sour", replicate=1)).all())
    run(more, tmp_path / "s", retry_failed=True)
    run(more, tmp_path / "fresh")
    assert_same_cube(open_cube(tmp_path / "s"), open_cube(tmp_path / "fresh"))


def test_what_fails_everywhere_stops_early(toy_sweep, tmp_path, small_tasks):
    sweep = poisoned(
        toy_sweep(grid={**GRID, "replicates": 30}), *itertools.product(("plain", "sour"), (0, 1))
    )
    with pytest.raises(StudyError) as caught:
        run(sweep, tmp_path / "s")
    message = str(caught.value)
    assert "columns all failed alike (ArithmeticError: plain is poisoned)" in message
    assert f"see {tmp_path / 's' / 'failures.jsonl'}" in message
    assert "--retry-failed" in message
    tally = load(tmp_path / "s").tally()["wigner"]
    assert engine.SYSTEMATIC <= tally[FAILED] <= 60
    assert tally[0] == 360 - tally[FAILED]
    assert lines(tmp_path / "s" / "log.jsonl")[-1]["event"].startswith("stopped: ")
    # Not where something succeeds: half of these are sound.
    outcome = run(
        poisoned(toy_sweep(grid={**GRID, "replicates": 30}), ("sour", 0), ("sour", 1)), tmp_path / "t"
    )
    assert outcome.progress.failed == 180


@pytest.mark.parametrize("dasked", [False, True])
def test_an_interrupted_run_goes_on(dasked, toy_sweep, tmp_path, cluster, assert_same_cube, small_tasks):
    sweep = toy_sweep(grid=GRID)
    client = cluster if dasked else None

    def stop(progress):
        if progress.done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(sweep, tmp_path / "s", client, watch=stop)
    events = lines(tmp_path / "s" / "log.jsonl")
    assert [line["event"] for line in events] == ["start", "interrupted"]
    assert not (tmp_path / "s" / "lock").exists()
    cube = open_cube(tmp_path / "s")
    done = (cube.column_status == DONE).values
    assert 6 <= done.sum() < 36
    assert np.array_equal(np.isfinite(cube.eigenvalue.values).all(axis=(-2, -1)), done)
    outcome = run(sweep, tmp_path / "s", client)
    assert outcome.progress.total <= 36 - 6
    run(sweep, tmp_path / "fresh")
    assert_same_cube(open_cube(tmp_path / "s"), open_cube(tmp_path / "fresh"))


def test_progress_and_log(toy_sweep, tmp_path, small_tasks):
    seen = []
    outcome = run(
        toy_sweep(grid=GRID), tmp_path / "s", watch=lambda p: seen.append((p.done, p.total, p.failed))
    )
    assert seen == [(3 * i, 36, 0) for i in range(13)]
    assert outcome.study == tmp_path / "s"
    progress = outcome.progress
    assert 0 < progress.compute_seconds <= progress.seconds
    assert (progress.workers, progress.dashboard) == (1, "")
    start, end = lines(tmp_path / "s" / "log.jsonl")
    assert (start["event"], start["columns"], end["event"], end["done"]) == ("start", 36, "end", 36)
    assert start["machine"]["blas"]
    assert start["versions"]["numpy"] == np.__version__


def test_the_dashboard_and_the_workers_are_told(toy_sweep, tmp_path, cluster):
    outcome = run(toy_sweep(grid=GRID), tmp_path / "s", cluster)
    assert outcome.progress.workers == 2
    assert outcome.progress.dashboard == cluster.dashboard_link
    assert "127.0.0.1" in outcome.progress.dashboard


def test_only_a_window_of_tasks_is_in_flight(toy_sweep, tmp_path, cluster, small_tasks, monkeypatch):
    flights = []
    submit = executors._Flight._submit

    def counted(self, *args, **kwargs):
        submit(self, *args, **kwargs)
        flights.append(len(self._tasks))

    monkeypatch.setattr(executors._Flight, "_submit", counted)
    run(toy_sweep(grid={**GRID, "n": [3, 4, 5, 6]}), tmp_path / "s", cluster)
    assert len(flights) == 24
    assert max(flights) == executors.WINDOW * 2


def test_bundles_hold_everything_once_and_last_about_as_long_as_they_should(toy_sweep, tmp_path, monkeypatch):
    sweep = toy_sweep(grid=GRID)
    with prepared(sweep, tmp_path / "s") as study:
        pending = list(study.pending())
        assert len(pending) == 12
        assert len(list(engine.bundle(study, pending))) == 1
        each = [3 * sweep.ensemble.work("wigner", dict(item.block.point)).seconds for item in pending]
        monkeypatch.setattr(engine, "BUNDLE_SECONDS", 2.5 * max(each))
        tasks = list(engine.bundle(study, iter(pending)))
        assert [block for task in tasks for block, _ in task.blocks] == [item.block for item in pending]
        assert not any(stored for task in tasks for _, stored in task.blocks)
        sizes = [len(task.blocks) for task in tasks]
        assert sizes == [3, 3, 3, 3]


def test_the_study_is_named_after_the_sweep(toy_sweep, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = run(toy_sweep(name="chosen", grid={**GRID, "n": [4]}))
    assert str(outcome.study) == "chosen"
    assert (tmp_path / "chosen" / "cube.zarr").is_dir()


def test_a_relative_study_is_written_by_workers_too(toy_sweep, tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(toy_sweep(grid={**GRID, "n": [4]}), "relative", cluster)
    assert bool((open_cube("relative").column_status == DONE).all())


def test_columns_are_sampled_once_even_across_levels_and_blocks(toy_sweep, tmp_path):
    run(toy_sweep(grid=GRID, model={"three": True}), tmp_path / "s")
    assert len(toy_ensemble.ASKED) == 36 + 12 + 18
    toy_ensemble.ASKED.clear()
    # New rho values come from the columns that are stored.
    outcome = run(
        toy_sweep(grid={**GRID, "rho": [0.0, 0.5, 1.0, 2.0]}, model={"three": True}), tmp_path / "s"
    )
    assert outcome.progress.done == 36 + 12 + 18
    assert not toy_ensemble.ASKED


def test_a_lost_cube_is_not_made_anew(toy_sweep, tmp_path, small_tasks):
    import shutil

    def lose(progress):
        if progress.done:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(tmp_path / "s" / "cube.zarr")

    with pytest.raises(StudyError, match="the cube has vanished"):
        run(toy_sweep(grid=GRID), tmp_path / "s", watch=lose)
    assert not (tmp_path / "s" / "cube.zarr").exists()
