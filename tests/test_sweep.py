"""A sweep file is read whole: canonical where it is right, every fault at once where it is not."""

import json
import pickle
import time
import tomllib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigensweep.pipeline.ensemble import Axis, Level
from eigensweep.pipeline.errors import Fault, InputError, nearest
from eigensweep.pipeline.models import ENSEMBLES
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.tomlfile import key_lines

RANDOM = settings(deadline=None, derandomize=True, max_examples=40)

SWEEP = """\
name = "transition"
seed = 20260507

[grid]
d       = [200, 400, 800]
delta   = [0.5]
gamma   = [0.25, 1.0]
rho     = { start = 0.2, stop = 4.0, num = 77 }
T       = [16]
pooling = ["mean", "causal", "optimal"]
replicates = 50

[model]
ensemble = "attention-pooling"
table = "class-centered"
correlation = { kind = "prefix", length = 8 }

[record]
levels = ["population", "sample"]
top = 3
columns = true

[limits]
seconds_per_column = 3600
"""


def mapping(**changes):
    """The sweep above with other values: ``grid={"rho": None}`` takes a key away."""
    tables = tomllib.loads(SWEEP)
    for name, change in changes.items():
        if isinstance(change, dict):
            merged = {**tables.get(name, {}), **change}
            tables[name] = {key: value for key, value in merged.items() if value is not None}
        else:
            tables[name] = change
    return tables


def sweep(base=".", **changes):
    return Sweep.from_dict(mapping(**changes), base)


def refused(base=".", **changes):
    with pytest.raises(InputError) as caught:
        sweep(base, **changes)
    for one in caught.value.faults:
        assert one.thing
        assert one.reason
        assert one.remedy
    return [str(one) for one in caught.value.faults]


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "sweep.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refused_file(path):
    with pytest.raises(InputError) as caught:
        Sweep.from_toml(path)
    return caught.value.faults


def test_a_sweep_file_is_read(write):
    found = Sweep.from_toml(write(SWEEP))
    assert (found.name, found.seed, found.signal) == ("transition", 20260507, "rho")
    assert found.axes == {
        "d": (200, 400, 800),
        "delta": (0.5,),
        "gamma": (0.25, 1.0),
        "T": (16,),
        "pooling": ("mean", "causal", "optimal"),
    }
    assert len(found.signal_values) == 77
    assert found.signal_values[0] == 0.2
    assert found.signal_values[-1] == 4.0
    assert found.signal_values[1] == 0.25
    assert (found.replicates, found.replicates_of(400)) == (50, 50)
    assert set(found.record.levels) == {"population", "sample"}
    assert (found.record.top, found.record.columns) == (3, True)
    assert found.limits.seconds_per_column == 3600.0
    assert found.ensemble.options() == {
        "ensemble": "attention-pooling",
        "table": "class-centered",
        "correlation": "prefix(8)",
    }
    assert (found.files, found.inputs) == ({}, {})


def test_windows_line_ends_and_a_byte_order_mark_are_read(write):
    expected = Sweep.from_toml(write(SWEEP)).digest
    assert Sweep.from_toml(write(b"\xef\xbb\xbf" + SWEEP.replace("\n", "\r\n").encode())).digest == expected


def test_defaults():
    found = sweep(record={"levels": None, "top": None, "columns": None}, limits={}, seed=0)
    plain = mapping()
    for name in ("seed", "record", "limits"):
        del plain[name]
    assert Sweep.from_dict(plain).digest == found.digest


def test_what_the_canonical_json_is_like():
    found = sweep(grid={"pooling": ["mean", "exponential(0.30000000000000004)"], "delta": "1/2"})
    tables = json.loads(found.to_json())
    assert tables["grid"]["pooling"] == ["exponential(0.3)", "mean"]
    assert tables["grid"]["delta"] == [0.5]
    assert tables["model"]["correlation"] == "prefix(8)"
    assert len(found.digest) == 64


values = st.lists(st.floats(0.05, 3.0), min_size=1, max_size=4)


