import check_boundaries
import pytest
from layout import LayoutError
from toy_workspace import Toy

HIGH = "packages/roll-high/src/roll_high/more.py"


def test_a_tree_that_keeps_the_rules_is_clean(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_boundaries.main([str(toy.root)]) == 0
    assert "clean" in capsys.readouterr().out


def test_a_complaint_names_file_line_and_remedy_and_fails_the_check(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.write(HIGH, "import json\nimport torch\n")
    assert check_boundaries.main([str(toy.root)]) == 1
    printed = capsys.readouterr().out
    assert f"{HIGH}:2: 'torch' is undeclared; add 'torch' to packages/roll-high/pyproject.toml" in printed


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def late() -> None:\n    import numpy\n", "'numpy' is undeclared"),
        ("import numpy.linalg\n", "'numpy' is undeclared"),
        ("import yaml\n", "add 'pyyaml' to"),
        ("import roll_low.number\n", "not from the inside 'roll_low.number'"),
        ("from roll_low.number import ONE\n", "not from the inside 'roll_low.number'"),
        ("from roll_low import number\n", "'number' is not in __all__ of roll_low"),
        ("from roll_low.testing import missing\n", "'missing' is not in __all__ of roll_low.testing"),
        ("import importlib\n\nimportlib.import_module('roll_low.number')\n", "not from the inside"),
        ("import importlib\n\nimportlib.import_module('numpy.linalg')\n", "'numpy' is undeclared"),
        ("ray = pytest.importorskip('ray')\n", "'ray' is undeclared"),
        ("TARGET = 'roll_low.number:ONE'\n", "past the door of roll_low"),
    ],
)
def test_each_forbidden_import_is_one_complaint(toy: Toy, source: str, complaint: str) -> None:
    toy.write("packages/roll-low/src/roll_low/testing.py", '__all__ = ["kit"]\n')
    toy.write(HIGH, source)
    found = check_boundaries.check(toy.root)
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    "source",
    [
        "from roll_low import ONE, testing\n",
        "from roll_low.testing import kit\n",
        "import roll_low.on_ray\n",
        "from roll_low import *\n",
        "from roll_high import TWO\nfrom . import anything\n",
        "from importlib import import_module\n\nimport_module('json')\nimport_module('.here', 'there')\n",
        "KIND = 'roll_low.testing:kit'\nSENTENCE = 'see roll_low.number for more'\nOTHER = 'yaml.nodes'\n",
    ],
)
def test_doors_side_doors_and_oneself_may_be_imported(toy: Toy, source: str) -> None:
    toy.write("packages/roll-low/src/roll_low/testing.py", '__all__ = ["kit"]\n')
    toy.write("packages/roll-low/src/roll_low/on_ray/__init__.py", "")
    toy.write(HIGH, source)
    assert check_boundaries.check(toy.root) == []


def test_the_arrow_between_packages_must_be_declared(toy: Toy) -> None:
    toy.write("packages/roll-low/src/roll_low/up.py", "from roll_high import TWO\n")
    (found,) = check_boundaries.check(toy.root)
    assert "'roll_high' is undeclared; add 'roll-high' to packages/roll-low/pyproject.toml" in found


def test_tests_may_import_what_their_group_declares_and_their_own_inside(toy: Toy) -> None:
    toy.write("packages/roll-low/tests/helpers.py", "")
    toy.write(
        "packages/roll-low/tests/test_more.py", "import pytest\nimport roll_low.number\nimport helpers\n"
    )
    assert check_boundaries.check(toy.root) == []
    toy.write(HIGH, "import pytest\n")
    assert "'pytest' is undeclared" in check_boundaries.check(toy.root)[0]


def test_the_folders_of_no_package_are_held_to_the_doors_too(toy: Toy) -> None:
    toy.write("tests-integration/test_all.py", "from roll_low import ONE\nimport pytest\n")
    assert check_boundaries.check(toy.root) == []
    toy.write("tests-integration/test_all.py", "from roll_low.number import ONE\nimport numpy\n")
    assert len(check_boundaries.check(toy.root)) == 2


def test_integration_tests_may_enter_the_package_on_which_no_other_rests(toy: Toy) -> None:
    toy.write(HIGH, "")
    toy.write("tests-integration/test_all.py", "from roll_high.more import anything\n")
    assert check_boundaries.check(toy.root) == []


def test_benchmarks_may_measure_the_inside_and_import_nothing_undeclared(toy: Toy) -> None:
    toy.write("tools/bench/low.py", "import roll_low.number\n")
    assert check_boundaries.check(toy.root) == []
    toy.write("tools/bench/low.py", "import numpy\n")
    assert len(check_boundaries.check(toy.root)) == 1


def test_an_extra_is_a_declaration(toy: Toy) -> None:
    toy.write(HIGH, "import ray\n")
    assert check_boundaries.check(toy.root)
    toy.replace(
        "packages/roll-high/pyproject.toml",
        "[dependency-groups]",
        '[project.optional-dependencies]\nray = ["ray>=2"]\n\n[dependency-groups]',
    )
    assert check_boundaries.check(toy.root) == []


def test_a_moved_layout_is_an_error_and_not_a_pass(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    (toy.root / "packages").rename(toy.root / "parts")
    assert check_boundaries.main([str(toy.root)]) == 2
    assert "packages/ holds []" in capsys.readouterr().err


def test_a_moved_source_folder_is_an_error_and_not_a_pass(toy: Toy) -> None:
    (toy.root / "packages/roll-low/src").rename(toy.root / "packages/roll-low/source")
    with pytest.raises(LayoutError, match=r"src/roll_low/__init__\.py is not there"):
        check_boundaries.check(toy.root)


def test_a_door_without_a_list_of_names_is_an_error(toy: Toy) -> None:
    toy.write("packages/roll-low/src/roll_low/__init__.py", "from roll_low.number import ONE\n")
    with pytest.raises(LayoutError, match="lists no __all__"):
        check_boundaries.check(toy.root)
