from pathlib import Path

import check_types
import pytest
from layout import ROOT, read_toml, table
from toy_workspace import Toy

SETTINGS = "\n[tool.mypy]\nstrict = true\nexplicit_package_bases = true\nmypy_path = [MYPY_PATH]\n"
TYPED = "def double(number: int) -> int:\n    return 2 * number\n"


@pytest.fixture
def typed(toy: Toy) -> Toy:
    """The toy workspace with the strictness of this one."""
    path = ", ".join(f'"packages/roll-{name}/src"' for name in ("low", "high"))
    text = (toy.root / "pyproject.toml").read_text(encoding="utf-8")
    toy.write("pyproject.toml", text + SETTINGS.replace("MYPY_PATH", path))
    return toy


def test_this_workspace_is_strict() -> None:
    settings = table(read_toml(ROOT / "pyproject.toml"), "tool", "mypy")
    assert settings["strict"] is True
    assert not {"exclude", "ignore_errors", "disable_error_code"} & settings.keys()


def test_typed_files_are_clean_also_when_two_tests_have_the_same_name(typed: Toy) -> None:
    for folder in ("roll-low/tests", "roll-high/tests", "roll-high/tests/one", "roll-high/tests/two"):
        typed.write(f"packages/{folder}/conftest.py", TYPED)
    assert check_types.main([str(typed.root)]) == 0


@pytest.mark.parametrize(
    "path",
    ["packages/roll-low/src/roll_low/wrong.py", "packages/roll-high/tests/test_wrong.py", "tools/wrong.py"],
)
def test_an_untyped_function_fails_wherever_it_is(
    typed: Toy, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    typed.write(path, "def double(number):\n    return 2 * number\n")
    assert check_types.main([str(typed.root)]) == 1
    assert f"{path}:1: error: Function is missing a type annotation" in capsys.readouterr().out


def test_folders_stay_whole_and_equal_names_apart() -> None:
    names = ["a/conftest.py", "a/test_a.py", "b/conftest.py", "b/test_b.py", "c/test_c.py"]
    runs = check_types.apart(Path(name) for name in names)
    assert [[str(file) for file in run] for run in runs] == [
        ["a/conftest.py", "a/test_a.py", "c/test_c.py"],
        ["b/conftest.py", "b/test_b.py"],
    ]


def test_a_moved_layout_is_an_error_and_not_a_pass(typed: Toy) -> None:
    (typed.root / "packages").rename(typed.root / "parts")
    assert check_types.main([str(typed.root)]) == 2
