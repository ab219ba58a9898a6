"""Whole weights and gradients that come and go on ranks that split them, for a replay.

Ranks that split weights gather a unit (a repeated block, or all that lies beside the blocks) before
it runs, and let go of it afterwards; of its gradients they have the whole until these are reduced.
What is gathered is made on the stream that gathers it, so that no other takes its memory.

Source:
    torch/distributed/fsdp: ``_runtime_utils.py`` (``_unshard`` under ``state._unshard_stream``, the
    next unit is gathered while one runs, two at most with ``limit_all_gathers``; the root is not
    resharded after forward) and ``_flat_param.py`` (``_use_unsharded_views``: gradients of views
    are joined into one flat gradient); of ``fully_shard``, ``_fsdp_collectives.py``
    (``foreach_all_gather`` under ``all_gather_stream``, ``foreach_reduce``'s
    ``reduce_scatter_input``). Of stage 3 of DeepSpeed, runtime/zero/partition_parameters.py
    (``AllGatherCoalescedHandle`` under ``__allgather_stream``). Read 2026-11-28.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.columns import join_tables, take_rows
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.belonging import home_op, parameter_of
from paceline.model.graph.block_names import flow_of_blocks, is_numbered, own_blocks
from paceline.model.graph.costs import Configuration
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, Owner, Phase
from paceline.model.graph.program import Program
from paceline.model.lowering import Lifetimes
from paceline.values import dataclass

#: Streams of their own: computation is the first, sharded gradients the second.
_GATHERS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassingWeights:
    """Storages that come and go, (num_storages,) each.

    Attributes:
        num_bytes: Sizes, which no batch changes.
        birth: Op before which it exists.
        death: Op after which it is gone.
        stream: Which allocates it.
    """

    num_bytes: FloatArray
    birth: IntArray
    death: IntArray
    stream: IntArray

    @classmethod
    def joined(cls, parts: Sequence[PassingWeights]) -> PassingWeights:
        """Those of all parts; nothing of no size."""
        every = join_tables(*parts)
        return take_rows(every, (every.num_bytes > 0) & (every.death >= every.birth))

    def beside(self, lived: Lifetimes, streams: Sequence[int]) -> tuple[Lifetimes, list[int]]:
        """Other storages with these, and the stream of each."""
        num_bytes = np.zeros((len(self.birth), lived.num_bytes.shape[1]))
        num_bytes[:, 0] = self.num_bytes
        owner = np.full(len(self.birth), int(Owner.WORKSPACE))
        joined = replace(
            lived,
            num_bytes=np.concatenate((lived.num_bytes, num_bytes)),
            owner=np.concatenate((lived.owner, owner)),
            birth=np.concatenate((lived.birth, self.birth)),
            death=np.concatenate((lived.death, self.death)),
        )
        return joined, [*streams, *self.stream.tolist()]


def passing_weights(
    program: Program, configuration: Configuration, *, wraps_each: bool
) -> PassingWeights:
    """What a rank that splits weights has whole for a while.

    Args:
        program: Of a training step, its ops in order.
        configuration: In whose precision weights are gathered.
        wraps_each: Whether what lies beside the repeated blocks is gathered module by module, and
            gradients are reduced one by one: each unit's are joined into one otherwise.
    """
    units, stores = _Units.of(program, wraps_each=wraps_each), program.stores
    whole = _gathered_bytes(program, configuration)
    of_parameter = units.of_op[home_op(program)]
    is_gradient = stores.owner == Owner.GRADIENT
    is_weight, num_units = stores.owner == Owner.PARAMETER, len(units.first_forward)
    weights = np.bincount(of_parameter[is_weight], whole[is_weight], num_units)
    gathered = units.gathered(weights.astype(np.float64))
    gradients = units.gradients(
        of_parameter[np.maximum(parameter_of(program), 0)][is_gradient],
        whole[is_gradient], _first_writes(program)[is_gradient], joins=not wraps_each,
    )  # fmt: skip
    return PassingWeights.joined([gathered, gradients])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Units:
    """When units run, (num_units,): all that lies beside repeated blocks, then these in order.

    Attributes:
        of_op: Unit of each op, (num_ops,).
    """

    of_op: IntArray
    first_forward: IntArray
    last_forward: IntArray
    first_backward: IntArray
    last_backward: IntArray

    @classmethod
    def of(cls, program: Program, *, wraps_each: bool) -> _Units:
        """The units of a program."""
        ops = program.ops
        names = flow_of_blocks(program.modules, ops.module[ops.phase == Phase.FORWARD])
        is_block = np.array([*(wraps_each or is_numbered(name) for name in names), False])
        unit = np.cumsum(is_block) * is_block
        of_op = unit[own_blocks(program.modules, ops.module, names)]
        is_forward = among(ops.phase, (Phase.FORWARD, Phase.LOSS))
        is_backward = among(ops.phase, (Phase.BACKWARD, Phase.RECOMPUTE))
        found: dict[str, IntArray] = {}
        for name, rows in (("forward", is_forward), ("backward", is_backward)):
            place, num_units = np.flatnonzero(rows), int(unit.max()) + 1
            first, last = np.full(num_units, len(ops)), np.full(num_units, -1)
            np.minimum.at(first, of_op[place], place)
            np.maximum.at(last, of_op[place], place)
            # The root is there from the first op of a pass to its last.
            first[0], last[0] = place.min(initial=len(ops)), place.max(initial=-1)
            found |= {f"first_{name}": first, f"last_{name}": last}
        return cls(of_op=of_op, **found)

    def gathered(self, num_bytes: FloatArray) -> PassingWeights:
        """Weights of each unit, (num_units,): while it runs, and the one before it."""
        forward = np.append(self.first_forward[:2], self.first_forward[1:-1])[: len(num_bytes)]
        backward = np.append(self.first_backward[2:], self.first_backward[-1:])
        blocks = len(num_bytes) - 1
        return PassingWeights(
            num_bytes=np.concatenate((num_bytes, num_bytes[1:])),
            birth=np.concatenate((forward, backward[:blocks])),
            death=np.concatenate(
                (self.last_backward[:1], self.last_forward[1:], self.last_backward[1:])
            ),
            stream=np.full(len(num_bytes) + blocks, _GATHERS),
        )

    def gradients(
        self, unit: IntArray, num_bytes: FloatArray, birth: IntArray, *, joins: bool
    ) -> PassingWeights:
        """Whole gradients until their unit is done, and joined until the next one is."""
        joined = np.bincount(unit, num_bytes * joins, len(self.first_forward))
        done = np.append(self.last_backward[0], self.last_backward[:-1])
        return PassingWeights(
            num_bytes=np.concatenate((num_bytes, joined)),
            birth=np.concatenate((birth, self.last_backward)),
            death=np.concatenate((self.last_backward[unit], done)),
            stream=np.zeros(len(num_bytes) + len(joined), dtype=np.int64),
        )


def _gathered_bytes(program: Program, configuration: Configuration) -> FloatArray:
    """Bytes of weights and gradients in the format that passes work in, (num_storages,)."""
    stores = program.stores
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
    return np.asarray(np.minimum(stores.num_bytes()[:, 0], width * stores.elements[:, 0]))


def _first_writes(program: Program) -> IntArray:
    """First op of the backward pass that writes each storage, (num_storages,)."""
    writes, first = program.writes, np.full(len(program.stores), len(program.ops))
    rows = program.ops.phase[writes.op] == Phase.BACKWARD
    np.minimum.at(first, writes.storage[rows], writes.op[rows])
    return first
