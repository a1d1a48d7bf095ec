"""Figures: what is handed to matplotlib is what the cube and theory say, and vector text is text."""

import io
import subprocess
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from eigensweep.analysis import cells, figures, spike
from eigensweep.analysis.laws import ProductLaw
from eigensweep.pipeline import InputError, cube_at, open_cube, run, spectrum_at
from eigensweep.pipeline.schema import FAILED, PENDING

RHO = [0.3, 0.9, 1.6, 2.4, 3.5, 5.0]


@pytest.fixture(scope="module")
def study(small_sweep, tmp_path_factory):
    path = tmp_path_factory.mktemp("figures") / "study"
    grid = {"d": [20, 40], "delta": [0.1, 0.5, 2.0], "gamma": [0.25, 1.0], "rho": RHO, "T": 8}
    run(small_sweep(grid={**grid, "replicates": 5}), path)
    return path


@pytest.fixture
def cube(study):
    return open_cube(study)


@pytest.fixture(scope="module")
def raw_cube(small_sweep, tmp_path_factory):
    path = tmp_path_factory.mktemp("figures") / "raw"
    grid = {"d": [40], "delta": [0.5], "gamma": [0.25], "rho": None, "mu2": [0.5, 1.0, 2.0], "T": 16}
    run(small_sweep(grid={**grid, "replicates": 5}, model={"table": "raw"}), path)
    return open_cube(path)


@pytest.fixture
def toy(toy_sweep, tmp_path):
    run(toy_sweep(), tmp_path / "toy")
    return open_cube(tmp_path / "toy")


def bars(container):
    """x, y and half-length of an errorbar's points."""
    line, _, (segments,) = container
    ends = np.array([segment[:, 1] for segment in segments.get_segments()])
    return line.get_xdata(), line.get_ydata(), (ends[:, 1] - ends[:, 0]) / 2


def panels(figure):
    """Axes by title and label of the y axis, in the order of drawing; colour bars have neither."""
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def upright(ax):
    """Vertical lines across the panel, in the order of drawing."""
    return [line for line in ax.lines if len(line.get_xdata()) == 2 and np.ptp(line.get_xdata()) == 0]


def theory_line(ax):
    (line,) = [line for line in ax.lines if len(line.get_xdata()) > 300]
    return line.get_xdata(), line.get_ydata()


def test_transition_shows_means_and_standard_errors_over_replicates(cube):
    figure = figures.transition(cube, level="sample", pooling="mean", select={"delta": 0.5})
    axes = panels(figure)
    assert [ax.get_title() for ax in axes[:2]] == [rf"sample level, $\gamma$ = {g}" for g in ("0.25", "1")]
    for column, gamma in enumerate((0.25, 1.0)):
        here = cube.sel(delta=0.5, gamma=gamma, T=8, pooling="mean")
        for row, name in enumerate(("eigenvalue", "overlap")):
            containers = axes[2 * row + column].containers
            assert len(containers) == 2
            for d, container in zip((20, 40), containers, strict=True):
                values = here[name].sel(d=d, top=0).transpose("replicate", "rho").values
                x, y, error = bars(container)
                np.testing.assert_array_equal(x, RHO)
                np.testing.assert_allclose(y, values.mean(axis=0), rtol=1e-13)
                np.testing.assert_allclose(error, values.std(axis=0, ddof=1) / np.sqrt(5), rtol=1e-9)


def test_transition_lines_are_theory_and_both_thresholds_are_marked(cube):
    figure = figures.transition(cube, pooling="causal", select={"delta": 2.0})
    population, *sample = panels(figure)[:3]
    overlaps = panels(figure)[3:]
    x, y = theory_line(population)
    np.testing.assert_allclose(y, spike.population_outlier(x, 2.0), rtol=1e-14)
    np.testing.assert_allclose(theory_line(overlaps[0])[1], spike.population_overlap(x, 2.0), rtol=1e-14)
    assert [line.get_xdata()[0] for line in upright(population)] == [spike.population_threshold(2.0)]
    for gamma, outlier, overlap in zip((0.25, 1.0), sample, overlaps[1:], strict=True):
        x, y = theory_line(outlier)
        np.testing.assert_allclose(y, spike.sample_outlier(x, 2.0, gamma), rtol=1e-14)
        np.testing.assert_allclose(theory_line(overlap)[1], spike.sample_overlap(x, 2.0, gamma), rtol=1e-14)
        both = [spike.population_threshold(2.0), spike.sample_threshold(2.0, gamma)]
        first, second = upright(overlap)
        assert [line.get_xdata()[0] for line in (first, second)] == both
        assert first.get_color() != second.get_color()
        assert first._dash_pattern != second._dash_pattern
        assert set(both) <= {*x}  # the line bends exactly where theory does


