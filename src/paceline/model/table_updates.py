"""Tables of embeddings that a step updates by the rows that it read, and not whole.

A dense gradient of a table is as large as the table, and its update goes through all rows. What
trains recommenders keeps none of the two: the backward pass of the lookup adds up the gradients of
each row that was read, and its update follows at once (``fused``: FBGEMM's table-batched
embeddings, which TorchRec runs; HugeCTR; NVIDIA's DLRM), or the gradients of those rows are kept
until the update (``sparse``: ``torch.nn.Embedding(sparse=True)``, TensorFlow's ``IndexedSlices``).
A row that is read twice counts twice, which is an upper bound: how often ids repeat is of the data.

Sources:
    Mudigere et al., "Software-Hardware Co-design for Fast and Scalable Training of Deep Learning
    Recommendation Models", ISCA 2022, section 4.1 (fused, exact updates of rows); PyTorch,
    torch/nn/modules/sparse.py and torch/optim/adagrad.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from paceline.columns import join_tables
from paceline.model.graph.costs import TableUpdates
from paceline.model.graph.graph import FloatArray, Graph, OpKind, Owner, Phase
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import Accesses, BoolArray, Program
from paceline.model.ops.optable import variants
from paceline.shipped import shipped_rows
from paceline.values import dataclass

#: Bytes of the id of a row, which goes with its gradient, over those of a number of it.
_ID_NUMBERS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """A table whose gradient only lookups make and only one update reads.

    Attributes:
        storages: The table, its gradient, and its states, in this order.
        update: Op that updates it.
        backward: Ops that make its gradient.
        rows: Rows that all of them touch, (9,).
        width: Numbers of a row.
    """

    storages: tuple[int, ...]
    update: int
    backward: tuple[int, ...]
    rows: FloatArray
    width: float


def with_usual_updates(graph: Graph, entry: str) -> Graph:
    """``graph`` with its tables updated as the published trainer of ``entry`` does.

    Rows of ``data/table_updates.csv``; any other model is updated as it is written.
    """
    how = _published_updates().get(entry)
    if how is None:
        return graph
    variant = graph.ops.variant.copy()
    variant[graph.ops.kind == OpKind.EMBEDDING_BACKWARD] = _codes()[how]
    return replace(graph, ops=replace(graph.ops, variant=variant))


def written_updates(graph: Graph) -> TableUpdates:
    """How a graph updates its tables where nothing else is stated."""
    written = graph.ops.variant[graph.ops.kind == OpKind.EMBEDDING_BACKWARD]
    return next((how for how, code in _codes().items() if code in written), "dense")


def updates_rows(graph: Graph, how: TableUpdates) -> bool:
    """Whether a graph that is mostly tables is updated by the rows that were read."""
    meant = written_updates(graph) if how == "as-written" else how
    return meant != "dense" and is_mostly_tables(graph) and Phase.BACKWARD in graph.ops.phase


def with_table_updates(program: Program, how: TableUpdates) -> Program:
    """``program`` with its tables updated in a way; ``as-written`` follows its ops.

    Args:
        program: Of a training step, before anything else was rewritten but what is trained.
        how: Of all tables.
    """
    is_backward = program.ops.kind == OpKind.EMBEDDING_BACKWARD
    codes = program.ops.variant[is_backward]
    if how == "as-written":
        how = next((name for name, code in _codes().items() if code in codes), "dense")
    if how == "dense" or not is_backward.any():
        return program
    for table in _tables(program):
        program = _with_rows(program, table, keeps_gradient=how == "sparse")
    return program


def updated_by_rows(program: Program) -> BoolArray:
    """Tables that backward passes update, (num_storages,): replicas still exchange them whole."""
    writes, stores = program.writes, program.stores
    rows = program.ops.phase[writes.op] == Phase.BACKWARD
    found = np.zeros(len(stores), dtype=np.bool_)
    found[writes.storage[rows & (stores.owner[writes.storage] == Owner.PARAMETER)]] = True
    return found


def is_mostly_tables(graph: Graph) -> bool:
    """Whether rows that are looked up are most of the parameters, as in recommenders.

    Small or multilingual language models have as large a share of them in words, which is no reason
    to leave their layers whole: a model with attention is none.
    """
    if (graph.ops.kind == OpKind.ATTENTION).any():
        return False
    elements = graph.storages.elements[:, 0] * (graph.storages.owner == Owner.PARAMETER)
    return bool(elements[looked_up(graph)].sum() > elements.sum() / 2.0)


def looked_up(graph: Graph) -> BoolArray:
    """Storages that lookups read, (num_storages,)."""
    ops = graph.ops
    of_op = np.repeat(np.arange(len(ops.kind)), np.diff(ops.input_start))
    read = ops.input_tensor[ops.kind[of_op] == OpKind.EMBEDDING]
    found = np.zeros(len(graph.storages.owner), dtype=np.bool_)
    found[graph.tensors.storage[read]] = True
    return found


@cache
def _published_updates() -> dict[str, TableUpdates]:
    return {row["entry"]: row["updates"] for row in shipped_rows("model", "table_updates.csv")}  # type: ignore[misc]


@cache
def _codes() -> dict[TableUpdates, int]:
    """Variants of the backward pass of a lookup that is updated by rows."""
    known = variants()
    return {how: known["EMBEDDING_BACKWARD", how] for how in ("sparse", "fused")}


def _tables(program: Program) -> list[_Table]:
    """Tables that can be updated by rows, with all that belongs to each."""
    return [
        table
        for op in np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER).tolist()
        for table in _updated_tables(program, op)
    ]


def _updated_tables(program: Program, update: int) -> list[_Table]:
    """Those of one update, which names parameters, gradients and states in one order."""
    owner, reads = program.stores.owner, program.reads
    touched = reads.storage[reads.op == update]
    parameters, gradients, states = (
        touched[owner[touched] == kind]
        for kind in (Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE)
    )
    if len(parameters) != len(gradients):
        return []
    kept = states.reshape(-1, len(parameters))
    found = (
        _table(program, update, (int(one), int(gradient), *kept[:, place].tolist()))
        for place, (one, gradient) in enumerate(zip(parameters, gradients, strict=True))
    )
    return [table for table in found if table is not None]


def _table(program: Program, update: int, storages: tuple[int, ...]) -> _Table | None:
    """The table with its gradient; None where more than lookups have a part in it."""
    kind, (table, gradient) = program.ops.kind, storages[:2]
    made = program.writes.op[program.writes.storage == gradient]
    asked = program.reads.op[program.reads.storage == table]
    looks = asked[kind[asked] == OpKind.EMBEDDING]
    is_table = len(made) > 0 and bool((kind[made] == OpKind.EMBEDDING_BACKWARD).all())
    is_read = program.reads.op[program.reads.storage == gradient]
    if not (is_table and len(looks) and (is_read == update).all() and len(made) == len(looks)):
        return None
    return _Table(
        storages=storages,
        update=update,
        backward=tuple(made.tolist()),
        rows=np.sum([_rows_asked(program, int(op)) for op in made], axis=0),
        width=float(program.dims[program.ops.dims[looks[0]], 1, 0]),
    )


def _rows_asked(program: Program, backward: int) -> FloatArray:
    """Rows that a lookup touched: the ids that its backward pass reads first."""
    reads = program.reads
    mine = np.flatnonzero(reads.op == backward)
    ids = mine[~program.stores.is_floating[reads.storage[mine]]]
    found: FloatArray = reads.elements[ids[0]]
    return found


def _with_rows(program: Program, table: _Table, *, keeps_gradient: bool) -> Program:
    """``program`` with one table updated behind the lookups' backward pass.

    A kept gradient is written there and read again, so that its time is counted where it is known
    by the batch; it lives until the update.
    """
    storages, stores = np.array(table.storages), program.stores
    elements, gradient = stores.elements.copy(), table.storages[1]
    rows = table.rows * (table.width + _ID_NUMBERS) if keeps_gradient else 0.0 * table.rows
    elements[gradient] = rows
    changed = replace(program, stores=replace(stores, elements=elements))
    moved = _row_accesses(changed, table, keeps_gradient=keeps_gradient)
    dims = changed.dims.copy()
    dims[changed.ops.dims[list(table.backward)], 0] = table.rows * table.width / len(table.backward)
    sizes = (float(stores.elements[storages[0], 0]), 1.0, float(len(storages) - 2))
    before = float(dims[changed.ops.dims[table.update], 0, 0])
    dims[changed.ops.dims[table.update], :3] -= constant(np.array(sizes))
    flop = changed.ops.flop.copy()
    flop[table.update] *= 1.0 - sizes[0] / before
    return replace(
        changed,
        dims=dims,
        ops=replace(changed.ops, flop=flop),
        reads=join_tables(changed.reads.kept(~_of_table(changed.reads, table)), moved),
        writes=join_tables(changed.writes.kept(~_of_table(changed.writes, table)), moved),
    )


def _of_table(accesses: Accesses, table: _Table) -> BoolArray:
    """What the update, and what makes the gradient, touch of a table's storages."""
    of_op = np.isin(accesses.op, (table.update, *table.backward))
    return np.asarray(of_op & np.isin(accesses.storage, table.storages))


def _row_accesses(program: Program, table: _Table, *, keeps_gradient: bool) -> Accesses:
    """Rows of a table and of its states that each lookup's backward pass reads and writes."""
    sizes = program.stores.elements[:, 0]
    own = [s for s in table.storages if s != table.storages[1]]
    each = {s: table.width * sizes[s] / sizes[own[0]] for s in own}
    if keeps_gradient:
        each[table.storages[1]] = table.width + _ID_NUMBERS
    part = table.rows / len(table.backward)
    ops, of_storage = np.array(table.backward), np.array(list(each))
    return Accesses(
        op=np.repeat(ops, len(of_storage)),
        storage=np.tile(of_storage, len(ops)),
        elements=np.tile(np.array([part * n for n in each.values()]), (len(ops), 1)),
    )
