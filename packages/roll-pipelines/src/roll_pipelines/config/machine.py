"""What the rules may know of the machine: which engines are installed, and how many devices there are."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.problems import Problem
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
    return count_devices() if any(role.device_ids() for role in config.started_roles().values()) else 0


def joined_ray() -> str | None:
    """Returns the Ray that a run of this process would join; None when it would start one here."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return "the Ray that this process is connected to"
    return os.environ.get("RAY_ADDRESS") or None


def missing_hardware(config: BaseConfig, *, ray_address: str | None) -> Iterator[Problem]:
    """Yields what a run asks for and cannot have here, as far as that is known before Ray starts.

    Args:
        config: the configuration.
        ray_address: the Ray that the run would join; None when it would start one on this machine.
    """
    if config.runtime != "ray" or ray_address:
        return
    if config.num_nodes > 1:
        hint = "set RAY_ADDRESS to the cluster that `ray start` made, or num_nodes: 1"
        rule = "must be 1: no Ray cluster is named, so the run would use this machine only"
        yield Problem(path="num_nodes", rule=rule, value=config.num_nodes, hint=hint)
    here = count_devices()
    if config.num_gpus_per_node is not None and config.num_gpus_per_node > here:
        hint = (
            "lower it, set RAY_ADDRESS to a cluster that has them, or try the placement with runtime: local"
        )
        rule = f"must be at most {here}, the devices of this machine"
        yield Problem(path="num_gpus_per_node", rule=rule, value=config.num_gpus_per_node, hint=hint)
