"""Activations that one rank keeps of each block of a model, and what the blocks hand on.

Shapes: num_points microbatch sizes, num_blocks blocks in the order data flows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.belonging import home_op, is_weight_copy
from paceline.model.graph.block_names import blocks_of_ops, is_numbered
from paceline.model.graph.distinct import largest_rows, summed_rows
from paceline.model.graph.graph import FloatArray, IntArray, Owner, Phase, monomials
from paceline.model.graph.program import OUTLIVES, Program
from paceline.parallelism.memory.weight_gradients import put_off_with_weights
from paceline.prediction.prediction import Points
from paceline.values import dataclass

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockMemory:
    """Activations of each block that one rank holds.

    Attributes:
        saved_bytes: Activations kept for backward, (num_points, num_blocks).
        put_off_bytes: What gradients of weights need besides, where they are made later, same
            shape.
        transient_bytes: Activations and workspaces alive for a moment while the block runs, same
            shape.
        adding_bytes: The same with gradients that are made before they are added to the sum.
        largest_bytes: The largest single tensor of the block that comes and goes, same shape.
    """

    saved_bytes: FloatArray
    put_off_bytes: FloatArray
    transient_bytes: FloatArray
    adding_bytes: FloatArray
    largest_bytes: FloatArray


def block_memory(program: Program, block: IntArray, num_blocks: int, points: Points) -> BlockMemory:
    """Activations, block by block.

    Args:
        program: What the rank runs.
        block: Block of each op, (num_ops,).
        num_blocks: How many there are.
        points: Microbatch sizes.
    """
    stores, powers = program.stores, monomials(points.batch, points.seq)
    home = block[home_op(program)]
    size_bytes = stores.num_bytes() @ powers.T
    is_activation = (stores.owner == Owner.ACTIVATION) & ~is_weight_copy(program)
    start, num_bytes = program.first_backward(), stores.num_bytes()
    birth, death = program.position_of(stores.birth), program.position_of(stores.death)
    is_saved = is_activation & (birth < start) & (death >= start)
    passing = (is_activation & ~is_saved) | (stores.owner == Owner.WORKSPACE)
    keeper, put_off = _keeper(program, block, home), put_off_with_weights(program)
    live, made = _live(program, passing, size_bytes), _made_gradients(program, size_bytes)
    return BlockMemory(
        saved_bytes=_sum_stores(powers, num_bytes, is_saved, keeper, num_blocks),
        put_off_bytes=_sum_stores(powers, num_bytes, put_off, home, num_blocks),
        transient_bytes=_fullest(program, live, block, num_blocks),
        adding_bytes=_fullest(program, live + made, block, num_blocks),
        largest_bytes=_largest(program, size_bytes, home, num_blocks),
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


def _live(program: Program, chosen: BoolArray, size_bytes: FloatArray) -> FloatArray:
    """Bytes of the chosen storages that are alive while each op runs, (num_ops, num_points)."""
    num_ops = int(program.ops.position.max(initial=0.0)) + 1
    birth, death = (program.position_of(at)[chosen] for at in (program.stores.birth,
                                                               program.stores.death))  # fmt: skip
    change = summed_rows(
        np.concatenate((size_bytes[chosen], -size_bytes[chosen])),
        np.clip(np.append(birth, death + 1), 0, num_ops + 1).astype(np.int64),
        num_ops + 2,
    )
    live: FloatArray = np.cumsum(change, axis=0)[program.ops.position.astype(np.int64)]
    return live


def _made_gradients(program: Program, size_bytes: FloatArray) -> FloatArray:
    """Gradients of parameters that each op makes, to be added to those of microbatches before."""
    is_gradient = (program.stores.owner == Owner.GRADIENT) & (program.stores.birth >= 0)
    birth = program.stores.birth[is_gradient]
    return summed_rows(size_bytes[is_gradient], birth, len(program.ops.position))


def _fullest(program: Program, live: FloatArray, block: IntArray, num_blocks: int) -> FloatArray:
    """Most that is alive while each block runs, without its update, (num_points, num_blocks)."""
    runs = program.ops.phase != Phase.OPTIMIZER
    return np.asarray(largest_rows(live[runs], block[runs], num_blocks).T)


def _largest(
    program: Program, size_bytes: FloatArray, home: IntArray, num_blocks: int
) -> FloatArray:
    """The largest storage of each block that comes and goes, (num_points, num_blocks)."""
    passing = (program.stores.birth >= 0) | (program.stores.death != OUTLIVES)
    return np.asarray(largest_rows(size_bytes[passing], home[passing], num_blocks).T)


def _sum_stores(
    powers: FloatArray, num_bytes: FloatArray, chosen: BoolArray, home: IntArray, num_blocks: int
) -> FloatArray:
    total = summed_rows(num_bytes[chosen], home[chosen], num_blocks)
    return np.asarray(powers @ total.T)


def boundary_bytes(program: Program, names: tuple[str, ...], points: Points) -> FloatArray:
    """Bytes that cross from blocks to later ones in forward, (2, num_points, num_blocks).

    First what crosses the end of each block, then what the block itself makes for layers after it.

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
    storage, reader = program.reads.storage[reads], block[program.reads.op[reads]]
    np.maximum.at(last, storage, reader)
    is_layer = np.array([is_numbered(name) for name in names])
    is_input = np.zeros(len(stores), dtype=np.bool_)
    is_input[storage[is_layer[reader] & (reader > born[storage])]] = True
    crossing = (last > born) & (stores.owner == Owner.ACTIVATION) & ~is_weight_copy(program)
    crossing &= stores.elements[:, 1:].any(axis=1) & (
        stores.elements[:, 1] + stores.elements[:, 3] > 0
    )
    made, read, handed = np.zeros((3, num_blocks + 1, stores.elements.shape[1]))
    num_bytes = stores.num_bytes()
    np.add.at(made, born[crossing], num_bytes[crossing])
    np.add.at(read, last[crossing], num_bytes[crossing])
    np.add.at(handed, born[crossing & is_input], num_bytes[crossing & is_input])
    passing = np.stack((np.cumsum(made - read, axis=0), handed))[:, :num_blocks]
    return np.asarray(powers @ passing.transpose(0, 2, 1))
