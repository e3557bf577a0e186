from pathlib import Path

import pytest
import readme_command
from layout import ROOT

TEXT = """# Toy

<!-- command: tests -->
```sh
first &&
  second
```

```sh
not named
```
"""


def test_a_named_block_is_printed_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(TEXT, encoding="utf-8")
    assert readme_command.main(["tests", str(readme)]) == 0
    assert capsys.readouterr().out == "first &&\n  second\n"


def test_a_missing_block_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(TEXT.replace("command: tests", "command: other"), encoding="utf-8")
    assert readme_command.main(["tests", str(readme)]) == 2
    assert "has no command 'tests'; it has ['other']" in capsys.readouterr().err


def test_two_blocks_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two blocks 'tests'"):
        readme_command.commands(TEXT + TEXT)


def test_our_readme_has_the_two_commands_in_one_line_each() -> None:
    found = readme_command.commands((ROOT / "README.md").read_text(encoding="utf-8"))
    for name, ending in (("run", "uv run roll run examples/rlvr_tiny.yaml"), ("tests", "uv run pytest")):
        assert found[name].endswith(ending)
        assert "\n" not in found[name]
