import check_sizes
import pytest
from toy_workspace import Toy

LONG = "packages/roll-low/src/roll_low/long.py"


def test_a_file_at_the_limit_is_clean(toy: Toy) -> None:
    toy.write(LONG, "x = 1\n" * check_sizes.MAX_LINES)
    assert check_sizes.main([str(toy.root)]) == 0


def test_a_file_one_line_over_the_limit_fails(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.write(LONG, "x = 1\n" * (check_sizes.MAX_LINES + 1))
    assert check_sizes.main([str(toy.root)]) == 1
    assert f"{LONG}: 401 lines, at most 400 allowed" in capsys.readouterr().out


def test_long_tests_and_tools_fail_too(toy: Toy) -> None:
    for path in ("packages/roll-low/tests/test_long.py", "tools/long.py", "tests-integration/test_long.py"):
        toy.write(path, "x = 1\n" * 500)
    assert len(list(check_sizes.complaints(check_sizes.lengths(toy.root), {}))) == 3


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (500, None),
        (501, "at most 500 allowed"),
        (450, "lower or drop its entry"),
        (400, "lower or drop its entry"),
    ],
)
def test_a_listed_file_may_shrink_and_not_grow(lines: int, complaint: str | None) -> None:
    found = list(check_sizes.complaints({LONG: lines}, {LONG: 500}))
    assert [complaint in one for one in found if complaint] == ([True] if complaint else [])
    assert bool(found) == bool(complaint)


def test_an_entry_whose_file_is_gone_must_go() -> None:
    (found,) = check_sizes.complaints({}, {LONG: 500})
    assert "is gone" in found


def test_a_moved_layout_is_an_error_and_not_a_pass(toy: Toy) -> None:
    (toy.root / "packages").rename(toy.root / "parts")
    assert check_sizes.main([str(toy.root)]) == 2
