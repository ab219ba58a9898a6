"""What one rank runs, at the precision of a training recipe, before it is cut into stages.

Recipes keep weights differently. *Autocast* keeps FP32 parameters and casts a narrow copy per
pass. *Half weights* (Megatron-LM, FSDP2's mixed precision, DeepSpeed) computes on 16-bit parameters
and keeps FP32 master weights and gradients with the optimizer. *Pure* has nothing but 16 bits.
Which one applies where nobody says is `paceline.trace.master_weights.kept_format`.

Source: Rajbhandari et al., "ZeRO", SC 2020, section 3.1 (16 bytes per parameter with 16-bit
gradients; Megatron-LM accumulates them in FP32, which makes 18, and reduces FP32 in BF16 training
but FP16 in FP16 training).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.trace.adapters import with_adapters
from paceline.trace.autocast import autocast, narrowed
from paceline.trace.checkpointing import checkpointed
from paceline.trace.costs import Configuration, KeptFormat, OptimizerKernel
from paceline.trace.fusion import fused
from paceline.trace.graph import Graph, IntArray, OpKind, Owner, Phase
from paceline.trace.master_weights import with_master_weights
from paceline.trace.optimizer import OptimizerRule, optimizer_by_variant
from paceline.trace.program import Program

Recipe = KeptFormat

#: Casts and copies between the product that makes a gradient and the gradient as it is kept.
_MOST_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """What is kept to train a model, per parameter.

    Attributes:
        state_bytes: State of the optimizer.
        states: Numbers of which it is made.
        trained_frac: Share of the parameters that have gradients.
        weight_bytes: Of a parameter and of its gradient, as the model makes them: FP32 but for
            models that are written in 16 bits.
        rule: What its kernels touch; None of one that is fused.
    """

    state_bytes: float
    states: float
    trained_frac: float = 1.0
    weight_bytes: float = 4.0
    rule: OptimizerRule | None = None

    @classmethod
    def of(cls, graph: Graph) -> Optimizer:
        """That of a training step."""
        storages = graph.storages
        elements, is_parameter = storages.elements[:, 0], storages.owner == Owner.PARAMETER
        num_bytes = elements * np.array(ELEMENT_BYTES)[storages.dtype]
        parameters = max(float(elements[is_parameter].sum()), 1.0)
        is_state = storages.owner == Owner.OPTIMIZER_STATE
        trained = float(elements[is_parameter & storages.is_trainable].sum())
        updates = graph.ops.variant[graph.ops.kind == OpKind.OPTIMIZER]
        return cls(
            state_bytes=float(num_bytes[is_state].sum()) / parameters,
            states=float(elements[is_state].sum()) / parameters,
            trained_frac=trained / parameters,
            weight_bytes=float(num_bytes[is_parameter].sum()) / parameters,
            rule=optimizer_by_variant(int(updates[0])) if updates.size else None,
        )

    def accessed(self, kernel: OptimizerKernel) -> float:
        """Bytes that an update moves over those of a fused one."""
        return 1.0 if self.rule is None else self.rule.accessed(kernel)

    def workspace(self, kernel: OptimizerKernel) -> float:
        """FP32 temporaries of foreach kernels, bytes; others make those of a tensor at a time."""
        if self.rule is None or kernel != "foreach":
            return 0.0
        return ELEMENT_BYTES[DType.FP32] * self.rule.foreach_temporaries * self.trained_frac


#: Two moments.
ADAM = Optimizer(state_bytes=8.0, states=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes per parameter of a recipe.

    Attributes:
        weight: Parameters as forward and backward read them, narrow copies included.
        gathered: Parameters as ZeRO-3 gathers them.
        gradient: Gradients as they are kept.
        reduced: Gradients as they are sent.
        optimizer: Optimizer state with master weights.
        update: Device-memory traffic of the update.
        workspace: Temporaries of the update, all alive at once.
    """

    weight: float
    gathered: float
    gradient: float
    reduced: float
    optimizer: float
    update: float
    workspace: float = 0.0


#: Weights that are read and never changed. Adapters are under a hundredth of them: their
#: gradients and optimizer state are left out.
_FROZEN = StateBytes(weight=4, gathered=4, gradient=0, reduced=0, optimizer=0, update=0)
#: Rewrites of a training step in 16 bits.
_KEEPING = {"autocast": autocast, "half-weights": with_master_weights, "pure": narrowed}


