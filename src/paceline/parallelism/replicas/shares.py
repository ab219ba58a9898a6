"""What each of two kinds of device does in a step of data parallel."""

from __future__ import annotations

from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one kind of device does in a step.

    Attributes:
        device: ``Device.name``.
        alone_s: One of its devices for those, without communication.
        memory_mid_bytes: Peak per device, median.
        memory_bytes: The same, the bound that holds at a chance of 95 %.
        log_sigma: Spread of the logarithm of ``alone_s``.
        sharing_log_sigma: What is not known of those devices that share a machine.
    """

    device: str
    count: int
    items_per_device: int
    alone_s: float
    memory_mid_bytes: float
    memory_bytes: float
    log_sigma: float
    sharing_log_sigma: float

    @property
    def needed_bytes(self) -> float:
        """Memory that a device must have, at the chance at which a job must fit."""
        return float(quantile_bytes(self.memory_mid_bytes, self.memory_bytes))
