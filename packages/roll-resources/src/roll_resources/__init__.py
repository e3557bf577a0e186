"""Which worker gets which node and devices: a plan that prints, and its reservation on Ray."""

from roll_resources.device_mapping import parse_device_mapping
from roll_resources.errors import (
    DeviceMappingError,
    ManagerClosedError,
    PlanError,
    PlatformError,
    RayMissingError,
    ReservationError,
    ReservationTimeoutError,
    ResourceError,
)
from roll_resources.manager import Allocation, ResourceManager
from roll_resources.picture import grid, svg
from roll_resources.plan import Placement, Plan, Sharing, plan
from roll_resources.platforms import (
    PLATFORMS,
    CurrentPlatform,
    Platform,
    current_platform,
    detect_platform,
    platform_named,
)
from roll_resources.pool import Device, DevicePool, NodeSpec
from roll_resources.render import spell_ids, table
from roll_resources.request import RoleRequest

__all__ = [
    "PLATFORMS",
    "Allocation",
    "CurrentPlatform",
    "Device",
    "DeviceMappingError",
    "DevicePool",
    "ManagerClosedError",
    "NodeSpec",
    "Placement",
    "Plan",
    "PlanError",
    "Platform",
    "PlatformError",
    "RayMissingError",
    "ReservationError",
    "ReservationTimeoutError",
    "ResourceError",
    "ResourceManager",
    "RoleRequest",
    "Sharing",
    "current_platform",
    "detect_platform",
    "grid",
    "parse_device_mapping",
    "plan",
    "platform_named",
    "spell_ids",
    "svg",
    "table",
]
