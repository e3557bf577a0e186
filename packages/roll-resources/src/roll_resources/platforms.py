"""Kinds of devices: what each is called by torch, by Ray and in the environment."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roll_resources.errors import PlatformError


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One kind of device."""

    name: str
    device_type: str
    """What torch calls it, e.g. ``cuda``."""
    ray_resource: str | None
    """The Ray resource that counts its devices; None on the CPU, where a role has none."""
    visible_devices_variable: str | None
    """The environment variable that names the devices a process may use; None on the CPU."""
    collective_backend: str
    """The torch.distributed backend for its tensors."""
    visible_devices_prefix: str = ""
    """What stands before the ids in that variable."""
    keep_ray_away: tuple[str, ...] = ()
    """Variables that stop Ray from setting the visible devices by itself."""

    def environment(self, local_ids: Sequence[int]) -> dict[str, str]:
        """Return the variables of a worker that owns these devices, in the order given.

        Example:
            >>> PLATFORMS["cuda"].environment([3, 1])["CUDA_VISIBLE_DEVICES"]
            '3,1'
        """
        if self.visible_devices_variable is None:
            return {}
        ids = self.visible_devices_prefix + ",".join(str(device) for device in local_ids)
        return {self.visible_devices_variable: ids} | dict.fromkeys(self.keep_ray_away, "1")


PLATFORMS: Mapping[str, Platform] = {
    platform.name: platform
    for platform in (
        Platform(
            name="cuda",
            device_type="cuda",
            ray_resource="GPU",
            visible_devices_variable="CUDA_VISIBLE_DEVICES",
            collective_backend="nccl",
            keep_ray_away=("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",),
        ),
        Platform(
            name="rocm",
            device_type="cuda",
            ray_resource="GPU",
            visible_devices_variable="HIP_VISIBLE_DEVICES",
            collective_backend="nccl",
            keep_ray_away=(
                "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
                "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES",
            ),
        ),
        Platform(
            name="npu",
            device_type="npu",
            ray_resource="NPU",
            visible_devices_variable="ASCEND_RT_VISIBLE_DEVICES",
            collective_backend="hccl",
            keep_ray_away=("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES",),
        ),
        Platform(
            name="xpu",
            device_type="xpu",
            ray_resource="GPU",
            visible_devices_variable="ONEAPI_DEVICE_SELECTOR",
            visible_devices_prefix="level_zero:",
            collective_backend="xccl",
            keep_ray_away=("RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR",),
        ),
        Platform(
            name="cpu",
            device_type="cpu",
            ray_resource=None,
            visible_devices_variable=None,
            collective_backend="gloo",
        ),
    )
}
"""Every platform by name; an entry more is a platform more."""


def platform_named(name: str) -> Platform:
    """Return the platform with this name.

    Raises:
        PlatformError: if there is none.
    """
    if name not in PLATFORMS:
        raise PlatformError(f"no platform is named {name!r}; choose from {sorted(PLATFORMS)}")
    return PLATFORMS[name]


def detect_platform(
    environment: Mapping[str, str], *, exists: Callable[[str], bool], which: Callable[[str], str | None]
) -> Platform:
    """Return the platform of a machine, judged by its device files and drivers.

    Args:
        environment: variables; ``ROLL_PLATFORM`` names a platform outright.
        exists: whether a path exists.
        which: the path of a program, or None.

    Raises:
        PlatformError: if ``ROLL_PLATFORM`` names no platform.
    """
    if chosen := environment.get("ROLL_PLATFORM"):
        return platform_named(chosen)
    if exists("/proc/driver/nvidia/version") or (which("nvidia-smi") and exists("/dev/nvidiactl")):
        return PLATFORMS["cuda"]
    if exists("/dev/kfd"):
        return PLATFORMS["rocm"]
    if exists("/dev/davinci_manager"):
        return PLATFORMS["npu"]
    if exists("/dev/dri") and which("xpu-smi"):
        return PLATFORMS["xpu"]
    return PLATFORMS["cpu"]


class CurrentPlatform:
    """The platform of this process, detected when it is first asked for and then kept.

    A worker without devices is on the CPU, whatever its machine has: the executor says so with ``use``.
    """

    def __init__(self) -> None:
        self._platform: Platform | None = None

    def get(self) -> Platform:
        """Return the platform itself."""
        if self._platform is None:
            self._platform = detect_platform(
                os.environ, exists=lambda path: Path(path).exists(), which=shutil.which
            )
        return self._platform

    def use(self, platform: Platform | str | None) -> None:
        """Fix the platform of this process; None: detect it again when it is next asked for."""
        self._platform = platform_named(platform) if isinstance(platform, str) else platform

    @property
    def name(self) -> str:
        """Name in the platform table."""
        return self.get().name

    @property
    def device_type(self) -> str:
        """What torch calls the device, e.g. ``cuda`` or ``cpu``."""
        return self.get().device_type

    @property
    def ray_resource(self) -> str | None:
        """The Ray resource that counts devices; None on the CPU."""
        return self.get().ray_resource

    @property
    def visible_devices_variable(self) -> str | None:
        """The variable that names the devices a process may use; None on the CPU."""
        return self.get().visible_devices_variable

    @property
    def collective_backend(self) -> str:
        """The torch.distributed backend."""
        return self.get().collective_backend

    def __repr__(self) -> str:
        return f"CurrentPlatform({self.name!r})"


current_platform = CurrentPlatform()
"""The platform of this process."""
