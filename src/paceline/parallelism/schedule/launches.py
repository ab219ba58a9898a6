"""What the host spends where it launches kernels one by one, and experts one after the other.

A compiler's wrapper issues kernels at the pace of a driver. Libraries of fused kernels, such as
Transformer Engine, are called from modules, whose Python takes as long as that of modules whose
kernels are not fused, unless graphs replay them. Their experts are a loop of the host: one cast and
one product for each, whose rows the host must know, so that it waits for what routing counted.

Source: NVIDIA/Megatron-LM, ``core/transformer/moe/token_dispatcher.py`` (counts of tokens are
copied to the host before experts run); NVIDIA/TransformerEngine, ``GroupedLinear``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from paceline.model.costs_table import num_kernels, views_with
from paceline.model.graph.block_names import block_names, blocks_of_ops
from paceline.model.graph.costs import Checkpointing, Configuration, LoweredPass
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, Graph, IntArray, OpKind, Phase
from paceline.model.graph.program import Program
from paceline.model.lowering import rewritten
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.split import SplitShape
from paceline.parallelism.split.experts import find_experts
from paceline.parallelism.training_profile import TrainingProfile
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.step.host_dispatch import (
    dispatch_s,
    host_pace,
    view_frac,
    waits_of,
)
from paceline.values import dataclass

_FORWARD = (Phase.FORWARD, Phase.LOSS)
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """What of a rank's step a host may launch one by one.

    Attributes:
        block: Block of each op, (num_ops,).
        written: Kernels of each block as modules write them, and views of tensors, forward and
            backward, (2, 2, num_blocks).
        experts: Experts that each op multiplies with, (num_ops,); 0 of other ops.
    """

    block: IntArray
    written: FloatArray
    experts: FloatArray


def written_kernels(
    program: Program, configuration: Configuration, names: tuple[str, ...]
) -> FloatArray:
    """Kernels of each block as modules write them, and views of tensors.

    Returns:
        Forward and backward, kernels and views, (2, 2, num_blocks).
    """
    kernels, phase = num_kernels(program, configuration), program.ops.phase
    calls = (kernels, views_with(program.ops.kind, phase, kernels))
    block = blocks_of_ops(program.modules, program.ops.module, names)
    chosen = [among(phase, part) for part in (_FORWARD, _BACKWARD)]
    return np.array([
        [np.bincount(block[one], each[one], len(names)) for each in calls] for one in chosen
    ])  # fmt: skip


def launches_of(
    graph: Graph, program: Program, shape: SplitShape, block: IntArray, written: FloatArray,
    checkpointing: Checkpointing,
) -> Launches:  # fmt: skip
    """What a rank launches.

    Args:
        graph: The step, whole.
        program: What the rank runs of it.
        shape: How ranks share it.
        block: Block of each op of the program.
        written: Of `written_kernels` where nothing is computed again.
        checkpointing: What backward runs again of the forward pass.
    """
    again = np.array([[[0.0]], [[1.0]]]) * written[0] * (checkpointing in ("block", "full"))
    return Launches(
        block=block, written=written + again, experts=_experts_of(graph, program, shape)
    )


@lru_cache(maxsize=8)
def launches_alone(graph: Graph, configuration: Configuration) -> Launches:
    """What a rank launches that shares no layer with others."""
    how, names = with_weight_format(graph, configuration), block_names(graph)
    eager = replace(how, compiler="eager", checkpointing="none")
    program = rewritten(graph, how)
    return launches_of(
        graph, program, SplitShape(), blocks_of_ops(program.modules, program.ops.module, names),
        written_kernels(rewritten(graph, eager), eager, names), how.checkpointing,
    )  # fmt: skip


def _experts_of(graph: Graph, program: Program, shape: SplitShape) -> FloatArray:
    found = find_experts(graph)
    if found is None:
        return np.zeros(len(program.ops))
    names = {graph.modules[module] for module in found.modules}
    inside = np.array([name in names for name in program.modules])[program.ops.module]
    batch = program.dims[program.ops.dims][:, 0, 0]
    mine = found.routing.num_experts / shape.expert_ranks
    is_product = inside & (program.ops.kind == OpKind.MATMUL) & np.isclose(batch, mine)
    return np.where(is_product, mine, 0.0)


def hosted(
    lowered: LoweredPass, launches: Launches, device: DeviceTable, calibration: Calibration,
    profile: TrainingProfile,
) -> tuple[FloatArray, IntArray]:  # fmt: skip
    """Host time of each op of a rank on one device, (num_ops,), and ops after which it waits.

    Args:
        lowered: What the rank runs.
        launches: What of it is launched one by one.
        device: A table of one device.
        calibration: Dispatch times.
        profile: Whose host it is, and how it launches.
    """
    seconds = dispatch_s(lowered, profile.host, device, calibration)[0].astype(np.float64)
    if profile.launches_each and lowered.configuration.compiler != "eager":
        pace = float(host_pace(device, profile.host, calibration)[0])
        each = calibration.constants["host"]["per_kernel_s"][profile.host]["eager"]
        kernels, views = launches.written.swapaxes(0, 1)
        calls = kernels + view_frac(profile.host, calibration) * views
        written_s = calls * pace * np.array([[each["forward"]], [each["backward"]]])
        seconds *= _slower(seconds, lowered, launches.block, written_s)
    waits = waits_of(lowered)
    if not profile.loops_experts:
        return seconds, waits
    seconds += launches.experts * calibration.constant("host_waits", "expert_s")
    return seconds, np.union1d(waits, waits_for_counts(lowered, launches))


def _slower(
    seconds: FloatArray, lowered: LoweredPass, block: IntArray, written_s: FloatArray
) -> FloatArray:
    """What each op takes longer, so that blocks take what they take as written; never shorter."""
    phase, slower = lowered.costs.phase[lowered.costs.order], np.ones(len(seconds))
    for part, whole_s in zip((_FORWARD, _BACKWARD), written_s, strict=True):
        chosen = among(phase, part)
        own_s = np.bincount(block[chosen], seconds[chosen], written_s.shape[1])
        slower[chosen] = np.maximum(whole_s / np.maximum(own_s, 1e-12), 1.0)[block[chosen]]
    return slower


def waits_for_counts(lowered: LoweredPass, launches: Launches) -> IntArray:
    """Ops after which the host waits to learn how many tokens each expert got, ascending.

    Those before the first product of a layer of experts, whenever its forward pass runs.
    """
    costs = lowered.costs
    phase = costs.phase[costs.order]
    products = np.flatnonzero(launches.experts * (phase != Phase.BACKWARD))
    layer = np.stack([costs.module[products], phase[products]])
    is_first = np.ones(len(products), dtype=bool)
    is_first[1:] = (layer[:, 1:] != layer[:, :-1]).any(axis=0)
    return np.maximum(products[is_first] - 1, 0)
