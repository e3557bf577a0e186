"""The guide of the dispatch and the README of its package, run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "dispatch.md"
README = ROOT / "packages" / "roll-dispatch" / "README.md"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def explained(command: str) -> str:
    """What `python -m roll_dispatch ...` prints."""
    words = command.removeprefix("$ python ").split()
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("page", [GUIDE, README], ids=lambda page: page.name)
def test_the_code_of_the_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    found = blocks(page, "python")
    assert found
    # In a process of its own: the names of modes are taken once per process.
    (tmp_path / "printed.py").write_text("\n".join(found), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "printed.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_test_that_the_guide_prints_passes_under_the_plugin(tmp_path: Path) -> None:
    printed = [block for block in blocks(GUIDE, "python") if "def test_" in block or "class Reward" in block]
    prelude = "from roll_dispatch import Dispatch, simulate\n"
    (tmp_path / "test_printed.py").write_text(prelude + "\n".join(printed), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        str(tmp_path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "19 passed" in run.stdout, run.stdout


def test_every_drawing_of_the_guide_is_what_the_command_draws() -> None:
    drawings = [block.split("\n", 1) for block in blocks(GUIDE, "text")]
    assert len(drawings) == 9
    for command, drawing in drawings:
        assert explained(command) == drawing


def test_the_picture_of_the_guide_is_what_the_command_draws(tmp_path: Path) -> None:
    target = tmp_path / "picture.svg"
    explained(f"-m roll_dispatch explain DP_MP_COMPUTE --dp 2 --tp 2 --pp 2 --rows 5 --svg {target}")
    assert target.read_text(encoding="utf-8") == (GUIDE.parent / "dispatch.svg").read_text(encoding="utf-8")
