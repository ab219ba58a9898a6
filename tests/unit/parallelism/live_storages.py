"""Live storages of one rank at its peak, as PyTorch's own parallel wrappers keep them.

The planner's memory (`evaluation`, `sharded_memory`) is arithmetic on sums; this module follows one
rank op by op, with what the wrappers add: DDP's buckets, FSDP2's gathered, prefetched and reducing
blocks, a pipeline's receive buffers, and gradients that exist once more before they are added up.
Tests compare it with the storages that are alive on real processes.

Sources:
    PyTorch 2.13: ``nn/parallel/distributed.py``, ``distributed/fsdp/_fully_shard`` (one block is
    prefetched in backward; the input of the last reduce-scatter is kept until the next; a gathered
    block and its flat buffer both live in forward), ``distributed/pipelining/stage.py`` (receive
    buffers for every microbatch are made at the start) and ``_backward.py`` (where gradients of
    weights come later, the whole graph of a microbatch is kept until then, with the gradients that
    they are made of).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rank_actions import actions_of_rank

from paceline.model.belonging import home_op
from paceline.model.graph.block_names import block_names, blocks_of_ops
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import FloatArray, Graph, IntArray, Owner, Phase, monomials
from paceline.model.graph.program import Program
from paceline.model.lowering import rewritten
from paceline.parallelism.memory.weight_gradients import (
    makes_weight_gradients,
    put_off_with_weights,
)
from paceline.parallelism.schedule.stages import even_cuts
from paceline.parallelism.strategy.strategy import Schedule

_KEPT_BETWEEN_STEPS = (
    Owner.PARAMETER,
    Owner.GRADIENT,
    Owner.OPTIMIZER_STATE,
    Owner.MASTER_WEIGHT,
)


def replicated_live_bytes(lowered: LoweredPass, *, batch: float, seq: float) -> float:
    """Peak of a DDP rank: that of one device, and the buckets beside the gradients.

    Args:
        lowered: The training step of a rank.
        batch: Items per rank.
        seq: Sequence length.
    """
    by_owner = lowered.memory.by_owner @ monomials(batch, seq)[0]
    return float(by_owner.sum(axis=1).max() + lowered.gradient_bytes)


def sharded_live_bytes(
    graph: Graph, configuration: Configuration, *, num_ranks: int, batch: float, seq: float
) -> float:
    """Peak of an FSDP2 rank with every numbered block wrapped, and the rest as the root.

    Args:
        graph: The training step.
        configuration: How a rank runs it.
        num_ranks: Ranks that split the parameters.
        batch: Items per rank.
        seq: Sequence length.
    """
    rank = _Rank.of(graph, configuration, batch, seq)
    is_wrapped = np.array([name[-1:].isdigit() for name in rank.names])
    number = np.cumsum(is_wrapped) - 1
    block = np.where(is_wrapped, number, -1)[rank.block]
    is_root = block < 0
    at = _entered(block, rank.is_backward, int(is_wrapped.sum()))
    size = np.concatenate([rank.parameter_bytes[is_wrapped], np.zeros(2)])
    forward = 2.0 * size[at]
    backward = size[at] + size[at - 1] + size[np.minimum(at + 1, len(size) - 2)]
    window = np.where(rank.is_forward, forward, 0.0) + np.where(rank.is_backward, backward, 0.0)
    root_bytes = rank.parameter_bytes[~is_wrapped].sum()
    window = window + np.where(rank.is_forward | rank.is_backward, root_bytes, 0.0)
    gradients = _own_gradients(rank, block, is_root)
    done = np.where(rank.is_backward, np.cumsum(rank.gradient_born), rank.gradient_born.sum())
    scattered = np.where(rank.is_forward, 0.0, done - gradients) / num_ranks
    kept = rank.parameter_bytes.sum() * rank.kept_frac / num_ranks
    live = kept + window + gradients + scattered + rank.live(~rank.is_state)
    return float(live.max())


def pipeline_live_bytes(
    graph: Graph,
    configuration: Configuration,
    schedule: Schedule,
    *,
    num_ranks: int,
    microbatch: float,
    seq: float,
) -> FloatArray:
    """Peak of each rank of a pipeline with equal numbers of layers per stage, (num_ranks,).

    Stages keep no outputs of the whole batch (``return_outputs=False``).

    Args:
        graph: The training step, split already if tensor ranks share each stage.
        configuration: How a rank runs it.
        schedule: Order of microbatches.
        num_ranks: Pipeline ranks.
        microbatch: Items per microbatch.
        seq: Sequence length.
    """
    rank = _Rank.of(graph, configuration, microbatch, seq)
    stages = [
        _Stage.of(rank, blocks) for blocks in _stage_blocks(rank, num_ranks * schedule.num_chunks)
    ]
    return np.array([_played(stages, schedule, num_ranks, r) for r in range(num_ranks)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rank:
    """One microbatch on one rank, in execution order; (num_ops,) or (num_storages,).

    Attributes:
        names: Blocks.
        program: Ops and storages.
        block: Block of each op.
        home: Block of each storage.
        num_bytes: Of each storage.
        is_state: Storages kept from step to step, gradients included.
        is_forward: Op belongs to forward or the loss.
        is_backward: Op belongs to backward.
        parameter_bytes: Of each block.
        gradient_born: Bytes of gradients that each op makes.
        kept_frac: Parameters and optimizer state over parameters.
    """

    names: tuple[str, ...]
    program: Program
    block: IntArray
    home: IntArray
    num_bytes: FloatArray
    is_state: npt.NDArray[np.bool_]
    is_forward: npt.NDArray[np.bool_]
    is_backward: npt.NDArray[np.bool_]
    parameter_bytes: FloatArray
    gradient_born: FloatArray
    kept_frac: float

    @classmethod
    def of(cls, graph: Graph, configuration: Configuration, batch: float, seq: float) -> _Rank:
        program = rewritten(graph, configuration)
        names, stores = block_names(graph), program.stores
        block = blocks_of_ops(program.modules, program.ops.module, names)
        num_bytes = stores.num_bytes() @ monomials(batch, seq)[0]
        home = block[home_op(program)]
        parameter, gradient = (stores.owner == o for o in (Owner.PARAMETER, Owner.GRADIENT))
        born = np.zeros(len(program.ops))
        np.add.at(born, np.maximum(stores.birth[gradient], 0), num_bytes[gradient])
        is_state = np.isin(stores.owner, (Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT))
        return cls(
            names=names,
            program=program,
            block=block,
            home=home,
            num_bytes=num_bytes,
            is_state=np.isin(stores.owner, _KEPT_BETWEEN_STEPS),
            is_forward=np.isin(program.ops.phase, (Phase.FORWARD, Phase.LOSS)),
            is_backward=np.isin(program.ops.phase, (Phase.BACKWARD, Phase.RECOMPUTE)),
            parameter_bytes=np.bincount(home[parameter], num_bytes[parameter], len(names)).astype(
                np.float64
            ),
            gradient_born=born,
            kept_frac=1.0 + float(num_bytes[is_state].sum() / num_bytes[parameter].sum()),
        )

    def live(self, chosen: npt.NDArray[np.bool_]) -> FloatArray:
        """Live bytes of some storages during each op, (num_ops,)."""
        stores, num_ops = self.program.stores, len(self.program.ops)
        start = np.clip(stores.birth[chosen], 0, num_ops)
        end = np.clip(stores.death[chosen], -1, num_ops - 1) + 1
        change = np.bincount(start, self.num_bytes[chosen], num_ops + 1)
        change -= np.bincount(end, self.num_bytes[chosen], num_ops + 1)
        return np.asarray(np.cumsum(change)[:num_ops])


def _entered(block: IntArray, is_backward: npt.NDArray[np.bool_], num_blocks: int) -> IntArray:
    """Wrapped block whose turn it is at each op; ``num_blocks`` where none is before backward.

    Ops of the root belong to the block entered last, except that backward begins beyond the last
    block. The last two indices stand for no block.
    """
    known = np.where(block >= 0, np.arange(len(block)), -1)
    entered = block[np.maximum.accumulate(known).clip(0)]
    first = int(np.argmax(is_backward)) if is_backward.any() else len(block)
    seen = np.maximum.accumulate(np.where(np.arange(len(block)) >= first, known, -1))
    before_any = is_backward & (seen < first)
    return np.asarray(np.where(before_any, num_blocks, np.maximum(entered, 0)))


def _own_gradients(rank: _Rank, block: IntArray, is_root: npt.NDArray[np.bool_]) -> FloatArray:
    """Whole gradients alive at each op: those of the block at work and of the root, (num_ops,)."""
    total = np.cumsum(rank.gradient_born)
    root = np.cumsum(np.where(is_root, rank.gradient_born, 0.0))
    of_blocks = total - root
    changes = np.flatnonzero(np.diff(block, prepend=block[0]) != 0)
    before = np.zeros(len(block))
    before[changes] = of_blocks[changes] - np.where(is_root, 0.0, rank.gradient_born)[changes]
    whole = root + of_blocks - np.maximum.accumulate(before)
    return np.asarray(np.where(rank.is_backward, whole, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stage:
    """One virtual stage; bytes.

    Attributes:
        states: Parameters and optimizer state.
        gradients: Of the parameters.
        saved: Kept for backward by each microbatch in flight.
        forward: Peak of one forward.
        first: Peak of the first backward, which makes the gradients that later ones add to.
        backward: Peak of a later one, with the gradients about to be added up.
        received: What comes in per microbatch in forward.
        sent: What goes out, and whose gradient comes back.
        inputs: Peak of gradients of inputs alone beyond what is saved, where nothing is let go.
        let_go: Of what is saved, what lies between the outputs and all weights.
        put_off: What gradients of weights need of it besides what is saved.
        first_weights: Peak of the first gradients of weights beyond what they need.
        weights: Peak of later ones, before they are added up.
    """

    states: float
    gradients: float
    saved: float
    forward: float
    first: float
    backward: float
    received: float
    sent: float
    inputs: float
    let_go: float
    put_off: float
    first_weights: float
    weights: float

    @classmethod
    def of(cls, rank: _Rank, blocks: range) -> _Stage:
        stores, first = rank.program.stores, int(np.argmax(rank.is_backward))
        is_mine = np.isin(rank.home, blocks) & ~rank.is_state
        is_saved = is_mine & (stores.birth < first) & (stores.death >= first)
        live, op_is_mine = rank.live(is_mine), np.isin(rank.block, blocks)
        is_backward = op_is_mine & rank.is_backward
        born = np.cumsum(np.where(op_is_mine, rank.gradient_born, 0.0))
        later = is_mine & put_off_with_weights(rank.program)
        is_made = is_mine & (stores.birth >= first)
        kept = rank.live(is_made & ~later) + _made(rank, later)
        is_weight = op_is_mine & makes_weight_gradients(rank.program)
        first_weights, weights = _weights_in_turn(rank, is_weight, is_saved | later)
        last = _last_read(rank, is_backward)
        is_above = is_saved & (last >= 0) & (last < np.argmax(is_weight))
        return cls(
            states=float(rank.parameter_bytes[blocks].sum() * rank.kept_frac),
            gradients=float(rank.parameter_bytes[blocks].sum()),
            saved=float(rank.num_bytes[is_saved].sum()),
            forward=float(live[op_is_mine & rank.is_forward].max()),
            first=float((live + born)[is_backward].max()),
            backward=float((live + _gradients_of_node(rank))[is_backward].max()),
            received=_crossing_bytes(rank, blocks.start),
            sent=_crossing_bytes(rank, blocks.stop),
            inputs=float(kept[is_backward & ~is_weight].max()),
            let_go=float(rank.num_bytes[is_above].sum()),
            put_off=float(rank.num_bytes[later].sum()),
            first_weights=first_weights,
            weights=weights,
        )


def _last_read(rank: _Rank, chosen: npt.NDArray[np.bool_]) -> IntArray:
    """Last of some ops that reads each storage, (num_storages,); -1 where none does."""
    reads, last = rank.program.reads, np.full(len(rank.num_bytes), -1)
    np.maximum.at(last, reads.storage, np.where(chosen[reads.op], reads.op, -1))
    return last


def _weights_in_turn(
    rank: _Rank, is_weight: npt.NDArray[np.bool_], is_needed: npt.NDArray[np.bool_]
) -> tuple[float, float]:
    """Peaks of making gradients of weights alone beyond what they need: the first time, and later.

    Modules take turns in the order in which the model names them, and let go of what no later one
    reads. The first gradients stay; later ones are added up, each let go when the next is made.
    """
    reads, ops = rank.program.reads, np.flatnonzero(is_weight)[::-1]
    modules = rank.program.ops.module[ops]
    _, first, turn = np.unique(modules, return_index=True, return_inverse=True)
    turn = np.argsort(np.argsort(first))[turn]
    made = np.bincount(turn, rank.gradient_born[ops])
    turn_of_op = np.full(len(is_weight), -1)
    turn_of_op[ops] = turn
    last = np.full(len(rank.num_bytes), -1)
    np.maximum.at(last, reads.storage, turn_of_op[reads.op])
    freed = np.flatnonzero(is_needed & (last >= 0))
    gone = np.cumsum(np.bincount(last[freed], rank.num_bytes[freed], len(made)))
    before = np.concatenate([[0.0], gone[:-1]])
    kept, passing = np.cumsum(made), made + np.concatenate([[0.0], made[:-1]])
    return float((kept - before).max()), float((passing - before).max())


def _made(rank: _Rank, chosen: npt.NDArray[np.bool_]) -> FloatArray:
    """Bytes of some storages that are made by then, (num_ops,)."""
    num_ops = len(rank.program.ops)
    born = np.clip(rank.program.stores.birth[chosen], 0, num_ops - 1)
    return np.asarray(np.cumsum(np.bincount(born, rank.num_bytes[chosen], num_ops)))


def _stage_blocks(rank: _Rank, num_stages: int) -> list[range]:
    cuts = even_cuts(rank.names, num_stages) if num_stages > 1 else np.zeros(1, dtype=np.int64)
    ends = [*cuts[1:].tolist(), len(rank.names)]
    return [range(a, b) for a, b in zip(cuts.tolist(), ends, strict=True)]


def _gradients_of_node(rank: _Rank) -> FloatArray:
    """Gradients that an autograd node has made but not yet added to those there, (num_ops,).

    A node hands its gradients over when all are made: ops of one module in a row.
    """
    module = rank.program.ops.module
    run = np.cumsum(np.diff(module, prepend=module[:1]) != 0)
    total = np.cumsum(rank.gradient_born)
    starts = np.flatnonzero(np.diff(run, prepend=-1) != 0)
    before = (total - rank.gradient_born)[starts]
    return np.asarray(total - before[run])


def _crossing_bytes(rank: _Rank, cut: int) -> float:
    """Activations made before block ``cut`` and read by it or later in forward; 0 at both ends."""
    if not 0 < cut < len(rank.names):
        return 0.0
    program, owner = rank.program, rank.program.stores.owner
    reads = rank.is_forward[program.reads.op] & (rank.block[program.reads.op] >= cut)
    is_read = np.zeros(len(program.stores), dtype=np.bool_)
    is_read[program.reads.storage[reads]] = True
    chosen = is_read & (owner == Owner.ACTIVATION) & (rank.home < cut)
    return float(rank.num_bytes[chosen].sum())


def _played(stages: list[_Stage], schedule: Schedule, num_ranks: int, rank: int) -> float:
    """Peak of one rank over the actions of its schedule.

    Where backward is split, the first stage has no input to make a gradient of, and makes all
    others at once when those of weights are due; what a stage received and sent keeps its gradient
    to the end of the step.
    """
    mine = stages[rank::num_ranks]
    held = sum(s.states + schedule.num_microbatches * (s.received + s.sent) for s in mine)
    peak, started = 0.0, set[int]()
    for action in actions_of_rank(schedule, num_ranks, rank):
        stage, is_first = stages[action.stage], action.stage not in started
        is_split = schedule.kind == "zbh1" and action.stage > 0
        if action.kind == "F":
            peak = max(peak, held + stage.forward)
            held += stage.saved
        elif action.kind == "B" and is_split:
            peak = max(peak, held + stage.inputs)
            held += stage.put_off - stage.let_go + stage.received + stage.sent
        elif is_split:
            peak = max(peak, held + (stage.first_weights if is_first else stage.weights))
            held += stage.let_go - stage.saved - stage.put_off
        elif schedule.kind != "zbh1" or action.kind == "W":
            held -= stage.saved
            peak = max(peak, held + (stage.first if is_first else stage.backward))
        if is_first and action.kind == ("W" if schedule.kind == "zbh1" else "B"):
            started.add(action.stage)
            held += stage.gradients
    return peak
