"""The guide of DataProto and the README of its package, run as they are printed."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from roll_protocol import DataProto

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "dataproto.md"
README = ROOT / "packages" / "roll-protocol" / "README.md"


def run(page: Path) -> dict[str, Any]:  # whatever the page defines
    """Run the Python blocks of a page one after another and return what they defined."""
    module = ModuleType("printed")
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name} block {number}", "exec"), module.__dict__)
    return module.__dict__


@pytest.mark.parametrize("page", [GUIDE, README], ids=lambda page: page.name)
def test_the_code_of_the_page_runs_as_printed(page: Path) -> None:
    run(page)


def test_the_table_that_the_guide_prints_is_what_describe_gives() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    first = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    namespace: dict[str, Any] = {}  # see run
    exec(compile(first, "first block", "exec"), namespace)
    assert namespace["batch"].describe() in text


def test_every_public_operation_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    names = [name for name in dir(DataProto) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
