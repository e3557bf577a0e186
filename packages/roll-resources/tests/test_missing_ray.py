"""Without Ray everything but the reservation works, and the reservation says what to install."""

import subprocess
import sys

CODE = """
import sys
sys.modules["ray"] = None  # as if it were not installed
from roll_resources import RayMissingError, ResourceManager, RoleRequest
with ResourceManager(runtime="local") as manager:
    print(len(manager.allocate(RoleRequest(name="r", world_size=3)).placements))
try:
    ResourceManager().start()
except RayMissingError as error:
    print(error)
"""


def test_a_missing_ray_is_told_with_the_way_out() -> None:
    told = subprocess.check_output([sys.executable, "-c", CODE], text=True).splitlines()
    assert told[0] == "3"
    assert "pip install 'roll-executor[ray]'" in told[1]
    assert "runtime='local'" in told[1]
