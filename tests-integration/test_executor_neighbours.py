"""Two programs on one Ray never meet, and the end of one leaves the other running."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from roll_executor import Cluster, WorkerConfig
from roll_executor.testing import ContractWorker
from roll_resources import ResourceManager

pytestmark = pytest.mark.ray

NEIGHBOUR = textwrap.dedent(
    """
    import sys
    from roll_executor import Cluster, WorkerConfig
    from roll_executor.testing import ContractWorker
    from roll_resources import ResourceManager

    with ResourceManager(address=sys.argv[1]) as manager:
        config = WorkerConfig(name="actor_train", world_size=2)
        with Cluster("actor_train", ContractWorker, manager, config) as cluster:
            print("ports", *{where.pid for where in cluster.wheres}, flush=True)
            assert cluster.double([1, 2, 3]) == [2, 4, 6]
            cluster.sleep(100.0)
    """
)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_a_neighbour_leaves_the_other_running(
    ray_session: str, tmp_path: Path, end: signal.Signals
) -> None:
    script = tmp_path / "neighbour.py"
    script.write_text(NEIGHBOUR)
    config = WorkerConfig(name="actor_train", world_size=2)
    with ResourceManager() as manager, Cluster("actor_train", ContractWorker, manager, config) as mine:
        neighbour = subprocess.Popen(
            [sys.executable, str(script), ray_session],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"RAY_AUTH_MODE": "disabled"},
        )
        assert neighbour.stdout is not None
        line = next((line for line in neighbour.stdout if line.startswith("ports")), "")
        theirs = {int(word) for word in line.split()[1:]}
        assert len(theirs) == 2
        assert theirs.isdisjoint(where.pid for where in mine.wheres)
        assert mine.double([1, 2, 3]) == [2, 4, 6]
        neighbour.send_signal(end)
        neighbour.wait(30)
        neighbour.stdout.close()
        deadline = time.monotonic() + 30
        while any(psutil.pid_exists(pid) for pid in theirs) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(psutil.pid_exists(pid) for pid in theirs)
        assert mine.double([1, 2, 3]) == [2, 4, 6]
        assert [entry.state for entry in mine.health()] == ["idle", "idle"]


CLOSING = textwrap.dedent(
    """
    import time
    from roll_executor import Cluster, WorkerConfig
    from roll_executor.testing import ContractWorker
    from roll_resources import ResourceManager

    with ResourceManager() as manager:
        for _ in range(3):
            Cluster("short", ContractWorker, manager, WorkerConfig(world_size=4)).close()
        time.sleep(1)  # what Ray has to say of them comes later
    """
)


def test_a_program_with_a_ray_of_its_own_that_closes_its_clusters_tells_of_no_death(tmp_path: Path) -> None:
    script = tmp_path / "closing.py"
    script.write_text(CLOSING)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"RAY_AUTH_MODE": "disabled"},
    )
    assert done.returncode == 0, done.stderr
    assert "died" not in done.stdout + done.stderr
