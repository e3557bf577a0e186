import subprocess
import sys

import pytest

PROGRAM = """
import sys
from roll_resources import ResourceManager
with ResourceManager(num_gpus_per_node=0).start():
    import ray
    print("at", ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""


def start() -> subprocess.Popen[str]:
    """Start a program that reserves from Ray until its standard input closes."""
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1, stdout=-1, stderr=-1, text=True)


def address(program: subprocess.Popen[str]) -> str:
    """Return where the program's Ray is."""
    assert program.stdout is not None
    lines = iter(program.stdout.readline, "")
    return next((line for line in lines if line.startswith("at ")), "none: the program ended")


@pytest.mark.ray
def test_two_programs_on_one_machine_do_not_share_a_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    programs, addresses = [], []
    for _ in range(2):
        programs.append(start())
        addresses.append(address(programs[-1]))
    outputs = [program.communicate(timeout=120) for program in programs]
    assert [program.returncode for program in programs] == [0, 0], outputs
    assert addresses[0] != addresses[1]
