"""Reserving a plan on Ray."""

from roll_resources.on_ray.backend import RayAllocation, RayBackend, RaySlot
from roll_resources.on_ray.groups import release_groups
from roll_resources.on_ray.shortage import available_per_node
from roll_resources.on_ray.start import start_ray

__all__ = ["RayAllocation", "RayBackend", "RaySlot", "available_per_node", "release_groups", "start_ray"]
