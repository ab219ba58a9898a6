"""What releases of libraries kept for the backward pass longer than the newest do.

Which do stands in ``data/saved_tensors.csv``. Softmax kept its input: one more square of scores per
attention layer. Products with quantised weights kept theirs, which nothing needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from paceline.model.graph.graph import IntArray, OpKind, Owner, Phase
from paceline.model.graph.program import BoolArray, Program
from paceline.model.libraries import runs_before
from paceline.model.ops.registry import FACTS
from paceline.shipped import shipped_rows

Kept = Literal["softmax-inputs", "quantised-inputs"]

_PAIRS = [
    (facts.backward_of, facts.kind)
    for facts in FACTS.values()
    if facts.stream == "softmax" and facts.backward_of is not None
]


def kept_by(libraries: Sequence[str]) -> frozenset[Kept]:
    """What libraries keep that their newest releases do not.

    Raises:
        InvalidInputError: A library that is not written as ``name==release``.

    >>> sorted(kept_by(["torch==1.10"])), sorted(kept_by(["torch==2.4"]))
    (['softmax-inputs'], [])
    """
    return frozenset(
        cast("Kept", row["keeps"])
        for row in shipped_rows("model", "saved_tensors.csv")
        if runs_before(libraries, row["library"], row["before"])
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


def without_results(program: Program, of_ops: BoolArray | None = None) -> Program:
    """``program`` of a training step with nothing held of the forward pass but its loss.

    Trainers return the loss of a step and let go of the model's other results (logits, keys and
    values of a cache, detections) as the forward pass ends; what is saved for backward stays until
    it is read. Some ops' results may be gone as soon as nothing reads them.

    ``of_ops``: ops whose results alone are let go of, at once; if None those of all.

    Source:
        huggingface/transformers, trainer.py, ``compute_loss`` and ``training_step``;
        Lightning-AI/pytorch-lightning, ``training_step`` (recalled 2026-11-23).
    """
    stores, backward = program.stores, program.ops.phase == Phase.BACKWARD
    if not backward.any():
        return program
    is_result = (stores.owner == Owner.ACTIVATION) & (stores.birth >= 0)
    is_result &= program.position_of(stores.birth) < program.first_backward()
    is_result &= program.position_of(stores.death) > program.ops.position[backward].max()
    if of_ops is not None:
        is_result &= of_ops[np.maximum(stores.birth, 0)]
    forward = np.flatnonzero(program.ops.phase == Phase.FORWARD)
    exit_op = forward[program.ops.position[forward].argmax()]
    last = program.last_use()
    is_early = program.position_of(last) < program.ops.position[exit_op]
    end = np.where(is_early, exit_op, last) if of_ops is None else last
    death = np.where(is_result & (last >= 0), end, stores.death)
    return replace(program, stores=replace(stores, death=death))
