"""A graph as columns of whole numbers, of which little but zeros is left.

What follows from something else is left out. Operations mention tensors in their order; a storage
is born where it is first mentioned and dies where it is last; a tensor is as large as its storage.
The rest repeats from block to block: an operation is the number of a distinct row of facts, and a
storage is named by how far it is back, or by the step from the parameter, or from the kept
activation, that was named before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from paceline.model.graph.columns import references, referred, steps
from paceline.model.graph.graph import (
    NUM_DIMS,
    NUM_MONOMIALS,
    FloatArray,
    Graph,
    IntArray,
    OpTable,
    Phase,
    StorageTable,
    TensorTable,
)
from paceline.model.graph.sides import NUM_SIDES, at_position, differences
from paceline.values import dataclass

_MAX_NUMBERS = 2**26
_RECENT, _PARAMETER, _KEPT = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a graph."""

    ops: OpTable
    tensors: TensorTable
    storages: StorageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mentions:
    """Which op names which tensor: what it reads before what it writes, in execution order.

    Attributes:
        is_output: Whether it writes.
    """

    op: IntArray
    is_output: npt.NDArray[np.bool_]
    tensor: IntArray


def pack(graphs: Sequence[Graph]) -> list[IntArray]:
    """Columns of one pass, whose graphs at several sides differ in nothing but coefficients.

    Raises:
        ValueError: They differ in more.
    """
    usual = graphs[0]
    if not all(_same_but_coefficients(usual, other) for other in graphs[1:]):
        raise ValueError(f"operations of `{usual.name}` change with the side")
    mentions = _mentions(usual.ops)
    return [
        *_packed_ops([one.ops for one in graphs]),
        steps(references(mentions.tensor)),
        *_packed_lives(usual, mentions),
        *_packed_owners(usual, mentions),
        *_packed_sizes(graphs),
    ]


