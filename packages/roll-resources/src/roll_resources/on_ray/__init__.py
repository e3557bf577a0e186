"""Reserving a plan on Ray."""

from roll_resources.on_ray.backend import RayAllocation, RayBackend, RaySlot

__all__ = ["RayAllocation", "RayBackend", "RaySlot"]