def test_pending_and_failed_columns_never_enter_a_mean(study):
    plain = xr.open_zarr(study / "cube.zarr").load()
    plain["eigenvalue"][...] = plain["eigenvalue"].where(plain.replicate > 1, 1e6)
    plain["column_status"][..., 0] = FAILED
    plain["column_status"][..., 1] = PENDING
    where = {"delta": 0.5, "gamma": 1.0}
    figure = figures.transition(plain, level="sample", pooling="mean", select=where, quantity="eigenvalue")
    values = open_cube(study).eigenvalue.sel(where).sel(T=8, pooling="mean", top=0, d=40)
    kept = values.sel(replicate=[2, 3, 4]).transpose("replicate", "rho").values
    _, y, error = bars(panels(figure)[0].containers[1])
    np.testing.assert_allclose(y, kept.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(error, kept.std(axis=0, ddof=1) / np.sqrt(3), rtol=1e-9)
    assert "3 replicates" in figure.get_suptitle()


def test_what_is_not_done_at_all_is_told_and_one_replicate_has_no_bar(cube):
    none = cube.copy()
    none["column_status"] = xr.full_like(cube.column_status, PENDING)
    figure = figures.transition(none, level="sample")
    assert all("no column is done" in ax.texts[0].get_text() for ax in panels(figure))
    assert not any(container[0].get_xdata().size for ax in panels(figure) for container in ax.containers)
    one = figures.transition(cube.isel(replicate=[0]), level="sample", quantity="overlap")
    line, _, (segments,) = panels(one)[0].containers[0]
    assert np.isfinite(line.get_ydata()).all()
    assert not any(np.isfinite(segment).all() and segment.size for segment in segments.get_segments())


def test_transition_at_other_strengths_comes_from_the_columns(cube):
    rho = np.linspace(1.0, 2.0, 30)
    figure = figures.transition(
        cube,
        rho=rho,
        level="sample",
        pooling="mean",
        select={"delta": 0.5, "gamma": 0.25},
        quantity="overlap",
    )
    exact = cube_at(cube.sel(delta=0.5, gamma=0.25, T=8, pooling="mean"), rho).overlap.isel(top=0)
    lines = [line for line in panels(figure)[0].lines if len(line.get_xdata()) == 30]
    for d, line in zip((20, 40), lines, strict=True):
        np.testing.assert_allclose(line.get_ydata(), exact.sel(d=d).mean("replicate"), rtol=1e-13)


def test_a_mu2_study_is_drawn_over_rho_and_a_raw_table_with_both_outliers(raw_cube):
    figure = figures.transition(raw_cube, level="sample", pooling="mean")
    eigenvalue, overlap = panels(figure)
    here = raw_cube.sel(pooling="mean", T=16, d=40, delta=0.5, gamma=0.25)
    gain = here.alpha.item() / here.kappa.item()
    for rank, container in enumerate(eigenvalue.containers):
        x, y, _ = bars(container)
        np.testing.assert_allclose(x, gain * raw_cube.mu2.values, rtol=1e-14)
        np.testing.assert_allclose(y, here.eigenvalue.isel(top=rank).mean("replicate").values, rtol=1e-13)
    summed = here.overlap.sum("top").mean("replicate").values
    np.testing.assert_allclose(bars(overlap.containers[0])[1], summed, rtol=1e-13)
    rival = spike.sample_outlier(spike.second_strength(0.5, 16.0), 0.5, 0.25)
    upper, lower = [line for line in eigenvalue.lines if len(line.get_xdata()) > 300]
    signal = spike.sample_outlier(upper.get_xdata(), 0.5, 0.25, table="raw", gain=gain)
    np.testing.assert_allclose(upper.get_ydata(), np.maximum(signal, rival), rtol=1e-14)
    np.testing.assert_allclose(lower.get_ydata(), np.minimum(signal, rival), rtol=1e-14)


def test_an_ensemble_without_theory_is_drawn_without_lines(toy):
    figure = figures.transition(toy, select={"flavour": "sour"})
    axes = panels(figure)
    assert len(axes) == 4
    assert not any(len(line.get_xdata()) > 3 for ax in axes for line in ax.lines)
    values = toy.eigenvalue.sel(n=14, beta=1.0, flavour="sour", top=0).mean("replicate").values
    np.testing.assert_allclose(bars(axes[1].containers[1])[1], values, rtol=1e-13)
    assert len(panels(figures.spectrum(toy))) == 2
    mesh = panels(figures.phase_diagram(toy))[0].collections[0]
    assert mesh.get_array().shape == (3, 2)


@pytest.mark.parametrize(("delta", "gamma"), [(0.5, 0.25), (2.0, 1.0)])
def test_spectrum_is_a_density_beside_its_law(cube, delta, gamma):
    where = {"delta": delta, "gamma": gamma}
    figure = figures.spectrum(cube, rho=4.0, pooling="mean", level="sample", select=where)
    (ax,) = panels(figure)
    stairs = ax.patches[0].get_data()
    law = ProductLaw(delta, gamma)
    values = spectrum_at(cube.sel(where).sel(T=8, pooling="mean", d=40), [4.0]).eigenvalue.values
    positive = values[values > 1e-9]
    counts = np.histogram(positive, stairs.edges)[0]
    assert counts.sum() == positive.size
    np.testing.assert_allclose(stairs.values, counts / values.size / np.diff(stairs.edges), rtol=1e-12)
    curve = next(line for line in ax.lines if len(line.get_xdata()) > 300)
    np.testing.assert_array_equal(curve.get_ydata(), law.pdf(curve.get_xdata()))
    assert np.trapezoid(curve.get_ydata(), curve.get_xdata()) == pytest.approx(1 - law.atom, abs=0.02)
    places = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) <= 2]
    assert set(law.support) <= set(places)
    outlier = spike.sample_outlier(4.0, delta, gamma)
    assert (outlier in places) == (spike.sample_threshold(delta, gamma) < 4.0)
    assert bool(ax.texts) == (law.atom > 0)
    if ax.texts:
        share = np.mean(values <= 1e-9)
        assert ax.texts[0].get_text() == f"zeros: {share:.3f}\ntheory: {law.atom:.3f}"


