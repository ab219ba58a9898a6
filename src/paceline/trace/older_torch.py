"""What PyTorch once kept longer than it does now.

Before 1.11 the backward formulas of softmax and log-softmax named their input, if only for its
format, so that autograd kept it: one more square of scores per attention layer.

Source: pytorch/pytorch issues 49600 and 64000, pull request 65242.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.trace.graph import IntArray, OpKind
from paceline.trace.program import Program

_PAIRS = (
    (OpKind.SOFTMAX, OpKind.SOFTMAX_BACKWARD),
    (OpKind.CROSS_ENTROPY, OpKind.CROSS_ENTROPY_BACKWARD),
)


def with_softmax_inputs(program: Program) -> Program:
    """``program`` with what softmax reads alive until its backward op."""
    position = program.ops.position
    death = program.stores.death.copy()
    for forward, backward in _PAIRS:
        ops = np.flatnonzero(program.ops.kind == forward)
        reader = _reader_of_result(program, ops, backward)
        ops, reader = ops[reader >= 0], reader[reader >= 0]
        kept = program.read(ops, 0)
        is_longer = program.position_of(death[kept]) < position[reader]
        death[kept[is_longer]] = reader[is_longer]
    return replace(program, stores=replace(program.stores, death=death))


def _reader_of_result(program: Program, ops: IntArray, backward: OpKind) -> IntArray:
    """The backward op that reads something each op wrote, (num_ops,); -1 where there is none."""
    is_backward = program.ops.kind[program.reads.op] == backward
    reader = np.full(len(program.stores), -1)
    reader[program.reads.storage[is_backward]] = program.reads.op[is_backward]
    found = np.full(len(program.ops), -1)
    np.maximum.at(found, program.writes.op, reader[program.writes.storage])
    result: IntArray = found[ops]
    return result
