"""Memory of a process on a CPU that has begun: what it will hold at most, from what it holds."""

from __future__ import annotations

from paceline.model.graph.costs import LoweredPass
from paceline.planfile import Interval
from paceline.prediction.memory.peak import live_at_peak, process_memory
from paceline.prediction.prediction import Points

#: What libraries load and keep in the first steps: 20 to 80 MB in six scripts of PyTorch 2.13.
_LOADED_MID_BYTES, _LOADED_HIGH_BYTES = 50e6, 120e6


def begun_process_bytes(
    step: LoweredPass, keeping: LoweredPass, *, batch: int, seq: int, began_bytes: float
) -> Interval:
    """Peak of the process: low, median and the bound that holds at a chance of 95 %.

    Args:
        step: What runs.
        keeping: The same where gradients of the step before are there from the beginning.
        batch: Items of a microbatch.
        seq: Tokens of a sequence; 1 without any.
        began_bytes: What the process held before its first step, without the parameters.
    """
    points, added = Points.of([batch], seq=seq), process_memory("cpu")
    live, kept = (float(live_at_peak(one.memory, points)[0][0]) for one in (step, keeping))
    high = kept * (1 + added.fragmentation_high_frac) + _LOADED_HIGH_BYTES
    return Interval(
        low=began_bytes + live,
        mid=began_bytes + live * (1 + added.fragmentation_mid_frac) + _LOADED_MID_BYTES,
        high=began_bytes + high,
    )
