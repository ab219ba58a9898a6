"""What a rank keeps and moves to train each block, counted by owner in its lowered program.

Source: Rajbhandari et al., "ZeRO", SC 2020, section 3.1 (what there is to count); PyTorch's DDP,
ZeRO and FSDP (what of it is sent).

Shapes: num_blocks blocks; of each, what every expert rank holds alike, and experts.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.belonging import home_op, is_weight_copy, parameter_of
from paceline.model.costs_table import accesses_of_updates
from paceline.model.graph.costs import Configuration
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, Owner, Phase
from paceline.model.graph.program import Program
from paceline.model.rewrite.master_weights import sent_gradient_frac
from paceline.model.table_updates import updated_by_rows
from paceline.values import dataclass

BoolArray = npt.NDArray[np.bool_]


class Part(IntEnum):
    """One figure of a training state."""

    PARAMETERS = 0
    TRAINED = 1
    WEIGHT = 2
    COPY = 3
    GATHERED = 4
    RENEWED = 5
    GRADIENT = 6
    REDUCED = 7
    OPTIMIZER = 8
    UPDATE = 9
    WORKSPACE = 10


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """A training state of whatever is counted: blocks, stages, ranks.

    Attributes:
        values: One row per `Part`, of any further shape; bytes but for the first two.
    """

    values: FloatArray

    @property
    def parameters(self) -> FloatArray:
        """How many there are."""
        return self._of(Part.PARAMETERS)

    @property
    def trained(self) -> FloatArray:
        """Of them, those that the optimizer updates."""
        return self._of(Part.TRAINED)

    @property
    def weight(self) -> FloatArray:
        """Parameters as they are stored."""
        return self._of(Part.WEIGHT)

    @property
    def copy(self) -> FloatArray:
        """Narrow copies of them that last from forward to backward."""
        return self._of(Part.COPY)

    @property
    def gathered(self) -> FloatArray:
        """Parameters as ZeRO-3 gathers them: a shard is cast before it is sent."""
        return self._of(Part.GATHERED)

    @property
    def renewed(self) -> FloatArray:
        """The same of those that are updated, which ZeRO-1 and 2 gather."""
        return self._of(Part.RENEWED)

    @property
    def gradient(self) -> FloatArray:
        """Gradients as they are kept."""
        return self._of(Part.GRADIENT)

    @property
    def reduced(self) -> FloatArray:
        """Gradients as they are sent."""
        return self._of(Part.REDUCED)

    @property
    def optimizer(self) -> FloatArray:
        """Optimizer state with master weights."""
        return self._of(Part.OPTIMIZER)

    @property
    def update(self) -> FloatArray:
        """Device-memory traffic of the update."""
        return self._of(Part.UPDATE)

    @property
    def workspace(self) -> FloatArray:
        """Temporaries of the update, all alive at once."""
        return self._of(Part.WORKSPACE)

    def _of(self, part: Part) -> FloatArray:
        value: FloatArray = self.values[part]
        return value


def training_state(
    program: Program,
    configuration: Configuration,
    block_of_op: IntArray,
    num_blocks: int,
    is_expert: BoolArray,
) -> TrainingState:
    """The training state of every block, (num_parts, 2, num_blocks).

    Args:
        program: What the rank runs, rewritten.
        configuration: What for.
        block_of_op: Block of each op, (num_ops,).
        num_blocks: How many there are.
        is_expert: Storages of the graph that hold experts, (num_storages,).
    """
    counted = _by_parameter(program, configuration)
    of_expert = np.pad(is_expert, (0, len(program.stores) - len(is_expert)))
    cell = of_expert * num_blocks + block_of_op[home_op(program)]
    rows = np.stack([np.bincount(cell, values, minlength=2 * num_blocks) for values in counted])
    values = np.asarray(rows, dtype=np.float64).reshape(len(Part), 2, num_blocks)
    return TrainingState(values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TiedState:
    """Of parameters that several blocks read, such as a table that makes the logits too.

    Attributes:
        values: As `TrainingState` has them of each, (num_parts, 2, num_tied).
        reads: Which blocks read them, (num_tied, num_blocks).
        home: Block that counts each in `training_state`, (num_tied,).
    """

    values: FloatArray
    reads: BoolArray
    home: IntArray

    def beyond_home(self, cuts: IntArray) -> FloatArray:
        """What stages hold of them beside the one that is their home, (num_parts, 2, num_stages).

        Source: Megatron-LM, core/models/common/language_module,
        ``setup_embeddings_and_output_layer``: the last stage has a copy of the
        embedding, whose gradients are summed with the first's.
        """
        held = np.logical_or.reduceat(self.reads, cuts, axis=1)
        held[np.arange(len(self.home)), np.searchsorted(cuts, self.home, side="right") - 1] = False
        return np.asarray(self.values @ held)


def tied_state(
    program: Program,
    configuration: Configuration,
    block_of_op: IntArray,
    num_blocks: int,
    is_expert: BoolArray,
) -> TiedState:
    """Parameters that several blocks read in forward. Arguments are those of `training_state`."""
    reads, stores = program.reads, program.stores
    rows = program.ops.phase[reads.op] == Phase.FORWARD
    rows &= stores.owner[reads.storage] == Owner.PARAMETER
    found = np.zeros((len(stores), num_blocks), dtype=np.bool_)
    found[reads.storage[rows], block_of_op[reads.op[rows]]] = True
    tied = np.flatnonzero(found.sum(axis=1) > 1)
    counted = (
        _by_parameter(program, configuration)[:, tied] if len(tied) else np.zeros((len(Part), 0))
    )
    of_expert = np.pad(is_expert, (0, len(stores) - len(is_expert)))[tied]
    return TiedState(
        values=np.stack([counted * ~of_expert, counted * of_expert], axis=1),
        reads=found[tied],
        home=block_of_op[home_op(program)[tied]],
    )


def _by_parameter(program: Program, configuration: Configuration) -> FloatArray:
    """Each part of what belongs to a parameter, at its storage, (num_parts, num_storages)."""
    owner, parameter = program.stores.owner, parameter_of(program)
    is_updated = np.zeros(len(owner), dtype=np.bool_)
    is_updated[parameter[(owner == Owner.GRADIENT) & (parameter >= 0)]] = True
    is_updated |= updated_by_rows(program)
    rows = np.zeros((len(Part), len(owner)))
    for part, (chosen, values) in _counted(program, configuration, is_updated).items():
        counted = chosen & (parameter >= 0)
        rows[part] = np.bincount(parameter[counted], values[counted], minlength=len(owner))
    return rows


def _counted(
    program: Program, configuration: Configuration, is_updated: BoolArray
) -> dict[Part, tuple[BoolArray, FloatArray]]:
    """Which storages make up each part, and how much each of them counts."""
    stores, owner = program.stores, program.stores.owner
    num_bytes, elements = stores.num_bytes()[:, 0], stores.elements[:, 0]
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
    gathered = np.minimum(num_bytes, width * elements)
    is_parameter, is_gradient = owner == Owner.PARAMETER, owner == Owner.GRADIENT
    is_state = among(owner, (Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT))
    lasts = program.position_of(stores.death) >= _last_forward(program)
    updated_bytes = _updated_bytes(program, configuration)
    by_rows, sent = updated_by_rows(program), num_bytes * sent_gradient_frac(program, configuration)
    return {
        Part.PARAMETERS: (is_parameter, elements),
        Part.TRAINED: (is_updated, elements),
        Part.WEIGHT: (is_parameter, num_bytes),
        Part.COPY: (is_weight_copy(program) & lasts, num_bytes),
        Part.GATHERED: (is_parameter, gathered),
        Part.RENEWED: (is_updated, gathered),
        Part.GRADIENT: (is_gradient, num_bytes),
        Part.REDUCED: (is_gradient | by_rows, sent),
        Part.OPTIMIZER: (is_state, num_bytes),
        Part.UPDATE: (updated_bytes > 0, updated_bytes),
        Part.WORKSPACE: (owner == Owner.WORKSPACE, num_bytes),
    }


def _last_forward(program: Program) -> float:
    """Position of the last op before the backward pass."""
    position = program.ops.position
    return float(position[position < program.first_backward()].max(initial=-np.inf))


def _updated_bytes(program: Program, configuration: Configuration) -> FloatArray:
    """Bytes that updates move of each storage, (num_storages,)."""
    is_update = program.ops.phase == Phase.OPTIMIZER
    times = accesses_of_updates(program, configuration) * is_update
    moved = np.zeros(len(program.stores))
    for accesses in (program.read_at_all, program.writes):
        num_bytes = accesses.elements[:, 0] * program.stores.element_bytes[accesses.storage]
        moved += np.bincount(accesses.storage, num_bytes * times[accesses.op], len(program.stores))
    return moved
