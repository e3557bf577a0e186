import doctest
import importlib
from pathlib import Path

import pytest

import roll_dispatch

MODULES = sorted(path.stem for path in Path(roll_dispatch.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"roll_dispatch.{name}")
    door = {public: getattr(roll_dispatch, public) for public in roll_dispatch.__all__}
    result = doctest.testmod(module, extraglobs=door)
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(f"roll_dispatch.{name}") for name in MODULES]
    assert sum(bool(test.examples) for module in modules for test in finder.find(module)) >= 12
