"""A small workspace on which the tests of the checks see them pass and fail."""

from pathlib import Path

ROOT_PYPROJECT = """\
[project]
name = "toy-workspace"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["roll-low", "roll-high"]

[dependency-groups]
dev = ["pytest"]

[tool.uv]
package = false

[tool.uv.workspace]
members = ["packages/*"]

[tool.uv.sources]
roll-low = { workspace = true }
roll-high = { workspace = true }

[tool.pytest.ini_options]
addopts = ["--strict-markers"]
markers = ["ray: needs Ray", "slow: takes long"]
"""

MEMBER_PYPROJECT = """\
[project]
name = "roll-NAME"
version = "0.1.0"
description = "A toy."
readme = "README.md"
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = [DEPENDENCIES]

[dependency-groups]
test = ["pytest>=8"]

[build-system]
requires = ["uv_build>=0.9,<1"]
build-backend = "uv_build"
"""


class Toy:
    """A workspace of two packages, `roll-high` above `roll-low`, that keeps every rule."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("pyproject.toml", ROOT_PYPROJECT)
        for name, dependencies in (("low", ""), ("high", '"roll-low>=0.1,<0.2"')):
            folder = f"packages/roll-{name}"
            text = MEMBER_PYPROJECT.replace("NAME", name).replace("DEPENDENCIES", dependencies)
            self.write(f"{folder}/pyproject.toml", text)
            self.write(f"{folder}/README.md", f"# roll-{name}\n")
            self.write(f"{folder}/src/roll_{name}/py.typed", "")
        self.write("packages/roll-low/src/roll_low/number.py", "ONE = 1\n")
        self.write(
            "packages/roll-low/src/roll_low/__init__.py",
            '"""Low."""\n\nfrom roll_low.number import ONE\n\n__all__ = ["ONE"]\n',
        )
        self.write(
            "packages/roll-high/src/roll_high/__init__.py",
            '"""High."""\n\nfrom roll_low import ONE\n\nTWO = ONE + 1\n\n__all__ = ["TWO"]\n',
        )
        for name, value in (("low", "ONE"), ("high", "TWO")):
            body = f"\n\ndef test_it_is_a_number() -> None:\n    assert {value} > 0\n"
            test = f"from roll_{name} import {value}\n{body}"
            self.write(f"packages/roll-{name}/tests/test_{name}.py", test)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the workspace, and return its path."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace a text that must be in a file of the workspace."""
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text
        self.write(path, text.replace(old, new))
