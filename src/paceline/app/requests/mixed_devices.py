"""Two kinds of machine asked about together: which, how many, and the batch they share."""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import InvalidInputError
from paceline.planning.decisions.device_counts import BatchRule
from paceline.simulation.unequal import Part, UnequalStep
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A training step on two kinds of device.

    Attributes:
        model: As typed.
        title: As printed.
        sample_unit: What a batch item is.
        assumptions: Printed first, one sentence each.
        step: Its shares and figures.
    """

    model: str
    title: str
    sample_unit: str
    assumptions: tuple[str, ...]
    step: UnequalStep


def read_beside(text: str) -> tuple[str, int]:
    """The other machines and how many of their devices, from ``NAME:COUNT``.

    Raises:
        InvalidInputError: Not in that form.

    >>> read_beside("A100 SXM4 80GB:8")
    ('A100 SXM4 80GB', 8)
    """
    name, colon, count = text.rpartition(":")
    if not (name and colon and count.isdecimal() and int(count) >= 1):
        raise InvalidInputError(
            f"`{text}` names no other devices with their number",
            hint='write the device or offer and a count, such as --beside "A100 SXM4 80GB:8"',
        )
    return name, int(count)


def shared_batch(rule: BatchRule, parts: tuple[Part, Part], busy: Callable[[Part], int]) -> int:
    """Items of all devices: as asked, or what keeps every device busy, up to the recipe's largest.

    ``busy``: the smallest batch that keeps a device of a part busy.
    """
    if rule.global_batch:
        return rule.global_batch
    total = sum(part.count for part in parts)
    per_device = rule.batch_per_device or max(busy(part) for part in parts)
    most = rule.max_global_batch or total * per_device
    return max(min(total * per_device, most) // total, 1) * total
