"""What one rank keeps of each block of a model, and what the blocks hand on.

Shapes: num_points microbatch sizes, num_blocks blocks in the order data flows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.parallel.block_names import blocks_of_ops
from paceline.parallel.rank_program import home_op, is_weight_copy, put_off_with_weights
from paceline.predict import Points
from paceline.trace.graph import FloatArray, IntArray, Owner, monomials
from paceline.trace.program import Program

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockMemory:
    """What one rank holds of each block.

    Attributes:
        parameters: That the rank keeps, (num_blocks,).
        experts: Of them, experts that are split between ranks, (num_blocks,).
        saved_bytes: Activations kept for backward, (num_points, num_blocks).
        put_off_bytes: What gradients of weights need besides, where they are made later, same
            shape.
        transient_bytes: Activations alive for a moment while the block runs, same shape.
    """

    parameters: FloatArray
    experts: FloatArray
    saved_bytes: FloatArray
    put_off_bytes: FloatArray
    transient_bytes: FloatArray


def block_memory(
    program: Program, block: IntArray, num_blocks: int, points: Points, is_expert: BoolArray
) -> BlockMemory:
    """Parameters and activations, block by block.

    Args:
        program: What the rank runs.
        block: Block of each op, (num_ops,).
        num_blocks: How many there are.
        points: Microbatch sizes.
        is_expert: Storages of the graph that hold experts, (num_storages,).
    """
    stores, powers = program.stores, monomials(points.batch, points.seq)
    home = block[home_op(program)]
    is_parameter = stores.owner == Owner.PARAMETER
    is_activation = (stores.owner == Owner.ACTIVATION) & ~is_weight_copy(program)
    start, num_bytes = program.first_backward(), stores.num_bytes()
    birth, death = program.position_of(stores.birth), program.position_of(stores.death)
    is_saved = is_activation & (birth < start) & (death >= start)
    expert = is_parameter & np.pad(is_expert, (0, len(stores) - len(is_expert)))
    parameters, experts = (
        np.bincount(home[chosen], stores.elements[chosen, 0], num_blocks).astype(np.float64)
        for chosen in (is_parameter, expert)
    )
    keeper, put_off = _keeper(program, block, home), put_off_with_weights(program)
    return BlockMemory(
        parameters=parameters,
        experts=experts,
        saved_bytes=_sum_stores(powers, num_bytes, is_saved, keeper, num_blocks),
        put_off_bytes=_sum_stores(powers, num_bytes, put_off, home, num_blocks),
        transient_bytes=_transient(program, is_activation & ~is_saved, block, num_blocks, powers),
    )


def _keeper(program: Program, block: IntArray, home: IntArray) -> IntArray:
    """Block that keeps each storage for its backward: the first one whose backward reads it.

    What a stage receives is kept there; the stage that sent it can let go.
    """
    is_late = program.ops.position[program.reads.op] >= program.first_backward()
    keeper = np.full(len(program.stores), np.iinfo(np.int64).max)
    np.minimum.at(
        keeper, program.reads.storage[is_late], block[program.reads.op[is_late]].astype(np.int64)
    )
    return np.where(keeper < np.iinfo(np.int64).max, keeper, home)


def _transient(
    program: Program, chosen: BoolArray, block: IntArray, num_blocks: int, powers: FloatArray
) -> FloatArray:
    """Largest sum of live bytes of ``chosen`` while each block runs, (num_points, num_blocks)."""
    stores, num_ops = program.stores, int(program.ops.position.max(initial=0.0)) + 1
    num_bytes = stores.num_bytes()[chosen]
    birth, death = (program.position_of(at)[chosen] for at in (stores.birth, stores.death))
    change = np.zeros((num_ops + 2, num_bytes.shape[1]))
    np.add.at(change, np.clip(birth, 0, num_ops).astype(np.int64), num_bytes)
    np.add.at(change, np.clip(death + 1, 0, num_ops + 1).astype(np.int64), -num_bytes)
    used = np.flatnonzero(change.any(axis=0))
    live = np.cumsum(change[:, used], axis=0) @ powers[:, used].T
    largest = np.zeros((num_blocks, live.shape[1]))
    np.maximum.at(largest, block, live[program.ops.position.astype(np.int64)])
    return np.asarray(largest.T)


def _sum_stores(
    powers: FloatArray, num_bytes: FloatArray, chosen: BoolArray, home: IntArray, num_blocks: int
) -> FloatArray:
    total = np.zeros((num_blocks, num_bytes.shape[1]))
    np.add.at(total, home[chosen], num_bytes[chosen])
    return np.asarray(powers @ total.T)


def boundary_bytes(program: Program, names: tuple[str, ...], points: Points) -> FloatArray:
    """Bytes that cross from each block to later ones in forward, (num_points, num_blocks).

    Args:
        program: One without fusion: no kernel reaches over the end of a stage.
        names: Its blocks.
        points: Microbatch sizes.
    """
    stores, powers, num_blocks = program.stores, monomials(points.batch, points.seq), len(names)
    block = blocks_of_ops(program.modules, program.ops.module, names)
    forward = program.ops.position < program.first_backward()
    born = np.where(stores.birth >= 0, block[np.maximum(stores.birth, 0)], num_blocks)
    last = np.full(len(stores), -1)
    reads = forward[program.reads.op]
    np.maximum.at(last, program.reads.storage[reads], block[program.reads.op[reads]])
    crossing = (last > born) & (stores.owner == Owner.ACTIVATION) & ~is_weight_copy(program)
    crossing &= stores.elements[:, 1:].any(axis=1) & (
        stores.elements[:, 1] + stores.elements[:, 3] > 0
    )
    steps = np.zeros((num_blocks + 1, stores.elements.shape[1]))
    num_bytes = stores.num_bytes()
    np.add.at(steps, born[crossing], num_bytes[crossing])
    np.add.at(steps, last[crossing], -num_bytes[crossing])
    crossed: FloatArray = powers @ np.cumsum(steps, axis=0)[:num_blocks].T
    return crossed
