"""The README's sweep file and Python blocks work as printed, one after the other."""

import re
from pathlib import Path

import numpy as np
import pytest

from eigensweep.pipeline import Sweep, open_cube, run

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    (toml,) = blocks("toml")
    (folder / "mine.toml").write_text(toml, encoding="utf-8")
    run(Sweep.from_toml(folder / "mine.toml"), folder / "mine")
    return folder


def test_there_are_blocks_to_run():
    assert len(blocks("python")) >= 4


@pytest.mark.parametrize("code", blocks("python"))
def test_python_block_runs(code, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    exec(compile(code, str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out or "print" not in code


def test_the_cube_of_the_tour_is_complete(folder):
    cube = open_cube(folder / "mine")
    assert np.isfinite(cube.overlap).all()
    assert (cube.column_status == 1).all()


def test_the_two_commands_are_where_ci_looks_for_them():
    text = README.read_text(encoding="utf-8")
    for mark in ("the main job", "the tests"):
        assert re.search(rf"<!-- {mark} -->\n```sh\npython3 -m venv \.venv && [^\n]+\n```", text)
