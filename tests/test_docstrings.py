"""Every example in a docstring is run, with warnings as errors."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

ROOMS = ("eigensweep.pipeline", "eigensweep.cluster", "eigensweep.analysis", "eigensweep.workflows")


def modules():
    """Names of all modules of the four rooms, the rooms themselves included."""
    for room in ROOMS:
        yield room
        found = pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}.")
        # Importing __main__ would run it.
        yield from sorted(module.name for module in found if not module.name.endswith("__main__"))


@pytest.mark.parametrize("name", list(modules()))
def test_examples(name, monkeypatch, tmp_path):
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    report = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for example in finder.find(module, name):
            runner.run(example, out=report.append)
    assert not report, "".join(report)
    assert not list(tmp_path.iterdir()), "an example left files in the current folder"


def test_there_are_examples_to_run():
    # An import that hides all of them must not pass unseen.
    finder = doctest.DocTestFinder()
    for name in ("eigensweep.pipeline.engine", "eigensweep.pipeline.seeds", "eigensweep.pipeline.sweep"):
        module = importlib.import_module(name)
        assert sum(len(example.examples) for example in finder.find(module, name)) > 0


def test_a_wrong_example_is_found():
    finder, runner, report = doctest.DocTestFinder(), doctest.DocTestRunner(), []

    def wrong():
        """
        >>> 1 + 1
        3
        """

    for example in finder.find(wrong, "wrong", globs={}):
        runner.run(example, out=report.append)
    assert report
