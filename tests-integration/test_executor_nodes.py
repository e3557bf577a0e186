"""Several nodes on this machine, in a process of their own: a node is started and lost there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1300)]


def test_several_nodes_hold_what_was_planned_run_a_pipeline_and_are_lost_without_a_hang() -> None:
    script = Path(__file__).with_name("executor_nodes.py")
    run = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert "all nodes kept the contract" in run.stdout
