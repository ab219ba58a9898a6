"""What software each device can use, as the search needs it."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from paceline.catalog.entities import Device
from paceline.plan.configurations import DeviceSupport
from paceline.planfile import PlannedStack
from paceline.stack import usable_precisions
from paceline.stack.devices import target_of
from paceline.stack.rules import code_in
from paceline.trace.costs import Platform

_PLATFORMS: dict[str, Platform] = {
    "cuda": "cuda", "jetson": "cuda", "rocm": "rocm", "cpu": "cpu", "tpu": "xla",
}  # fmt: skip


def platform_of(stack: PlannedStack) -> Platform | None:
    """Whose kernels a stack runs; None for a platform that no lowering follows."""
    return _PLATFORMS.get(stack.platform)


def device_support(device: Device, platform: Platform) -> DeviceSupport:
    """Precisions and compilers of a device on its platform."""
    target = target_of(device)
    code = target.code if target else None
    compilers = frozenset(
        row["compiler"]
        for row in _compiler_rows()
        if row["platform"] == platform and code_in(code, row["devices"])
    )
    return DeviceSupport(
        device=device,
        platform=platform,
        precisions=usable_precisions(device),
        compilers=compilers,
    )


@cache
def _compiler_rows() -> tuple[dict[str, str], ...]:
    path = resources.files("paceline.plan") / "data" / "compilers.csv"
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
