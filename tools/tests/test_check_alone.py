import check_alone
import pytest
from toy_workspace import Toy

HIGH_TEST = "packages/roll-high/tests/test_more.py"


def test_packages_that_declare_what_they_need_pass_alone(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_alone.main(["--root", str(toy.root)]) == 0
    printed = capsys.readouterr().out
    assert "roll-low passed alone" in printed
    assert "roll-high passed alone" in printed
    assert "1 passed" in printed


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        # Both are importable in the workspace's own environment, and neither is declared.
        ("packages/roll-low/src/roll_low/__init__.py", "import yaml\nONE = 1\n", "No module named 'yaml'"),
        ("packages/roll-low/src/roll_low/__init__.py", "import roll_high\n", "No module named 'roll_high'"),
        ("packages/roll-low/tests/test_low.py", "def test_no() -> None:\n    assert not 1\n", "1 failed"),
        ("packages/roll-low/tests/test_low.py", "", "no test to run"),
    ],
)
def test_what_is_not_declared_is_not_there(
    toy: Toy, capsys: pytest.CaptureFixture[str], path: str, source: str, expected: str
) -> None:
    toy.write(path, source)
    assert check_alone.main(["--root", str(toy.root), "roll-low"]) == 1
    printed = capsys.readouterr().out
    assert "roll-low FAILED alone" in printed
    assert expected in printed


def test_the_wheel_is_tested_and_not_the_source_tree(toy: Toy) -> None:
    toy.write(
        HIGH_TEST,
        "import pathlib\n\nimport roll_high\n\n\ndef test_it_is_installed() -> None:\n"
        "    assert 'site-packages' in roll_high.__file__\n"
        f"    assert not pathlib.Path(__file__).is_relative_to({str(toy.root)!r})\n",
    )
    assert check_alone.main(["--root", str(toy.root), "roll-high"]) == 0


def test_tests_that_need_ray_run_only_where_the_extra_is_installed(toy: Toy) -> None:
    toy.replace(
        "packages/roll-high/pyproject.toml",
        "[dependency-groups]",
        '[project.optional-dependencies]\nray = ["six"]\n\n[dependency-groups]',
    )
    test = "import pytest\n\n\n@pytest.mark.ray\ndef test_on_ray() -> None:\n    import six\n"
    toy.write(HIGH_TEST, test)
    toy.write(
        "packages/roll-high/tests/test_all_on_ray.py", "import six\n\n\ndef test_six() -> None:\n    six\n"
    )
    outcomes = list(check_alone.check(toy.root, ["roll-high"], check_alone.THIS_PYTHON))
    assert [(str(one.suite), one.passed) for one in outcomes] == [
        ("roll-high", True),
        ("roll-high[ray]", True),
    ]
    assert [one.summary.split(" in ")[0] for one in outcomes] == ["1 passed, 1 deselected", "3 passed"]
    bare = check_alone.check(toy.root, ["roll-high"], check_alone.THIS_PYTHON, bare=True)
    assert [str(one.suite) for one in bare] == ["roll-high"]


def test_a_package_without_tests_is_an_error(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    (toy.root / "packages/roll-low/tests/test_low.py").unlink()
    assert check_alone.main(["--root", str(toy.root), "roll-low"]) == 2
    assert "every package has tests" in capsys.readouterr().err


def test_an_unknown_package_is_an_error(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_alone.main(["--root", str(toy.root), "roll-lwo"]) == 2
    assert "no packages named ['roll-lwo']; choose from" in capsys.readouterr().err


def test_a_python_that_is_not_here_is_said(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_alone.main(["--root", str(toy.root), "--python", "3.99"]) == 2
    assert check_alone.main(["--root", str(toy.root), "--python", "3.99", "--if-found"]) == 0
    assert "no Python 3.99, so nothing ran on it" in capsys.readouterr().out
