"""Ruff's rules and ruff's formatter, with the settings of this workspace, each seen to pass and to fail."""

import subprocess
import sys
from pathlib import Path

import pytest
from layout import ROOT

GOOD = 'def double(number: int) -> int:\n    """Return twice a number."""\n    return 2 * number\n'
LONG_FUNCTION = "def long() -> None:\n" + "    long()\n" * 60
SWALLOWED = "def quiet() -> None:\n    try:\n        quiet()\n    except Exception:\n        pass\n"


def ruff(tmp_path: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ruff on a file of its own with the settings of this workspace."""
    path = tmp_path / "noun.py"
    path.write_text(source, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "ruff",
        *arguments,
        "--no-cache",
        "--config",
        str(ROOT / "pyproject.toml"),
    ]
    return subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)


def test_a_clean_file_passes_the_rules_and_the_formatter(tmp_path: Path) -> None:
    assert ruff(tmp_path, GOOD, "check").returncode == 0
    assert ruff(tmp_path, GOOD, "format", "--check").returncode == 0


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (LONG_FUNCTION, "PLR0915"),
        (SWALLOWED, "BLE001"),
        (SWALLOWED, "S110"),
        ("print('from a library')\n", "T201"),
        ("import os\n", "F401"),
        ("x = 1  # type: ignore\n", "PGH003"),
    ],
)
def test_what_the_house_forbids_fails(tmp_path: Path, source: str, rule: str) -> None:
    done = ruff(tmp_path, source, "check")
    assert done.returncode == 1
    assert rule in done.stdout


def test_a_file_that_is_not_formatted_fails(tmp_path: Path) -> None:
    assert ruff(tmp_path, "x = [1,2]\n", "format", "--check").returncode == 1
