"""To which op and to which parameter storages belong."""

from __future__ import annotations

import numpy as np

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import IntArray, OpKind, Owner, Phase
from paceline.model.graph.program import BoolArray, Program


def is_weight_copy(program: Program) -> BoolArray:
    """Storages that hold a narrow copy of a parameter, (num_storages,)."""
    of_parameter = program.stores.owner[program.reads.storage] == Owner.PARAMETER
    casting = np.zeros(len(program.ops), dtype=np.bool_)
    casting[program.reads.op[of_parameter]] = True
    casting &= program.ops.kind == OpKind.CAST
    copies = np.zeros(len(program.stores), dtype=np.bool_)
    copies[program.writes.storage[casting[program.writes.op]]] = True
    copies &= program.stores.owner == Owner.ACTIVATION
    rows = np.flatnonzero(copies)
    copies[rows] = ~program.stores.elements[rows, 1:].any(axis=1)  # As large at every batch.
    return copies


def home_op(program: Program) -> IntArray:
    """Op whose module a storage belongs to: where it is born, or first read if it is older."""
    home = np.where(program.stores.birth >= 0, program.stores.birth, len(program.ops))
    np.minimum.at(home, program.reads.storage, program.reads.op)
    np.minimum.at(home, program.writes.storage, program.writes.op)
    inside = np.where(program.stores.birth >= 0, program.stores.birth, home)
    return np.asarray(np.minimum(inside, len(program.ops) - 1), dtype=np.int64)


def parameter_of(program: Program) -> IntArray:
    """The parameter that each storage is, or belongs to; -1 where there is none.

    To a parameter belong its narrow copy, its gradient, its states, its master and what its update
    needs for a moment. Updates name parameters, gradients and states in one order, those of rows
    within the backward pass too; masters stand in the order of the storages that they are of.
    """
    stores = program.stores
    found = np.where(stores.owner == Owner.PARAMETER, np.arange(len(stores)), -1)
    updated: list[IntArray] = []
    renewed = program.writes.op[stores.owner[program.writes.storage] == Owner.PARAMETER]
    for op in distinct(renewed).tolist():
        parameters = _touched(program, op, Owner.PARAMETER, is_read=False)
        for owner in (Owner.GRADIENT, Owner.OPTIMIZER_STATE):
            touched = _touched(program, op, owner, is_read=True)
            found[touched] = np.resize(parameters, len(touched))
        if program.ops.phase[op] == Phase.OPTIMIZER:
            found[_workspaces(program, op)] = _parameters_of_workspaces(program, op, parameters)
            updated.append(parameters)
    masters = np.flatnonzero(stores.owner == Owner.MASTER_WEIGHT)
    if masters.size:
        found[masters] = distinct(np.concatenate(updated))
    return _with_copies(program, found)


def _touched(program: Program, op: int, owner: Owner, *, is_read: bool) -> IntArray:
    """Storages of an owner that an op reads or writes, in its order."""
    accesses = program.read_at_all if is_read else program.writes
    storage = accesses.storage[accesses.op == op]
    return np.asarray(storage[program.stores.owner[storage] == owner])


def _workspaces(program: Program, op: int) -> IntArray:
    stores = program.stores
    return np.flatnonzero((stores.birth == op) & (stores.owner == Owner.WORKSPACE))


def _parameters_of_workspaces(program: Program, op: int, parameters: IntArray) -> IntArray:
    """Of temporaries: one or more of each parameter in their order, or of the largest alone."""
    count = len(_workspaces(program, op))
    if not len(parameters) or not count % len(parameters):
        return np.resize(parameters, count)
    largest = parameters[program.stores.elements[parameters, 0].argmax()]
    return np.full(count, largest)


def _with_copies(program: Program, parameter: IntArray) -> IntArray:
    """The same with narrow copies, by what the op that writes them reads."""
    reads, writes, owner = program.reads, program.writes, program.stores.owner
    of_op = np.full(len(program.ops), -1)
    rows = owner[reads.storage] == Owner.PARAMETER
    of_op[reads.op[rows]] = reads.storage[rows]
    copied = is_weight_copy(program)[writes.storage]
    found = parameter.copy()
    found[writes.storage[copied]] = of_op[writes.op[copied]]
    return found


def home_of_update(program: Program) -> IntArray:
    """As `home_op`, but what updates alone touch belongs where its parameter does."""
    home, parameter = home_op(program), parameter_of(program)
    moves = (program.ops.kind[home] == OpKind.OPTIMIZER) & (parameter >= 0)
    return np.where(moves, home[parameter], home)