def unpack(columns: Iterator[IntArray], *, position: int | None) -> Tables:
    """The tables of the next pass.

    Args:
        columns: Of the file, from those of this pass on.
        position: Of the side, where the pass was traced at several.

    Raises:
        ValueError: Columns that `pack` never makes.
    """
    reader = _Reader(columns=columns, position=position)
    facts, coefficients = reader.rows(5, 1 + NUM_DIMS)
    num_read, num_written = facts[:, 3], facts[:, 4]
    module = np.cumsum(next(columns))
    tensor = referred(np.cumsum(next(columns)))
    _check_counts(num_read, num_written, len(tensor))
    mentions = _placed(num_read, num_written, tensor)
    ops = OpTable(
        kind=facts[:, 0].astype(np.int16),
        variant=facts[:, 1].astype(np.int16),
        phase=facts[:, 2].astype(np.int8),
        module=module.astype(np.int32),
        flop=coefficients[:, 0],
        dims=coefficients[:, 1:],
        input_start=_starts(num_read),
        input_tensor=tensor[~mentions.is_output].astype(np.int32),
        output_start=_starts(num_written),
        output_tensor=tensor[mentions.is_output].astype(np.int32),
    )
    born, dies = next(columns), next(columns)
    storage = _storage_of_each(columns)
    storages = _storages(reader, mentions, storage, (len(facts), born, dies))
    return Tables(ops=ops, tensors=_tensors(reader, storage, storages), storages=storages)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Distinct rows of facts and coefficients, at one side."""

    columns: Iterator[IntArray]
    position: int | None

    def rows(self, num_facts: int, num_coefficients: int) -> tuple[IntArray, FloatArray]:
        """Facts (count, num_facts) and coefficients (count, num_coefficients, 9)."""
        code = next(self.columns)
        is_new = code == 0
        index, num_rows = np.where(is_new, np.cumsum(is_new) - 1, code - 1), int(is_new.sum())
        num_sides = 1 if self.position is None else NUM_SIDES
        shape = (num_sides, num_coefficients, NUM_MONOMIALS)
        width = math.prod(shape)
        if max(num_rows * num_sides, len(code)) * width > _MAX_NUMBERS:
            raise ValueError(f"{len(code)} rows unpack to more than {_MAX_NUMBERS} numbers")
        facts = np.stack([next(self.columns) for _ in range(num_facts)], axis=1)
        rows = np.zeros((num_rows, width))
        used, is_whole = next(self.columns), next(self.columns)
        for place, whole in zip(used.tolist(), is_whole.tolist(), strict=True):
            column = next(self.columns)
            rows[:, place] = column if whole else column.view(np.float64)
        at_side = rows.reshape(num_rows, *shape)
        at_side = at_side[:, 0] if self.position is None else at_position(at_side, self.position)
        return facts[index], at_side[index]


def _packed_rows(facts: IntArray, coefficients: FloatArray) -> list[IntArray]:
    """Distinct rows in the order of their first use, and which row each is: 0 where it is new."""
    flat = coefficients.reshape(len(facts), math.prod(coefficients.shape[1:]))
    _, first, inverse = np.unique(
        np.concatenate([facts, flat], axis=1), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    index = np.argsort(order)[inverse.reshape(-1)]
    code = index + 1
    code[first] = 0
    facts, flat = facts[first[order]], flat[first[order]]
    used = np.flatnonzero(flat.any(axis=0))
    is_whole = np.array([_is_whole(flat[:, place]) for place in used], dtype=np.int64)
    numbers = [
        flat[:, place].astype(np.int64) if whole else flat[:, place].copy().view(np.int64)
        for place, whole in zip(used, is_whole, strict=True)
    ]
    return [code, *facts.T, used, is_whole, *numbers]


def _is_whole(column: FloatArray) -> bool:
    return bool((np.abs(column) < 2.0**53).all() and (column == np.rint(column)).all())


def _packed_ops(sides: Sequence[OpTable]) -> list[IntArray]:
    ops = sides[0]
    num_read, num_written = np.diff(ops.input_start), np.diff(ops.output_start)
    facts = np.stack([ops.kind, ops.variant, ops.phase, num_read, num_written], axis=1)
    coefficients = [np.concatenate([one.flop[:, None], one.dims], axis=1) for one in sides]
    return [
        *_packed_rows(facts.astype(np.int64), _over_sides(coefficients)),
        steps(ops.module),
    ]


def _over_sides(coefficients: Sequence[FloatArray]) -> FloatArray:
    """Coefficients at all sides, as differences: those of higher orders are mostly zero."""
    return differences(np.stack(coefficients, axis=1))


def _mentions(ops: OpTable) -> _Mentions:
    placed = _placed(np.diff(ops.input_start), np.diff(ops.output_start), np.zeros(0, np.int64))
    tensor = np.zeros(len(placed.op), dtype=np.int64)
    tensor[~placed.is_output] = ops.input_tensor
    tensor[placed.is_output] = ops.output_tensor
    return _Mentions(op=placed.op, is_output=placed.is_output, tensor=tensor)


def _placed(num_read: IntArray, num_written: IntArray, tensor: IntArray) -> _Mentions:
    """Where ops with so many inputs and outputs mention tensors."""
    counts = np.stack([num_read, num_written], axis=1).reshape(-1)
    half = np.repeat(np.arange(len(counts)), counts)
    return _Mentions(op=half // 2, is_output=half % 2 == 1, tensor=tensor)


def _check_counts(num_read: IntArray, num_written: IntArray, num_mentions: int) -> None:
    """Refuse ops that mention more tensors, or fewer, than there are mentions."""
    counts = np.concatenate([num_read, num_written])
    is_possible = (counts >= 0).all() and (counts <= num_mentions).all()
    if not is_possible or counts.sum() != num_mentions:
        raise ValueError("row pointers do not fit their table")


def _starts(counts: IntArray) -> npt.NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def _first_and_last(
    mentions: _Mentions, storage: IntArray, num_storages: int
) -> tuple[IntArray, IntArray]:
    """First and last op that mentions each storage; 0 of those that none mentions.

    Of several values for one place, NumPy keeps the last.
    """
    mentioned = storage[mentions.tensor]
    first, last = np.zeros((2, num_storages), dtype=np.int64)
    first[mentioned[::-1]], last[mentioned] = mentions.op[::-1], mentions.op
    return first, last


def _packed_lives(graph: Graph, mentions: _Mentions) -> list[IntArray]:
    """When each storage is born, after its first mention, and dies, after its last.

    Those that exist before the pass, or outlive it, are left out.
    """
    storages = graph.storages
    storage = graph.tensors.storage.astype(np.int64)
    first, last = _first_and_last(mentions, storage, len(storages.dtype))
    is_born, dies = storages.birth >= 0, storages.death < len(graph.ops.kind)
    return [(storages.birth - first)[is_born], (storages.death - last)[dies]]


def _packed_owners(graph: Graph, mentions: _Mentions) -> list[IntArray]:
    """The storage of each tensor."""
    storage = graph.tensors.storage.astype(np.int64)
    back, birth = references(storage), graph.storages.birth[storage]
    first_op = np.zeros(len(storage), dtype=np.int64)
    first_op[mentions.tensor[::-1]] = mentions.op[::-1]
    backward = np.flatnonzero(graph.ops.phase == Phase.BACKWARD)
    turn = backward[0] if backward.size else len(graph.ops.kind)
    is_kept = (birth < turn) & (first_op >= turn)
    how = np.where(birth < 0, _PARAMETER, np.where(is_kept, _KEPT, _RECENT))
    how[back <= 0] = _RECENT
    named = [steps(storage[how == one]) for one in (_PARAMETER, _KEPT)]
    return [how, back[how == _RECENT], *named]


def _storage_of_each(columns: Iterator[IntArray]) -> IntArray:
    how = next(columns)
    back = np.ones(len(how), dtype=np.int64)
    back[how == _RECENT] = next(columns)
    storage = referred(back)
    for one in (_PARAMETER, _KEPT):
        storage[how == one] = np.cumsum(next(columns))
    if (storage < 0).any():
        raise ValueError("a storage pointer is outside its table")
    return storage


def _packed_sizes(graphs: Sequence[Graph]) -> list[IntArray]:
    """Facts and elements of storages, and those of tensors that differ from their storage's."""
    storages, tensors = graphs[0].storages, graphs[0].tensors
    lives = storages.birth >= 0, storages.death < len(graphs[0].ops.kind)
    marks = (storages.is_saved, storages.is_trainable, storages.is_wide, *lives)
    facts = np.stack([storages.dtype, storages.owner, *marks], axis=1).astype(np.int64)
    of_storages = _over_sides([one.storages.elements[:, None] for one in graphs])
    of_tensors = _over_sides([one.tensors.elements[:, None] for one in graphs])
    pairs = of_tensors, of_storages[tensors.storage]
    is_other = (pairs[0] != pairs[1]).any(axis=(1, 2, 3))
    is_other |= tensors.dtype != storages.dtype[tensors.storage]
    dtypes = tensors.dtype[is_other, None].astype(np.int64)
    return [
        *_packed_rows(facts, of_storages),
        is_other.astype(np.int64),
        *_packed_rows(dtypes, of_tensors[is_other]),
    ]


