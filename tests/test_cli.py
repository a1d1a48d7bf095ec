"""The command line: what it prints, what it exits with, and how it answers a user's mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from eigensweep.workflows import main as command_line
from eigensweep.workflows.catalog import names

SWEEP = """\
name = "tiny"
seed = 5

[grid]
d = [16, 24]
delta = 0.5
gamma = [0.25, 1.0]
rho = [0.5, 1.5, 3.0]
T = 4
pooling = ["mean", "optimal"]
replicates = 3

[model]
ensemble = "attention-pooling"
correlation = { kind = "prefix", length = 2 }
"""


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Type a command in an empty folder that holds tiny.toml; returns code, output and errors."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(SWEEP, encoding="utf-8")

    def type_in(*words):
        monkeypatch.setattr(sys, "argv", ["eigensweep", *words])
        code = 0
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return type_in


@pytest.fixture
def study(cli):
    assert cli("run", "tiny.toml", "--cluster", "serial", "--no-figures")[0] == 0
    return cli


def test_run_leaves_a_cube_and_figures(cli):
    code, out, _ = cli("run", "tiny.toml", "--cluster", "serial")
    assert code == 0
    assert "36 columns" in out
    assert {p.name for p in Path("tiny/figures").iterdir()} == {"transition.png", "spectrum.png"}
    assert (xr.open_zarr("tiny/cube.zarr").column_status == 1).all()


def test_run_again_computes_nothing(study):
    code, out, _ = study("run", "tiny.toml", "--cluster", "serial", "--no-figures")
    assert code == 0
    assert "nothing to compute" in out


def test_run_of_a_study_goes_on_with_its_own_sweep(study):
    code, out, _ = study("run", "tiny", "--cluster", "serial", "--no-figures")
    assert code == 0
    assert "nothing to compute" in out


def test_run_prints_json(cli):
    code, out, _ = cli("run", "tiny.toml", "--cluster", "serial", "--no-figures", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["done"], told["failed"], told["total"], told["failures"]) == (36, 0, 36, [])


def test_quick_is_a_part_of_the_sweep_with_the_same_numbers(cli):
    assert cli("run", "tiny.toml", "--quick", "--cluster", "serial", "--no-figures")[0] == 0
    assert cli("run", "tiny.toml", "--cluster", "serial", "--no-figures")[0] == 0
    quick, whole = (xr.open_zarr(f"{name}/cube.zarr").load() for name in ("tiny-quick", "tiny"))
    part = whole.sel({name: quick[name] for name in quick.indexes})
    for name in ("eigenvalue", "population_overlap", "mode_value"):
        xr.testing.assert_equal(
            quick[name],
            part[name].isel(mode=slice(quick.sizes["mode"])) if "mode" in part[name].dims else part[name],
        )


def test_plan_counts_what_a_run_then_does(cli):
    before = json.loads(cli("plan", "tiny.toml", "--json")[1])
    assert (before["columns"], before["pending_columns"], before["exists"]) == (36, 36, False)
    assert before["core_hours"] > 0
    assert not Path("tiny").exists()
    cli("run", "tiny.toml", "--cluster", "serial", "--no-figures")
    files = sum(1 for path in Path("tiny").rglob("*") if path.is_file())
    assert files <= before["files"]
    after = json.loads(cli("plan", "tiny.toml", "--json", "--no-trial")[1])
    assert (after["pending_columns"], after["exists"]) == (0, True)
    grown = SWEEP.replace("replicates = 3", "replicates = 5")
    Path("grown.toml").write_text(grown, encoding="utf-8")
    assert json.loads(cli("plan", "grown.toml", "--json", "--no-trial")[1])["pending_columns"] == 24


def test_plan_of_new_rho_costs_no_sampling(study):
    Path("grown.toml").write_text(SWEEP.replace("[0.5, 1.5, 3.0]", "[0.5, 1.5, 2.0, 3.0]"), encoding="utf-8")
    told = json.loads(study("plan", "grown.toml", "--json")[1])
    assert told["pending_columns"] == 36
    assert told["core_hours"] == 0


def test_plan_shows_a_table(cli):
    code, out, _ = cli("plan", "tiny.toml")
    assert code == 0
    assert "36 to compute of 36" in out
    assert "core-hours" in out


def test_status_tells_the_story(study):
    code, out, _ = study("status", "tiny")
    assert code == 0
    for word in ("sample", "population", "start", "end", "seed 5"):
        assert word in out
    told = json.loads(study("status", "tiny", "--json")[1])
    assert told["columns"]["sample"] == {
        "pending": 0,
        "done": 24,
        "failed": 0,
        "timed out": 0,
        "worker lost": 0,
        "out of memory": 0,
    }
    assert told["running"] is None


def test_column_equals_what_is_stored(study):
    code, out, _ = study(
        "column", "tiny", "d=24", "gamma=0.25", "pooling=mean", "replicate=2", "--rho", "1.5", "--json"
    )
    told = json.loads(out)
    cube = xr.open_zarr("tiny/cube.zarr").sel(
        d=24, delta=0.5, gamma=0.25, T=4, pooling="mean", replicate=2, rho=1.5
    )
    assert code == 0
    assert "the same, bit for bit" in told["stored"]
    assert told["cells"][0]["eigenvalue 0"] == float(cube.eigenvalue[0])
    assert told["cells"][0]["overlap 0"] == float(cube.overlap[0])


def test_column_of_the_population_level_and_of_no_study(cli):
    code, out, _ = cli("column", "tiny.toml", "d=16", "pooling=optimal", "--level", "population")
    assert code == 0
    assert "no study holds it yet" in out


def test_theory_prints_the_example(cli):
    told = json.loads(cli("theory", "--delta", "0.5", "--gamma", "0.25", "--rho", "3", "--json")[1])
    assert told["threshold"]["population"] == pytest.approx(1.2071067812)
    assert told["threshold"]["sample"] == pytest.approx(1.5545466756)
    assert told["bulk"]["sample"]["upper"] == pytest.approx(3.7466902227)
    assert told["spikes"][0]["sample overlap"] == pytest.approx(0.7672727273)
    assert told["spikes"][0]["sample outlier"] == pytest.approx(4.62)


def test_theory_of_a_raw_table_is_always_above(cli):
    code, out, _ = cli("theory", "--delta", "0.5", "--gamma", "0.25", "--table", "raw", "--gain", "4")
    assert code == 0
    assert "always above" in out


def test_schema_is_json_schema(cli):
    told = json.loads(cli("schema")[1])
    assert told["$schema"].startswith("https://json-schema.org/")
    assert "grid" in told["properties"]


def test_workflows_lists_and_prints(cli):
    told = json.loads(cli("workflows", "--json")[1])
    assert {item["name"] for item in told} == set(names())
    assert all(item["description"] for item in told)
    code, out, _ = cli("workflows", "quickstart")
    assert code == 0
    assert out.splitlines()[-1]
    assert 'name = "quickstart"' in out


@pytest.mark.parametrize("name", names())
def test_every_packaged_sweep_is_valid(name):
    from eigensweep.workflows.catalog import resolve

    assert resolve(name)[0].name == name


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot_writes_what_it_is_asked(study, suffix):
    target = Path(f"picture{suffix}")
    code, out, _ = study("plot", "transition", "tiny", "-o", str(target))
    assert (code, out.strip()) == (0, str(target))
    head = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert target.read_bytes().startswith(head)


MISTAKES = [
    (("run", "nowhere.toml"), "nowhere.toml"),
    (("run", "quikstart"), "did you mean 'quickstart'?"),
    (("plan", "nowhere.toml"), "nowhere.toml"),
    (("status", "nowhere"), "there is no cube"),
    (("run", "tiny.toml", "--cluster", "moon"), "moon"),
    (("run", "tiny.toml", "--workers", "0"), "workers = 0"),
    (("run", "tiny.toml", "--share", "5"), "K/N"),
    (("run", "tiny.toml", "--share", "5/4"), "shares 1 to 4"),
    (("column", "tiny.toml", "d=16", "pooling=mean", "replicate=-1"), "replicate = -1"),
    (("column", "tiny.toml", "d=16", "poling=mean"), "did you mean 'pooling'?"),
    (("column", "tiny.toml", "d"), "NAME=VALUE"),
    (("column", "tiny.toml", "d=16", "--level", "sampel"), "did you mean 'sample'?"),
    (("column", "tiny.toml", "d=16", "--rho", "-1"), "-1"),
    (("theory", "--delta", "0", "--gamma", "1"), "--delta = 0"),
    (("theory", "--delta", "1", "--gamma", "1", "--table", "row"), "did you mean 'raw'?"),
    (("workflows", "quickstat"), "did you mean 'quickstart'?"),
    (("plot", "transition", "nowhere"), "there is no cube"),
]


@pytest.mark.parametrize(("words", "told"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_told_in_a_line(cli, words, told):
    code, _, err = cli(*words)
    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert {path.name for path in Path().iterdir()} == {"tiny.toml"}


def test_plot_kind_and_ending_are_checked(study):
    code, _, err = study("plot", "transitoin", "tiny")
    assert code == 2
    assert "did you mean 'transition'?" in err
    code, _, err = study("plot", "transition", "tiny", "-o", "picture.bmp")
    assert code == 2
    assert ".png, .svg, .pdf" in err


def test_all_faults_of_a_sweep_file_are_told_at_once(cli):
    text = (
        SWEEP.replace("gamma =", "guma =")
        .replace("replicates = 3", "replicates = 0")
        .replace("0.5, 1.5", "-1, 1.5")
    )
    Path("tiny.toml").write_text(text, encoding="utf-8")
    code, _, err = cli("run", "tiny.toml")
    assert code == 2
    assert len(err.splitlines()) >= 3
    for word in ("guma", "gamma", "replicates", "rho", "line"):
        assert word in err
    assert not Path("tiny").exists()


def test_a_contradicting_sweep_is_refused_and_nothing_is_touched(study):
    before = {path: path.read_bytes() for path in Path("tiny").rglob("*") if path.is_file()}
    Path("tiny.toml").write_text(
        SWEEP.replace("seed = 5", "seed = 6").replace("= 2 }", "= 3 }"), encoding="utf-8"
    )
    code, _, err = study("run", "tiny.toml", "--cluster", "serial")
    assert code == 2
    assert "seed" in err
    assert "correlation" in err
    assert before == {path: path.read_bytes() for path in Path("tiny").rglob("*") if path.is_file()}


def test_a_folder_that_holds_something_else_is_refused(cli):
    Path("tiny").mkdir()
    Path("tiny/thesis.tex").write_text("precious", encoding="utf-8")
    code, _, err = cli("run", "tiny.toml", "--cluster", "serial")
    assert code == 2
    assert "thesis.tex" in err
    assert [path.name for path in Path("tiny").iterdir()] == ["thesis.tex"]


def test_a_file_in_the_studys_place_is_refused(cli):
    code, _, err = cli("run", "tiny.toml", "--study", "tiny.toml", "--cluster", "serial")
    assert code == 2
    assert "it is a file" in err


def test_help_has_an_example_for_every_command(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for command in ("run", "plan", "status", "column", "theory", "plot", "schema", "workflows"):
        assert command in out
        assert f"Example: eigensweep {command}" in " ".join(cli(command, "--help")[1].split())


def test_python_dash_m_is_the_command_line_too(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "eigensweep.workflows", "theory", "--delta", "1", "--gamma", "1", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout)["bulk"]["sample"]["upper"] == pytest.approx(6.75)


def test_help_loads_nothing_heavy(tmp_path):
    code = (
        "import sys\n"
        "sys.argv = ['eigensweep', '--help']\n"
        "from eigensweep.workflows.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'xarray', 'zarr', 'dask', 'distributed', 'matplotlib', 'pydantic'}\n"
        "sys.exit(','.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
