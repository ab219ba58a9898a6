"""The working form of a graph while it is rewritten and lowered.

Reads and writes are lists of (op, storage, elements), so that a rewrite can add ops and
storages by appending rows. Ops keep the number they were given; `ordered` renumbers them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from paceline.columns import join_tables, take_rows
from paceline.dtypes import ELEMENT_BYTES, DType
from paceline.model.graph.graph import FloatArray, Graph, IntArray, Owner, Phase
from paceline.values import dataclass

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ops:
    """Ops in any order; ``position`` says when each runs.

    Attributes:
        kind: ``OpKind`` codes.
        variant: Variant codes.
        phase: ``Phase`` codes.
        flop: (num_ops, 9).
        dims: Row of ``Program.dims`` of each.
        position: Sort key of execution order.
    """

    kind: IntArray
    variant: IntArray
    phase: IntArray
    module: IntArray
    flop: FloatArray
    dims: IntArray
    position: FloatArray

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accesses:
    """What ops read, or what they write.

    Attributes:
        op: Op of each access.
        storage: Storage of each access.
        elements: Elements touched, (num_accesses, 9).
    """

    op: IntArray
    storage: IntArray
    elements: FloatArray

    def kept(self, keep: BoolArray) -> Accesses:
        """Some of them."""
        return take_rows(self, np.flatnonzero(keep))

    def by_op(self, num_ops: int) -> list[list[int]]:
        """Storages of each op."""
        order = np.argsort(self.op, kind="stable")
        bounds = np.searchsorted(self.op[order], np.arange(num_ops + 1)).tolist()
        storages = self.storage[order].tolist()
        return [storages[a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stores:
    """Storages.

    Attributes:
        elements: Size, (num_storages, 9).
        is_floating: Whether a precision may narrow them.
        is_wide: Whether autocast leaves them FP32.
        is_trainable: For parameters.
        owner: ``Owner`` codes.
        birth: Op before which they exist; -1: before the pass.
        death: Op after which they are gone; `OUTLIVES`: after the pass.
    """

    elements: FloatArray
    element_bytes: FloatArray
    is_floating: BoolArray
    is_wide: BoolArray
    is_trainable: BoolArray
    owner: IntArray
    birth: IntArray
    death: IntArray

    def __len__(self) -> int:
        return len(self.owner)

    def num_bytes(self) -> FloatArray:
        """Bytes of each, (num_storages, 9)."""
        scaled: FloatArray = self.elements * self.element_bytes[:, None]
        return scaled


#: Death of a storage that is still there when the pass ends.
OUTLIVES = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A graph being lowered.

    Attributes:
        ops: Operations.
        dims: Shape numbers that ``ops.dims`` points into, (num_rows, NUM_DIMS, 9).
        reads: What they read.
        writes: What they write.
        modules: Dotted module paths.
        spent: What updates read of gradients that are gone where the update stands, as it runs
            within backward; noted once ops have their order.
    """

    ops: Ops
    dims: FloatArray
    reads: Accesses
    writes: Accesses
    stores: Stores
    modules: tuple[str, ...]
    spent: Accesses | None = None

    @property
    def read_at_all(self) -> Accesses:
        """What ops read, whether it is still there where they stand or not."""
        return self.reads if self.spent is None else join_tables(self.reads, self.spent)

    @classmethod
    def from_graph(cls, graph: Graph) -> Program:
        """The working form of ``graph``."""
        ops, num_ops = graph.ops, len(graph.ops.kind)
        reads = _accesses(graph, ops.input_start, ops.input_tensor)
        writes = _accesses(graph, ops.output_start, ops.output_tensor)
        return cls(
            ops=Ops(
                kind=ops.kind.astype(np.int64),
                variant=ops.variant.astype(np.int64),
                phase=ops.phase.astype(np.int64),
                module=ops.module.astype(np.int64),
                flop=ops.flop,
                dims=np.arange(num_ops),
                position=np.arange(num_ops, dtype=np.float64),
            ),
            dims=ops.dims,
            reads=reads,
            writes=writes,
            stores=_born_when_written(_stores(graph, num_ops), reads, writes),
            modules=graph.modules,
        )

    def first_backward(self) -> float:
        """Position of the first backward op; infinity if there is none."""
        backward = self.ops.position[self.ops.phase == Phase.BACKWARD]
        return float(backward.min()) if backward.size else float("inf")

    def position_of(self, op: IntArray) -> FloatArray:
        """Sort keys of births and deaths: before everything for -1, after for `OUTLIVES`."""
        inside = np.clip(op, 0, max(len(self.ops) - 1, 0))
        position = self.ops.position[inside] if len(self.ops) else np.zeros(len(op))
        return np.where(op < 0, -np.inf, np.where(op == OUTLIVES, np.inf, position))

    def last_use(self) -> IntArray:
        """Last op that touches each storage; -1 where none does."""
        return self.first_and_last_use()[1]

    def first_and_last_use(self) -> tuple[IntArray, IntArray]:
        """First and last op that touches each storage; -1 where none does."""
        op = np.concatenate((self.reads.op, self.writes.op))
        storage = np.concatenate((self.reads.storage, self.writes.storage))
        order = np.argsort(self.ops.position[op], kind="stable")
        first, last = np.full(len(self.stores), -1), np.full(len(self.stores), -1)
        last[storage[order]] = op[order]
        first[storage[order[::-1]]] = op[order[::-1]]
        return first, last

    def with_lives_over_uses(self) -> Program:
        """The same program with every storage alive from its first use to its last, at least.

        A rewrite that makes an op read something later than before keeps it alive that way.
        """
        first, last = self.first_and_last_use()
        position = self.ops.position
        birth, death = self.stores.birth.copy(), self.stores.death.copy()
        used = first >= 0
        early = np.flatnonzero(used & (birth >= 0))
        early = early[position[first[early]] < position[birth[early]]]
        birth[early] = first[early]
        late = np.flatnonzero(used & (death != OUTLIVES))
        late = late[(death[late] < 0) | (position[last[late]] > position[death[late]])]
        death[late] = last[late]
        return replace(self, stores=replace(self.stores, birth=birth, death=death))

    def read(self, ops: IntArray, position: int) -> IntArray:
        """The storage that each op reads at ``position``."""
        return _accessed(self.reads, ops, position)

    def written(self, ops: IntArray, position: int) -> IntArray:
        """The storage that each op writes at ``position``."""
        return _accessed(self.writes, ops, position)

    def without_ops(self, ops: IntArray) -> Program:
        """The same program without some ops; births and deaths there move to the op before."""
        keep = np.ones(len(self.ops), dtype=bool)
        keep[ops] = False
        by_position = np.argsort(self.ops.position, kind="stable")
        kept_before = np.maximum.accumulate(np.where(keep[by_position], np.arange(len(keep)), -1))
        stand_in = np.empty(len(keep), dtype=np.int64)
        stand_in[by_position] = np.where(kept_before >= 0, by_position[kept_before], -1)
        number = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
        rows = np.flatnonzero(keep)
        return replace(
            self,
            ops=take_rows(self.ops, rows),
            reads=_kept_accesses(self.reads, keep, number),
            writes=_kept_accesses(self.writes, keep, number),
            stores=replace(
                self.stores,
                birth=renumbered(self.stores.birth, number[stand_in]),
                death=renumbered(self.stores.death, number[stand_in]),
            ),
        )

    def ordered(self) -> Program:
        """The same program with ops numbered in execution order."""
        order = np.argsort(self.ops.position, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return self
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        return replace(
            self,
            ops=replace(
                take_rows(self.ops, order), position=np.arange(len(order), dtype=np.float64)
            ),
            reads=replace(self.reads, op=number[self.reads.op]),
            writes=replace(self.writes, op=number[self.writes.op]),
            stores=replace(
                self.stores,
                birth=renumbered(self.stores.birth, number),
                death=renumbered(self.stores.death, number),
            ),
        )


def _accessed(accesses: Accesses, ops: IntArray, position: int) -> IntArray:
    order = np.argsort(accesses.op, kind="stable")
    first = np.searchsorted(accesses.op[order], ops)
    accessed: IntArray = accesses.storage[order[first + position]]
    return accessed


def _kept_accesses(accesses: Accesses, keep: BoolArray, number: IntArray) -> Accesses:
    kept = accesses.kept(keep[accesses.op])
    return replace(kept, op=number[kept.op])


def renumbered(ops: IntArray, number: IntArray) -> IntArray:
    """Births or deaths by new numbers of ops; those before and after the pass stay as they are."""
    inside = (ops >= 0) & (ops != OUTLIVES)
    found = ops.copy()
    found[inside] = number[ops[inside]]
    return found


def twin_accesses(accesses: Accesses, twin_op: IntArray, twin_store: IntArray) -> Accesses:
    """What copies of ops touch: copies of storages where there are some, the same ones elsewhere.

    ``twin_op``: number of the copy of each op; -1 where there is none.
    """
    copied = accesses.kept(twin_op[accesses.op] >= 0)
    twin = twin_store[copied.storage]
    storage = np.where(twin >= 0, twin, copied.storage)
    return replace(copied, op=twin_op[copied.op], storage=storage)


def _accesses(
    graph: Graph, start: npt.NDArray[np.int32], tensor: npt.NDArray[np.int32]
) -> Accesses:
    return Accesses(
        op=np.repeat(np.arange(len(start) - 1), np.diff(start)),
        storage=graph.tensors.storage[tensor].astype(np.int64),
        elements=graph.tensors.elements[tensor],
    )


def _born_when_written(stores: Stores, reads: Accesses, writes: Accesses) -> Stores:
    """The same with activations that are filled before anything reads them born by then.

    What makes room alone, such as `torch.empty`, is no op: a graph first sees such a storage where
    it is filled, as attention over latents fills its keys.
    """
    never = np.iinfo(np.int64).max
    read, written = (np.full(len(stores), never) for _ in range(2))
    np.minimum.at(read, reads.storage, reads.op)
    np.minimum.at(written, writes.storage, writes.op)
    is_room = (stores.owner == Owner.ACTIVATION) & (stores.death != OUTLIVES)
    is_room &= (stores.birth < 0) & (written < read)
    return replace(stores, birth=np.where(is_room, written, stores.birth))


def _stores(graph: Graph, num_ops: int) -> Stores:
    storages = graph.storages
    death = storages.death.astype(np.int64)
    return Stores(
        elements=storages.elements,
        element_bytes=np.array(ELEMENT_BYTES, dtype=np.float64)[storages.dtype],
        is_floating=storages.dtype == DType.FP32,
        is_wide=storages.is_wide,
        is_trainable=storages.is_trainable,
        owner=storages.owner.astype(np.int64),
        birth=storages.birth.astype(np.int64),
        death=np.where(death >= num_ops, OUTLIVES, death),
    )
