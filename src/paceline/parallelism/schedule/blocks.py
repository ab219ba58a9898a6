"""A model as a row of blocks and what each costs one rank: the grain of pipelines and search.

Shapes: num_points microbatch sizes, num_blocks blocks in the order data flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, replace
from functools import lru_cache

import numpy as np

from paceline.catalog.entities import Device
from paceline.columns import take_rows
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.graph.block_names import is_numbered
from paceline.model.graph.costs import Configuration, CostTable
from paceline.model.graph.distinct import among, distinct
from paceline.model.graph.graph import FloatArray, Graph, IntArray, Phase
from paceline.model.objectives import models_beside
from paceline.parallelism.collectives.cluster import check_known
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.memory.block_memory import (
    BlockMemory,
    BoolArray,
)
from paceline.parallelism.memory.sharded_memory import PeakMoments
from paceline.parallelism.memory.training_state import (
    TiedState,
    TrainingState,
)
from paceline.parallelism.schedule.launches import hosted
from paceline.parallelism.schedule.rank_work import RankWork, rank_work
from paceline.parallelism.split import (
    Routing,
    SplitShape,
    Wires,
    calls_s,
)
from paceline.parallelism.split.calls import AXES
from paceline.parallelism.training_profile import TrainingProfile, find_training_profile
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array
from paceline.prediction.kernels.op_shapes import OpShapes, evaluate_shapes
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.memory.peak import live_at_peak
from paceline.prediction.prediction import Points
from paceline.prediction.step.host_dispatch import (
    beyond_queue_s,
    list_transfer_s,
    turns_in_order,
)
from paceline.prediction.step.timeline import waiting_end_s
from paceline.prediction.uncertainty.posterior_correction import correction_of, traits_of
from paceline.values import dataclass

#: Seconds of communication between tensor ranks and of tokens, in forward and in backward,
#: (num_points, num_blocks) each.
_Shared = tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockCosts(BlockMemory):
    """One microbatch on one rank of a tensor group, block by block.

    Attributes:
        names: Module path of each block.
        points: Microbatch sizes and sequence lengths.
        forward_s: Forward on the device with its communication, (num_points, num_blocks). Of a
            block in which the host waits for the device, all that it takes.
        backward_s: Backward likewise, recomputation included, same shape.
        forward_host_s: Time of the host to dispatch forward, same shape; of a block in which it
            waits, as much as ``forward_s``.
        backward_host_s: Backward likewise, same shape.
        weight_s: Of backward, gradients of weights, which no other block waits for, same shape.
        tensor_s: Of both, communication between the ranks that share a block, without what is
            hidden, same shape.
        update_host_s: Time of the host to dispatch the optimizer, and around a step.
        update_late_s: Of it, launches that no queue holds while backward runs.
        update_bytes_per_s: Rate at which the optimizer moves its bytes; without one, infinite.
        state: What the rank keeps to train them, (num_parts, 2, num_blocks): what every expert rank
            holds alike, and experts that are split between ranks.
        tied: Of it, parameters that several blocks read: every stage that does keeps them.
        boundary_bytes: What the next block needs of this one and those before, same shape.
        handed_bytes: What this one makes that layers after it need, same shape.
        moments: Live bytes of a rank that runs all blocks once, from which gradients come one by
            one, at the moments that can be its peak.
        moment_block: Block of each of them, (num_moments,).
        num_allocations: Storages alive at its peak, (num_points,).
        traits: What measurements know the microbatch by, (num_points,).
    """

    names: tuple[str, ...]
    points: Points
    forward_s: FloatArray
    backward_s: FloatArray
    forward_host_s: FloatArray
    backward_host_s: FloatArray
    weight_s: FloatArray
    tensor_s: FloatArray
    update_host_s: float
    update_late_s: float
    update_bytes_per_s: float
    state: TrainingState
    tied: TiedState
    boundary_bytes: FloatArray
    handed_bytes: FloatArray
    moments: PeakMoments
    moment_block: IntArray
    num_allocations: FloatArray
    traits: tuple[StepFeatures, ...]

    @property
    def parameters(self) -> FloatArray:
        """Parameters that the rank keeps, (num_blocks,)."""
        return np.asarray(self.state.parameters.sum(axis=0))

    @property
    def work_s(self) -> FloatArray:
        """What stages are cut by: a microbatch of each block on device or host, same shape."""
        return self.forward_work_s + np.maximum(self.backward_s, self.backward_host_s)

    @property
    def forward_work_s(self) -> FloatArray:
        """Forward of that, same shape."""
        return np.maximum(self.forward_s, self.forward_host_s)

    @property
    def busy_s(self) -> FloatArray:
        """The longer of all that the device computes and the host dispatches, (num_points,)."""
        device_s = (self.forward_s + self.backward_s).sum(axis=1)
        host_s = (self.forward_host_s + self.backward_host_s).sum(axis=1)
        return np.asarray(np.maximum(device_s, host_s))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorGroup:
    """How the ranks that share every block are joined: tensor ranks innermost, then context.

    Attributes:
        shape: How many they are, and what each has.
        device_link: One row.
        node_link: One row.
        profile: How the software that runs there behaves.
    """

    shape: SplitShape
    ranks_per_node: int
    device_link: LinkTable
    node_link: LinkTable
    profile: TrainingProfile = field(default_factory=find_training_profile)

    def wires(self, num_points: int, routing: Routing | None) -> Wires:
        """Over what they talk; ``routing`` where their tokens go."""
        return Wires(
            groups=self.shape.groups(
                num_points, self.ranks_per_node, self.device_link, self.node_link
            ),
            routing=routing if self.profile.tokens_once else None,
        )


def block_costs(
    graph: Graph,
    configuration: Configuration,
    device: DeviceTable,
    points: Points,
    group: TensorGroup,
    *,
    calibration: Calibration | None = None,
) -> BlockCosts:
    """Evaluate one microbatch of a training step, block by block.

    Args:
        graph: The training step.
        configuration: How a rank runs it.
        device: A table of one device.
        points: Microbatch sizes.
        group: Ranks that share every block.
        calibration: Of the predictor; the built-in one by default.

    Raises:
        InvalidInputError: The graph cannot be split so many ways.
        MissingFactError: Something that the times need is not known of the device.
    """
    ways = [(configuration, group)]
    return costs_of_ways(graph, ways, device, points, calibration=calibration)[0]


def costs_of_ways(
    graph: Graph,
    ways: Sequence[tuple[Configuration, TensorGroup]],
    device: DeviceTable,
    points: Points,
    *,
    calibration: Calibration | None = None,
) -> tuple[BlockCosts, ...]:
    """The same in several ways to share and recompute, whose kernels are timed together.

    Arguments are those of `block_costs`; ``ways`` differ in nothing else of configuration or
    software.
    """
    calibration = calibration or builtin_calibration()
    works = [rank_work(graph, how, points, group.shape) for how, group in ways]
    times = _op_times(works, device, calibration, ways[0][1].profile)
    copied_frac = calibration.constant("device", "streamed_memory_frac")
    copied_bytes_per_s = copied_frac * float(device.memory_bytes_per_s[0])
    return tuple(
        _costs(work, ops, how, group, copied_bytes_per_s)
        for work, ops, (how, group) in zip(works, times, ways, strict=True)
    )


def _costs(
    work: RankWork, ops: _OpTimes, configuration: Configuration, group: TensorGroup,
    copied_bytes_per_s: float,
) -> BlockCosts:  # fmt: skip
    """What ranks run with what they tell each other."""
    calls = _shared_s(work, ops.device_s, configuration, group, copied_bytes_per_s)
    times, layers = _block_times(work, ops, calls, group), work.layers
    every, tied = layers.of_block, work.tied
    moment = work.lowered.memory.op
    is_last = np.maximum.accumulate(np.diff(moment, prepend=0) < 0)
    return BlockCosts(
        **{one.name: getattr(work.memory, one.name)[:, every] for one in fields(BlockMemory)},
        names=layers.whole_names,
        points=work.points,
        forward_s=times.forward.device_s[:, every],
        backward_s=times.backward.device_s[:, every],
        forward_host_s=times.forward.host_s[:, every],
        backward_host_s=times.backward.host_s[:, every],
        weight_s=times.weight_s[:, every],
        tensor_s=(times.forward.called_s + times.backward.called_s)[:, every],
        update_host_s=ops.update_host_s,
        update_late_s=ops.update_late_s,
        update_bytes_per_s=ops.update_bytes_per_s,
        state=TrainingState(work.state.values[..., every]),
        tied=replace(
            tied,
            reads=tied.reads[:, every],
            home=layers.in_whole(tied.home, is_last=np.zeros(len(tied.home), dtype=np.bool_)),
        ),
        boundary_bytes=work.boundaries[0][:, every],
        handed_bytes=work.boundaries[1][:, every],
        moments=work.moments,
        moment_block=layers.in_whole(work.block[moment], is_last=is_last),
        num_allocations=live_at_peak(work.lowered.memory, work.points)[1],
        traits=ops.traits,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OpTimes:
    """What a rank takes, in execution order.

    Attributes:
        device_s: Device time of each op, (num_points, num_ops).
        host_s: Time of the host to dispatch each, same shape.
        waits: Ops after which the host waits for the device, ascending.
        wait_s: What the wait after each op costs besides, (num_points or 1, num_ops or 1).
        update_host_s: Time of the host to dispatch the optimizer, and around a step.
        update_late_s: Of it, launches that no queue holds while backward runs.
        update_bytes_per_s: Rate at which the optimizer moves its bytes.
        traits: What measurements know it all by, (num_points,).
    """

    device_s: FloatArray
    host_s: FloatArray
    waits: IntArray
    wait_s: FloatArray
    update_host_s: float
    update_late_s: float
    update_bytes_per_s: float
    traits: tuple[StepFeatures, ...]


@dataclass(frozen=True, slots=True)
class _DeviceKey:
    """Tables of one device, equal where the device is."""

    entities: tuple[Device, ...]

    def __hash__(self) -> int:
        """Of the name: tables of facts have no hash."""
        return hash(self.entities[0].name)


@lru_cache(maxsize=1)
def _known_times(
    device: _DeviceKey, calibration: Calibration, profile: TrainingProfile
) -> dict[RankWork, _OpTimes]:
    """What was asked of the last device, as machines with other links share it."""
    return {}


def _op_times(
    works: Sequence[RankWork], device: DeviceTable, calibration: Calibration,
    profile: TrainingProfile,
) -> list[_OpTimes]:  # fmt: skip
    """Times on a device; the rows of all that is new are evaluated together."""
    known = _known_times(_DeviceKey(device.entities), calibration, profile)
    new = [work for work in dict.fromkeys(works) if work not in known]
    if new:
        costs = CostTable.joined([work.lowered.costs for work in new])
        joined = replace(new[0].lowered, costs=costs)
        check_known(joined, device)
        shapes = evaluate_shapes(costs, new[0].points)
        part = np.repeat(np.arange(len(new)), [len(work.lowered.costs.kind) for work in new])
        rows = steady_row_times(
            joined, shapes, device, calibration, framework=profile.host, part=part
        )
        for number, work in enumerate(new):
            at_rows = np.ix_(np.arange(len(shapes.flop)), np.flatnonzero(part == number))
            row_s = rows.device_s[0][at_rows]
            known[work] = _times_of_ops(
                work, take_rows(shapes, at_rows), row_s, device, calibration, profile
            )
    return [known[work] for work in works]


def _times_of_ops(
    work: RankWork, shapes: OpShapes, row_s: Array, device: DeviceTable,
    calibration: Calibration, profile: TrainingProfile,
) -> _OpTimes:  # fmt: skip
    """Ops in execution order, from one occurrence of each row, (num_points, num_rows)."""
    lowered, framework = work.lowered, profile.host
    dispatched, waits = hosted(lowered, work.launches, device, calibration, profile)
    turns = turns_in_order(lowered, shapes.dims)
    is_update = work.phase == Phase.OPTIMIZER
    around_s = float(calibration.constants["host"]["step_s"][framework])
    lesson = correction_of(lowered, shapes, row_s[None], device, calibration, framework=framework)
    factor = np.exp(lesson.log_shift[0])[:, None]
    device_s = row_s.astype(np.float64)[:, lowered.costs.order] * factor
    updated_bytes = shapes.moved_bytes[0][lowered.costs.order][is_update].sum(dtype=np.float64)
    update_s = float(device_s[0, is_update].sum())
    return _OpTimes(
        device_s=device_s,
        host_s=turns * (dispatched + list_transfer_s(lowered, shapes.dims, calibration)) * factor,
        waits=waits,
        wait_s=turns.astype(np.float64) * calibration.constant("host_waits", "wait_s"),
        update_host_s=(around_s + float(dispatched[is_update].sum())) * float(factor[0, 0]),
        update_late_s=float(beyond_queue_s(lowered, dispatched, calibration) * factor[0, 0]),
        update_bytes_per_s=float(updated_bytes) / update_s if update_s else np.inf,
        traits=traits_of(lowered, shapes, row_s, framework),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PhaseTimes:
    """Forward or backward of each block, (num_points, num_blocks) each.

    Attributes:
        device_s: On the device, with communication between ranks that share the block.
        host_s: Dispatch by the host.
        called_s: Of the device's, that communication, without what is hidden.
    """

    device_s: FloatArray
    host_s: FloatArray
    called_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _BlockTimes:
    """Blocks of a microbatch, and what of backward makes gradients of weights."""

    forward: _PhaseTimes
    backward: _PhaseTimes
    weight_s: FloatArray


def _block_times(
    work: RankWork, ops: _OpTimes, shared_s: _Shared, group: TensorGroup
) -> _BlockTimes:
    """Blocks with what their ranks tell each other."""
    phase, num_blocks = work.phase, len(work.layers.names)
    is_backward = among(phase, (Phase.BACKWARD, Phase.RECOMPUTE))
    found: list[_PhaseTimes] = []
    parts = (among(phase, (Phase.FORWARD, Phase.LOSS)), is_backward)
    for part, (between_s, tokens_s) in zip(parts, shared_s, strict=True):
        device_s = _per_block(ops.device_s, work.block, part, num_blocks)
        hidden_s = (
            np.minimum(device_s + between_s, tokens_s) if group.profile.hides_exchange else 0.0
        )
        found.append(_phase_times(work, ops, part, device_s, between_s + tokens_s - hidden_s))
    is_weight = is_backward & work.makes_weight
    weight_s = _per_block(ops.device_s, work.block, is_weight, num_blocks)
    return _BlockTimes(forward=found[0], backward=found[1], weight_s=weight_s)


def _phase_times(
    work: RankWork, ops: _OpTimes, part: BoolArray, device_s: FloatArray, called_s: FloatArray
) -> _PhaseTimes:
    """One phase; a block in which the host waits keeps device and host for equally long.

    Elsewhere the host runs ahead, so that the slower of the two is known of whole stages alone.
    """
    block_of = work.block
    host_s = _per_block(ops.host_s, block_of, part, device_s.shape[1])
    took_s = device_s + called_s
    waits = ops.waits[part[ops.waits]]
    for block in distinct(block_of[waits]).tolist():
        chosen = np.flatnonzero(part & (block_of == block))
        stops = np.searchsorted(chosen, waits[block_of[waits] == block])
        waiting_s = waiting_end_s(
            ops.host_s[:, chosen].astype(np.float32),
            ops.device_s[:, chosen].astype(np.float32),
            stops,
        )
        wait_s = np.broadcast_to(ops.wait_s, ops.host_s.shape)[:, chosen[stops]]
        waiting_s += wait_s.sum(axis=1) + called_s[:, block]
        took_s[:, block] = host_s[:, block] = waiting_s
    return _PhaseTimes(device_s=took_s, host_s=host_s, called_s=called_s)


def _per_block(
    seconds: FloatArray, block: IntArray, chosen: BoolArray, num_blocks: int
) -> FloatArray:
    return np.array([np.bincount(block[chosen], row[chosen], num_blocks) for row in seconds])


def _shared_s(
    work: RankWork, busy_s: FloatArray, configuration: Configuration, group: TensorGroup,
    copied_bytes_per_s: float,
) -> _Shared:  # fmt: skip
    """Seconds of communication between ranks that share blocks: in forward and in backward.

    First all but tokens on their way to experts, with their sorting by expert as they come and back
    before they go, then those on their way. They stand between ops that need their
    result, so nothing hides them but the ring's. Recomputing a block repeats the calls of its
    forward, and models beside the one that is trained make those of the passes that they run.
    """
    shared, calls, names = work.shared, work.shared.calls, work.layers.names
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
    seconds = calls_s(
        calls, work.points, group.wires(len(work.points.batch), shared.routing),
        element_bytes=width, busy_s=np.where(shared.op >= 0, busy_s[:, shared.op], 0.0),
    )  # fmt: skip
    of_tokens = calls.axis == AXES.index("experts")
    again = shared.is_forward & calls.are_repeated(configuration.checkpointing)
    again &= np.array([is_numbered(name) for name in names])[shared.block]
    beside = models_beside(configuration.objective)
    trained = 1 + beside.critics
    between_s = np.where(of_tokens, _sorting_s(work, width, copied_bytes_per_s), seconds)
    found = []
    for taken_s, chosen in ((between_s, np.ones_like(of_tokens)), (seconds, of_tokens)):
        forward, backward, repeated = (
            _per_block(taken_s, shared.block, chosen & part, len(names))
            for part in (shared.is_forward, ~shared.is_forward, again)
        )
        passes = trained + beside.forward_passes
        found.append((forward * passes, (backward + repeated) * trained))
    (forward, backward), (out, back) = found
    return (forward, out), (backward, back)


def _sorting_s(work: RankWork, element_bytes: float, copied_bytes_per_s: float) -> FloatArray:
    """Seconds to put what each call brings into the order of experts, (num_points, num_calls).

    Rows come by the rank that sent them, and a rank's experts want them by expert: all are read and
    written once, in forward and in backward. Nothing where ranks have one expert each.

    Source: NVIDIA/Megatron-LM, ``core/transformer/moe/token_dispatcher.py`` (``sort_chunks`` after
        an all-to-all, ``permute`` after DeepEP's dispatch).
    """
    calls, routing, points = work.shared.calls, work.shared.routing, work.points
    if routing is None or routing.num_experts <= work.shared.expert_ranks:
        return np.zeros((len(points.batch), len(calls)))
    messages = calls.messages(element_bytes)
    return 2.0 * messages.bytes_at(points)[:, messages.of_call] / copied_bytes_per_s
