"""The Python blocks of the pages about strategies run, one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/strategies.md", "docs/new-backend.md", "packages/roll-strategies/README.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_about_strategies_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
