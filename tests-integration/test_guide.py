"""Every block of docs/guide.md runs: files are written, commands are run, loose Python is executed."""

import logging
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roll_pipelines.cli.app import app

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide.md"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")


def guide_blocks() -> list[tuple[str, str]]:
    return FENCED.findall(GUIDE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with every file that the guide shows, as the current one."""
    folder = tmp_path_factory.mktemp("guide")
    for _, text in guide_blocks():
        if named := FILE.match(text):
            (folder / named[1]).write_text(text)
    path, handlers = list(sys.path), list(logging.getLogger().handlers)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", "")
        sys.path.insert(0, str(folder))
        yield folder
    sys.path[:], logging.getLogger().handlers[:] = path, handlers
    for name in ("transform", "teach"):
        sys.modules.pop(name, None)


def commands() -> list[tuple[str, list[str]]]:
    """Every command of the guide with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for kind, text in guide_blocks():
        for line in text.splitlines() if kind == "console" else []:
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


def test_every_command_prints_what_the_guide_says(folder: Path) -> None:
    assert len(commands()) == 6
    for command, lines in commands():
        arguments = shlex.split(command, comments=True)
        result = CliRunner().invoke(app, arguments[1:])

        assert result.exit_code == (2 if "exits with 2" in command else 0), result.output
        missing = [line for line in lines if line not in result.output]
        assert missing == [], f"{command} did not print {missing}:\n{result.output}"


def test_loose_python_blocks_run(folder: Path) -> None:
    loose = [text for kind, text in guide_blocks() if kind == "python" and not FILE.match(text)]

    assert loose
    for text in loose:
        exec(text, {})