@RANDOM
@given(
    st.lists(st.integers(20, 400), min_size=1, max_size=4),
    values,
    values,
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    st.sampled_from(["rho", "mu2"]),
    st.randoms(use_true_random=False),
)
def test_round_trip_and_order_and_duplicates_are_irrelevant(d, delta, gamma, strengths, signal, random):
    grid = {"d": d, "delta": delta, "gamma": gamma, "rho": None, signal: strengths}
    # Large ratios leave small d no vocabulary, which is another test.
    grid["d"] = [600 + size for size in d]
    grid["replicates"] = {str(600 + size): size for size in d}
    found = sweep(grid=grid)
    again = Sweep.from_dict(json.loads(found.to_json()))
    assert again.digest == found.digest
    assert again.to_json() == found.to_json()
    assert pickle.loads(pickle.dumps(found)).digest == found.digest
    mixed = {
        key: random.sample(value * 2, len(value) * 2) if isinstance(value, list) else value
        for key, value in grid.items()
    }
    assert sweep(grid=mixed).digest == found.digest
    assert found.axes["d"] == tuple(dict.fromkeys(grid["d"]))
    assert found.signal_values == tuple(sorted(set(found.signal_values)))


@RANDOM
@given(st.integers(-400, 400), st.integers(1, 400), st.integers(2, 60))
def test_a_range_equals_its_rounded_literals(first, span, num):
    start, stop = max(0, first) / 100, (max(0, first) + span) / 100
    by_range = sweep(grid={"rho": {"start": start, "stop": stop, "num": num}})
    by_numpy = sweep(grid={"rho": np.linspace(start, stop, num)})
    literals = [float(f"{start + (stop - start) * i / (num - 1):.11g}") for i in range(num)]
    assert by_range.digest == by_numpy.digest
    assert by_range.signal_values == pytest.approx(literals, rel=1e-10)
    assert by_range.signal_values[-1] == stop
    assert sweep(grid={"rho": list(by_range.signal_values)}).digest == by_range.digest


def test_computed_values_are_one_with_literals():
    assert sweep(grid={"gamma": [0.1 + 0.2]}).digest == sweep(grid={"gamma": [0.3]}).digest
    assert sweep(grid={"gamma": [0.3, 0.1 + 0.2]}).axes["gamma"] == (0.3,)
    assert sweep(grid={"rho": [0.0, -0.0]}).signal_values == (0.0,)
    tenths = sweep(grid={"rho": {"start": 0.0, "stop": 1, "num": 11}})
    assert tenths.digest == sweep(grid={"rho": [i / 10 for i in range(11)]}).digest
    assert sweep(grid={"d": 200}).digest == sweep(grid={"d": [200.0]}).digest


def test_ranges():
    logs = sweep(grid={"gamma": {"start": 0.01, "stop": 1, "num": 3, "scale": "log"}})
    assert logs.axes["gamma"] == (0.01, 0.1, 1.0)
    sizes = sweep(grid={"d": {"start": 100, "stop": 800, "num": 4, "scale": "log"}})
    assert sizes.axes["d"] == (100, 200, 400, 800)
    assert all(isinstance(size, int) for size in sizes.axes["d"])
    falling = sweep(grid={"gamma": {"start": 1, "stop": 0.5, "num": 2}})
    assert falling.axes["gamma"] == (1.0, 0.5)
    assert sweep(grid={"gamma": {"start": 1, "stop": 1, "num": 1}}).axes["gamma"] == (1.0,)


def test_replicates_by_size():
    found = sweep(grid={"replicates": {"200": 200, "400": 80, "800": 40}})
    assert (found.replicates, found.replicates_of(800)) == (200, 40)
    same = sweep(grid={"replicates": {200: 7, 400: 7, 800: 7}})
    assert same.digest == sweep(grid={"replicates": 7}).digest


def test_a_list_in_the_model_is_an_axis():
    found = sweep(
        model={"table": ["raw", "centered"], "correlation": [{"kind": "prefix", "length": 8}, "markov(0.5)"]}
    )
    assert list(found.axes) == ["d", "delta", "gamma", "table", "correlation", "T", "pooling"]
    assert found.axes["correlation"] == ("prefix(8)", "markov(0.5)")
    assert found.axes["table"] == ("raw", "centered")
    again = Sweep.from_dict(json.loads(found.to_json()))
    assert again.digest == found.digest
    assert list(again.axes) == list(found.axes)


