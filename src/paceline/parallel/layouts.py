"""Blocks cut into pipeline stages, with what each stage takes, keeps and sends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from paceline.parallel.stages import balanced_cuts, even_cuts, per_stage
from paceline.parallel.strategy_table import Variant
from paceline.trace.graph import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Blocks cut into virtual stages; arrays are (num_stages,).

    Attributes:
        forward: Seconds of one microbatch, with communication between ranks that share blocks.
        backward: Likewise.
        weight: Of backward, gradients of weights.
        tensor: Of both, that communication.
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
    work = costs.forward_s[point] + costs.backward_s[point]
    cuts = (
        even_cuts(costs.names, num_stages)
        if is_even and num_stages > 1
        else balanced_cuts(work, num_stages)
    )
    saved_bytes = costs.saved_bytes[point]
    timed = (costs.forward_s, costs.backward_s, costs.weight_s, costs.tensor_s)
    rows = [seconds[point] for seconds in timed]
    kept = (costs.parameters, costs.expert_parameters, saved_bytes, costs.put_off_bytes[point])
    forward, backward, weight, tensor, parameters, experts, saved, put_off = per_stage(
        np.stack([*rows, *kept]), cuts
    )
    return Layout(
        forward=forward,
        backward=backward,
        weight=weight,
        tensor=tensor,
        parameters=parameters,
        experts=experts,
        saved=saved,
        put_off=put_off,
        message_bytes=float(costs.boundary_bytes[point][cuts[1:] - 1].max(initial=0.0)) / copies,
        transient=_stage_transient(saved_bytes, costs.transient_bytes[point], cuts),
    )


def _stage_transient(saved: FloatArray, transient: FloatArray, cuts: IntArray) -> FloatArray:
    """What a stage holds beyond the saved activations of all its blocks, at its peak.

    While a block runs backward, what the blocks after it had saved is free again.
    """
    held = np.cumsum(saved)
    peak = np.maximum.reduceat(held + transient, cuts)
    return np.asarray(peak - held[np.append(cuts[1:], len(saved)) - 1])
