"""A graph with few of its equal layers, one group of which stands for all that were left out.

Layers of a large model are alike, so that what one runs and keeps is known of all. Two groups of
them stay before the one that stands for others, and two after it: kernels that reach over the end
of a layer, and what lives from one to the next, are then as they are in the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.model.belonging import parameter_of
from paceline.model.graph.block_names import block_names, own_blocks
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import FloatArray, Graph, IntArray, OpKind, Owner, StorageTable
from paceline.model.graph.program import Program
from paceline.model.updates import of_elements
from paceline.values import dataclass

BoolArray = npt.NDArray[np.bool_]
#: Groups of layers that stay: the third stands for those that are left out.
_NUM_KEPT, _STANDING = 5, 2
#: Most layers in a group that repeats.
_MOST_IN_GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FewerLayers:
    """A graph, and how often each of its blocks stands in the whole one.

    Attributes:
        graph: What is left; the graph itself where no layers are alike.
        names: Its blocks.
        whole_names: Those of the whole.
        start: Block with which the group begins that stands for several.
        period: Blocks of that group.
        copies: Groups that it stands for, itself among them.
        home: Block of each storage; -1 outside all, (num_storages,).
    """

    graph: Graph
    names: tuple[str, ...]
    whole_names: tuple[str, ...]
    start: int
    period: int
    copies: int
    home: IntArray

    @property
    def of_block(self) -> IntArray:
        """Block that stands for each of the whole, (num_blocks,)."""
        end, every = self.start + self.period, np.arange(len(self.names))
        repeated = np.tile(every[self.start : end], self.copies - 1)
        return np.concatenate((every[:end], repeated, every[end:]))

    def group_of(self, block: IntArray) -> IntArray:
        """Groups before or after the one that stands for others, by block; far off beyond two."""
        return np.clip((block - self.start) // self.period, -_NUM_KEPT, _NUM_KEPT)

    def in_whole(self, block: IntArray, *, is_last: BoolArray) -> IntArray:
        """The block of the whole that each stands for: the first of several, or the last."""
        added = (self.copies - 1) * self.period
        comes_later = block >= self.start + self.period
        return block + added * (comes_later | (is_last & (block >= self.start)))


@lru_cache(maxsize=8)
def modules_of_copies(
    layers: FewerLayers, modules: tuple[str, ...]
) -> tuple[tuple[str, ...], IntArray]:
    """Modules of the whole, and that of each module in each copy, (copies, num_modules).

    Args:
        layers: Which blocks stand for others.
        modules: Of a program of them.
    """
    number = {path: index for index, path in enumerate(modules)}
    found = np.tile(np.arange(len(modules)), (layers.copies, 1))
    for block in range(layers.start, layers.start + layers.period):
        own = f"{layers.names[block]}."
        inside = [path for path in modules if f"{path}.".startswith(own)]
        for copy in range(1, layers.copies):
            outer = layers.whole_names[block + copy * layers.period]
            for path in inside:
                twin = outer + path[len(own) - 1 :]
                found[copy, number[path]] = number.setdefault(twin, len(number))
    return tuple(number), found


def whole_graph(graph: Graph) -> FewerLayers:
    """The graph as it is."""
    names, home = block_names(graph), np.full(len(graph.storages.owner), -1)
    return FewerLayers(
        graph=graph, names=names, whole_names=names, start=len(names), period=1, copies=1, home=home
    )


def fewer_layers(graph: Graph, configuration: Configuration) -> FewerLayers:
    """A graph with five groups of its equal layers, or as it is where it has no more.

    Groups are equal if their ops are, and what they read and write lies as far back. A
    configuration that names layers by number, or recomputes some of them together, changes them in
    different ways. What a host updates is copied for all layers at once; what comes back from it,
    what a loop or its graph holds beside, and what recomputation starts from where that is kept
    beside what it makes, do not belong to the layer that touches them first.
    """
    patterns = "".join((*configuration.frozen, *configuration.lora_modules))
    is_even = configuration.checkpoint_blocks == "1" and not any(one.isdigit() for one in patterns)
    is_own = (
        configuration.offload == "none"
        and configuration.frozen_products not in ("held", "attached")
        and configuration.checkpoint_inputs != "kept"
    )
    if not (is_even and is_own):
        return whole_graph(graph)
    return _fewer_layers(graph)


@lru_cache(maxsize=4)
def _fewer_layers(graph: Graph) -> FewerLayers:
    """The same of any other configuration; graphs are equal if they are the same object."""
    whole, touched = whole_graph(graph), _Touched.of(graph)
    blocks = _Block.every(graph, touched)
    for period in range(1, _MOST_IN_GROUP + 1):
        first, num_groups = _longest_run(blocks, period)
        if num_groups > _NUM_KEPT:
            left = _without(graph, touched, first + 3 * period, first + (num_groups - 2) * period,
                            period)  # fmt: skip
            if left is None:
                return whole
            return FewerLayers(
                graph=left, names=block_names(left), whole_names=whole.names,
                start=first + _STANDING * period, period=period, copies=num_groups - 4,
                home=_Touched.of(left).block_of_storage(),
            )  # fmt: skip
    return whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Touched:
    """What ops touch, in their order: reads, then writes.

    Attributes:
        block: Block of each op; -1 outside all, (num_ops,).
        place: Place of each op among those of its block, same shape.
        op: Op of each access, (num_accesses,).
        tensor: What it touches.
        storage: Where that lies.
        home: First op that touches each storage, or its parameter where only updates do; the
            number of ops where none does.
        home_access: The access by which it does, (num_storages,).
        start: First access of each op, (num_ops + 1,).
    """

    block: IntArray
    place: IntArray
    op: IntArray
    tensor: IntArray
    storage: IntArray
    home: IntArray
    home_access: IntArray
    start: IntArray

    @classmethod
    def of(cls, graph: Graph) -> _Touched:
        """Those of a graph."""
        ops, num_ops = graph.ops, len(graph.ops.kind)
        block = own_blocks(graph.modules, ops.module.astype(np.int64), block_names(graph))
        order = np.argsort(block, kind="stable")
        place = np.empty(num_ops, dtype=np.int64)
        place[order] = np.arange(num_ops) - np.searchsorted(block[order], block[order])
        op = np.concatenate([
            np.repeat(np.arange(num_ops), np.diff(start))
            for start in (ops.input_start, ops.output_start)
        ])  # fmt: skip
        by_op = np.argsort(op, kind="stable")
        tensor = np.concatenate((ops.input_tensor, ops.output_tensor)).astype(np.int64)[by_op]
        op, storage = op[by_op], graph.tensors.storage[tensor].astype(np.int64)
        home_access = np.full(len(graph.storages.owner), len(op))
        np.minimum.at(home_access, storage, np.arange(len(op)))
        home, parameter = (
            np.append(op, num_ops)[home_access],
            parameter_of(Program.from_graph(graph)),
        )
        of_update = np.append(ops.kind == OpKind.OPTIMIZER, False)[home] & (parameter >= 0)
        return cls(
            block=block, place=place, op=op, tensor=tensor, storage=storage,
            home=np.where(of_update, home[parameter], home), home_access=home_access,
            start=np.searchsorted(op, np.arange(num_ops + 1)),
        )  # fmt: skip

    def of_blocks(self, first: int, end: int) -> IntArray:
        """Accesses of the ops of some blocks, block by block."""
        rows = np.flatnonzero((self.block[self.op] >= first) & (self.block[self.op] < end))
        return rows[np.argsort(self.block[self.op[rows]], kind="stable")]

    def block_of_storage(self) -> IntArray:
        """Block that first touches each storage; -1 where none does."""
        return np.append(self.block, -1)[self.home]


def _longest_run(blocks: Sequence[_Block], period: int) -> tuple[int, int]:
    """First block and number of groups of so many blocks that follow one another and are equal."""
    alike = [one.is_like(other) for one, other in zip(blocks, blocks[period:], strict=False)]
    best, start = (0, 0), 0
    for block, is_alike in enumerate([*alike, False]):
        if not is_alike:
            num_groups = (block - start) // period + 1
            best = max(best, (start, num_groups), key=lambda run: run[1])
            start = block + 1
    return best


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """Ops of a block, and what they touch.

    Attributes:
        num_ops: Its ops.
        same: Numbers that blocks which are alike have in common, one after another.
        storage: What each access touches.
        home: How many blocks back that is first touched, by which of the block's ops, and by which
            access of the op, (3, num_accesses).
    """

    num_ops: int
    same: bytes
    storage: IntArray
    home: IntArray

    @classmethod
    def every(cls, graph: Graph, touched: _Touched) -> list[_Block]:
        """All blocks of a graph, in order."""
        numbers = np.arange(int(touched.block.max(initial=-1)) + 2)
        found = []
        for block_of in (touched.block, touched.block[touched.op]):
            order = np.argsort(block_of, kind="stable")
            found.append(np.split(order, np.searchsorted(block_of[order], numbers))[1:-1])
        return [
            cls._of(graph, touched, block, op, access)
            for block, (op, access) in enumerate(zip(*found, strict=True))
        ]

    @classmethod
    def _of(
        cls, graph: Graph, touched: _Touched, block: int, op: IntArray, access: IntArray
    ) -> _Block:  # fmt: skip
        storage, tensor = touched.storage[access], touched.tensor[access]
        home = touched.home[storage]
        slot = touched.home_access[storage] - touched.start[home]
        ops, storages = graph.ops, graph.storages
        of_ops = (ops.kind, ops.variant, ops.phase, ops.flop, ops.dims)
        stored = (storages.elements, storages.dtype, storages.owner, storages.is_saved,
                  storages.is_trainable, storages.is_wide)  # fmt: skip
        common: list[npt.NDArray[Any]] = [
            touched.place[touched.op[access]], graph.tensors.elements[tensor],
            *(one[op] for one in of_ops), *(one[storage] for one in stored),
        ]  # fmt: skip
        return cls(
            num_ops=len(op),
            same=b"".join(one.tobytes() for one in common),
            storage=storage,
            home=np.stack((block - touched.block[home], touched.place[home], slot)),
        )

    def is_like(self, other: _Block) -> bool:
        """Whether both run the same ops on the same sizes, and data that lies as far back."""
        if not self.num_ops or (self.num_ops, self.same) != (other.num_ops, other.same):
            return False
        is_as_far = (self.home == other.home).all(axis=0)
        return bool((is_as_far | (self.storage == other.storage)).all())


def _without(
    graph: Graph, touched: _Touched, first: int, end: int, period: int
) -> Graph | None:  # fmt: skip
    """The graph without some blocks, those around them joined; None where others reach into them.

    What the blocks after the gap took of those before it, they take of what stands there now, and
    in backward the other way round.
    """
    is_gone = (touched.block >= first) & (touched.block < end)
    home = touched.block_of_storage()
    stays = (home < first) | (home >= end)
    stands_for = np.arange(len(home))
    joints = ((end, first), (first - period, end - period))
    for near, far in joints:
        mine, other = (touched.of_blocks(one, one + period) for one in (near, far))
        lost = ~stays[touched.storage[mine]]
        stands_for[touched.storage[mine[lost]]] = touched.storage[other[lost]]
    if not stays[stands_for[stands_for != np.arange(len(home))]].all():
        return None
    is_update = graph.ops.kind == OpKind.OPTIMIZER
    kept = ~is_gone[touched.op]
    dropped = kept & is_update[touched.op] & ~stays[touched.storage]
    kept &= ~dropped
    if not stays[stands_for[touched.storage[kept]]].all():
        return None
    storages = _lives_without(graph, touched, is_gone, (first, end, period))
    return None if storages is None else _rebuilt(
        graph, touched, ~is_gone, kept, stands_for, stays, storages
    )  # fmt: skip


def _lives_without(
    graph: Graph, touched: _Touched, is_gone: BoolArray, gap: tuple[int, int, int]
) -> StorageTable | None:
    """Births and deaths by numbers of the ops that stay; None where one is not known.

    What died while a block ran that is gone dies in the one that stands there now.
    """
    (first, end, period), num_ops = gap, len(is_gone)
    number = np.append(np.cumsum(~is_gone) - 1, (~is_gone).sum())
    moved = np.tile(np.where(is_gone, -1, np.arange(num_ops)), (2, 1))
    for row, far, near in ((0, first, end), (1, end - period, first - period)):
        rows = [
            np.flatnonzero((touched.block >= one) & (touched.block < one + period))
            for one in (far, near)
        ]
        by_block = [r[np.argsort(touched.block[r], kind="stable")] for r in rows]
        moved[row, by_block[0]] = by_block[1]
    comes_later = (touched.block_of_storage() >= end).astype(np.int64)
    storages = graph.storages
    death = np.minimum(storages.death, num_ops).astype(np.int64)
    stays = ~np.append(is_gone, False)[touched.home]
    new_death = np.where(
        death < num_ops, moved[comes_later, np.minimum(death, num_ops - 1)], num_ops
    )
    new_death[storages.death < 0] = -1
    is_known = (new_death >= 0) | (storages.death < 0)
    birth = storages.birth.astype(np.int64)
    is_known &= (birth < 0) | ~is_gone[np.clip(birth, 0, num_ops - 1)]
    if not is_known[stays].all():
        return None
    new_birth = np.where(birth < 0, birth, number[np.maximum(birth, 0)])
    new_death = np.where(new_death < 0, new_death, number[np.maximum(new_death, 0)])
    return replace(storages, birth=new_birth.astype(np.int32), death=new_death.astype(np.int32))


def _rebuilt(
    graph: Graph, touched: _Touched, stays: BoolArray, kept: BoolArray, stands_for: IntArray,
    is_stored: BoolArray, storages: StorageTable,
) -> Graph:  # fmt: skip
    """The graph of the ops, accesses and storages that stay."""
    ops, tensors = graph.ops, graph.tensors
    place = np.cumsum(is_stored) - 1
    storage = stands_for[tensors.storage.astype(np.int64)]
    row_of_tensor = np.cumsum(is_stored[storage]) - 1
    num_reads = np.diff(ops.input_start)[touched.op]
    is_read = np.arange(len(touched.op)) - touched.start[touched.op] < num_reads
    sides = []
    for side in (is_read, ~is_read):
        rows = np.flatnonzero(kept & side)
        count = np.bincount(touched.op[rows], minlength=len(ops.kind))[stays]
        sides += [np.append(0, np.cumsum(count)), row_of_tensor[touched.tensor[rows]]]
    dims, flop = _updates_of_less(graph, touched, kept)
    arrays = [one.astype(np.int32) for one in sides]
    left = replace(
        ops,
        kind=ops.kind[stays], variant=ops.variant[stays], phase=ops.phase[stays],
        module=ops.module[stays], flop=flop[stays], dims=dims[stays],
        input_start=arrays[0], input_tensor=arrays[1],
        output_start=arrays[2], output_tensor=arrays[3],
    )  # fmt: skip
    return replace(
        graph,
        ops=left,
        tensors=take_rows(
            replace(tensors, storage=place[storage].astype(np.int32)), is_stored[storage]
        ),
        storages=take_rows(storages, is_stored),
    )


def _updates_of_less(
    graph: Graph, touched: _Touched, kept: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Shape numbers and operations of all ops, those of updates by the parameters that are left."""
    dims, flop = graph.ops.dims.copy(), graph.ops.flop.copy()
    owner, size = graph.storages.owner[touched.storage], graph.storages.elements[touched.storage, 0]
    for op in np.flatnonzero(graph.ops.kind == OpKind.OPTIMIZER).tolist():
        mine = slice(touched.start[op], touched.start[op + 1])
        lost, of_op = ~kept[mine], (owner[mine], touched.storage[mine])
        _, once = np.unique(of_op[1], return_index=True)
        is_once = np.zeros(len(lost), dtype=bool)
        is_once[once] = True
        parameters = is_once & (of_op[0] == Owner.PARAMETER)
        states = is_once & (of_op[0] == Owner.OPTIMIZER_STATE)
        whole, left = size[mine][parameters].sum(), size[mine][parameters & ~lost].sum()
        dims[op], flop[op] = of_elements(dims[op], flop[op], float(whole), float(left))
        dims[op, 1, 0] -= (parameters & lost).sum()
        dims[op, 2, 0] -= (states & lost).sum()
    return dims, flop