def test_the_json_schema_is_of_this_file():
    schema = Sweep.json_schema()
    assert set(schema["properties"]) == {"name", "seed", "grid", "model", "record", "limits", "inputs"}
    assert schema["$defs"]["Model"]["properties"]["ensemble"]["enum"] == sorted(ENSEMBLES)
    assert schema["additionalProperties"] is False
    json.dumps(schema, allow_nan=False)


FAULTS = [
    ({"seed": -1}, "seed = -1: it is below 0"),
    ({"seed": True}, "seed = true: it is not a whole number"),
    ({"seed": 1.5}, "seed = 1.5: it is not a whole number"),
    ({"seed": 2**70}, "not below"),
    ({"sede": 1}, "sede = 1: there is no such key; did you mean 'seed'?"),
    ({"name": ""}, "can't be the name of a folder"),
    ({"name": "a/b"}, "can't be the name of a folder"),
    ({"name": ".."}, "can't be the name of a folder"),
    ({"name": ".hidden"}, "can't be the name of a folder"),
    ({"name": "a\n"}, "can't be the name of a folder"),
    ({"name": "x" * 201}, "can't be the name of a folder"),
    ({"name": 5}, "name = 5: it is not a text"),
    ({"grid": [1]}, "grid = [1]: it is a value where a table belongs"),
    ({"model": "attention-pooling"}, "where a table belongs; write [model]"),
    ({"inputs": 3}, "where a table belongs"),
    ({"grid": {"delta": None}}, "grid.delta: it is missing; add delta, the ratio d/V"),
    ({"grid": {"gama": 1}}, "grid.gama = 1: there is no such axis; did you mean 'gamma'?"),
    ({"grid": {"table": "raw"}}, "write it below [model], where a list makes it an axis"),
    ({"grid": {"delta": [0.5, 0]}}, "grid.delta = 0: "),
    ({"grid": {"delta": []}}, "grid.delta = []: it is empty"),
    ({"grid": {"delta": [True]}}, "grid.delta = true: it is true or false, not a number"),
    ({"grid": {"delta": float("nan")}}, "grid.delta = nan: it is not a finite number"),
    ({"grid": {"gamma": [float("inf")]}}, "grid.gamma = inf: it is not a finite number"),
    ({"grid": {"delta": "1/0"}}, 'grid.delta = "1/0": '),
    ({"grid": {"d": [2.5]}}, "grid.d = 2.5: "),
    ({"grid": {"d": 10**400}}, "grid.d = an integer of more than 50 digits: it is not a finite number"),
    ({"grid": {"d": 2**60}}, "above 2^53"),
    ({"grid": {"T": 0}}, "grid.T = 0: "),
    ({"grid": {"T": 100_000}}, "grid.T = 100000: it is above 8192"),
    ({"grid": {"pooling": "meen"}}, "grid.pooling = \"meen\": there is no 'meen'; did you mean 'mean'?"),
    ({"grid": {"rho": -0.5}}, "grid.rho = -0.5: it is negative"),
    ({"grid": {"rho": "3"}}, 'grid.rho = "3": it is not a number'),
    ({"grid": {"rho": [True]}}, "grid.rho = true: it is true or false"),
    ({"grid": {"rho": None}}, "grid.rho: it is missing; add rho or mu2"),
    ({"grid": {"mu2": 1.0}}, "grid.mu2 = 1.0: it is given together with rho"),
    ({"grid": {"rho": {"start": 0, "stop": 1}}}, "the range lacks num"),
    ({"grid": {"rho": {"start": 0, "stop": 1, "num": 0}}}, "num = 0 is no whole number from 1"),
    ({"grid": {"rho": {"start": 0, "stop": 1, "num": 2_000_000}}}, "num = 2000000 is no whole number"),
    ({"grid": {"rho": {"start": 0, "stop": 1, "num": True}}}, "num = true"),
    ({"grid": {"rho": {"start": 0, "stop": 1, "num": 3, "scale": "lgo"}}}, "did you mean 'log'?"),
    ({"grid": {"rho": {"start": 0, "stop": 1, "num": 3, "scale": "log"}}}, "start and stop above 0"),
    ({"grid": {"rho": {"strat": 0, "stop": 1, "num": 3}}}, "did you mean 'start'?"),
    ({"grid": {"rho": {"start": "a", "stop": 1, "num": 3}}}, 'start = "a" is not a number'),
    ({"grid": {"rho": {"start": 0, "stop": float("inf"), "num": 3}}}, "stop = inf is not a finite"),
    ({"grid": {"pooling": {"start": 0, "stop": 1, "num": 3}}}, "a range is of numbers"),
    ({"grid": {"replicates": 0}}, "grid.replicates = 0: it is not a whole number from 1"),
    ({"grid": {"replicates": True}}, "grid.replicates = true: "),
    ({"grid": {"replicates": 2.0}}, "grid.replicates = 2.0: "),
    ({"grid": {"replicates": None}}, "grid.replicates: it is missing; add replicates = 50"),
    ({"grid": {"replicates": {"200": 2, "400": 2}}}, "it has no entry for d = 800"),
    ({"grid": {"replicates": {"200": 2, "400": 2, "800": 2, "900": 1}}}, "d = 900 is not in the grid"),
    ({"grid": {"replicates": {"200": 0, "400": 2, "800": 2}}}, "grid.replicates.200 = 0: "),
    ({"grid": {"replicates": {"x": 2, "200": 2, "400": 2, "800": 2}}}, "its key is no size d"),
    ({"model": {"ensemble": None}}, "model.ensemble: it is missing"),
    ({"model": {"ensemble": "attention-poling"}}, "did you mean 'attention-pooling'?"),
    ({"model": {"ensemble": 3}}, "model.ensemble = 3: it is not a text"),
    ({"model": {"table": "class-centred"}}, "did you mean 'class-centered'?"),
    ({"model": {"correlation": {"kind": "markof", "correlation": 0.5}}}, "did you mean 'markov'?"),
    ({"record": {"levels": ["sampel"]}}, 'record.levels = "sampel": there is no such level; did you mean'),
    ({"record": {"levels": []}}, "record.levels = []: it is empty"),
    ({"record": {"levels": "sample"}}, 'record.levels = "sample": it is not a list'),
    ({"record": {"top": 0}}, "record.top = 0: it is below 1"),
    ({"record": {"columns": 1}}, "record.columns = 1: it is neither true nor false"),
    ({"record": {"colums": True}}, "did you mean 'columns'?"),
    ({"limits": {"seconds_per_column": 0}}, "limits.seconds_per_column = 0: it is not above 0"),
    ({"limits": {"seconds_per_column": True}}, "limits.seconds_per_column = true: it is not a number"),
    ({"limits": {"seconds_per_column": float("nan")}}, "limits.seconds_per_column = nan: "),
]


