"""What a step asks of a CPU: amounts of each kind of work that a machine does at a rate of its own.

See docs/explanation/local-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.costs import CostTable, LoweredPass
from paceline.model.graph.graph import OpKind, Owner, Phase, monomials
from paceline.model.ops.registry import kinds_where
from paceline.shipped import shipped_rows
from paceline.values import dataclass

FloatArray = npt.NDArray[np.float64]

#: glibc maps allocations above this anew every time (mallopt(3), M_MMAP_THRESHOLD_MAX), and hands
#: memory at the end of its heap back when it exceeds twice the largest chunk that was freed.
_MAPPED_BYTES = 32 * 2**20
_TRIMMED_CHUNKS = 2
#: Owners of what a step frees before it ends, and of all that it allocates.
_FREED = (Owner.ACTIVATION, Owner.WORKSPACE)
_PASSING = (*_FREED, Owner.GRADIENT)
_FP32_BYTES = 4
#: An op that touches no more finds in the caches what the op before it wrote: so much and more is
#: shared by the cores of processors for notebooks and servers.
_CACHED_BYTES = 16 * 2**20
_ATTENTION = kinds_where(lambda facts: facts.sequence == "looks")
_CELLS = kinds_where(lambda facts: facts.is_cell)
_CONVOLUTIONS = kinds_where(lambda facts: facts.efficiency == "convolution")


class Work(IntEnum):
    """Kinds of work: FLOP of the first, bytes from `OPERANDS` on, ops and calls from `DISPATCH`."""

    CONVOLUTION = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2
    POINTWISE = 3
    DEPTHWISE = 4
    PRODUCT = 5
    ATTENTION = 6
    RECURRENCE = 7
    OPERANDS = 8
    FILTERS = 9
    VECTOR = 10
    CACHED = 11
    STREAM = 12
    UPDATE = 13
    POOL = 14
    POOL_GRADIENT = 15
    PAGES = 16
    DISPATCH = 17
    LOOP = 18
    CALL = 19


#: Of convolutions that lay out filters and images anew before they compute.
_FILTERING = (Work.CONVOLUTION, Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT, Work.POINTWISE)

_WORK_BY_KIND: Mapping[OpKind, Work] = {
    OpKind.MATMUL: Work.PRODUCT,
    OpKind.CONV: Work.CONVOLUTION,
    OpKind.CONV_BACKWARD_INPUT: Work.INPUT_GRADIENT,
    OpKind.CONV_BACKWARD_WEIGHT: Work.WEIGHT_GRADIENT,
    OpKind.OPTIMIZER: Work.UPDATE,
    OpKind.POOL: Work.POOL,
    OpKind.POOL_BACKWARD: Work.POOL_GRADIENT,
}
#: What `_loops` tells of each direction.
_LOOP_FACTS = ("ops", "weights", "passes", "sequences", "new")
#: Tensors that an op on the state of a cell touches: two read, one written.
_TOUCHED = 3
#: Largest mapping that a process frees while it imports Keras on PyTorch 2.13 (`mmap_threshold` of
#: glibc 2.36, 2026-11-27): its heap keeps twice as much at its end.
_IMPORTED_BYTES = 1.93e6


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one step asks of the machine.

    Attributes:
        amounts: Of each kind of `Work`, (len(Work),).
        gradient_bytes: Of all gradients, as they are exchanged.
    """

    amounts: FloatArray
    gradient_bytes: float = 0.0


def amounts_of(given: Mapping[Work, float]) -> FloatArray:
    """Amounts, or rates, by kind, zero where none is given.

    >>> float(amounts_of({Work.DISPATCH: 2.0}).sum())
    2.0
    """
    amounts = np.zeros(len(Work))
    for work, amount in given.items():
        amounts[work] = amount
    return amounts


def step_work(
    lowered: LoweredPass, *, batch: int, seq: int = 1, framework: str = "torch"
) -> StepWork:
    """What a lowered pass asks for at one batch.

    Args:
        lowered: The pass.
        batch: Items.
        seq: Tokens of a sequence.
        framework: Whose kernels run.
    """
    costs, powers = lowered.costs, monomials(batch, seq)
    asked = _with_loops(
        _Ops(
            kind=costs.kind,
            work=_work_of(costs, costs.dims @ powers[0]),
            dims=costs.dims @ powers[0],
            flop=costs.flop @ powers[0],
            moved_bytes=costs.moved_bytes(powers)[0],
            launches=np.maximum(costs.num_kernels, 1.0),
            loop_ops=np.zeros_like(costs.count),
            state_bytes=np.zeros_like(costs.count),
            page_bytes=np.zeros_like(costs.count),
        ),
        framework,
    )
    amounts = _summed(asked, costs.count)
    facts = cpu_frameworks().get(framework, {})
    in_block = facts.get("memory") == "block"
    amounts[Work.PAGES] += (_block_bytes if in_block else _fresh_bytes)(lowered, powers[0])
    amounts[Work.PAGES] += _update_bytes(lowered, powers[0], float(facts.get("new_results") or 0))
    amounts[Work.CALL] = _calls(costs, framework)
    return StepWork(amounts=amounts, gradient_bytes=lowered.gradient_bytes)


