from pathlib import Path

import export_requirements
import pytest
from toy_workspace import Toy

LOCK = """\
# a comment
alpha==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
beta==2.0 \\
    --hash=sha256:cc
"""


def test_a_lock_is_read_as_pins_with_hashes() -> None:
    assert export_requirements.pins(LOCK) == {
        'alpha==1.0; python_full_version < "3.12"': {"sha256:aa", "sha256:bb"},
        "beta==2.0": {"sha256:cc"},
    }


@pytest.mark.parametrize(
    ("old", "new", "complaints"),
    [
        ("# a comment", "# another comment", 0),
        ("beta==2.0", "beta==2.1", 2),
        ("sha256:cc", "sha256:dd", 1),
        ("< '3.12'", "< '3.13'", 2),
    ],
)
def test_only_pins_and_hashes_count_as_differences(old: str, new: str, complaints: int) -> None:
    assert len(export_requirements.differences(LOCK.replace(old, new), LOCK)) == complaints


def test_a_fresh_lock_is_up_to_date_until_a_dependency_changes(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--root", str(toy.root)]
    (tmp_path / "local").mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "local"))
    assert export_requirements.main([*arguments, "--check"]) == 1
    assert export_requirements.main(arguments) == 0
    text = (toy.root / "requirements.lock").read_text(encoding="utf-8")
    assert "--hash=sha256:" in text
    assert "roll-low" not in text
    assert not {"http", "index-url", "find-links", str(tmp_path)} & set(text.split())
    assert export_requirements.main([*arguments, "--check"]) == 0
    toy.replace("packages/roll-low/pyproject.toml", "dependencies = []", 'dependencies = ["iniconfig<2.1"]')
    assert export_requirements.main([*arguments, "--check"]) == 1
    assert "requirements.lock lacks iniconfig==2.0.0" in capsys.readouterr().out


def test_a_workspace_that_does_not_resolve_is_an_error(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.replace("packages/roll-low/pyproject.toml", "dependencies = []", 'dependencies = ["iniconfig<0.0.1"]')
    assert export_requirements.main(["--root", str(toy.root), "--check"]) == 2
    assert "iniconfig" in capsys.readouterr().err