def state_bytes(recipe: Recipe, configuration: Configuration, optimizer: Optimizer) -> StateBytes:
    """What a recipe keeps and moves per parameter.

    An update reads the gradient, and reads and writes what it changes: state and FP32 weights, and
    narrow ones beside them; kernels that are not fused do so more than once.
    """
    precision = find_precision(configuration.precision)
    width = ELEMENT_BYTES[precision.weight_dtype]
    if configuration.lora_rank:
        return replace(_FROZEN, weight=width, gathered=width)
    trained, state = optimizer.trained_frac, optimizer.state_bytes
    accessed = optimizer.accessed(configuration.optimizer_kernel)
    workspace = optimizer.workspace(configuration.optimizer_kernel)
    if recipe == "half-weights" and width < 4:
        reduced = 2.0 if precision.name == "fp16" else 4.0
        return StateBytes(
            weight=width,
            gathered=width,
            gradient=4.0 * trained,
            reduced=reduced * trained,
            optimizer=state + 4.0 * trained,
            update=accessed * (2.0 * state + (12.0 + width) * trained),
            workspace=workspace,
        )
    weight = width if recipe == "pure" else optimizer.weight_bytes
    state = min(state, width * optimizer.states) if recipe == "pure" else state
    copy = width if width < weight else 0.0
    return StateBytes(
        weight=weight + copy,
        gathered=weight,
        gradient=weight * trained,
        reduced=weight * trained,
        optimizer=state,
        update=accessed * (2.0 * state + 3.0 * weight * trained),
        workspace=workspace,
    )


def rank_program(graph: Graph, configuration: Configuration, recipe: Recipe) -> Program:
    """The ops and storages of a rank, in order, at the recipe's precision."""
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
    program = _kept(graph, recipe, width, configuration.lora_rank, configuration.lora_modules)
    if configuration.checkpointing != "none":
        program = checkpointed(program, configuration.checkpointing)
    return fused(program.ordered(), configuration)


@lru_cache(maxsize=8)
def _kept(
    graph: Graph, recipe: Recipe, width: float, lora_rank: int, lora_modules: tuple[str, ...]
) -> Program:
    """A graph with its adapters, at a width of activations; the last few are kept."""
    program = Program.from_graph(graph)
    if lora_rank:
        program = with_adapters(program, rank=lora_rank, patterns=lora_modules)
    if width >= ELEMENT_BYTES[DType.FP32]:
        return program
    return _KEEPING[recipe](program, element_bytes=width)


def home_op(program: Program) -> IntArray:
    """Op whose module a storage belongs to: where it is born, or first read if it is older."""
    home = np.where(program.stores.birth >= 0, program.stores.birth, len(program.ops))
    np.minimum.at(home, program.reads.storage, program.reads.op)
    np.minimum.at(home, program.writes.storage, program.writes.op)
    inside = np.where(program.stores.birth >= 0, program.stores.birth, home)
    return np.asarray(np.minimum(inside, len(program.ops) - 1), dtype=np.int64)


def is_weight_copy(program: Program) -> np.ndarray:
    """Storages that hold a narrow copy of a parameter, (num_storages,)."""
    is_cast = program.ops.kind == OpKind.CAST
    of_parameter = program.stores.owner[program.reads.storage] == Owner.PARAMETER
    casting = np.zeros(len(program.ops), dtype=np.bool_)
    casting[program.reads.op[of_parameter]] = True
    casting &= is_cast
    copies = np.zeros(len(program.stores), dtype=np.bool_)
    copies[program.writes.storage[casting[program.writes.op]]] = True
    return copies


def makes_weight_gradients(program: Program) -> npt.NDArray[np.bool_]:
    """Ops of the backward pass that only gradients of parameters need, (num_ops,).

    What makes a parameter's gradient together with that of an input is none of them.
    """
    reads, writes, num_ops = program.reads, program.writes, len(program.ops)
    is_late = program.ops.phase == Phase.BACKWARD
    is_for_weights = program.stores.owner == Owner.GRADIENT
    only = np.zeros(num_ops, dtype=np.bool_)
    for _ in range(_MOST_STEPS):
        only = is_late.copy()
        only[writes.op[~is_for_weights[writes.storage]]] = False
        is_needed = np.zeros(len(program.stores), dtype=np.bool_)
        is_needed[reads.storage[~only[reads.op]]] = True
        made = np.zeros(len(program.stores), dtype=np.bool_)
        made[writes.storage[is_late[writes.op]]] = True
        is_for_weights = (program.stores.owner == Owner.GRADIENT) | (made & ~is_needed)
    return only


def put_off_with_weights(program: Program) -> npt.NDArray[np.bool_]:
    """Activations and gradients made in backward that only-weight gradients read, (num_storages,).

    They are kept until these gradients are made, whenever that is; what is recomputed for them too.
    """
    reads, stores = program.reads, program.stores
    is_read = np.zeros(len(stores), dtype=np.bool_)
    is_read[reads.storage[makes_weight_gradients(program)[reads.op]]] = True
    is_made = program.position_of(stores.birth) >= program.first_backward()
    return np.asarray(is_read & is_made & (stores.owner == Owner.ACTIVATION))
