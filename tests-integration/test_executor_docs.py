"""The Python blocks of the two guides run, one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "docs/resources.md",
    "docs/executor.md",
    "packages/roll-resources/README.md",
    "packages/roll-executor/README.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_the_printed_plan_of_the_guide_is_what_is_printed() -> None:
    text = (ROOT / "docs/resources.md").read_text()
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    printed = re.findall(r"```text\n(.*?)```", text, re.DOTALL)[0]
    assert subprocess.check_output([sys.executable, "-c", block], text=True) == printed