@pytest.mark.parametrize(("changes", "said"), FAULTS, ids=[said for _, said in FAULTS])
def test_a_fault_is_named_with_its_remedy(changes, said):
    faults = refused(**changes)
    assert any(said in fault for fault in faults), faults


def test_a_missing_table_is_named():
    tables = mapping()
    del tables["model"]
    with pytest.raises(InputError, match=r"model: it is missing; add \[model\]"):
        Sweep.from_dict(tables)
    with pytest.raises(InputError, match="sweep = 3: it is no mapping"):
        Sweep.from_dict(3)


def test_all_faults_are_listed_at_once_with_their_lines(write):
    text = (
        SWEEP.replace("seed = 20260507", "sede = 1")
        .replace("[0.25, 1.0]", "[\n  0.25,\n  -1,\n]")
        .replace('"causal"', '"causl"')
        .replace("replicates = 50", "replicates = 0")
        .replace('table = "class-centered"', 'table = "class-centred"')
        .replace('"sample"]', '"sampel"]')
        .replace("top = 3", "top = 0")
        .replace("3600", "-1")
    )
    faults = refused_file(write(text))
    assert [(fault.line, fault.thing) for fault in faults] == [
        (2, "sede"),
        (7, "grid.gamma"),
        (13, "grid.pooling"),
        (14, "grid.replicates"),
        (18, "model.table"),
        (22, "record.levels"),
        (23, "record.top"),
        (27, "limits.seconds_per_column"),
    ]


