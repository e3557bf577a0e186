"""The platform table, and how a machine's platform is found."""

import subprocess
import sys

import pytest

from roll_resources import PLATFORMS, CurrentPlatform, PlatformError, detect_platform, platform_named


@pytest.mark.parametrize(
    ("name", "device_type", "resource", "backend", "environment"),
    [
        (
            "cuda",
            "cuda",
            "GPU",
            "nccl",
            {"CUDA_VISIBLE_DEVICES": "3,1", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"},
        ),
        (
            "rocm",
            "cuda",
            "GPU",
            "nccl",
            {
                "HIP_VISIBLE_DEVICES": "3,1",
                "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1",
                "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES": "1",
            },
        ),
        (
            "npu",
            "npu",
            "NPU",
            "hccl",
            {"ASCEND_RT_VISIBLE_DEVICES": "3,1", "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "1"},
        ),
        (
            "xpu",
            "xpu",
            "GPU",
            "xccl",
            {
                "ONEAPI_DEVICE_SELECTOR": "level_zero:3,1",
                "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR": "1",
            },
        ),
        ("cpu", "cpu", None, "gloo", {}),
    ],
)
def test_platform_gives_each_rank_its_devices_in_mapping_order(
    name: str, device_type: str, resource: str | None, backend: str, environment: dict[str, str]
) -> None:
    platform = platform_named(name)
    assert (platform.device_type, platform.ray_resource, platform.collective_backend) == (
        device_type,
        resource,
        backend,
    )
    assert platform.environment([3, 1]) == environment


@pytest.mark.parametrize(
    ("paths", "programs", "name"),
    [
        ({"/proc/driver/nvidia/version"}, set(), "cuda"),
        ({"/dev/nvidiactl"}, {"nvidia-smi"}, "cuda"),
        (set(), {"nvidia-smi"}, "cpu"),
        ({"/dev/kfd"}, set(), "rocm"),
        ({"/dev/davinci_manager"}, set(), "npu"),
        ({"/dev/dri"}, {"xpu-smi"}, "xpu"),
        ({"/dev/dri"}, set(), "cpu"),
        (set(), set(), "cpu"),
    ],
)
def test_platform_is_found_by_device_files(paths: set[str], programs: set[str], name: str) -> None:
    found = detect_platform(
        {}, exists=paths.__contains__, which=lambda program: program if program in programs else None
    )
    assert found is PLATFORMS[name]


def test_a_variable_overrides_what_the_machine_has() -> None:
    found = detect_platform({"ROLL_PLATFORM": "npu"}, exists=lambda path: True, which=lambda program: program)
    assert found is PLATFORMS["npu"]
    with pytest.raises(PlatformError, match="'tpu'"):
        detect_platform({"ROLL_PLATFORM": "tpu"}, exists=lambda path: False, which=lambda program: None)


def test_the_current_platform_can_be_fixed_and_forgets_it_again() -> None:
    platform = CurrentPlatform()
    platform.use("rocm")
    assert (platform.name, platform.device_type, platform.collective_backend) == ("rocm", "cuda", "nccl")
    assert platform.visible_devices_variable == "HIP_VISIBLE_DEVICES"
    platform.use(None)
    assert platform.name in PLATFORMS


def test_an_unknown_attribute_of_the_platform_is_an_error() -> None:
    with pytest.raises(AttributeError):
        CurrentPlatform().clear_everything  # type: ignore[attr-defined]  # noqa: B018  # the error is the point


def test_importing_the_door_loads_only_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import roll_resources;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - sys.stdlib_module_names))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "['roll_resources']\n"
