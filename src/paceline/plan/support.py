"""What software each device can use, as the search needs it."""

from __future__ import annotations

from paceline.catalog.entities import Device
from paceline.plan.configurations import DeviceSupport
from paceline.planfile import PlannedStack
from paceline.stack import usable_compilers, usable_precisions
from paceline.trace.costs import Platform

_PLATFORMS: dict[str, Platform] = {
    "cuda": "cuda", "jetson": "cuda", "rocm": "rocm", "cpu": "cpu", "tpu": "xla",
}  # fmt: skip


def platform_of(stack: PlannedStack) -> Platform | None:
    """Whose kernels a stack runs; None for a platform that no lowering follows."""
    return _PLATFORMS.get(stack.platform)


def device_support(
    device: Device, platform: Platform, *, framework: str = "torch"
) -> DeviceSupport:
    """Precisions and compilers of a device on its platform, with a framework."""
    return DeviceSupport(
        device=device,
        platform=platform,
        precisions=usable_precisions(device),
        compilers=usable_compilers(device, framework=framework),
    )
