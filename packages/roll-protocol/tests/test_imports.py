"""Importing the package is light: it loads no Ray, no transformers and none of our other packages."""

import pickle
import subprocess
import sys

import pytest

import roll_protocol
from roll_protocol import errors


def test_importing_the_door_loads_no_ray_and_none_of_our_other_packages() -> None:
    heavy = [
        "ray",
        "transformers",
        "hypothesis",
        "pandas",
        "roll_dispatch",
        "roll_executor",
        "roll_resources",
        "roll",
    ]
    code = f"import roll_protocol, sys; print(sorted(set({heavy}) & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_importing_the_door_configures_no_logging_and_sets_no_environment() -> None:
    code = (
        "import torch, tensordict, logging, os; "
        "handlers, environment = list(logging.root.handlers), dict(os.environ); "
        "import roll_protocol; print(handlers == logging.root.handlers, environment == dict(os.environ))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True True\n"


@pytest.mark.parametrize("name", [name for name in dir(errors) if isinstance(getattr(errors, name), type)])
def test_every_error_survives_pickling_and_says_its_sentence(name: str) -> None:
    error = getattr(errors, name)("one sentence")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == "one sentence"


def test_the_door_lists_what_it_has() -> None:
    assert all(hasattr(roll_protocol, name) for name in roll_protocol.__all__)
    assert sorted(roll_protocol.__all__) == roll_protocol.__all__