def test_spectrum_of_the_population_and_of_a_cube_without_columns(cube):
    figure = figures.spectrum(cube, level="population", pooling="mean", select={"delta": 0.5})
    curve = next(line for line in panels(figure)[0].lines if len(line.get_xdata()) > 300)
    np.testing.assert_array_equal(curve.get_ydata(), ProductLaw(0.5, 0.0).pdf(curve.get_xdata()))
    bare = cube.drop_vars([name for name in cube.variables if "mode" in str(name)])
    with pytest.raises(InputError, match="columns"):
        figures.spectrum(bare)


def test_phase_diagram_cells_hold_the_means_between_explicit_edges(cube):
    figure = figures.phase_diagram(cube, select={"pooling": "mean"})
    axes = panels(figure)
    assert [ax.get_title() for ax in axes] == [r"$\gamma$ = 0.25", r"$\gamma$ = 1"]
    for gamma, ax in zip((0.25, 1.0), axes, strict=True):
        mesh = ax.collections[0]
        corners = mesh.get_coordinates()
        assert ax.get_xscale() == "log"
        ratio = np.sqrt([0.1 * 0.5, 0.5 * 2.0])
        edges = [0.1**2 / ratio[0], *ratio, 2.0**2 / ratio[1]]
        np.testing.assert_allclose(corners[0, :, 0], edges, rtol=1e-12)
        np.testing.assert_allclose(corners[:, 0, 1], cells.cell_edges(RHO), rtol=1e-12)
        where = {"gamma": gamma, "T": 8, "pooling": "mean", "d": 40, "top": 0}
        mean = cube.overlap.sel(where).mean("replicate").transpose("rho", "delta").values
        np.testing.assert_allclose(mesh.get_array(), mean, rtol=1e-13)
        population, sample = ax.lines
        x = sample.get_xdata()
        np.testing.assert_allclose(sample.get_ydata(), spike.sample_threshold(x, gamma), rtol=1e-14)
        np.testing.assert_allclose(population.get_ydata(), spike.population_threshold(x), rtol=1e-14)


