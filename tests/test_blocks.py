"""Blocks cover what a sweep asks for exactly once, in whole chunks."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.blocks import LONGEST_RUN, SIGNAL_CHUNK, Block, Layout, blocks, fresh_layout, guard
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import StudyError

RANDOM = settings(deadline=None, derandomize=True, max_examples=150)
LEVELS = (Level("whole", "", "", ("d", "x", "y"), ""), Level("part", "part_", "_part", ("d", "y"), ""))

sizes = st.lists(st.sampled_from([4, 8, 100, 700, 2000, 9000]), min_size=1, max_size=3, unique=True)
numbers = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)
words = st.lists(st.sampled_from(["a", "b(1.0)", "c"]), min_size=1, max_size=3, unique=True)
signals = st.lists(st.floats(0, 9), min_size=1, max_size=3, unique=True)


@st.composite
def requests(draw):
    axes = {"d": tuple(draw(sizes)), "x": tuple(draw(numbers)), "y": tuple(draw(words))}
    counts = {d: draw(st.integers(1, 150)) for d in axes["d"]}
    return axes, counts, tuple(draw(signals))


def laid_out(axes, counts, signal):
    return fresh_layout(axes, "rho", signal, max(counts.values()), 3)


@RANDOM
@given(st.lists(requests(), min_size=1, max_size=3))
def test_every_column_asked_for_is_covered_once(history):
    layout = laid_out(*history[0])
    for request in history[1:]:
        layout = layout.grown(laid_out(*request))
    axes, counts, _ = history[-1]
    found = list(blocks(layout, LEVELS, axes, counts))
    covered = {}
    for block in found:
        guard(block, layout)
        assert block.first < block.wanted <= block.stop
        assert [name for name, _ in block.point] == list(
            next(v for v in LEVELS if v.name == block.level).axes
        )
        for replicate in range(block.first, block.wanted):
            key = (block.level, block.point, replicate)
            assert key not in covered
            covered[key] = block
    asked = {
        (level.name, tuple(zip(level.axes, values, strict=True)), replicate)
        for level in LEVELS
        for values in itertools.product(*(axes[name] for name in level.axes))
        for replicate in range(counts[values[0]])
    }
    assert set(covered) == asked


@RANDOM
@given(st.lists(requests(), min_size=1, max_size=3))
def test_no_two_blocks_touch_one_chunk(history):
    layout = laid_out(*history[0])
    for request in history[1:]:
        layout = layout.grown(laid_out(*request))
    axes, counts, _ = history[-1]
    cells = set()
    for block in blocks(layout, LEVELS, axes, counts):
        *place, run = block.selection
        assert run.start == block.run * layout.run
        assert run.stop == min(run.start + layout.run, layout.replicates)
        assert block.key == ".".join(map(str, (*block.index, block.run)))
        for name, i, one in zip((n for n, _ in block.point), block.index, place, strict=True):
            assert (one.start, one.stop) == (i, i + 1)
            assert layout.axes[name][i] == dict(block.point)[name]
        assert (block.level, block.key) not in cells
        cells.add((block.level, block.key))


@RANDOM
@given(requests(), requests())
def test_growth_moves_nothing_and_forgets_nothing(first, second):
    before = laid_out(*first)
    after = before.grown(laid_out(*second))
    for name, values in before.axes.items():
        assert after.axes[name][: len(values)] == values
        assert set(after.axes[name]) == {*values, *second[0][name]}
        assert len(set(after.axes[name])) == len(after.axes[name])
    assert after.signal_values[: len(before.signal_values)] == before.signal_values
    assert set(after.signal_values) == {*first[2], *second[2]}
    assert after.replicates == max(*first[1].values(), *second[1].values())
    assert (after.run, after.signal_chunk, after.top) == (before.run, before.signal_chunk, before.top)
    assert after.modes == max(after.axes["d"])
    assert after.grown(laid_out(*first)) == after
    assert after.size("d") == len(after.axes["d"])
    assert after.size("replicate") == after.replicates
    assert after.size("rho") == len(after.signal_values)
    assert (after.size("top"), after.size("mode")) == (3, after.modes)


@RANDOM
@given(requests())
def test_a_fresh_layout(request):
    axes, counts, signal = request
    layout = laid_out(axes, counts, signal)
    assert layout.modes == max(axes["d"])
    assert 1 <= layout.run <= LONGEST_RUN
    assert layout.run <= layout.replicates
    # A block of the largest size stays near a second; runs differ in length as little as can be.
    assert layout.run == 1 or layout.run * layout.modes**3 <= 1.5e9
    runs = -(-layout.replicates // layout.run)
    assert runs * (layout.run - 1) < layout.replicates
    assert layout.signal_chunk == max(SIGNAL_CHUNK, len(signal))


def test_the_largest_come_first_and_neighbours_share_a_table():
    axes = {"d": (4, 700, 8), "x": (1, 2), "y": ("a", "b")}
    layout = laid_out(axes, {4: 2, 700: 3, 8: 1}, (1.0,))
    found = list(blocks(layout, LEVELS[:1], axes, {4: 2, 700: 3, 8: 1}))
    order = [dict(block.point)["d"] for block in found]
    assert order == sorted(order, reverse=True)
    assert [dict(block.point)["y"] for block in found] == ["a", "b"] * (len(found) // 2)


def layout_and_block():
    layout = Layout(
        {"d": (4, 8), "x": (1,), "y": ("a", "b")},
        "rho",
        (0.0, 1.0),
        10,
        run=4,
        signal_chunk=256,
        top=3,
        modes=8,
    )
    return layout, Block("whole", (("d", 8), ("x", 1), ("y", "b")), (1, 0, 1), 1, 4, 8, 6)


@pytest.mark.parametrize(
    "change", [{"first": 5}, {"stop": 7}, {"stop": 9}, {"run": 2}, {"first": 0, "stop": 8}]
)
def test_a_part_of_a_chunk_is_refused(change):
    layout, block = layout_and_block()
    guard(block, layout)
    wrong = replace(block, **change)
    with pytest.raises(StudyError) as caught:
        guard(wrong, layout)
    message = str(caught.value)
    assert message.startswith("replicate: the whole block at d=8, x=1, y=b")
    assert "not a whole chunk" in message
    assert "two writers of one chunk lose each other's cells" in message
    assert message.endswith("take blocks from blocks()")


@pytest.mark.parametrize(("index", "name"), [((0, 0, 1), "d"), ((1, 0, 0), "y")])
def test_another_blocks_place_is_refused(index, name):
    layout, block = layout_and_block()
    with pytest.raises(StudyError, match=f"^{name}: the whole block .* another block's place; lay the study"):
        guard(replace(block, index=index), layout)


def test_the_last_run_ends_with_the_axis():
    layout, block = layout_and_block()
    last = replace(block, run=2, first=8, stop=10, wanted=10)
    guard(last, layout)
    with pytest.raises(StudyError, match="holds 8 to 9"):
        guard(replace(last, stop=12), layout)
    # Where the axis has grown, the same chunk is a longer block.
    guard(replace(last, stop=12), replace(layout, replicates=12))
