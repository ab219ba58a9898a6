"""What a compiler fuses: chains of cheap ops become one kernel.

Ops between two products (matrix products, convolutions, attention …) that hand each other their
results are one kernel. Its reads are what comes from outside, its writes what is still needed
outside. XLA, TensorRT and kernels written by hand also take such a chain into the product before
it, where the chain alone reads that product's result. What needs more than one result (norms of
layers, softmax) is no such chain to TensorRT and OpenVINO, and a gate (SiLU) none to TensorRT. In
training a compiler also keeps less: what cheap ops made of tensors that are kept anyway is made
again where a chain of backward reads it, and so is what a loss makes of logits where it is written
in ops: no compiler sees into a kernel with a backward of its own.

Source: Ansel et al., "PyTorch 2", ASPLOS 2024, section 4.3 (Inductor's scheduler); openxla.org,
XLA architecture, fusion; TensorRT developer guide, "Layer fusion"; PyTorch,
``torch/_functorch/partitioners.py`` (what backward makes again).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from paceline.columns import join_tables, take_rows
from paceline.model.graph.costs import Compiler, Configuration
from paceline.model.graph.distinct import summed_rows
from paceline.model.graph.graph import (
    FloatArray,
    IntArray,
    OpKind,
    Owner,
    Phase,
)
from paceline.model.graph.program import (
    OUTLIVES,
    Accesses,
    BoolArray,
    Program,
)
from paceline.model.ops.optable import read_table, variants
from paceline.model.ops.registry import column
from paceline.model.rewrite.loss import WRITTEN_OUT, head_of

#: Compilers that fuse a chain into the product before it.
_WITH_EPILOGUES: tuple[Compiler, ...] = ("xla", "tensorrt")


def fused(program: Program, configuration: Configuration) -> Program:
    """``program`` with the ops merged that a configuration fuses; ordered before and after."""
    if configuration.compiler == "eager" or not len(program.ops):
        return program
    if configuration.loss in WRITTEN_OUT:
        program = _with_loss_made_again(program)
    program = _with_results_made_again(program)
    writers = _last_writers(program)
    leader = _leaders(program, writers)
    is_tuned = configuration.convolutions == "tuned"
    if configuration.compiler in _WITH_EPILOGUES or is_tuned:
        can_join = _joining(program, leader, configuration)
        leader = _with_epilogues(program, leader, writers, can_join, scales_are_ready=is_tuned)
    return _merged(program, leader, writers).with_lives_over_uses()


def _with_loss_made_again(program: Program) -> Program:
    """``program`` whose backward reads logits as the head made them, and no log-softmax of them.

    Of a loss what is as large as the logits is made of them and of a number for each token, row by
    row, so that neither a wide copy nor the log-softmax is ever written.
    """
    head = head_of(program) if np.isfinite(program.first_backward()) else None
    if head is None:
        return program
    reads, stores = program.reads, program.stores
    inner = np.zeros(len(stores), dtype=np.bool_)
    inner[head.stores] = True
    inner[[head.logits, head.gradient]] = False
    inner &= program.position_of(stores.birth) < program.first_backward()
    late = _late_reads(program, reads) & inner[reads.storage]
    if not late.any():
        return program
    reads = replace(reads, storage=np.where(late, head.logits, reads.storage))
    moved = replace(program, reads=reads)
    death = np.where(inner, moved.last_use(), stores.death)
    return replace(moved, stores=replace(stores, death=death)).with_lives_over_uses()


def _with_results_made_again(program: Program) -> Program:
    """``program`` whose backward reads what cheap results were made of, in their place."""
    again = _made_again(program)
    if not again.any():
        return program
    reads = program.reads
    while (rows := _late_reads(program, reads) & again[reads.storage]).any():
        reads = _with_sources(program, reads, rows)
    stores = replace(program, reads=reads).stores
    last = replace(program, reads=reads).last_use()
    return replace(
        program, reads=reads, stores=replace(stores, death=np.where(again, last, stores.death))
    )


def _made_again(program: Program) -> BoolArray:
    """Results of one cheap forward op that backward's chains alone read, per storage.

    What the op read is there in backward anyway: kept for it, or a parameter. A result that a
    product reads in backward is kept, as it must be written there.
    """
    ops, reads, writes, stores = program.ops, program.reads, program.writes, program.stores
    start, count = program.first_backward(), len(program.stores)
    is_kept = (stores.death == OUTLIVES) | (program.position_of(stores.death) >= start)
    is_kept &= program.position_of(stores.birth) < start
    is_once = np.bincount(writes.storage, minlength=count) == 1
    writer = np.full(count, -1)
    writer[writes.storage] = writes.op
    late = _late_reads(program, reads)
    is_late = np.bincount(reads.storage[late], minlength=count) > 0
    unfused = late & ~_fusible()[ops.kind[reads.op], 0]
    is_bare = np.bincount(reads.storage[unfused], minlength=count) > 0
    lost = ~(is_kept & (is_once | (stores.birth < 0)))[reads.storage]
    has_all = np.bincount(reads.op[lost], minlength=len(ops)) == 0
    made = np.maximum(writer, 0)
    again = is_once & is_kept & is_late & ~is_bare & (stores.owner == Owner.ACTIVATION)
    again &= (stores.death != OUTLIVES) & (stores.birth >= 0)
    return np.asarray(
        again & (ops.kind[made] == OpKind.ELEMENTWISE) & (ops.phase[made] == Phase.FORWARD)
        & has_all[made] & (np.bincount(writes.op, minlength=len(ops)) == 1)[made]
    )  # fmt: skip


def _late_reads(program: Program, reads: Accesses) -> BoolArray:
    """Which reads happen in backward or later."""
    return np.asarray(program.ops.position[reads.op] >= program.first_backward())


def _with_sources(program: Program, reads: Accesses, rows: BoolArray) -> Accesses:
    """Reads with those of ``rows`` replaced by what the results there were made of."""
    order = np.argsort(program.reads.op, kind="stable")
    start = np.searchsorted(program.reads.op[order], np.arange(len(program.ops) + 1))
    writer = np.zeros(len(program.stores), dtype=np.int64)
    writer[program.writes.storage] = program.writes.op
    maker = writer[reads.storage[rows]]
    num = start[maker + 1] - start[maker]
    within = np.arange(num.sum()) - np.repeat(np.cumsum(num) - num, num)
    source = order[np.repeat(start[maker], num) + within]
    added = Accesses(
        op=np.repeat(reads.op[rows], num),
        storage=program.reads.storage[source],
        elements=program.reads.elements[source],
    )
    return join_tables(reads.kept(~rows), added)


def _leaders(program: Program, producer: IntArray) -> IntArray:
    """The first op of the chain that each op belongs to, (num_ops,); ``producer`` of each read."""
    ops, numbers = program.ops, np.arange(len(program.ops))
    can_fuse = _fusible()[ops.kind, np.minimum(ops.variant, _fusible().shape[1] - 1)]
    segment = np.cumsum(~can_fuse) * 8 + ops.phase
    linked = can_fuse[program.reads.op] & (producer >= 0)
    linked &= can_fuse[np.maximum(producer, 0)]
    linked &= segment[program.reads.op] == segment[np.maximum(producer, 0)]
    rows = np.flatnonzero(linked)
    return _connected(numbers, program.reads.op[rows], producer[rows])


def _connected(leader: IntArray, left: IntArray, right: IntArray) -> IntArray:
    """The first op of the connected component of each op."""
    while True:
        lower = np.minimum(leader[left], leader[right])
        joined = leader.copy()
        np.minimum.at(joined, left, lower)
        np.minimum.at(joined, right, lower)
        joined = _followed(joined)
        if np.array_equal(joined, leader):
            return joined
        leader = joined


def _followed(parent: IntArray) -> IntArray:
    """The root of each row, following parents that come earlier."""
    while not np.array_equal(parent[parent], parent):
        parent = parent[parent]
    return parent


def _last_writers(program: Program) -> IntArray:
    """The op before each read that last wrote what it reads; -1 if none did."""
    writes, reads = program.writes, program.reads
    span = len(program.ops) + 1
    key = np.sort(writes.storage * span + writes.op)
    place = np.searchsorted(key, reads.storage * span + reads.op) - 1
    found = key[np.maximum(place, 0)] if len(key) else np.full(len(place), -1)
    is_same = (place >= 0) & (found // span == reads.storage)
    return np.where(is_same, found % span, -1)


def _joining(program: Program, leader: IntArray, configuration: Configuration) -> BoolArray:
    """Whether the chain that each op leads may join a product, (num_ops,)."""
    ops, can_join = program.ops, np.ones(len(program.ops), dtype=bool)
    if configuration.compiler != "tensorrt":
        return can_join
    joins = _marked("joins_product")
    if configuration.platform == "cpu":  # oneDNN's products take a gate ("eltwise_swish").
        joins = joins | _is_gate()
    joins = joins | ~_fusible()
    is_left = ~joins[ops.kind, np.minimum(ops.variant, joins.shape[1] - 1)]
    np.logical_and.at(can_join, leader, ~is_left)
    return can_join


def _is_gate() -> BoolArray:
    gates = np.zeros_like(_fusible())
    gates[OpKind.ELEMENTWISE, variants()["ELEMENTWISE", "gate"]] = True
    return gates


def _with_epilogues(
    program: Program,
    leader: IntArray,
    writers: IntArray,
    can_join: BoolArray,
    *,
    scales_are_ready: bool,
) -> IntArray:
    """Chains whose first op alone reads a product's result join that product.

    Kernels written by hand find the scales of frozen norms ready, which a compiler works out at the
    head of the chain: any op of it may be the one that reads the result.
    """
    ops, reads = program.ops, program.reads
    is_product = column("takes_epilogue")[ops.kind]
    num_readers = np.bincount(reads.storage, minlength=len(program.stores))
    producer = np.maximum(writers, 0)
    newest = np.zeros(len(ops), dtype=np.int64)
    is_outside = leader[producer] != leader[reads.op]
    np.maximum.at(newest, leader[reads.op[is_outside]], producer[is_outside])
    head = leader[reads.op]
    is_first = (head > producer) if scales_are_ready else head == reads.op
    rows = np.flatnonzero(
        is_product[producer]
        & can_join[head]
        & (newest[head] <= producer)
        & is_first
        & (num_readers[reads.storage] == 1)
        & ~is_product[reads.op]
        & _fusible()[ops.kind[reads.op], 0]
    )
    joined = leader.copy()
    joined[head[rows]] = producer[rows]
    return _followed(joined)


def _merged(program: Program, leader: IntArray, writers: IntArray) -> Program:
    stores = program.stores
    inside = _stays_inside(program, leader)
    reads = _external(program.reads, leader, ~inside & ~_reads_own(program, leader, writers))
    writes = _external(program.writes, leader, ~inside)
    kept = np.flatnonzero(leader == np.arange(len(leader)))
    number = np.cumsum(leader == np.arange(len(leader))) - 1
    flop = summed_rows(program.ops.flop, leader, len(leader))
    position = np.arange(len(kept), dtype=np.float64)
    return replace(
        program,
        ops=replace(take_rows(program.ops, kept), flop=flop[kept], position=position),
        reads=replace(reads, op=number[reads.op]),
        writes=replace(writes, op=number[writes.op]),
        stores=replace(
            stores,
            elements=np.where(inside[:, None], 0.0, stores.elements),
            birth=_moved(stores.birth, leader, number),
            death=_moved(stores.death, leader, number),
        ),
    )


def _stays_inside(program: Program, leader: IntArray) -> BoolArray:
    """Activations written and read by one chain only, and gone after it."""
    stores, reads, writes = program.stores, program.reads, program.writes
    count, big = len(stores), len(program.ops)
    low, high = np.full(count, big), np.full(count, -1)
    for accesses in (reads, writes):
        np.minimum.at(low, accesses.storage, leader[accesses.op])
        np.maximum.at(high, accesses.storage, leader[accesses.op])
    last = np.clip(stores.death, 0, big - 1)
    ends_here = (stores.death != OUTLIVES) & (leader[last] == high)
    num_members = np.bincount(leader, minlength=big)
    is_chain = (low == high) & (num_members[np.clip(high, 0, big - 1)] > 1)
    is_read = np.bincount(reads.storage, minlength=count) > 0
    is_activation = (stores.owner == Owner.ACTIVATION) & (stores.birth >= 0)
    return np.asarray(is_activation & is_chain & ends_here & is_read)


def _reads_own(program: Program, leader: IntArray, producer: IntArray) -> BoolArray:
    """Storages that every one of their readers has just written itself; per storage."""
    is_own = (producer >= 0) & (leader[np.maximum(producer, 0)] == leader[program.reads.op])
    all_own = np.ones(len(program.stores), dtype=bool)
    np.logical_and.at(all_own, program.reads.storage, is_own)
    return all_own


def _external(accesses: Accesses, leader: IntArray, keep_storage: BoolArray) -> Accesses:
    """Accesses of the chains, each storage once per chain, as large as its largest access.

    Those of one op keep their order: updates name parameters, gradients and states by it.
    """
    rows = np.flatnonzero(keep_storage[accesses.storage])
    size = accesses.elements[rows] @ _PROBE
    touched = leader[accesses.op[rows]] * len(keep_storage) + accesses.storage[rows]
    order = np.lexsort((-size, touched))
    rows, touched = rows[order], touched[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = touched[1:] != touched[:-1]
    kept = take_rows(accesses, np.sort(rows[first]))
    return replace(kept, op=leader[kept.op])


_PROBE: FloatArray = np.array([1.0, 8, 64, 512, 4096, 32768, 64, 4096, 262144])


def _moved(ops: IntArray, leader: IntArray, number: IntArray) -> IntArray:
    is_inside = (ops >= 0) & (ops != OUTLIVES)
    moved = ops.copy()
    moved[is_inside] = number[leader[ops[is_inside]]]
    return moved


def _fusible() -> BoolArray:
    """Whether each (kind, variant) may be fused."""
    return _marked("is_fusible")


@cache
def _marked(name: str) -> BoolArray:
    """Which (kind, variant) have a yes in a column of the kernels."""
    table = np.zeros((len(OpKind), 1 + max(variants().values())), dtype=bool)
    for row in read_table("kernels.csv"):
        variant = variants()[row["kind"], row["variant"]] if row["variant"] else slice(None)
        table[OpKind[row["kind"]], variant] = row[name] == "yes"
    return table
