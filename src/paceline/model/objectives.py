"""Models beside the one that is trained: references and scorers that read, critics that learn.

Training on preferences compares what a model says with what a frozen copy of it says
(``data/objectives.csv`` lists who does what, with sources). A *reference* reads the batch without
gradients once the model has; beside adapters it is the same base without them. A *scorer* is
another frozen model of that size. A *critic* is trained as the model is: its forward pass follows
the model's, its backward pass runs before the model's. All are as large as the model, heads
included. Autocast keeps no copy of weights that nobody trains.

Source for the last: aten/src/ATen/autocast_mode.cpp, ``cached_cast``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from paceline.columns import join_tables, take_rows
from paceline.model.graph.costs import Configuration, Objective
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, Owner, Phase
from paceline.model.graph.program import (
    Accesses,
    BoolArray,
    Program,
    Stores,
    renumbered,
    twin_accesses,
)
from paceline.shipped import shipped_rows
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsBeside:
    """What a training step runs beside the model that it trains.

    Attributes:
        references: Frozen copies of it: its base, where it has adapters.
        scorers: Other frozen models.
        critics: Models that are trained beside it.
        readings: Forward passes of each reference.
        own_readings: Forward passes of each trained model without gradients.
        words: What that means for a user.
    """

    references: int
    scorers: int
    critics: int
    readings: int
    own_readings: int
    words: str

    @property
    def forward_passes(self) -> int:
        """Passes over the batch that keep nothing for a backward pass."""
        of_trained = (1 + self.critics) * self.own_readings
        return self.references * self.readings + self.scorers + of_trained


@cache
def models_beside(objective: Objective) -> ModelsBeside:
    """What an objective takes.

    >>> models_beside("dpo").forward_passes, models_beside("ppo").critics
    (1, 1)
    """
    rows = shipped_rows("model", "objectives.csv")
    row = next(row for row in rows if row["objective"] == objective)
    counts = ("references", "scorers", "critics", "readings", "own_readings")
    return ModelsBeside(words=row["words"], **{name: int(row[name]) for name in counts})


def with_models_beside(
    program: Program, configuration: Configuration, num_original: int
) -> Program:
    """``program`` with the models that its objective needs beside the one that is trained.

    Args:
        program: As it runs; ordered. A pass of inference is returned as it is.
        configuration: Whose objective it is.
        num_original: Storages of the graph; what follows them was added by rewrites.
    """
    beside = models_beside(configuration.objective)
    if not (beside.forward_passes or beside.critics) or not np.isfinite(program.first_backward()):
        return program
    early = program.ops.position < program.first_backward()
    forward = np.flatnonzero(early)
    alone = np.flatnonzero(early & ~_of_adapters(program, num_original))
    weights = np.flatnonzero(among(program.stores.owner, (Owner.PARAMETER, Owner.BUFFER)))
    none = weights[:0]
    passes = [(forward, none)] * ((1 + beside.critics) * beside.own_readings)
    passes += [(alone, none if configuration.lora_rank else weights)] * beside.references
    passes += [(alone, none)] * (beside.references * (beside.readings - 1))
    passes += [(alone, weights)] * beside.scorers
    of_model, of_critics, of_passes = _positions(program, len(passes), beside.critics)
    found = replace(program, ops=replace(program.ops, position=of_model))
    for at in of_critics:
        found = _with_critic(found, len(program.ops), at)
    for (ops, copied), at in zip(passes, of_passes, strict=True):
        found = _with_pass(found, ops, copied, at[ops])
    return found.ordered()


def _positions(
    program: Program, num_passes: int, num_critics: int
) -> tuple[FloatArray, list[FloatArray], list[FloatArray]]:
    """When each op runs, (num_ops,): in the model, in each critic, and in each pass that reads.

    Forward goes from the model over critics to passes that read, backward from critics to the
    model, and all updates come last.
    """
    position, late = program.ops.position, 1 + num_critics + num_passes
    turn = (position >= program.first_backward()).astype(np.int64)
    turn += program.ops.phase == Phase.OPTIMIZER

    def at(*turns: int) -> FloatArray:
        return np.asarray(position + (position.max() + 1.0) * np.array(turns)[turn])

    end = late + num_critics + 1
    critics = [at(1 + n, late + n, end + 1 + n) for n in range(num_critics)]
    passes = [at(1 + num_critics + n, 0, 0) for n in range(num_passes)]
    return at(0, end - 1, end), critics, passes


def _with_pass(program: Program, ops: IntArray, weights: IntArray, at: FloatArray) -> Program:
    """``program`` with forward ops again, which read copies of some weights and keep nothing."""
    stores, reads, writes = program.stores, program.reads, program.writes
    runs = np.zeros(len(program.ops), dtype=np.bool_)
    runs[ops] = True
    passing = np.flatnonzero((stores.birth >= 0) & runs[np.maximum(stores.birth, 0)])
    last = np.where(stores.birth >= 0, stores.birth, -1)
    for accesses in (reads, writes):
        rows = runs[accesses.op]
        np.maximum.at(last, accesses.storage[rows], accesses.op[rows])
    frozen = replace(stores, is_trainable=np.zeros_like(stores.is_trainable))
    death = np.append(stores.death[weights], last[passing])
    copied = replace(take_rows(frozen, np.append(weights, passing)), death=death)
    return _with_copies(program, ops, np.append(weights, passing), copied, at)


def _with_critic(program: Program, num_ops: int, at: FloatArray) -> Program:
    """``program`` with the first ``num_ops`` ops and all that they touch but the batch again."""
    copied = np.flatnonzero(program.stores.owner != Owner.INPUT)
    twins = take_rows(program.stores, copied)
    return _with_copies(program, np.arange(num_ops), copied, twins, at)


def _with_copies(
    program: Program, ops: IntArray, copied: IntArray, twins: Stores, at: FloatArray
) -> Program:
    """``program`` with copies of ops, which touch ``twins`` of the storages ``copied``."""
    twin_op, twin_store = (np.full(len(one), -1) for one in (program.ops, program.stores))
    twin_op[ops] = len(program.ops) + np.arange(len(ops))
    twin_store[copied] = len(program.stores) + np.arange(len(copied))
    born, gone = (renumbered(op, twin_op) for op in (twins.birth, twins.death))
    return replace(
        program,
        ops=join_tables(program.ops, replace(take_rows(program.ops, ops), position=at)),
        reads=join_tables(program.reads, twin_accesses(program.reads, twin_op, twin_store)),
        writes=join_tables(program.writes, twin_accesses(program.writes, twin_op, twin_store)),
        stores=join_tables(program.stores, replace(twins, birth=born, death=gone)),
    )


def _of_adapters(program: Program, num_original: int) -> BoolArray:
    """Forward ops for the sake of adapters.

    They read one, move memory in such a layer without result, or feed or follow such ops alone.
    """
    stores, reads, writes = program.stores, program.reads, program.writes
    is_adapter = (stores.owner == Owner.PARAMETER) & stores.is_trainable
    is_adapter[:num_original] = False
    is_early = program.ops.position < program.first_backward()
    found = is_early & _touching(reads, is_adapter, len(is_early))
    in_layer = np.isin(program.ops.module, program.ops.module[found])
    found |= is_early & in_layer & ~_touching(writes, np.ones_like(is_adapter), len(is_early))
    others = is_early & ~found
    passes = (stores.birth >= 0) & ~_touched(writes, others, len(stores))
    follows = _touching(reads, passes & _touched(writes, found, len(stores)), len(is_early))
    read_by_others = _touched(reads, others, len(stores))
    used = ~read_by_others & _touched(reads, found, len(stores)) & (stores.birth >= 0)
    feeds = _touching(writes, used, len(is_early))
    feeds &= ~_touching(writes, read_by_others, len(is_early))
    return np.asarray(found | (is_early & (follows | feeds)))


def _touched(accesses: Accesses, ops: BoolArray, num_stores: int) -> BoolArray:
    """Storages that some ops touch, (num_stores,)."""
    found = np.zeros(num_stores, dtype=np.bool_)
    found[accesses.storage[ops[accesses.op]]] = True
    return found


def _touching(accesses: Accesses, stores: BoolArray, num_ops: int) -> BoolArray:
    """Ops that touch one of some storages, (num_ops,)."""
    found = np.zeros(num_ops, dtype=np.bool_)
    found[accesses.op[stores[accesses.storage]]] = True
    return found