def test_key_lines_skip_what_only_looks_like_keys():
    text = '''\
note = """
[grid]
seed = 1
"""
[ grid ]   # seed = 2
a = ["x = [", 'y', { z = 3 },
  # b = 1
  { c = 4 }
]
"d e" = 1
f.g = "}"
[[list]]
seed = 5
'''
    assert key_lines(text) == {
        "note": 1,
        "grid": 5,
        "grid.a": 6,
        "grid.d e": 10,
        "grid.f": 11,
        "grid.f.g": 11,
        "list": 12,
        "list.seed": 13,
    }


def test_combinations_are_all_listed_once_with_their_count():
    faults = refused(
        grid={"d": [2, 200], "gamma": [0.25, 3.0], "T": [4, 16], "pooling": ["mean", "prefix(8)"]},
        model={"correlation": ["prefix-fraction(0.5)", "prefix(8)"]},
    )
    # The prefix of signs spoils T = 4, that of the pooling too; d = 2 with gamma = 3 has N = 1.
    counts = {
        "model.correlation = prefix(8): a prefix of 8 is longer": "(in 8 of 32 combinations)",
        "grid.pooling = prefix(8): a prefix of 8 is longer": "(in 8 of 32 combinations)",
        "grid.gamma = 3.0: at d = 2": "(in 8 of 32 combinations)",
    }
    assert len(faults) == len(counts)
    for start, count in counts.items():
        [fault] = [fault for fault in faults if fault.startswith(start)]
        assert count in fault


def test_refused_poolings_and_sizes():
    assert any("alpha = 0" in fault for fault in refused(model={"correlation": "markov(-1)"}))
    faults = refused(grid={"T": 1, "replicates": 1}, model={"correlation": "markov(0.5)"})
    assert any("kappa = 0" in fault for fault in faults)
    assert any("copula" in fault for fault in refused(model={"correlation": "equicorrelated(-0.9)"}))
    [fault] = refused(grid={"delta": [0.5, 1e-310]})
    assert fault.startswith("grid.delta = 1e-310: ")
    assert "overflow (in 18 of 36 combinations)" in fault


def test_many_refused_combinations_are_counted_not_printed():
    poolings = [f"prefix({length})" for length in range(17, 67)]
    faults = refused(grid={"pooling": poolings})
    assert len(faults) == 21
    assert "and 30 more kinds of combinations are refused" in faults[-1]
    values = refused(grid={"rho": {"start": -2, "stop": -1, "num": 50}})
    assert len(values) == 6
    assert "and 45 more of its values" in values[-1]


def test_a_million_points_take_seconds_and_more_are_refused():
    wide = {"start": 0.1, "stop": 2.0, "num": 100}
    grid = {"d": {"start": 1000, "stop": 2000, "num": 25}, "delta": wide, "gamma": wide, "pooling": ["mean"]}
    start = time.process_time()
    sweep(grid={**grid, "T": [16, 17, 18, 19]})
    assert time.process_time() - start < 30
    [fault] = refused(grid={**grid, "T": [16, 17, 18, 19, 20]})
    assert "it has 1250000 points, and at most 1000000 are taken" in fault


def test_file_that_cannot_be_read(tmp_path, write):
    [fault] = refused_file(tmp_path / "none.toml")
    assert "there is no such file" in str(fault)
    assert str(tmp_path / "none.toml") in str(fault)
    [fault] = refused_file(tmp_path)
    assert "it is a folder" in str(fault)
    [fault] = refused_file("a\0b")
    assert "it is no path" in str(fault)
    [fault] = refused_file(write(SWEEP.replace("transition", "tränsition").encode("latin-1")))
    assert "is not UTF-8" in str(fault)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('name = "a"\nseed = = 2\n', 2, "not valid TOML: invalid value"),
        ('name = "a"\nname = "b"\nx = 1\n', 2, "overwrite"),
        ('name = "a"\n[grid\n', 2, "not valid TOML"),
        ('name = "a"\nd = [1,\n', 2, "not valid TOML"),
        ("d = " + "[" * 5000, None, "nested too deeply"),
        ("seed = " + "9" * 5000, None, "too many digits"),
    ],
)
def test_toml_errors_name_their_line(write, text, line, said):
    [fault] = refused_file(write(text))
    assert said in fault.reason
    assert fault.line == line