def _storages(
    reader: _Reader, mentions: _Mentions, storage: IntArray, lives: tuple[int, IntArray, IntArray]
) -> StorageTable:
    num_ops, born, gone = lives
    facts, coefficients = reader.rows(7, 1)
    if (storage >= len(facts)).any():
        raise ValueError("a storage pointer is outside its table")
    first, last = _first_and_last(mentions, storage, len(facts))
    is_born, dies = facts[:, 5] != 0, facts[:, 6] != 0
    birth, death = np.full(len(facts), -1), np.full(len(facts), num_ops)
    birth[is_born], death[dies] = first[is_born] + born, last[dies] + gone
    return StorageTable(
        elements=coefficients[:, 0],
        dtype=facts[:, 0].astype(np.int8),
        owner=facts[:, 1].astype(np.int8),
        birth=birth.astype(np.int32),
        death=death.astype(np.int32),
        is_saved=facts[:, 2] != 0,
        is_trainable=facts[:, 3] != 0,
        is_wide=facts[:, 4] != 0,
    )


def _tensors(reader: _Reader, storage: IntArray, storages: StorageTable) -> TensorTable:
    is_other = next(reader.columns) != 0
    dtypes, coefficients = reader.rows(1, 1)
    elements, dtype = storages.elements[storage], storages.dtype[storage]
    elements[is_other], dtype[is_other] = coefficients[:, 0], dtypes[:, 0]
    return TensorTable(storage=storage.astype(np.int32), elements=elements, dtype=dtype)


def _same_but_coefficients(left: Graph, right: Graph) -> bool:
    """Whether two graphs have the same columns of whole numbers."""
    pairs = [
        (getattr(getattr(left, table), name), getattr(getattr(right, table), name))
        for table, kind in (("ops", OpTable), ("tensors", TensorTable), ("storages", StorageTable))
        for name in kind.__dataclass_fields__
    ]
    return all(np.array_equal(a, b) for a, b in pairs if a.dtype != np.float64)