def with_pages(work: StepWork, fresh_bytes: float | None) -> StepWork:
    """``work`` with the pages that a step was seen to take; as it is where none were counted."""
    if fresh_bytes is None:
        return work
    amounts = work.amounts.copy()
    amounts[Work.PAGES] = fresh_bytes
    return replace(work, amounts=amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ops:
    """Distinct ops at one point; all (num_rows,), but ``dims`` of (num_rows, NUM_DIMS)."""

    kind: npt.NDArray[np.int16]
    work: npt.NDArray[np.intp]
    dims: FloatArray
    flop: FloatArray
    moved_bytes: FloatArray
    launches: FloatArray
    loop_ops: FloatArray
    state_bytes: FloatArray
    page_bytes: FloatArray


def _work_of(costs: CostTable, dims: FloatArray) -> npt.NDArray[np.intp]:
    """Kind of work of each op, (num_rows,)."""
    work = _work_by_kind()[costs.kind]
    _, channels, height, width, _, rows, columns, out_height, out_width, groups = dims[:, :10].T
    is_conv = np.isin(costs.kind, _CONVOLUTIONS)
    is_dense = (height == out_height) & (width == out_width) & (rows * columns == 1)
    work[is_conv & is_dense] = Work.POINTWISE
    work[is_conv & (groups > 1) & (groups == channels)] = Work.DEPTHWISE
    work[(costs.kind == OpKind.MATMUL) & (dims[:, 1:3].min(axis=1) <= 1)] = Work.VECTOR
    return work


def _summed(ops: _Ops, count: FloatArray) -> FloatArray:
    """Amounts of all ops together, (len(Work),).

    Bytes of ops that compute are those of operands, unless they are only streamed, by depthwise
    convolutions. Updates are dispatched as the ops of a loop are, with next to nothing to set up.
    """
    computes = ops.work < Work.OPERANDS
    carrier = np.where(computes, Work.OPERANDS, ops.work)
    carrier[np.isin(ops.work, _FILTERING)] = Work.FILTERS
    carrier[ops.work == Work.DEPTHWISE] = Work.STREAM
    in_memory = np.isin(carrier, (Work.STREAM, Work.UPDATE))
    carrier[in_memory & (_held_bytes(ops) <= _CACHED_BYTES)] = Work.CACHED
    flop = np.where(computes, ops.flop, 0.0)
    amounts = np.zeros(len(Work))
    amounts += np.bincount(ops.work, count * flop, len(Work))
    amounts += np.bincount(carrier, count * ops.moved_bytes, len(Work))
    amounts[Work.CACHED] += np.sum(count * ops.state_bytes)
    amounts[Work.PAGES] = np.sum(count * ops.page_bytes)
    is_update = ops.kind == int(OpKind.OPTIMIZER)
    amounts[Work.DISPATCH] = np.sum((count * ops.launches)[~is_update])
    amounts[Work.LOOP] = np.sum(count * (ops.loop_ops + is_update * ops.launches))
    return amounts


def _held_bytes(ops: _Ops) -> FloatArray:
    """Bytes that a cache must hold for an op to find there what the op before it left.

    An update that runs op by op passes several times over each tensor, one after the other.
    """
    elements, num_tensors = ops.dims[:, :2].T
    in_passes = (ops.kind == int(OpKind.OPTIMIZER)) & (ops.launches > num_tensors)
    return np.where(in_passes, _FP32_BYTES * elements, ops.moved_bytes)


def _calls(costs: CostTable, framework: str) -> float:
    """Calls from Python of a step: of the compiled step, or of the layers that run forward."""
    called = cpu_frameworks().get(framework, {}).get("called", "")
    layers = costs.count[costs.phase == int(Phase.FORWARD)].sum()
    return {"step": 1.0, "layers": float(layers)}.get(called, 0.0)


def _with_loops(ops: _Ops, framework: str) -> _Ops:
    """Recurrent layers as the framework runs them: one op, or a loop of small ones.

    In each step a loop dispatches the ops of its cell, which touch the cell's state, and adds to
    the gradient of its weights; all of them and the sequences go through the caches. A gradient
    that is gathered step by step touches the whole sequence in each of them. Two tensors of that
    size are freed one after the other, and the heap gives them back where they lie at its end.
    """
    loops = _loops()
    changed = replace(
        ops, **{name: getattr(ops, name).copy() for name in ("work", "moved_bytes", "launches")}
    )
    for row in np.flatnonzero(np.isin(ops.kind, _CELLS)):
        items, steps, _, hidden, layers, directions, gates = ops.dims[row, :7]
        loop = loops.get((framework, int(gates), OpKind(int(ops.kind[row]))))
        if loop is None:
            continue
        num_cells = steps * layers * directions
        touched = _TOUCHED * loop["passes"] + loop["sequences"] * gates * steps
        sequence_bytes = _FP32_BYTES * items * hidden * gates * steps
        is_given_back = sequence_bytes > _IMPORTED_BYTES
        elements = items * hidden * touched + loop["weights"] * gates * hidden**2
        changed.work[row] = Work.PRODUCT
        changed.moved_bytes[row] = 0.0
        changed.launches[row] = 1.0
        changed.loop_ops[row] = num_cells * loop["ops"]
        changed.page_bytes[row] = num_cells * loop["new"] * is_given_back * sequence_bytes
        changed.state_bytes[row] = num_cells * _FP32_BYTES * elements + ops.moved_bytes[row]
    return changed


def _fresh_bytes(lowered: LoweredPass, powers: FloatArray) -> float:
    """Bytes of pages that are handed out in every step, for results that find no freed memory."""
    costs, memory = lowered.costs, lowered.memory
    written = costs.write_bytes @ powers
    is_mapped = (written > _MAPPED_BYTES) & (costs.kind != int(OpKind.OPTIMIZER))
    mapped_bytes = float(np.sum((costs.count * written)[is_mapped]))
    largest_bytes = float(np.max(memory.largest_bytes @ powers, initial=0.0))
    owned = memory.by_owner @ powers
    if mapped_bytes:
        return max(mapped_bytes, float(np.max(owned[:, _PASSING].sum(axis=1), initial=0.0)))
    # Gradients outlast the step in the heap that activations leave, of which the end alone goes.
    freed_bytes = float(np.max(owned[:, _FREED].sum(axis=1), initial=0.0))
    freed_bytes -= float(np.max(owned[:, Owner.GRADIENT], initial=0.0))
    return freed_bytes if freed_bytes > _TRIMMED_CHUNKS * largest_bytes else 0.0


def _block_bytes(lowered: LoweredPass, powers: FloatArray) -> float:
    """Bytes of pages where a step takes all its memory as one block, which is mapped if large.

    Gradients go into the update, whose results take the memory of what they replace.

    Source:
        XLA gathers the gradient of max pooling by the places of all elements, four numbers each
        (its pass that expands select-and-scatter, as an HLO module of jax 0.10.2 shows).
    """
    costs, owned = lowered.costs, lowered.memory.by_owner @ powers
    is_pool = costs.kind == int(OpKind.POOL_BACKWARD)
    elements = float(np.sum((costs.count * (costs.dims @ powers)[:, 0])[is_pool]))
    held_bytes = float(np.max(owned[:, _FREED].sum(axis=1), initial=0.0))
    block_bytes = held_bytes + 4 * _FP32_BYTES * elements
    return block_bytes if block_bytes > _MAPPED_BYTES else 0.0


def _update_bytes(lowered: LoweredPass, powers: FloatArray, new_results: float) -> float:
    """Bytes of pages for results of an update, of whose ops a share has results of their own."""
    costs, memory = lowered.costs, lowered.memory
    is_update = costs.kind == int(OpKind.OPTIMIZER)
    num_ops = float(np.sum((costs.count * costs.num_kernels)[is_update]))
    num_tensors = float(np.sum((costs.count * (costs.dims @ powers)[:, 1])[is_update]))
    result_bytes = new_results * num_ops / max(num_tensors, 1.0) * lowered.gradient_bytes
    largest_bytes = float(np.max(memory.largest_bytes @ powers, initial=0.0))
    return result_bytes if result_bytes > _TRIMMED_CHUNKS * largest_bytes else 0.0


@cache
def _work_by_kind() -> npt.NDArray[np.intp]:
    """Kind of work by ``OpKind``, (num_kinds,); what has none of its own streams."""
    work = np.full(len(OpKind), Work.STREAM, dtype=np.intp)
    work[list(_ATTENTION)] = Work.ATTENTION
    work[list(_CELLS)] = Work.RECURRENCE
    for kind, one in _WORK_BY_KIND.items():
        work[kind] = one
    return work


@cache
def cpu_frameworks() -> Mapping[str, Mapping[str, str]]:
    """What is known of how a framework runs on a CPU, by its name."""
    rows = shipped_rows("execution", "cpu_frameworks.csv")
    return {row["framework"]: row for row in rows}


def loop_ops(framework: str) -> float:
    """Ops that a framework dispatches in a step of an LSTM and of its gradient; 1 where none."""
    return float(cpu_frameworks().get(framework, {}).get("lstm_ops") or 1.0)


@cache
def _loops() -> Mapping[tuple[str, int, OpKind], Mapping[str, float]]:
    """A step of a cell that is run as a loop, by framework, gates and op kind.

    ``ops`` that are dispatched, ``weights`` and ``passes``: how often its weights and its state are
    passed over, ``sequences``: passes over what all steps of the layer computed, and ``new``: share
    of one such tensor a step that lies in new pages.
    """
    return {
        (row["framework"], int(row["gates"]), kind): {
            name: float(row.get(f"{phase}_{name}", 0.0)) for name in _LOOP_FACTS
        }
        for row in shipped_rows("execution", "recurrent_loops.csv")
        for kind, phase in (
            (OpKind.RECURRENT, "forward"), (OpKind.RECURRENT_BACKWARD, "backward"),
        )
    }  # fmt: skip