def test_an_empty_file_lacks_everything(write):
    assert {fault.thing for fault in refused_file(write(""))} >= {"name", "grid", "model"}


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "w.npy", np.linspace(1, 2, 16))
    np.save(tmp_path / "R.npy", 0.5 * np.eye(16) + 0.5)
    np.save(tmp_path / "objects.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "w.npz", w=np.ones(16))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "w.npy").read_bytes()[:-8])
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "folder.npy").mkdir()
    return tmp_path


def test_named_files_are_read_and_known_by_content(files):
    changes = {
        "grid": {"pooling": ["mean", "file(w.npy)"]},
        "model": {"correlation": {"kind": "file", "path": "R.npy"}},
    }
    found = sweep(files, **changes)
    assert found.files == {"w.npy": files / "w.npy", "R.npy": files / "R.npy"}
    assert set(found.inputs) == {"w.npy", "R.npy"}
    assert Sweep.from_dict(json.loads(found.to_json()), files).digest == found.digest
    assert pickle.loads(pickle.dumps(found)).digest == found.digest
    recorded = json.loads(found.to_json())
    np.save(files / "w.npy", np.ones(16))
    changed = sweep(files, **changes)
    assert changed.digest != found.digest
    assert [fault.thing for fault in changed.contradictions(found)] == ["inputs.w.npy"]
    with pytest.raises(InputError, match="restore the file of that digest"):
        Sweep.from_dict(recorded, files)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.npy", "does not exist"),
        ("objects.npy", "holds Python objects"),
        ("w.npz", "not in numpy's .npy format"),
        ("cut.npy", "is damaged or cut short"),
        ("text.npy", "not in numpy's .npy format"),
        ("folder.npy", "is not a file"),
        ("../w.npy", "does not lie in the sweep file's folder"),
        ("/etc/passwd", "does not lie in the sweep file's folder"),
        ("C:\\w.npy", "does not lie in the sweep file's folder"),
        ("", "does not lie in the sweep file's folder"),
        ("a\0b", "does not lie in the sweep file's folder"),
    ],
)
def test_files_that_cannot_be_taken_are_refused(files, name, said):
    faults = refused(files, grid={"pooling": ["mean", f"file({name})", "prefix(99)"]})
    assert len([fault for fault in faults if said in fault]) == 1, faults
    # The rest of the grid is checked all the same.
    assert any("a prefix of 99 is longer" in fault for fault in faults)
    faults = refused(files, model={"correlation": {"kind": "file", "path": name}}, record={"top": 0})
    assert len(faults) == 2
    assert faults[0].startswith("model.correlation = ")


def test_a_file_of_the_wrong_shape_is_refused(files):
    np.save(files / "w.npy", np.ones(3))
    [fault] = refused(files, grid={"pooling": "file(w.npy)"})
    assert "3 weights where T = 16 needs 16" in fault


def test_contradictions_name_the_keys_that_differ():
    study = sweep()
    grown = sweep(
        name="other",
        grid={"d": [300], "gamma": 3.0, "pooling": "last", "rho": 1.0, "replicates": 2, "T": 99},
        limits={"seconds_per_column": 5},
    )
    assert grown.contradictions(study) == []
    other = sweep(
        seed=1,
        grid={"rho": None, "mu2": 1.0},
        model={"table": "raw"},
        record={"top": 4, "columns": False, "levels": ["sample"]},
    )
    faults = other.contradictions(study)
    assert {fault.thing for fault in faults} == {
        "seed",
        "grid",
        "model.table",
        "record.top",
        "record.columns",
        "record.levels",
    }
    assert "seed = 1: the study has 20260507; " in str(next(one for one in faults if one.thing == "seed"))
    axis = sweep(model={"table": ["raw", "class-centered"]})
    assert {fault.thing for fault in axis.contradictions(study)} == {"grid", "model.table"}
    # The order in which levels are asked for means nothing.
    assert sweep(record={"levels": ["sample", "population"]}).contradictions(study) == []


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 10**30, 10**400, 1e308, 1e-308, 5e-324])
    | st.floats()
    | st.dates()
    | st.text(max_size=5)
    | st.sampled_from(["mean", "file(x)", "prefix(9)", "markov(1e-320)", "1/3", "exponential(1e308)", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "start", "stop", "num", "path", "length", "200", ""]), inner
        )
    ),
    max_leaves=4,
)
places = [
    *((name,) for name in ("name", "seed", "grid", "model", "record", "limits", "inputs", "other")),
    *(("grid", key) for key in ("d", "delta", "gamma", "rho", "mu2", "T", "pooling", "replicates", "other")),
    *(("model", key) for key in ("ensemble", "table", "correlation", "other")),
    *(("record", key) for key in ("levels", "top", "columns", "other")),
    ("limits", "seconds_per_column"),
]


