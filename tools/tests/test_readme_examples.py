"""The Python blocks of the README run as printed, each by itself."""

import re
import subprocess
import sys

import pytest
from layout import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)


def test_the_readme_has_an_example_of_each_package_that_is_useful_alone() -> None:
    assert [re.findall(r"^from (roll_\w+)", block, re.M) for block in BLOCKS] == [
        ["roll_protocol"],
        ["roll_dispatch"],
    ]


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_of_the_readme_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
