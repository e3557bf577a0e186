import subprocess
import sys
from pathlib import Path

import pytest

from roll_dispatch import Topology


def run(folder: Path, source: str, *options: str) -> str:
    """Run pytest on one file in a process of its own and return what it says."""
    (folder / "test_sample.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--strict-markers",
        *options,
    ]
    return subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, check=False, cwd=folder
    ).stdout


def test_the_plugin_runs_a_test_over_every_topology_up_to_the_size(tmp_path: Path) -> None:
    source = (
        "import pytest\nfrom roll_dispatch import Dispatch, collect, split\ndef "
        "test_identity(roll_topology):\n    outputs = [part[0][0] for part in "
        "split(Dispatch.DP_MP_COMPUTE, roll_topology, [1, 2, 3])]\n    assert "
        "collect(Dispatch.DP_MP_COMPUTE, roll_topology, outputs) == [1, 2, "
        "3]\n@pytest.mark.roll_topologies(max_world_size=2)\ndef test_small(roll_topology): assert "
        "roll_topology.world_size <= 2\n@pytest.mark.roll_topologies(1)\ndef test_single(roll_topology): "
        "assert roll_topology.world_size == 1\ndef test_all(roll_topologies): assert len(roll_topologies) "
        "== 19\ndef test_shuffled(roll_bijections, roll_topologies):\n    found = "
        "list(roll_bijections(roll_topologies[-1], 4))\n    assert len(found) == 4\n    assert "
        "len(list(roll_bijections(roll_topologies[-1]))) == 10\n"
    )
    assert "27 passed" in run(tmp_path, source, "--roll-max-world-size", "4")  # 19 + 5 + 1 + 1 + 1


def test_the_topology_is_named_in_the_test_and_the_seed_chooses_the_bijections(tmp_path: Path) -> None:
    source = (
        "def test_named(roll_topology, request): assert 'dp' in request.node.name\ndef "
        "test_seed(roll_bijections):\n    from roll_dispatch import Topology\n    from "
        "roll_dispatch.testing import bijections\n    plain = Topology.from_sizes(12, tp=2)\n    assert "
        "list(roll_bijections(plain, 2)) == list(bijections(plain, 2, seed=5))\n"
    )
    found = run(tmp_path, source, "--roll-max-world-size", "2", "--roll-seed", "5", "-vv")
    assert "test_named[dp2-tp1-pp1-cp1]" in found
    assert "6 passed" in found


def test_a_session_that_asks_for_nothing_is_left_alone(tmp_path: Path) -> None:
    source = (
        "import sys\n"
        "def test_light():\n"
        "    assert 'roll_dispatch.testing' not in sys.modules\n"
        "    assert not {'torch', 'numpy', 'ray'} & set(sys.modules)\n"
    )
    assert "1 passed" in run(tmp_path, source)


@pytest.mark.roll_topologies(max_world_size=3)
def test_the_fixtures_work_here_too(roll_topology: Topology) -> None:
    assert roll_topology.world_size <= 3
