"""Ops and storages of a program with few layers that stand for those of the whole model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.columns import take_rows
from paceline.model.belonging import home_of_update
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner
from paceline.model.graph.program import Accesses, BoolArray, Program
from paceline.model.updates import of_elements
from paceline.values import dataclass

#: A group that is none of those next to the one that stands for others.
_FAR = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """What of a program stands for how much of the whole.

    What is alive while a layer runs grows with the layers before it and after it, each by as much
    as one that is not next to it has alive then. So the fullest moments are those of the first and
    of the last of the layers that one stands for.

    Attributes:
        copies: Groups of layers that one stands for.
        group: How many groups after that one each storage belongs; below zero before it,
            (num_storages,).
        ops: Ops of that group, (num_own,).
        earlier: Ops of the group before it, in the same order.
        later: Ops of the group after it, likewise.
        comes_after: Whether each op runs after forward and before backward of it, (num_ops,).
    """

    copies: int
    group: IntArray
    ops: IntArray
    earlier: IntArray
    later: IntArray
    comes_after: BoolArray

    @classmethod
    def of(cls, program: Program, group: IntArray, given: IntArray, copies: int) -> Standing | None:
        """That of a program; None where its layers came to differ.

        Args:
            program: What runs, in order.
            group: How many groups of layers after the one that stands for others each op is.
            given: The same of the storages of the graph, which come first in the program.
            copies: How many that stands for.
        """
        start = program.first_backward()
        own, earlier, later = (np.flatnonzero(group == number) for number in (0, -1, 1))
        if not len(own) == len(earlier) == len(later):
            return None
        if not all(
            np.array_equal(column[own], column[rows])
            for column in (program.ops.kind, program.ops.variant, program.ops.phase)
            for rows in (earlier, later)
        ):
            return None
        is_early = program.ops.position[own] < start
        ends = [
            (int(one.min()), int(one.max())) for one in (own[is_early], own[~is_early]) if len(one)
        ]
        if len(own) != sum(last - first + 1 for first, last in ends):
            return None
        every, (forward, *rest) = np.arange(len(group)), ends
        until = rest[0][0] if rest else len(group)
        return cls(
            copies=copies, group=np.append(given, group[home_of_update(program)][len(given) :]),
            ops=own, earlier=earlier, later=later,
            comes_after=(every > forward[1]) & (every < until),
        )  # fmt: skip

    def op_counts(self, num_ops: int) -> IntArray:
        """How many ops of the whole each stands for, (num_ops,)."""
        counts = np.ones(num_ops, dtype=np.int64)
        counts[self.ops] = self.copies
        return counts

    def places(self, op: IntArray, copy: IntArray | int) -> IntArray:
        """Place in the whole of some ops, of those of a group the one of a copy, counted from 0."""
        more, place = self.copies - 1, op.copy()
        for number, (first, end) in enumerate(self._runs()):
            length, order = end - first, copy if number == 0 else more - copy
            is_own = (op >= first) & (op < end)
            place += length * np.where(is_own, order, np.where(op >= end, more, 0))
        return place

    def places_of(self, op: IntArray, group: IntArray, copy: IntArray) -> IntArray:
        """Place in the whole of ops of layers, which the layer before or after may run.

        Args:
            op: Op of each.
            group: Group that each belongs to, as its storage does.
            copy: Which copy of its group each is, counted from 0.
        """
        every = np.concatenate((self.earlier, self.ops, self.later, op))
        of_op, number = np.full((2, int(every.max()) + 1), _FAR)
        for one, rows in ((-1, self.earlier), (0, self.ops), (1, self.later)):
            of_op[rows], number[rows] = one, np.arange(len(rows))
        is_next_to = (abs(group) <= 1) & (abs(of_op[op]) <= 1)
        mine = np.where(group == 1, self.copies, np.where(group == -1, -1, copy))
        target = mine + of_op[op] - group
        is_own = is_next_to & (target >= 0) & (target < self.copies)
        stands = np.where(is_own, self.ops[np.where(is_own, number[op], 0)], op)
        at_end = is_next_to & (of_op[op] == 0) & ~is_own
        stands = np.where(
            at_end & (target < 0), self.earlier[np.where(at_end, number[op], 0)], stands
        )
        stands = np.where(
            at_end & (target >= self.copies), self.later[np.where(at_end, number[op], 0)], stands
        )
        return self.places(stands, np.where(is_own, target, 0))

    def _runs(self) -> list[tuple[int, int]]:
        """Where its ops stand in forward and in backward: the first and the end of each."""
        ends = np.flatnonzero(np.diff(self.ops) > 1) + 1
        return [(int(run[0]), int(run[-1]) + 1) for run in np.split(self.ops, ends)]

    def ops_of_whole(self, num_ops: int) -> tuple[IntArray, IntArray]:
        """The op that stands for each of the whole, in order, and its copy, counted from 0."""
        every, copies = np.arange(num_ops), np.arange(self.copies)
        op = np.concatenate((every, np.tile(self.ops, self.copies - 1)))
        copy = np.concatenate((np.zeros_like(every), np.repeat(copies[1:], len(self.ops))))
        order = np.argsort(self.places(op, copy))
        return op[order], copy[order]

    @property
    def storage_counts(self) -> IntArray:
        """How many storages of the whole each stands for, (num_storages,)."""
        return np.where(self.group == 0, self.copies, 1)

    def at_ends(self, alive: FloatArray, earlier: FloatArray, later: FloatArray) -> FloatArray:
        """What is alive in the whole while ops run, and while those of the last layers run.

        Args:
            alive: What is alive in the program, (num_ops, …).
            earlier: Of it, what belongs to the group before the one that stands for others.
            later: What belongs to the group after it.

        Returns:
            (num_ops + num_own, …): of all ops, those of the group as of the first that it stands
            for; then its ops as of the last.
        """
        after = self.comes_after.reshape(-1, *(1,) * (alive.ndim - 1))
        beside = np.where(after, earlier, later)
        beside[self.ops] = later[self.earlier]
        more = self.copies - 1
        whole = alive + more * beside
        return np.concatenate((whole, alive[self.ops] + more * earlier[self.later]))


def with_whole_updates(program: Program, standing: Standing) -> Program:
    """The program with updates that touch the parameters of all layers; nothing else changes."""
    counts, ops, dims = standing.storage_counts, program.ops, program.dims.copy()
    flop, place = ops.flop.copy(), ops.dims
    for op in np.flatnonzero(ops.kind == OpKind.OPTIMIZER).tolist():
        accesses = (program.read_at_all, program.writes)
        touched = distinct(np.concatenate([one.storage[one.op == op] for one in accesses]))
        owner, size = program.stores.owner[touched], program.stores.elements[touched, 0]
        is_parameter, more = owner == Owner.PARAMETER, counts[touched] - 1
        had = float(size[is_parameter].sum())
        has = had + float((size * more)[is_parameter].sum())
        numbers, flop[op] = of_elements(dims[place[op]], flop[op], had, has)
        numbers[1, 0] += more[is_parameter].sum()
        numbers[2, 0] += more[owner == Owner.OPTIMIZER_STATE].sum()
        dims[place[op]] = numbers
    is_update = ops.kind == OpKind.OPTIMIZER

    def repeated(accesses: Accesses) -> Accesses:
        times = np.where(is_update[accesses.op], counts[accesses.storage], 1)
        return take_rows(accesses, np.repeat(np.arange(len(times)), times))

    return replace(
        program,
        ops=replace(ops, flop=flop),
        dims=dims,
        reads=repeated(program.reads),
        writes=repeated(program.writes),
        spent=None if program.spent is None else repeated(program.spent),
    )
