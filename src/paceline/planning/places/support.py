"""What software each device can use, as the search and questions about one device need it."""

from __future__ import annotations

from paceline.catalog.entities import Device
from paceline.dtypes import find_precision, read_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Compiler, Configuration, Platform
from paceline.model.settings import read_settings
from paceline.planfile import PlannedStack
from paceline.planning.places.configurations import (
    WIDENED_IN_KERNELS,
    DeviceSupport,
    usual_precisions,
    why_unusable,
)
from paceline.stack.devices import (
    newest_stack,
    target_of,
    usable_compilers,
    usable_precisions,
    why_unsupported,
)

#: Whose lowering the kernels of a platform follow: libraries that run an op graph one by one keep
#: what HIP's do, and those that compile it whole keep what XLA does.
_PLATFORMS: dict[str, Platform] = {
    "cuda": "cuda", "jetson": "cuda", "rocm": "rocm", "xpu": "rocm", "mps": "rocm", "cpu": "cpu",
    "tpu": "xla", "gaudi": "xla", "neuron": "xla",
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


def newest_support(device: Device, *, framework: str = "torch") -> DeviceSupport | None:
    """What a device can use with its newest framework release; None where nothing runs it."""
    stack = newest_stack(device, framework=framework)
    platform = None if stack is None else platform_of(stack)
    return None if platform is None else device_support(device, platform, framework=framework)


def unreleased_support(device: Device, *, framework: str = "torch") -> DeviceSupport | None:
    """What a device could use if a framework was built from source for it.

    Its time is a matter of its facts and not of who packs machine code for it. None where a release
    runs it, or where nobody knows how it is driven.
    """
    target = target_of(device)
    platform = None if target is None else _PLATFORMS.get(target.platform)
    precisions = usable_precisions(device)
    if platform is None or not precisions or newest_stack(device, framework=framework) is not None:
        return None
    return DeviceSupport(
        device=device,
        platform=platform,
        precisions=precisions,
        compilers=frozenset({"eager"}),
        assumption=f"no {framework} release has kernels for {device.name}: timed as if it was "
        "built from source",
    )


def why_unmodelled(device: Device, *, framework: str = "torch") -> str:
    """Why `newest_support` is None: no software, or none whose kernels are known."""
    stack = newest_stack(device, framework=framework)
    if stack is None:
        return (
            why_unsupported(device, framework=framework)
            or "no framework release is known to run on it"
        )
    software = f"{stack.framework} {stack.framework_version}"
    return f"{software} runs on it through {stack.platform}, whose kernels are not modelled"


def configuration_on(
    device: Device, *, precision: str | None, compiler: Compiler | None, rewrite: str = "",
    framework: str = "torch",
) -> Configuration:  # fmt: skip
    """How a job runs on one device: as stated, else as is usual there.

    Args:
        device: Where.
        precision: As typed; None takes half width where the device has units for it, else full.
        compiler: What runs the kernels; None runs op by op, where the device does.
        rewrite: Further settings, as `paceline.model.settings.read_settings` reads them.
        framework: That runs it, with or without its release.

    Raises:
        UnknownNameError: No such precision or setting.
        InvalidInputError: Nothing runs on the device, or not in that precision or compiler.
    """
    support = _support_of(device, framework)
    name = read_precision(precision or usual_precisions(support)[0])
    plain = Configuration(
        precision=name,
        compiler=compiler or _usual_compiler(support),
        platform=support.platform,
        widens_in_kernels=name in WIDENED_IN_KERNELS,
    )
    return checked_on(device, read_settings(rewrite, plain), framework=framework)


def _usual_compiler(support: DeviceSupport) -> Compiler:
    ways: tuple[Compiler, ...] = ("eager", "compiled", "xla")
    return next(one for one in ways if one in support.compilers)


def checked_on(
    device: Device, configuration: Configuration, *, framework: str = "torch"
) -> Configuration:
    """The configuration itself, where the device runs its precision and compiler.

    Raises:
        UnknownNameError: No such precision.
        InvalidInputError: The device does not run it.
    """
    precision, compiler = find_precision(configuration.precision).name, configuration.compiler
    support = _support_of(device, framework)
    unusable = why_unusable(support, precisions=(precision,), compilers=(compiler,))
    if unusable is None:
        return configuration
    raise InvalidInputError(
        f"{device.name} does not run {unusable.wanted}", hint=f"write {unusable.choices}"
    )


def source_words(device: Device, *, framework: str = "torch") -> str:
    """What is assumed where no release runs on a device that has an answer; empty elsewhere."""
    support = unreleased_support(device, framework=framework)
    return "" if support is None else support.assumption


def _support_of(device: Device, framework: str) -> DeviceSupport:
    support = newest_support(device, framework=framework)
    support = support or unreleased_support(device, framework=framework)
    if support is None:
        raise InvalidInputError(
            f"{device.name} has no answer: {why_unmodelled(device, framework=framework)}",
            hint="name another device, as `paceline devices` lists them",
        )
    return support
