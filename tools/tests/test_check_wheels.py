import check_wheels
import pytest
from toy_workspace import Toy


def test_wheels_that_keep_the_promises_are_clean(toy: Toy) -> None:
    out = toy.root / "dist"
    assert check_wheels.main(["--root", str(toy.root), "--out", str(out)]) == 0
    built = {path.name for path in out.iterdir() if path.name != ".gitignore"}
    assert built == {
        f"roll_{name}-0.1.0{end}" for name in ("low", "high") for end in ("-py3-none-any.whl", ".tar.gz")
    }


@pytest.mark.parametrize("bounds", ["", ">=0.1", "<0.2", "!=0.1.1"])
def test_a_requirement_between_packages_needs_both_bounds(
    toy: Toy, capsys: pytest.CaptureFixture[str], bounds: str
) -> None:
    toy.replace("packages/roll-high/pyproject.toml", "roll-low>=0.1,<0.2", f"roll-low{bounds}")
    assert check_wheels.main(["--root", str(toy.root)]) == 1
    assert "without both bounds" in capsys.readouterr().out


def test_a_wheel_without_the_type_marker_fails(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    (toy.root / "packages/roll-low/src/roll_low/py.typed").unlink()
    assert check_wheels.main(["--root", str(toy.root)]) == 1
    assert "holds no roll_low/py.typed" in capsys.readouterr().out


def test_an_entry_point_must_name_a_module_of_the_wheel(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    path = "packages/roll-low/pyproject.toml"
    table = '[project.entry-points."roll.toys"]\none = "roll_low.number:ONE"\n\n'
    toy.replace(path, "[dependency-groups]", f"{table}[dependency-groups]")
    assert check_wheels.main(["--root", str(toy.root)]) == 0
    toy.replace(path, "roll_low.number:ONE", "roll_low.letter:A")
    assert check_wheels.main(["--root", str(toy.root)]) == 1
    assert "the entry point roll.toys.one names roll_low.letter" in capsys.readouterr().out


def test_a_wheel_without_license_and_readme_fails(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.replace("packages/roll-low/pyproject.toml", 'license = "Apache-2.0"\n', "")
    toy.replace("packages/roll-low/pyproject.toml", 'readme = "README.md"\n', "")
    assert check_wheels.main(["--root", str(toy.root)]) == 1
    printed = capsys.readouterr().out
    assert "has no License-Expression" in printed
    assert "shows no README" in printed


def test_a_package_that_does_not_build_is_an_error(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.replace("packages/roll-low/pyproject.toml", 'version = "0.1.0"', 'version = "none"')
    assert check_wheels.main(["--root", str(toy.root)]) == 2
    assert "roll-low" in capsys.readouterr().err
