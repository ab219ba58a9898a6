"""Activation checkpointing as a rewrite: keep what enters a block, compute the rest again.

A block is a repeated child of a container: the modules whose path ends in a number, outermost
first (``layers.7``, ``encoder.layer.11``, ``layer1.0``). With ``block`` the output of every block
is kept, everything inside it is computed again just before its backward pass
(`torch.utils.checkpoint` around each block, Megatron's full recomputation of one layer). With
``full`` the same holds for what stands before, between and after the blocks, such as the stem of a
convolutional network: the whole forward pass runs twice. ``selective`` repeats softmax alone,
``experts`` what lies in a block with its experts: their router and what they are given and make,
which goes to other ranks and back once more (Megatron-LM's ``--recompute-modules moe``). A share of
blocks, or segments of several blocks, are `SegmentShare`. What blocks hand on beside
their output, such as keys and values of a cache, is not held: transformers turns ``use_cache`` off.
What enters a block and its gradient may be kept until backward has ended (``checkpoint_inputs``).

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; Korthikanti et al.,
arXiv 2205.05198, section 5 (selective).
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from paceline.columns import join_tables, take_rows
from paceline.errors import InvalidInputError
from paceline.model.graph.block_names import repeated_child
from paceline.model.graph.costs import Checkpointing, CheckpointInputs
from paceline.model.graph.graph import IntArray, OpKind, Owner, Phase
from paceline.model.graph.program import (
    OUTLIVES,
    BoolArray,
    Program,
    Stores,
    twin_accesses,
)
from paceline.model.rewrite.saved_tensors import without_results
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentShare:
    """Which blocks are computed again, and how many at a time.

    Attributes:
        blocks: Blocks of a segment: what enters its first alone is kept.
        repeated: Of every ``of`` segments so many are computed again, the first ones.
        of: Segments of a round.
    """

    blocks: int = 1
    repeated: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> SegmentShare:
        """``1`` of all blocks one by one, ``2`` two at a time, ``2/4`` two of every four.

        Raises:
            InvalidInputError: Anything else.

        >>> SegmentShare.parse("2/4"), SegmentShare.parse("3").blocks
        (SegmentShare(blocks=1, repeated=2, of=4), 3)
        """
        found = re.fullmatch(r"([1-9]\d*)(?:/([1-9]\d*))?", text)
        if found is None or (found[2] and int(found[1]) > int(found[2])):
            raise InvalidInputError(
                f"`checkpoint_blocks={text}` is no share of blocks",
                hint="write `2` for segments of two blocks, or `2/4` for two of every four",
            )
        if found[2] is None:
            return cls(blocks=int(found[1]))
        return cls(repeated=int(found[1]), of=int(found[2]))


WHOLE_BLOCKS = SegmentShare()


def checkpointed(
    program: Program, how: Checkpointing, segments: SegmentShare = WHOLE_BLOCKS,
    inputs: CheckpointInputs = "freed",
) -> Program:  # fmt: skip
    """``program`` with activations of its blocks computed again in the backward pass.

    Args:
        program: A training step.
        how: What is computed again.
        segments: How blocks are put together, and which of them are computed again.
        inputs: What becomes of what enters them.
    """
    if how == "none" or not np.isfinite(program.first_backward()):
        return program
    whole = _layer_of_experts(program) if how == "experts" else _block_of_op(program)
    block = _in_segments(whole, segments)
    if how == "selective":
        block = np.where(program.ops.kind == OpKind.SOFTMAX, block, -1)
    if how == "full":
        block = _with_what_stands_between(program, block)
    if (block < 0).all():
        return program
    program = without_results(program, block >= 0)
    is_forward = program.ops.position < program.first_backward()
    dropped = _dropped(program, block, is_forward)
    if inputs == "kept":
        program = _with_inputs_kept(program, block)
    program = _recomputed(program, block, is_forward, dropped)
    return program.ordered().with_lives_over_uses()


def _with_inputs_kept(program: Program, block: IntArray) -> Program:
    """What passes between blocks alive until backward has ended, and so its gradients.

    A reentrant checkpoint computes its block on a detached input, whose gradient is a leaf's. FSDP1
    reshards a block without trained parameters by a hook on that leaf, and holds the hook until
    backward is over: neither the input nor its gradient can go before.

    Source: torch/distributed/fsdp/_runtime_utils.py, `_register_post_backward_reshard_only_hook`;
    torch/autograd/graph.py, `register_multi_grad_hook` (read 2026-11-23).
    """
    stores, reads = program.stores, program.reads
    born = block[np.maximum(stores.birth, 0)]
    enters = (block[reads.op] >= 0) & (block[reads.op] != born[reads.storage])
    leaves = (born[reads.storage] >= 0) & (block[reads.op] != born[reads.storage])
    is_late = program.ops.position >= program.first_backward()
    passes = np.zeros(len(stores), dtype=bool)
    passes[reads.storage[np.where(is_late[reads.op], leaves, enters)]] = True
    passes &= (stores.birth >= 0) & (stores.owner == Owner.ACTIVATION)
    passes &= stores.elements[:, 1:].any(axis=1)
    backward = np.flatnonzero(program.ops.phase == Phase.BACKWARD)
    end = backward[np.argmax(program.ops.position[backward])]
    kept = passes & (program.position_of(stores.death) < program.ops.position[end])
    return replace(program, stores=replace(stores, death=np.where(kept, end, stores.death)))


def _block_of_op(program: Program) -> IntArray:
    """Number of the block of each op; -1 outside blocks."""
    names: dict[str, int] = {}
    numbers = np.full(max(len(program.modules), 1), -1)
    for index, path in enumerate(program.modules):
        name = repeated_child(path)
        if name is not None:
            numbers[index] = names.setdefault(name, len(names))
    block: IntArray = numbers[program.ops.module]
    return block


def _layer_of_experts(program: Program) -> IntArray:
    """Number of the layer of experts of each op; -1 outside.

    A layer is the child of a block that holds batches of products with a weight for each expert, or
    the experts by name, of which a rank may have one.
    """
    path = [(repeated_child(one), one) for one in program.modules]
    inner = [(f"{outer}." if outer else "") for outer, _ in path]
    homes = [
        outer + one[len(outer) :].partition(".")[0] if outer and one.startswith(outer) else ""
        for outer, (_, one) in zip(inner, path, strict=True)
    ]
    batch = program.dims[program.ops.dims][:, 0]
    is_expert = (batch[:, 0] > 1.0) & ~batch[:, 1:].any(axis=1)
    is_named = np.array(["experts" in one.split(".") for one in program.modules], dtype=bool)
    is_expert |= is_named[program.ops.module]
    is_expert &= program.ops.kind == OpKind.MATMUL
    layers = {homes[module] for module in program.ops.module[is_expert].tolist()} - {""}
    number = {home: index for index, home in enumerate(sorted(layers))}
    of_module = np.array([number.get(home, -1) for home in homes])
    return np.asarray(of_module[program.ops.module])


def _in_segments(block: IntArray, segments: SegmentShare) -> IntArray:
    """Number of the segment of each op; -1 outside what is computed again."""
    number = block // segments.blocks
    is_kept = (block < 0) | (number % segments.of >= segments.repeated)
    found: IntArray = np.where(is_kept, -1, number)
    return found


def _with_what_stands_between(program: Program, block: IntArray) -> IntArray:
    """The same with each run of forward ops outside all blocks as a block of its own.

    Ops outside in the backward pass belong to the run of their module's first forward op.
    """
    order = np.argsort(program.ops.position, kind="stable")
    is_forward = program.ops.phase[order] == Phase.FORWARD
    is_outside = is_forward & (block[order] < 0)
    follows = np.append(False, is_outside[1:] & is_outside[:-1])
    run = int(block.max()) + np.cumsum(is_outside & ~follows)
    joined = block.copy()
    joined[order[is_outside]] = run[is_outside]
    of_module = np.full(len(program.modules), -1)
    rows = order[is_outside][::-1]
    of_module[program.ops.module[rows]] = joined[rows]
    later = (program.ops.phase == Phase.BACKWARD) & (joined < 0)
    joined[later] = of_module[program.ops.module[later]]
    return joined


def _dropped(program: Program, block: IntArray, is_forward: BoolArray) -> BoolArray:
    """Activations that only their own block reads in the forward pass, and its backward needs.

    What is there when the backward pass of its block is over is kept for another reason.
    """
    stores = program.stores
    home = _home(program, block, is_forward)
    reads = program.reads
    leaves = is_forward[reads.op] & (block[reads.op] != home[reads.storage])
    is_output = np.zeros(len(stores), dtype=bool)
    is_output[reads.storage[leaves]] = True
    death = program.position_of(stores.death)
    needed = (death >= program.first_backward()) & (stores.death != OUTLIVES)
    is_over = np.full(int(block.max()) + 1, -np.inf)
    np.maximum.at(is_over, block[block >= 0], program.ops.position[block >= 0])
    needed &= death <= is_over[np.maximum(home, 0)]
    return np.asarray((home >= 0) & ~is_output & needed)


def _home(program: Program, block: IntArray, is_forward: BoolArray) -> IntArray:
    """Block in whose forward pass each activation is born; -1 for all others."""
    stores = program.stores
    inside = np.clip(stores.birth, 0, len(program.ops) - 1)
    is_born = (stores.birth >= 0) & (stores.owner == Owner.ACTIVATION) & is_forward[inside]
    return np.where(is_born, block[inside], -1)


def _recomputed(
    program: Program, block: IntArray, is_forward: BoolArray, dropped: BoolArray
) -> Program:
    repeated = _repeated_ops(program, block, is_forward, dropped)
    num_ops, num_stores = len(program.ops), len(program.stores)
    twin_op = np.full(num_ops, -1)
    twin_op[repeated] = num_ops + np.arange(len(repeated))
    home = _home(program, block, is_forward)
    copied = np.flatnonzero((home >= 0) & (twin_op[np.maximum(program.stores.birth, 0)] >= 0))
    twin_store = np.full(num_stores, -1)
    twin_store[copied] = num_stores + np.arange(len(copied))
    first_life = _last_forward_use(program)
    first_life = _with_cached_weights(program, first_life, is_forward)
    stores = _with_twins(program, twin_op, copied, dropped, first_life)
    ops = replace(
        take_rows(program.ops, repeated),
        position=_recompute_position(program, block, repeated),
        phase=np.full(len(repeated), int(Phase.RECOMPUTE)),
    )
    is_late = ~is_forward[program.reads.op] & dropped[program.reads.storage]
    storage = np.where(is_late, twin_store[program.reads.storage], program.reads.storage)
    return replace(
        program,
        ops=join_tables(program.ops, ops),
        reads=join_tables(
            replace(program.reads, storage=storage),
            twin_accesses(program.reads, twin_op, twin_store),
        ),
        writes=join_tables(program.writes, twin_accesses(program.writes, twin_op, twin_store)),
        stores=stores,
    )


def _repeated_ops(
    program: Program, block: IntArray, is_forward: BoolArray, dropped: BoolArray
) -> IntArray:
    """Forward ops of blocks, up to the last that makes something the backward pass needs."""
    births = program.stores.birth[dropped]
    last = np.full(int(block.max()) + 1, -np.inf)
    np.maximum.at(last, block[births], program.ops.position[births])
    in_block = is_forward & (block >= 0)
    position = program.ops.position
    return np.flatnonzero(in_block & (position <= last[np.maximum(block, 0)]))


def _recompute_position(program: Program, block: IntArray, repeated: IntArray) -> np.ndarray:
    """Just before the first backward op of the block, in forward order."""
    position = program.ops.position
    is_backward = (program.ops.phase == Phase.BACKWARD) & (block >= 0)
    first = np.full(int(block.max()) + 1, np.inf)
    np.minimum.at(first, block[is_backward], position[is_backward])
    span = float(position.max()) + 2.0
    anchor = np.where(np.isfinite(first[block[repeated]]), first[block[repeated]], span)
    start: np.ndarray = anchor - 0.5 + 0.4 * position[repeated] / span
    return start


def _last_forward_use(program: Program) -> IntArray:
    early = program.ops.position < program.first_backward()
    reads, writes = early[program.reads.op], early[program.writes.op]
    op = np.concatenate((program.reads.op[reads], program.writes.op[writes]))
    storage = np.concatenate((program.reads.storage[reads], program.writes.storage[writes]))
    order = np.argsort(program.ops.position[op], kind="stable")
    last = np.full(len(program.stores), -1)
    last[storage[order]] = op[order]
    return last


def _with_cached_weights(program: Program, last: IntArray, is_forward: BoolArray) -> IntArray:
    """Narrow copies of weights stay in autocast's cache until the forward pass is left.

    Source: aten/src/ATen/autocast_mode.cpp, `cached_cast` and `clear_cache`.
    """
    is_weight = program.stores.owner[program.reads.storage] == Owner.PARAMETER
    casts_weight = np.zeros(len(program.ops), dtype=bool)
    casts_weight[program.reads.op[is_weight]] = True
    casts_weight &= (program.ops.kind == OpKind.CAST) & is_forward
    birth = program.stores.birth
    is_copy = (birth >= 0) & casts_weight[np.maximum(birth, 0)]
    forward = np.flatnonzero(is_forward)
    exit_op = forward[np.argmax(program.ops.position[forward])]
    return np.where(is_copy, exit_op, last)


def _with_twins(
    program: Program, twin_op: IntArray, copied: IntArray, dropped: BoolArray, first_life: IntArray
) -> Stores:
    stores = program.stores
    death = np.where(dropped, first_life, stores.death)
    twins = take_rows(stores, copied)
    last = first_life[copied]
    repeated_last = twin_op[np.maximum(last, 0)]
    fallback = twin_op[twins.birth]
    inner_death = np.where((last >= 0) & (repeated_last >= 0), repeated_last, fallback)
    twins = replace(
        twins,
        birth=twin_op[twins.birth],
        death=np.where(dropped[copied], twins.death, inner_death),
    )
    return join_tables(replace(stores, death=death), twins)
