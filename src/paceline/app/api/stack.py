"""The public functions for software that works together: resolve, explain, check, images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from paceline.app.requests.this_host import with_this_host

if TYPE_CHECKING:
    from paceline.stack.queries import Explanation, ImageChoice
    from paceline.stack.resolver import Combination, Resolution


class HostOptions(TypedDict, total=False):
    """What is stated of a host, named as on the command line; what is left out is free."""

    gpu: str | None
    driver: str | None


class StackOptions(HostOptions, total=False):
    """What is stated of the host and its software."""

    cuda: str | None
    rocm: str | None
    python: str | None
    framework: str | None
    release: str | None
    compiler: str | None
    system: str | None


def stack_resolve(*, num: int = 6, **constraints: Unpack[StackOptions]) -> Resolution:
    """The newest combinations that work, or the smallest contradictions.

    Args:
        num: How many combinations to list.
        **constraints: ``gpu`` (a product, ``sm_86``, ``cpu`` or ``here``), ``driver``, ``cuda``,
            ``rocm``, ``python``, ``framework``, ``release``, ``compiler``, ``system``.

    Raises:
        PacelineError: One of its leaves, with a hint.

    >>> stack_resolve(gpu="a100", framework="torch").combinations[0].framework
    'torch'
    """
    from paceline.stack.queries import Constraints, resolve

    return resolve(with_this_host(Constraints(**constraints)), max_combinations=max(1, num))


def stack_explain(**constraints: Unpack[StackOptions]) -> Explanation:
    """The newest combination with every rule that bears on it and its source.

    Args:
        **constraints: As in `stack_resolve`.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.stack.queries import Constraints, explain

    return explain(with_this_host(Constraints(**constraints)))


def stack_check(**constraints: Unpack[StackOptions]) -> Combination:
    """The combination that these make together.

    Args:
        **constraints: As in `stack_resolve`.

    Raises:
        StackConflictError: They do not work together; the message says why.
    """
    from paceline.stack.queries import Constraints, check

    return check(with_this_host(Constraints(**constraints)))


def stack_images(toolkits: Sequence[str], **host: Unpack[HostOptions]) -> tuple[ImageChoice, ...]:
    """A container image per CUDA line, all to run side by side on one host.

    Args:
        toolkits: CUDA lines, such as ``("11.8", "12.4")``.
        **host: ``gpu`` (a product, ``sm_86``, or ``here``) and ``driver`` (a release or branch).

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.stack.queries import Constraints, images_side_by_side

    return images_side_by_side(toolkits, with_this_host(Constraints(**host)))