def attempt(make):
    try:
        return make(), ()
    except InputError as error:
        return None, error.faults


@settings(RANDOM, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(places), junk), min_size=1, max_size=2))
def test_junk_is_refused_with_faults_or_read_but_never_breaks(changes):
    tables = mapping()
    for path, value in sorted(changes, key=lambda change: -len(change[0])):
        *outer, key = path
        (tables[outer[0]] if outer else tables)[key] = value
    found, faults = attempt(lambda: Sweep.from_dict(tables))
    assert all(one.reason and one.remedy and "\n" not in str(one) for one in faults)
    if found:
        assert Sweep.from_dict(json.loads(found.to_json())).digest == found.digest


@settings(RANDOM, max_examples=150)
@given(
    st.integers(0, len(SWEEP)), st.integers(0, 9), st.sampled_from(["", "=", "[", '"', "\n", "1", "'", "\t"])
)
def test_a_damaged_file_is_refused_with_faults_or_read(tmp_path_factory, start, length, inserted):
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    path.write_text(SWEEP[:start] + inserted + SWEEP[start + length :])
    _, faults = attempt(lambda: Sweep.from_toml(path))
    assert all(one.reason and one.remedy and "\n" not in str(one) for one in faults)


@dataclass(frozen=True)
class Toy:
    """A model with other axes, one of them with a default."""

    width: int
    name = "toy"
    derived = ()

    @property
    def axes(self):
        return (
            Axis("d", "int", "size", int),
            Axis("shape", "str", "shape", str),
            Axis("noise", "float", "noise", float, default=1.0),
        )

    @property
    def levels(self):
        return (Level("wigner", "", "", ("d", "shape", "noise"), "none"),)

    def options(self):
        return {"width": self.width}

    def check(self, point):
        if point["d"] < self.width:
            return [Fault("grid.d", str(point["d"]), "it is below the width", "raise it")]
        return []


def configure(options, files):
    unknown = [key for key in options if key not in ("ensemble", "width")]
    if unknown:
        raise InputError(Fault(f"model.{key}", "", "unknown", nearest(key, ["width"])) for key in unknown)
    return Toy(options.get("width", 1))


def test_an_ensemble_with_other_axes(monkeypatch):
    monkeypatch.setitem(ENSEMBLES, "toy", configure)
    tables = {
        "name": "toy",
        "grid": {"d": (4, 2), "shape": "round", "rho": range(3), "replicates": 2},
        "model": {"ensemble": "toy", "width": 2},
    }
    found = Sweep.from_dict(tables)
    assert found.axes == {"d": (4, 2), "shape": ("round",), "noise": (1.0,)}
    assert found.record.levels == ("wigner",)
    tables["grid"]["noise"] = 1
    assert Sweep.from_dict(tables).digest == found.digest
    tables["model"]["width"] = 3
    tables["model"]["widht"] = 3
    tables["grid"]["shpe"] = 1
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(tables)
    assert [fault.thing for fault in caught.value.faults] == ["grid.shpe", "model.widht"]
    del tables["model"]["widht"], tables["grid"]["shpe"]
    with pytest.raises(InputError, match=r"grid.d = 2: it is below the width; raise it"):
        Sweep.from_dict(tables)
