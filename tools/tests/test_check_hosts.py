import subprocess

import check_hosts
import pytest
from toy_workspace import Toy

# Written in halves, so that this file does not name what it looks for.
REGISTRY = "https://" + "pypi" + ".org/simple"
FOLDER = "/" + "opt/wheels"


def track(toy: Toy) -> None:
    """Put the toy workspace's files under version control."""
    for arguments in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", str(toy.root), *arguments], check=True)


def test_a_tree_without_hosts_is_clean(toy: Toy) -> None:
    toy.write("docs/a.md", f"docs{FOLDER} and ~{FOLDER} and {{root}}{FOLDER} are relative\n")
    track(toy)
    assert check_hosts.main([str(toy.root)]) == 0


@pytest.mark.parametrize("text", [REGISTRY, REGISTRY.upper(), f"`{FOLDER}/x.whl`", f"file://x {FOLDER}/"])
def test_a_host_or_a_machine_path_fails_with_its_line(
    toy: Toy, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    toy.write("docs/a.md", f"first\n{text}\n")
    track(toy)
    assert check_hosts.main([str(toy.root)]) == 1
    assert "docs/a.md:2: names the" in capsys.readouterr().out


def test_files_out_of_version_control_do_not_matter(toy: Toy) -> None:
    track(toy)
    toy.write("uv.lock", REGISTRY)
    assert check_hosts.main([str(toy.root)]) == 0


def test_a_folder_without_version_control_is_an_error_and_not_a_pass(toy: Toy) -> None:
    assert check_hosts.main([str(toy.root)]) == 2
