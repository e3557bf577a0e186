"""Fixtures of the tests of the checks."""

from pathlib import Path

import pytest
from toy_workspace import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A fresh toy workspace that keeps every rule."""
    return Toy(tmp_path / "toy")
