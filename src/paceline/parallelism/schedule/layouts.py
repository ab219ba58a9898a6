"""Blocks cut into pipeline stages, with what each stage takes, keeps and sends."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.schedule.blocks import BlockCosts
from paceline.parallelism.schedule.stages import balanced_cuts, even_cuts, per_stage
from paceline.parallelism.schedule.table import Variant
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Blocks cut into virtual stages; arrays are (num_stages,).

    Attributes:
        forward_s: One microbatch, with communication between ranks that share blocks, or
            its dispatch by the host where that takes longer.
        backward_s: Likewise.
        weight_s: Of backward, gradients of weights.
        tensor_s: Of both, that communication.
        start_s: By how much the first microbatch takes longer than those that follow, since the
            host has not run ahead yet; zero where stages wait for each other.
        ahead_s: By how much the host gets ahead of the device in each; zero likewise.
        state: What one of the ranks that share the stage keeps, (num_parts, 2, num_stages).
        saved_bytes: Kept for backward.
        put_off_bytes: Kept besides where gradients of weights come later.
        message_bytes: The largest message between two stages, of one rank.
        transient_bytes: Beyond ``saved_bytes`` at the peak.
        largest_bytes: The largest single tensor that comes and goes.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    tensor_s: FloatArray
    start_s: float
    ahead_s: float
    state: TrainingState
    saved_bytes: FloatArray
    put_off_bytes: FloatArray
    message_bytes: float
    transient_bytes: FloatArray
    largest_bytes: FloatArray


@lru_cache(maxsize=1024)
def layout(
    variant: Variant, num_stages: int, point: int, *, is_even: bool, adds_in_place: bool = False
) -> Layout:
    """One cut; equal ones are made once.

    Tensor ranks hold equal copies of the message: each sends its part of it.

    Args:
        variant: How the blocks run.
        num_stages: Virtual stages.
        point: Microbatch size, row of the variant's points.
        is_even: Whether stages get equal numbers of layers instead of equal cost.
        adds_in_place: Whether gradients are made in the buffer of their sum.

    Source: Narayanan et al., SC 2021, section 4.1 (scatter/gather optimization).
    """
    costs = variant.costs
    copies = 1 if variant.shape.sequence_parallel else variant.shape.tensor
    cuts = (
        even_cuts(costs.names, num_stages)
        if is_even and num_stages > 1
        else balanced_cuts(costs.work_s[point], num_stages)
    )
    saved_of_blocks = costs.saved_bytes[point]
    transient = (costs.transient_bytes if adds_in_place else costs.adding_bytes)[point]
    timed = (
        costs.forward_s, costs.backward_s, costs.forward_host_s, costs.backward_host_s,
        costs.weight_s, costs.tensor_s,
    )  # fmt: skip
    rows = per_stage(np.stack([seconds[point] for seconds in timed]), cuts)
    kept = (saved_of_blocks, costs.put_off_bytes[point])
    saved_bytes, put_off_bytes = per_stage(np.stack(kept), cuts)
    forward_s, backward_s = np.maximum(rows[:2], rows[2:4])
    start_s = ahead_s = 0.0
    if num_stages == 1:
        (forward_s, backward_s), start_s, ahead_s = _lone_stage(costs, point)
    return Layout(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=np.minimum(rows[4], backward_s),
        tensor_s=rows[5],
        start_s=start_s,
        ahead_s=ahead_s,
        state=TrainingState(per_stage(costs.state.values, cuts) + costs.tied.beyond_home(cuts)),
        saved_bytes=saved_bytes,
        put_off_bytes=put_off_bytes,
        message_bytes=float(costs.boundary_bytes[point][cuts[1:] - 1].max(initial=0.0)) / copies,
        transient_bytes=_stage_transient_bytes(saved_of_blocks, transient, cuts),
        largest_bytes=np.maximum.reduceat(costs.largest_bytes[point], cuts),
    )


def _lone_stage(costs: BlockCosts, point: int) -> tuple[FloatArray, float, float]:
    """Forward and backward of a stage that waits for no other, its start, and what host is ahead.

    The host dispatches through forward and backward while the device runs what came before, so
    that the slower of the two sets the pace of a microbatch. The first takes what is dispatched up
    to some block and runs on the device from there on, whichever block that makes most of.
    """
    device, host = (
        np.concatenate([forward[point], backward[point, ::-1]])
        for forward, backward in (
            (costs.forward_s, costs.backward_s),
            (costs.forward_host_s, costs.backward_host_s),
        )
    )
    pace = max(float(device.sum()), float(host.sum()))
    before = np.cumsum(np.append(0.0, host)) - np.cumsum(np.append(0.0, device))
    first = float(before.max()) + float(device.sum())
    num_blocks = len(costs.names)
    parts = np.array([device[:num_blocks].sum(), device[num_blocks:].sum()])[:, None]
    return parts * (pace / max(float(parts.sum()), 1e-300)), first - pace, pace - float(host.sum())


def _stage_transient_bytes(
    saved_bytes: FloatArray, transient_bytes: FloatArray, cuts: IntArray
) -> FloatArray:
    """What a stage holds beyond the saved activations of all its blocks, at its peak.

    While a block runs backward, what the blocks after it had saved is free again.
    """
    held_bytes = np.cumsum(saved_bytes)
    peak_bytes = np.maximum.reduceat(held_bytes + transient_bytes, cuts)
    return np.asarray(peak_bytes - held_bytes[np.append(cuts[1:], len(saved_bytes)) - 1])
