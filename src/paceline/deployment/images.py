"""Container images for a software stack."""

from __future__ import annotations

import re

from paceline.deployment import shell
from paceline.deployment.facts import platforms
from paceline.errors import InvalidInputError, MissingFactError
from paceline.planfile import PlannedStack
from paceline.stack.queries import Constraints, images_side_by_side
from paceline.stack.tables import Build, load_tables
from paceline.stack.versions import minor_of

_IMAGE = re.compile(
    r"[a-z0-9][a-zA-Z0-9._/-]*(:[0-9]+/[a-zA-Z0-9._/-]+)?(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
)


def image_of(stack: PlannedStack, *, family: str = "image") -> str | None:
    """The published image that holds ``stack``, or the base that it is installed on.

    None where no image family is on record for the platform and framework.

    Args:
        stack: Software.
        family: ``image``, or ``image_with_compiler`` for one that has a C compiler too.
    """
    pattern = platforms()[family].get(stack.platform, {}).get(stack.framework)
    if pattern is None:
        return None
    return str(pattern).format(
        release=stack.framework_version,
        minor=minor_of(stack.framework_version),
        platform_version=stack.platform_version,
        python=stack.python_version,
        cudnn_major=_cudnn_major(stack),
        toolkit_tag=_toolkit_tag(stack) if "{toolkit_tag}" in pattern else "",
    )


def checked_image(name: str | None) -> str | None:
    """``name`` if it can be an image's; it goes into files that know no quotes.

    Raises:
        InvalidInputError: It holds anything but what image names are made of.
    """
    if name is not None and not _IMAGE.fullmatch(name):
        raise InvalidInputError(
            f"`{name}` is not the name of an image", hint="write it like registry/name:tag"
        )
    return name


def packages_of(stack: PlannedStack) -> tuple[str, ...]:
    """What pip must add to the image; empty where the image holds the framework."""
    patterns = platforms()["packages"].get(stack.platform, {}).get(stack.framework, [])
    tag = _build(stack).tag if patterns else ""
    return tuple(p.format(release=stack.framework_version, tag=tag) for p in patterns)


def system_packages_of(compiler: str) -> tuple[str, ...]:
    """Packages of the system that ``compiler`` calls at run time."""
    return tuple(platforms()["system_packages"].get(compiler, ()))


def install_lines(
    stack: PlannedStack, compiler: str, tools: tuple[str, ...], *, prefix: str
) -> list[str]:
    """Lines that add what the image lacks: a C compiler, the framework, tools."""
    lines = []
    system = system_packages_of(compiler)
    if system:
        install = shell.join(["apt-get", "install", "-y", "--no-install-recommends", *system])
        lines.append(f"{prefix}apt-get update && {install} && rm -rf /var/lib/apt/lists/*")
    packages = packages_of(stack) + tools
    if packages:
        lines.append(prefix + shell.join(["pip", "install", "--no-cache-dir", *packages]))
    return lines or ["# The image holds all that is needed."]


def _cudnn_major(stack: PlannedStack) -> str:
    if stack.platform != "cuda":
        return ""
    return _build(stack).cudnn.lstrip(">=").split(".")[0] or "9"


def _toolkit_tag(stack: PlannedStack) -> str:
    line = minor_of(stack.platform_version or "")
    choice = images_side_by_side((line,), Constraints())[0]
    if choice.image is None:
        raise MissingFactError(
            f"no CUDA {line} image is on record", hint="give one with `--image NAME:TAG`"
        )
    return choice.image.partition(":")[2]


def _build(stack: PlannedStack) -> Build:
    for build in load_tables().builds:
        if (
            build.framework == stack.framework
            and build.release == stack.framework_version
            and build.platform == stack.platform
            and build.platform_version == stack.platform_version
        ):
            return build
    raise MissingFactError(
        f"{stack.framework} {stack.framework_version} for {stack.platform} "
        f"{stack.platform_version or ''} is not in the software tables",
        hint="list what is with `paceline stack resolve`",
    )
