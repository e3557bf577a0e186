import check_engine
import pytest
from toy_workspace import Toy

FOLDER = "tests-integration/engines/six"


def add_engine(toy: Toy, test: str) -> None:
    """Gives the workspace an engine whose library is `six`, and one test of it."""
    toy.write(f"{FOLDER}/requirements.txt", "six>=1.15\npytest>=8\n")
    toy.write(f"{FOLDER}/test_six.py", f"import six\nfrom roll_high import TWO\n\n\n{test}\n")


@pytest.mark.parametrize(
    ("test", "code", "said"),
    [
        ("def test_it() -> None:\n    assert six.PY3 and TWO == 2", 0, "six clean"),
        ("def test_it() -> None:\n    assert not six.PY3", 1, "six failed (pytest gave 1)"),
    ],
)
def test_an_engine_is_tested_in_an_environment_of_its_own(
    toy: Toy, capsys: pytest.CaptureFixture[str], test: str, code: int, said: str
) -> None:
    add_engine(toy, test)
    assert check_engine.main(["six", "--root", str(toy.root)]) == code
    assert said in capsys.readouterr().out


def test_an_override_holds_whatever_is_required(toy: Toy) -> None:
    add_engine(toy, "def test_it() -> None:\n    assert six.__version__ == '1.16.0'")
    toy.write(f"{FOLDER}/overrides.txt", "six==1.16.0\n")
    assert check_engine.main(["six", "--root", str(toy.root)]) == 0


def test_an_engine_without_tests_is_an_error_that_names_those_that_have_some(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    add_engine(toy, "")
    assert check_engine.main(["seven", "--root", str(toy.root)]) == 2
    assert "engines that have one: ['six']" in capsys.readouterr().err
