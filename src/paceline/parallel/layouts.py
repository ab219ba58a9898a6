"""Blocks cut into pipeline stages, with what each stage takes, keeps and sends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paceline.parallel.blocks import BlockCosts
from paceline.parallel.stages import balanced_cuts, even_cuts, per_stage
from paceline.parallel.strategy_table import Variant
from paceline.trace.graph import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Blocks cut into virtual stages; arrays are (num_stages,).

    Attributes:
        forward: Seconds of one microbatch, with communication between ranks that share blocks, or
            its dispatch by the host where that takes longer.
        backward: Likewise.
        weight: Of backward, gradients of weights.
        tensor: Of both, that communication.
        start: Seconds that the first microbatch takes longer than those that follow, since the host
            has not run ahead yet; zero where stages wait for each other.
        ahead: Seconds by which the host gets ahead of the device in each; zero likewise.
        parameters: Kept by one of the ranks that share the stage.
        experts: Of them, experts.
        saved: Bytes kept for backward.
        put_off: Bytes kept besides where gradients of weights come later.
        message_bytes: The largest message between two stages, of one rank.
        transient: Bytes beyond ``saved`` at the peak.
    """

    forward: FloatArray
    backward: FloatArray
    weight: FloatArray
    tensor: FloatArray
    start: float
    ahead: float
    parameters: FloatArray
    experts: FloatArray
    saved: FloatArray
    put_off: FloatArray
    message_bytes: float
    transient: FloatArray


@lru_cache(maxsize=8192)
def layout(variant: Variant, num_stages: int, point: int, *, is_even: bool) -> Layout:
    """One cut; equal ones are made once.

    Tensor ranks hold equal copies of the message: each sends its part of it.

    Args:
        variant: How the blocks run.
        num_stages: Virtual stages.
        point: Microbatch size, row of the variant's points.
        is_even: Whether stages get equal numbers of layers instead of equal cost.

    Source: Narayanan et al., SC 2021, section 4.1 (scatter/gather optimization).
    """
    costs = variant.costs
    copies = 1 if variant.sequence_parallel else variant.tensor_degree
    work = np.maximum(costs.forward_s[point], costs.forward_host_s[point])
    work = work + np.maximum(costs.backward_s[point], costs.backward_host_s[point])
    cuts = (
        even_cuts(costs.names, num_stages)
        if is_even and num_stages > 1
        else balanced_cuts(work, num_stages)
    )
    saved_bytes = costs.saved_bytes[point]
    timed = (
        costs.forward_s, costs.backward_s, costs.forward_host_s, costs.backward_host_s,
        costs.weight_s, costs.tensor_s,
    )  # fmt: skip
    rows = per_stage(np.stack([seconds[point] for seconds in timed]), cuts)
    kept = (costs.parameters, costs.expert_parameters, saved_bytes, costs.put_off_bytes[point])
    parameters, experts, saved, put_off = per_stage(np.stack(kept), cuts)
    forward, backward = np.maximum(rows[:2], rows[2:4])
    start = ahead = 0.0
    if num_stages == 1:
        (forward, backward), start, ahead = _lone_stage(costs, point)
    return Layout(
        forward=forward,
        backward=backward,
        weight=np.minimum(rows[4], backward),
        tensor=rows[5],
        start=start,
        ahead=ahead,
        parameters=parameters,
        experts=experts,
        saved=saved,
        put_off=put_off,
        message_bytes=float(costs.boundary_bytes[point][cuts[1:] - 1].max(initial=0.0)) / copies,
        transient=_stage_transient(saved_bytes, costs.transient_bytes[point], cuts),
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


def _stage_transient(saved: FloatArray, transient: FloatArray, cuts: IntArray) -> FloatArray:
    """What a stage holds beyond the saved activations of all its blocks, at its peak.

    While a block runs backward, what the blocks after it had saved is free again.
    """
    held = np.cumsum(saved)
    peak = np.maximum.reduceat(held + transient, cuts)
    return np.asarray(peak - held[np.append(cuts[1:], len(saved)) - 1])