def test_phase_diagram_takes_the_first_ratio_that_varies(cube):
    assert panels(figures.phase_diagram(cube))[0].get_xlabel() == r"$\delta = d/V$"
    assert panels(figures.phase_diagram(cube.isel(delta=[1])))[0].get_xlabel() == r"$\gamma = d/N$"
    assert panels(figures.phase_diagram(cube.isel(delta=[1], gamma=[0])))[0].get_xlabel() == r"$\delta = d/V$"


def test_phase_diagram_over_both_ratios_has_its_boundary_where_the_threshold_is_rho(cube):
    figure = figures.phase_diagram(cube, "delta", "gamma", rho=2.4, select={"pooling": "mean"})
    (ax,) = panels(figure)
    mesh, population, sample = ax.collections
    where = {"T": 8, "pooling": "mean", "d": 40, "top": 0, "rho": 2.4}
    mean = cube.overlap.sel(where).mean("replicate").transpose("gamma", "delta").values
    np.testing.assert_allclose(mesh.get_array(), mean, rtol=1e-13)
    for contour, gammas in ((population, False), (sample, True)):
        x, y = np.concatenate([path.vertices for path in contour.get_paths()]).T
        np.testing.assert_allclose(spike.sample_threshold(x, y if gammas else 0 * y), 2.4, rtol=2e-4)
    exact = figures.phase_diagram(cube, "delta", "gamma", rho=2.0, select={"pooling": "mean"})
    off_grid = (
        cube_at(cube.sel(T=8, pooling="mean", d=40), [2.0]).overlap.isel(top=0, rho=0).mean("replicate")
    )
    np.testing.assert_allclose(
        panels(exact)[0].collections[0].get_array(), off_grid.transpose("gamma", "delta").values, rtol=1e-13
    )


def test_phase_diagram_masks_what_is_not_done_and_measures_detection(cube):
    part = cube.copy()
    status = cube.column_status.copy()
    status.loc[{"delta": 0.5}] = FAILED
    part["column_status"] = status
    where = {"pooling": "mean", "gamma": 0.25}
    figure = figures.phase_diagram(part, select=where, quantity="detection")
    found = panels(figure)[0].collections[0].get_array()
    assert np.ma.getmaskarray(found)[:, 1].all()
    assert not np.ma.getmaskarray(found)[:, [0, 2]].any()
    top = cube.eigenvalue.sel({**where, "T": 8, "d": 40, "top": 0, "delta": 2.0})
    share = (top > ProductLaw(2.0, 0.25).top_quantile(0.95, 40)).mean("replicate").values
    np.testing.assert_allclose(found[:, 2], share, rtol=1e-13)


def fits_over(cube):
    delta, gamma = cube.delta.values, cube.gamma.values
    population = np.repeat(spike.population_threshold(delta)[:, None], gamma.size, axis=1)
    sample = spike.sample_threshold(delta[:, None], gamma[None, :])
    theory = np.stack([population, sample])
    dims = ("level", "delta", "gamma")
    shift = np.array([[[1.0, 1.0], [1.02, 1.02], [1.2, 1.2]], [[0.97, 1.03], [1.0, np.nan], [1.3, 0.99]]])
    coords = {"level": ["population", "sample"], "delta": delta, "gamma": gamma}
    values = theory * shift
    data = {"threshold": values, "low": values * 0.95, "high": values * 1.1, "theory": theory}
    return xr.Dataset({name: (dims, array) for name, array in data.items()}, coords)


