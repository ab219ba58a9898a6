"""What one rank keeps of each block of a model, and what the blocks hand on.

Shapes: num_points microbatch sizes, num_blocks blocks in the order data flows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.parallel.rank_program import home_op, is_weight_copy, put_off_with_weights
from paceline.predict import Points
from paceline.trace.block_names import blocks_of_ops
from paceline.trace.graph import FloatArray, IntArray, Owner, Phase, monomials
from paceline.trace.program import OUTLIVES, Program

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassPeaks:
    """A pass through all blocks, at the moments that can be its peak, whatever ranks split.

    First come the fullest moment of each block's forward and of its backward, then those fullest
    of activations alone.

    Attributes:
        live_bytes: Activations, inputs, gradients and narrow copies of weights alive at each,
            (num_points, 4 num_blocks).
        gradient_bytes: Of them, gradients, same shape.
        copy_bytes: Of them, narrow copies, same shape.
        all_gradient_bytes: Of all parameters, which no moment need have at once.
        lasting_bytes: Activations that are still alive while the optimizer runs, (num_points,).
    """

    live_bytes: FloatArray
    gradient_bytes: FloatArray
    copy_bytes: FloatArray
    all_gradient_bytes: float
    lasting_bytes: FloatArray


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
        largest_bytes: The largest single tensor of the block that comes and goes, same shape.
        peaks: Of a pass that runs all blocks once, from which gradients come one by one.
    """

    parameters: FloatArray
    experts: FloatArray
    saved_bytes: FloatArray
    put_off_bytes: FloatArray
    transient_bytes: FloatArray
    largest_bytes: FloatArray
    peaks: PassPeaks


def block_memory(
    program: Program, block: IntArray, num_blocks: int, points: Points, is_expert: BoolArray, *,
    accumulates: bool = False,
) -> BlockMemory:  # fmt: skip
    """Parameters and activations, block by block.

    Args:
        program: What the rank runs.
        block: Block of each op, (num_ops,).
        num_blocks: How many there are.
        points: Microbatch sizes.
        is_expert: Storages of the graph that hold experts, (num_storages,).
        accumulates: Whether gradients are there before the pass, which adds to them.
    """
    stores, powers = program.stores, monomials(points.batch, points.seq)
    home = block[home_op(program)]
    size_bytes = stores.num_bytes() @ powers.T
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
        transient_bytes=_fullest(
            program, _live(program, is_activation & ~is_saved, size_bytes), block, num_blocks
        ),
        largest_bytes=_largest(program, size_bytes, home, num_blocks),
        peaks=_pass_peaks(program, size_bytes, block, num_blocks, accumulates=accumulates),
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
    change = np.zeros((num_ops + 2, size_bytes.shape[1]))
    np.add.at(change, np.clip(birth, 0, num_ops).astype(np.int64), size_bytes[chosen])
    np.add.at(change, np.clip(death + 1, 0, num_ops + 1).astype(np.int64), -size_bytes[chosen])
    live: FloatArray = np.cumsum(change, axis=0)[program.ops.position.astype(np.int64)]
    return live


def _fullest(program: Program, live: FloatArray, block: IntArray, num_blocks: int) -> FloatArray:
    """Most that is alive while each block runs, (num_points, num_blocks)."""
    largest = np.zeros((num_blocks, live.shape[1]))
    np.maximum.at(largest, block, live)
    return np.asarray(largest.T)


def _largest(
    program: Program, size_bytes: FloatArray, home: IntArray, num_blocks: int
) -> FloatArray:
    """The largest storage of each block that comes and goes, (num_points, num_blocks)."""
    passing = (program.stores.birth >= 0) | (program.stores.death != OUTLIVES)
    largest = np.zeros((num_blocks, size_bytes.shape[1]))
    np.maximum.at(largest, home[passing], size_bytes[passing])
    return np.asarray(largest.T)


def _pass_peaks(
    program: Program, size_bytes: FloatArray, block: IntArray, num_blocks: int, *,
    accumulates: bool,
) -> PassPeaks:  # fmt: skip
    """The moments of forward and backward of each block that can be the peak, and whose it is."""
    owner, phase = program.stores.owner, program.ops.phase
    is_copy, is_gradient = is_weight_copy(program), owner == Owner.GRADIENT
    is_other = np.isin(owner, (Owner.ACTIVATION, Owner.INPUT)) & ~is_copy
    gradients, copies, others = (
        _live(program, chosen, size_bytes) for chosen in (is_gradient, is_copy, is_other)
    )
    if accumulates:
        gradients = np.broadcast_to(size_bytes[is_gradient].sum(axis=0), gradients.shape)
    is_update = phase == Phase.OPTIMIZER
    is_late = program.ops.position >= program.first_backward()
    part, whole = block + num_blocks * is_late, gradients + copies + others
    moment = np.concatenate(
        [_fullest_ops(live, part, ~is_update, 2 * num_blocks) for live in (whole, others)]
    )

    def at(live: FloatArray) -> FloatArray:
        found = np.take_along_axis(live, np.maximum(moment, 0), axis=0)
        return np.asarray(np.where(moment >= 0, found, 0.0).T)

    updating = (others + copies)[is_update]
    return PassPeaks(
        live_bytes=at(whole),
        gradient_bytes=at(gradients),
        copy_bytes=at(copies),
        all_gradient_bytes=float(size_bytes[is_gradient, 0].sum()),
        lasting_bytes=updating.max(axis=0, initial=0.0),
    )


def _fullest_ops(live: FloatArray, part: IntArray, chosen: BoolArray, num_parts: int) -> IntArray:
    """Op of each part at which most is alive, (num_parts, num_points); -1 of a part without ops."""
    fullest = np.full((num_parts, live.shape[1]), -1)
    ops = np.flatnonzero(chosen)
    for point in range(live.shape[1]):
        rising = ops[np.argsort(live[ops, point], kind="stable")]
        fullest[part[rising], point] = rising
    return fullest


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
