"""The collectives that a rank issues in one step, message by message: what a profiler would show.

Tests compare these with what PyTorch's own data, sharded, tensor and pipeline parallel issue on
processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rank_actions import actions_of_rank

from paceline.model.graph.block_names import block_names, blocks_of_ops
from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import FloatArray, Graph, Owner, monomials
from paceline.parallelism.collectives.links import COLLECTIVES, Collective
from paceline.parallelism.replicas.data_parallel import BUCKET_BYTES, bucket_ends
from paceline.parallelism.replicas.gradient_profile import accumulated_gradients
from paceline.parallelism.schedule.blocks import BlockCosts
from paceline.parallelism.schedule.stages import even_cuts
from paceline.parallelism.split import RankGraph
from paceline.parallelism.strategy.strategy import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCall:
    """One call of a collective.

    Attributes:
        name: Which.
        message_bytes: Bytes of the whole message.
        block: Module path of the block it serves; empty where it serves several.
    """

    name: Collective
    message_bytes: float
    block: str = ""


def data_parallel_calls(
    lowered: LoweredPass, *, bucket_bytes: float = BUCKET_BYTES
) -> tuple[IssuedCall, ...]:
    """All-reduces of DDP, one per bucket, in the order they are issued.

    Args:
        lowered: The training step of a rank.
        bucket_bytes: Size at which a bucket is closed.
    """
    return _bucket_calls(accumulated_gradients(lowered)[:, 1], bucket_bytes)


def data_over_tensor_calls(
    whole: LoweredPass, part: LoweredPass, *, bucket_bytes: float = BUCKET_BYTES
) -> tuple[IssuedCall, ...]:
    """All-reduces of DDP around a tensor-parallel model, in the order they are issued.

    DDP keeps local tensors and puts the parameters of split modules together again before each
    forward. Their gradients come back through that node, the oldest of the graph, so they are ready
    only when all of backward is over, and nothing hides their reduction.

    Args:
        whole: The training step of a lone rank.
        part: That of a tensor rank.
        bucket_bytes: Size at which a bucket is closed.

    Source:
        PyTorch 2.13, ``torch/distributed/tensor/parallel/ddp.py``.
    """
    op, sizes = accumulated_gradients(part).T
    is_split = sizes < accumulated_gradients(whole)[:, 1]
    module = part.costs.module[op.astype(np.int64)]
    is_late = np.isin(module, module[is_split])
    return _bucket_calls(sizes[np.argsort(is_late, kind="stable")], bucket_bytes)


def _bucket_calls(sizes: FloatArray, bucket_bytes: float) -> tuple[IssuedCall, ...]:
    filled = np.cumsum(sizes)[bucket_ends(sizes, bucket_bytes)]
    return tuple(
        IssuedCall(name="all_reduce", message_bytes=float(size))
        for size in np.diff(filled, prepend=0.0)
    )


def sharded_calls(graph: Graph, *, element_bytes: float) -> tuple[IssuedCall, ...]:
    """Gathers and scatters of FSDP2 with every numbered block wrapped, and the rest as the root.

    A block is gathered for forward, freed, gathered again for backward, and its gradients are
    scattered. The root is gathered once. Dims that ranks do not divide are padded, which is not
    counted here.

    Args:
        graph: The training step.
        element_bytes: Of parameters and gradients as they are sent.
    """
    names = block_names(graph)
    elements = _parameters_of_blocks(graph, names) * element_bytes
    wrapped = [name for name in names if name[-1:].isdigit()]
    size = dict(zip(names, elements.tolist(), strict=True))
    root = sum(size[name] for name in names if name not in wrapped)
    forward = [("", root), *((name, size[name]) for name in wrapped)]
    backward = [(name, size[name]) for name in reversed(wrapped)]
    gathers = [
        IssuedCall(name="all_gather", message_bytes=b, block=n) for n, b in forward + backward
    ]
    scatters = [
        IssuedCall(name="reduce_scatter", message_bytes=b, block=n)
        for n, b in [*backward, ("", root)]
    ]
    return (*gathers, *scatters)


def hybrid_sharded_calls(
    graph: Graph, *, element_bytes: float, num_shards: int
) -> tuple[IssuedCall, ...]:
    """Calls of FSDP2 on a mesh of replicas and shards: replicas sum what each scatter left them.

    Args:
        graph: The training step.
        element_bytes: Of parameters and gradients as they are sent.
        num_shards: Ranks that split the parameters.
    """
    calls = sharded_calls(graph, element_bytes=element_bytes)
    return (
        *calls,
        *(
            IssuedCall(name="all_reduce", message_bytes=c.message_bytes / num_shards, block=c.block)
            for c in calls
            if c.name == "reduce_scatter"
        ),
    )


def tensor_parallel_calls(
    split: RankGraph, *, batch: float, seq: float, element_bytes: float
) -> tuple[IssuedCall, ...]:
    """What a tensor group exchanges in one microbatch, in order.

    Args:
        split: The graph of one rank.
        batch: Items of the microbatch.
        seq: Sequence length.
        element_bytes: Of activations.
    """
    graph, calls = split.graph, split.calls
    names = block_names(graph)
    block = blocks_of_ops(graph.modules, graph.ops.module.astype(np.int64), names)
    width = np.where(np.isnan(calls.element_bytes), element_bytes, calls.element_bytes)
    message = calls.elements @ monomials(batch, seq)[0] * width
    return tuple(
        IssuedCall(name=COLLECTIVES[name], message_bytes=float(size), block=names[block[op]])
        for op, name, size in zip(calls.op, calls.name, message, strict=True)
    )


def pipeline_calls(
    costs: BlockCosts, schedule: Schedule, *, num_ranks: int, rank: int, point: int = 0
) -> tuple[IssuedCall, ...]:
    """What a rank of a pipeline with equal numbers of layers per stage sends, in order.

    Each forward sends its output to the stage after, each backward the gradient of its input to the
    stage before; both are as large as what crosses there. PyTorch's tensor ranks each send the
    whole message; Megatron-LM's send a part each.

    Args:
        costs: The model as a row of blocks, on one rank.
        schedule: Order of microbatches.
        num_ranks: Pipeline ranks.
        rank: Which of them.
        point: Microbatch size, a row of ``costs``.
    """
    cuts = even_cuts(costs.names, num_ranks * schedule.num_chunks)
    last = len(cuts) - 1
    actions = actions_of_rank(schedule, num_ranks, rank)
    crossed = [a.stage + 1 if a.kind == "F" else a.stage for a in actions if a.kind != "W"]
    before = [int(cuts[cut]) - 1 for cut in crossed if 0 < cut <= last]
    return tuple(
        IssuedCall(
            name="send_recv",
            message_bytes=float(costs.boundary_bytes[point][block]),
            block=costs.names[block],
        )
        for block in before
    )


def _parameters_of_blocks(graph: Graph, names: tuple[str, ...]) -> np.ndarray:
    """Parameters by block of the first op that reads them, (num_blocks,)."""
    ops, tensors, storages = graph.ops, graph.tensors, graph.storages
    block = blocks_of_ops(graph.modules, ops.module.astype(np.int64), names)
    reader = np.repeat(np.arange(len(ops.kind)), np.diff(ops.input_start))
    storage = tensors.storage[ops.input_tensor]
    first = np.full(len(storages.owner), len(ops.kind) - 1)
    np.minimum.at(first, storage, reader)
    owned = storages.owner == Owner.PARAMETER
    return np.bincount(block[first[owned]], storages.elements[owned, 0], len(names))