def test_fitted_thresholds_are_points_with_intervals_on_the_diagram(cube):
    fits = fits_over(cube)
    figure = figures.phase_diagram(cube, select={"pooling": "mean"}, fits=fits)
    for gamma, ax in zip((0.25, 1.0), panels(figure), strict=True):
        part = fits.sel(level="sample", gamma=gamma)
        good = np.isfinite(part.threshold.values)
        line, _, (segments,) = ax.containers[0]
        np.testing.assert_array_equal(line.get_xdata(), cube.delta.values[good])
        np.testing.assert_array_equal(line.get_ydata(), part.threshold.values[good])
        ends = np.array([segment[:, 1] for segment in segments.get_segments()])
        np.testing.assert_allclose(ends, np.stack([part.low.values, part.high.values], -1)[good], rtol=1e-12)
    with pytest.raises(InputError, match="rho is no axis"):
        figures.phase_diagram(cube, "delta", "gamma", fits=fits)


def test_thresholds_count_each_fit_once_and_tell_how_many_intervals_hold_theory(cube):
    figure = figures.thresholds(fits_over(cube))
    (ax,) = panels(figure)
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words[:2] == [
        "population: 2 of 3 intervals hold theory",
        "sample: 4 of 5 intervals hold theory",
    ]
    identity = next(line for line in ax.lines if line.get_linestyle() == "-")
    np.testing.assert_array_equal(identity.get_xdata(), identity.get_ydata())
    with pytest.raises(InputError, match="no cell"):
        figures.thresholds(fits_over(cube) * np.nan)


def test_poolings_are_compared_at_one_norm(cube, raw_cube):
    figure = figures.pooling_comparison(cube, 1.5, level="sample", select={"delta": 0.5, "gamma": 0.25})
    eigenvalue, overlap = panels(figure)
    gains = (cube.alpha / cube.kappa).sel(T=8)
    order = np.argsort(gains.values)
    assert [text.get_text().split(" ")[0] for text in overlap.get_yticklabels()] == cube.pooling.values[
        order
    ].tolist()
    rho = 1.5 * gains.values[order]
    ticks = [segment[0, 0] for segment in overlap.collections[-1].get_segments()]
    np.testing.assert_allclose(ticks, spike.sample_overlap(rho, 0.5, 0.25), rtol=1e-13)
    for row, name in enumerate(cube.pooling.values[order]):
        here = cube.sel(delta=0.5, gamma=0.25, T=8, pooling=name, d=40)
        exact = cube_at(here, [rho[row]])
        for ax, quantity in ((eigenvalue, "eigenvalue"), (overlap, "overlap")):
            mean = exact[quantity].isel(top=0, rho=0).mean("replicate").item()
            assert ax.containers[1][0].get_xdata()[row] == pytest.approx(mean, rel=1e-13)
    stored = panels(figures.pooling_comparison(raw_cube, 1.0, level="sample"))[1]
    values = raw_cube.overlap.sel(mu2=1.0, pooling="mean").sum("top").mean("replicate").item()
    assert values == pytest.approx(stored.containers[0][0].get_xdata()[0], rel=1e-13)


def test_axes_of_ones_own_are_drawn_on_and_their_number_is_checked(cube):
    figure = Figure()
    ax = figure.subplots()
    where = {"delta": 0.5, "gamma": 1.0, "pooling": "mean"}
    assert figures.transition(cube, level="sample", select=where, quantity="overlap", axes=ax) is figure
    assert ax.containers
    assert ax.get_legend() is not None
    assert figures.spectrum(cube, level="sample", select=where, axes=figure.add_subplot()) is figure
    assert figures.phase_diagram(cube, select=where, axes=figure.add_subplot()) is figure
    with pytest.raises(ValueError, match="1 given and 6 panels"):
        figures.transition(cube, axes=ax)


def test_bad_requests_name_the_thing_and_the_nearest_known_one(cube):
    for call, words in (
        (lambda: figures.transition(cube, level="sampel"), "did you mean 'sample'"),
        (lambda: figures.transition(cube, select={"delt": 0.5}), "did you mean 'delta'"),
        (lambda: figures.transition(cube, select={"delta": 0.7}), "no such value"),
        (lambda: figures.transition(cube, quantity="overlaps"), "did you mean 'overlap'"),
        (lambda: figures.phase_diagram(cube, x="pooling"), "no such axis of numbers"),
        (lambda: figures.phase_diagram(cube, x="gamma", level="population"), "no such axis"),
        (lambda: figures.phase_diagram(cube, x="rho", y="rho"), "it is x as well"),
        (lambda: figures.spectrum(cube, rho=-1.0), "at least 0"),
        (lambda: figures.pooling_comparison(cube.isel(pooling=0)), "no dimension 'pooling'"),
    ):
        with pytest.raises(InputError, match=words):
            call()


