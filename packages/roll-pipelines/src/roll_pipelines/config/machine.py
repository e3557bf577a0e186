"""What the rules may know of the machine: which engines are installed, and how many devices there are."""

import os
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from roll_pipelines.config.base_config import BaseConfig
from roll_resources import current_platform

DEVICE_FILES = {
    "cuda": ("/dev", r"nvidia\d+"),
    "rocm": ("/dev/dri", r"renderD\d+"),
    "npu": ("/dev", r"davinci\d+"),
    "xpu": ("/dev/dri", r"renderD\d+"),
}
"""Where each platform has one file for each device."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Facts of one machine, read once by whoever starts a run."""

    strategies: frozenset[str]
    """Names of the engines that are installed."""
    devices_per_node: int | None = None
    """Devices of this machine; None when nothing is known, so that nothing is checked against it."""

    @classmethod
    def here(cls) -> "Machine":
        """Returns the facts of this machine; loads no engine."""
        names = frozenset(point.name for point in entry_points(group="roll.strategies"))
        return cls(strategies=names, devices_per_node=count_devices())


def count_devices() -> int:
    """Returns how many devices this process may use, without loading a driver."""
    platform = current_platform.get()
    visible = os.environ.get(platform.visible_devices_variable or "")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    folder, pattern = DEVICE_FILES.get(platform.name, ("", ""))
    if not folder or not Path(folder).is_dir():
        return 0
    return sum(re.fullmatch(pattern, entry.name) is not None for entry in Path(folder).iterdir())


def devices_of(config: BaseConfig) -> int:
    """Returns the devices of each node: as configured, else this machine's when a role asks for any."""
    if config.num_gpus_per_node is not None:
        return config.num_gpus_per_node
    return count_devices() if any(role.device_ids() for role in config.roles().values()) else 0
