"""Where a pass stands under the roofline of a device."""

from __future__ import annotations

from typing import get_args

from paceline.prediction.step.breakdown import Limit, PassBreakdown
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePosition:
    """A pass against what the device could do.

    Attributes:
        flop_per_byte: Arithmetic intensity of the pass: FLOP over device-memory bytes.
        ridge_flop_per_byte: Intensity from which the device is bound by arithmetic.
        peak_flop_per_s: Dense peak of the precision.
        memory_bytes_per_s: Peak bandwidth of device memory.
        reached_flop_per_s: FLOP of the pass over the busy time.
        reached_bytes_per_s: Bytes of the pass over the busy time.
        time_frac_by_limit: Share of the busy time in ops that each limit holds back.
    """

    flop_per_byte: float
    ridge_flop_per_byte: float
    peak_flop_per_s: float
    memory_bytes_per_s: float
    reached_flop_per_s: float
    reached_bytes_per_s: float
    time_frac_by_limit: dict[str, float]


def roofline_position(
    whole: PassBreakdown, *, peak_flop_per_s: float, memory_bytes_per_s: float
) -> RooflinePosition:
    """Place a pass.

    Args:
        whole: Breakdown with a device, in which every op is listed.
        peak_flop_per_s: Dense peak of the device in the precision of the pass.
        memory_bytes_per_s: Its bandwidth.
    """
    assert whole.device_s is not None
    shares = dict.fromkeys(get_args(Limit), 0.0)
    for op in whole.ops:
        assert op.limit is not None
        assert op.time_frac is not None
        shares[op.limit] += op.time_frac
    return RooflinePosition(
        flop_per_byte=whole.flop / max(whole.moved_bytes, 1.0),
        ridge_flop_per_byte=peak_flop_per_s / memory_bytes_per_s,
        peak_flop_per_s=peak_flop_per_s,
        memory_bytes_per_s=memory_bytes_per_s,
        reached_flop_per_s=whole.flop / whole.device_s,
        reached_bytes_per_s=whole.moved_bytes / whole.device_s,
        time_frac_by_limit=shares,
    )