@pytest.mark.parametrize("kind", sorted(figures.KINDS))
def test_every_kind_draws_by_default_without_warning_and_keeps_text_as_text(kind, cube, tmp_path):
    draw, words = figures.KINDS[kind]
    assert words
    before = dict(mpl.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(cube)
        for suffix in ("svg", "pdf", "png"):
            figure.savefig(tmp_path / f"figure.{suffix}")
    assert dict(mpl.rcParams) == before
    svg = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "replicates</text>" in svg or "sample level" in svg
    assert svg.count("<text") > 20
    assert "DejaVuSans-" not in svg  # glyph outlines are defined under such names
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/Subtype /Type3" not in pdf
    assert b"/Type3" not in pdf
    smallest = min(
        text.get_fontsize()
        for text in figure.findobj(mpl.text.Text)
        if text.get_visible() and text.get_text()
    )
    assert smallest >= 8.0
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    assert figure._repr_png_().startswith(b"\x89PNG")


def drawn_texts(figure):
    """Every text that is drawn, with its box: a tick outside its axis' range has a label but draws none."""
    texts = [text for text in figure.findobj(mpl.text.Text) if text.get_visible() and text.get_text()]
    hidden = set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-9 * (high - low)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low - slack <= tick.get_loc() <= high + slack:
                hidden |= {tick.label1, tick.label2}
    return [(text.get_text(), text.get_window_extent()) for text in texts if text not in hidden]


@pytest.mark.parametrize("kind", sorted(figures.KINDS))
def test_no_text_of_a_figure_leaves_it_or_lies_on_another(kind, cube):
    figure = figures.KINDS[kind][0](cube)
    figure.savefig(io.BytesIO(), format="png")
    texts = drawn_texts(figure)
    assert len(texts) > 20
    for number, (words, box) in enumerate(texts):
        assert box.x0 >= figure.bbox.x0 - 1, words
        assert box.x1 <= figure.bbox.x1 + 1, words
        for other, second in texts[:number]:
            width = min(box.x1, second.x1) - max(box.x0, second.x0)
            height = min(box.y1, second.y1) - max(box.y0, second.y0)
            assert min(width, height) < 1.0, (words, other)


def test_the_theory_is_at_hand_without_matplotlib():
    code = (
        "import sys, eigensweep.analysis; from eigensweep.analysis import ProductLaw, figures; "
        "sys.exit(any(name.startswith('matplotlib') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ascending = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12, unique=True).map(sorted)


@settings(deadline=None, derandomize=True)
@given(ascending, st.sampled_from(["linear", "log"]))
def test_every_value_lies_inside_its_own_cell(values, scale):
    if np.any(np.diff(values) < 1e-9 * np.array(values)[1:]):
        return
    edges = cells.cell_edges(values, scale)
    assert edges.size == len(values) + 1
    assert np.all(edges[:-1] < values)
    assert np.all(values < edges[1:])
    assert np.all(edges >= 0)


def test_edges_of_uneven_axes_are_halfway_on_the_axis_own_scale():
    np.testing.assert_allclose(cells.cell_edges([0.0, 1.0, 4.0]), [0.0, 0.5, 2.5, 5.5])
    np.testing.assert_allclose(cells.cell_edges([-1.0, 1.0]), [-2.0, 0.0, 2.0])
    np.testing.assert_allclose(cells.cell_edges([0.01, 1.0], "log"), [0.001, 0.1, 10.0])
    assert cells.axis_scale(np.geomspace(0.1, 10, 6)) == "log"
    assert cells.axis_scale(np.linspace(0.1, 10, 6)) == "linear"
    assert cells.axis_scale([0.0, 1.0, 100.0]) == "linear"
    with pytest.raises(ValueError, match="ascending"):
        cells.cell_edges([2.0, 1.0])
    with pytest.raises(ValueError, match="logarithmic"):
        cells.cell_edges([0.0, 1.0], "log")
