"""Lower a graph: what one pass costs, run in one configuration."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.dtypes import ELEMENT_BYTES, DType, Precision, find_precision, first_as_wide
from paceline.errors import InvalidInputError
from paceline.model.costs_table import cost_table, matmul_dtypes
from paceline.model.fewer_layers import FewerLayers, fewer_layers, modules_of_copies
from paceline.model.graph.block_names import blocks_of_ops
from paceline.model.graph.costs import (
    AdapterInputs,
    AdapterKind,
    Compiler,
    Configuration,
    KeptFormat,
    LoweredPass,
    MemoryTable,
)
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import (
    PAST,
    FloatArray,
    Graph,
    IntArray,
    OpKind,
    Owner,
    Phase,
    monomials,
)
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import OUTLIVES, Program
from paceline.model.memory_table import memory_table
from paceline.model.objectives import with_models_beside
from paceline.model.rewrite.adapters import with_adapters
from paceline.model.rewrite.attention import with_wide_softmax
from paceline.model.rewrite.autocast import autocast, narrowed, with_narrow_weights
from paceline.model.rewrite.checkpointing import SegmentShare, checkpointed
from paceline.model.rewrite.draft import Draft
from paceline.model.rewrite.freezing import EXCEPT, frozen, with_projected_prefix
from paceline.model.rewrite.fusion import fused
from paceline.model.rewrite.loss import with_loss
from paceline.model.rewrite.master_weights import (
    kept_format,
    sent_gradient_frac,
    with_master_weights,
    with_weight_format,
)
from paceline.model.rewrite.offload import with_activations_on_host, with_optimizer_on_host
from paceline.model.rewrite.platforms import first_platform_alike, on_platform
from paceline.model.rewrite.quantisation import quantised, with_operands_cast
from paceline.model.rewrite.saved_tensors import kept_by, with_softmax_inputs, without_results
from paceline.model.rewrite.serving_graph import served, with_narrow_cache, with_served_adapters
from paceline.model.standing import Standing, with_whole_updates
from paceline.model.table_updates import updated_by_rows, with_table_updates
from paceline.values import dataclass

#: Programs that are kept while they are rewritten, some 10 MB each of a large model, and as they
#: run: configurations that come one after another share them.
_NUM_ON_THE_WAY, _NUM_REWRITTEN = 2, 3
#: Passes that are kept as they run, some 100 KB each: remedies, windows and other goals ask again.
_NUM_LOWERED = 32


def lower(graph: Graph, configuration: Configuration) -> LoweredPass:
    """Costs and memory of ``graph`` in ``configuration``.

    Raises:
        UnknownNameError: No such precision.
        InvalidInputError: The precision cannot train.
    """
    return _lowered(graph, configuration)


@lru_cache(maxsize=_NUM_LOWERED)
def _lowered(graph: Graph, configuration: Configuration) -> LoweredPass:
    """`lower`, once for the same pass."""
    layers = fewer_layers(graph, configuration)
    found = _lowered_by_few(graph, layers, configuration) if layers.copies > 1 else None
    if found is not None:
        return found
    standing = _standing_for(graph, configuration)
    program, memory = _rewritten(graph, standing), _memory(graph, standing)
    return lowered_program(program, graph.name, configuration, memory)


def _lowered_by_few(
    graph: Graph, layers: FewerLayers, configuration: Configuration
) -> LoweredPass | None:  # fmt: skip
    """As `lower`, by layers that stand for all; None where they are not alike once rewritten."""
    alike = _standing_for(layers.graph, with_weight_format(graph, configuration))
    program, known = _rewritten(layers.graph, alike), _memory_by_few(layers, alike)
    if known is None:
        return None
    standing, memory = known
    few = lowered_program(program, graph.name, configuration, memory, standing)
    modules, of_copy = modules_of_copies(layers, program.modules)
    op, copy = standing.ops_of_whole(len(program.ops))
    is_last = np.maximum.accumulate(np.diff(memory.op, prepend=0) < 0)
    moment = standing.places(memory.op.astype(np.int64), is_last * (standing.copies - 1))
    return replace(
        few,
        costs=replace(
            few.costs,
            order=few.costs.order[op],
            module=of_copy[copy, program.ops.module[op]].astype(np.int32),
            modules=modules,
        ),
        memory=replace(memory, op=moment.astype(np.int32)),
        gradient_ready=_ready_in_whole(program, standing),
    )


@lru_cache(maxsize=_NUM_REWRITTEN)
def _memory_by_few(
    layers: FewerLayers, configuration: Configuration
) -> tuple[Standing, MemoryTable] | None:
    """What stands for how much in what `_rewritten` gives, and the moments of the whole."""
    program = _rewritten(layers.graph, configuration)
    block = blocks_of_ops(program.modules, program.ops.module, layers.names)
    standing = Standing.of(
        program, layers.group_of(block), layers.group_of(layers.home), layers.copies
    )
    return None if standing is None else (standing, memory_table(program, standing=standing))


def _ready_in_whole(program: Program, standing: Standing) -> FloatArray:
    """As `_gradient_ready`, of all layers."""
    storage, last = _gradients(program)
    times = standing.storage_counts[storage]
    row = np.repeat(np.arange(len(storage)), times)
    copy = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    place = standing.places_of(last[row], standing.group[storage[row]], copy)
    order = np.argsort(place, kind="stable")
    num_bytes = program.stores.num_bytes()[storage[row], 0]
    return np.stack((place[order].astype(np.float64), num_bytes[order]), axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lifetimes:
    """Every storage of a lowered pass, for a replay allocation by allocation.

    Attributes:
        num_bytes: Size, (num_storages, 9).
        owner: ``Owner`` codes.
        birth: Op before which it exists; -1: before the pass.
        death: Op after which it is gone; very large: after the pass.
        update: First op of the optimizer; very large: none is known.
    """

    num_bytes: FloatArray
    owner: IntArray
    birth: IntArray
    death: IntArray
    update: int = OUTLIVES

    def bytes_at(self, batch: float, seq: float) -> FloatArray:
        """Sizes at one point, (num_storages,)."""
        sizes: FloatArray = self.num_bytes @ monomials(batch, seq)[0]
        return sizes

    def take(self, rows: IntArray) -> Lifetimes:
        """Those of some storages."""
        return take_rows(self, rows, alike=("update",))

    def is_resident(self) -> npt.NDArray[np.bool_]:
        """Whether it is there before and after every pass."""
        return np.asarray((self.birth < 0) & (self.death == OUTLIVES))


def lifetimes(graph: Graph, configuration: Configuration) -> Lifetimes:
    """The storages of ``graph`` as `lower` counts them. Raises what `lower` raises."""
    return lifetimes_of(rewritten(graph, configuration))


def lifetimes_of(program: Program) -> Lifetimes:
    """The storages of a program as they are."""
    stores, updates = program.stores, np.flatnonzero(program.ops.phase == Phase.OPTIMIZER)
    return Lifetimes(
        num_bytes=stores.num_bytes(), owner=stores.owner, birth=stores.birth, death=stores.death,
        update=int(updates.min(initial=OUTLIVES)),
    )  # fmt: skip


def rewritten(graph: Graph, configuration: Configuration) -> Program:
    """``graph`` as it runs in ``configuration``, ops in order. Raises what `lower` raises.

    Of a part of a model, the usual training format must be said (`with_weight_format`): it
    follows the size of the whole.
    """
    return _rewritten(graph, _standing_for(graph, configuration))


def _standing_for(graph: Graph, configuration: Configuration) -> Configuration:
    """The configuration whose program is the same: precisions of equal widths, alike platforms."""
    precision = find_precision(configuration.precision)
    _check_trainable(graph, precision)
    alike = replace(configuration, precision=first_as_wide(precision).name)
    return replace(alike, platform=first_platform_alike(retrained(graph, alike), alike))


@lru_cache(maxsize=_NUM_REWRITTEN)
def _rewritten(graph: Graph, configuration: Configuration) -> Program:
    """The last few are kept: a search asks for many precisions and platforms."""
    if configuration.update == "in-backward" and configuration.optimizer_kernel == "foreach":
        configuration = replace(configuration, optimizer_kernel="plain")
    once = replace(
        configuration, checkpointing="none", checkpoint_blocks="1", checkpoint_inputs="freed",
        offload="none", accumulates=False, gradient_buffers=0, update="after",
        objective="next-token", compiler=_compiler_of_formats(configuration),
    )  # fmt: skip
    program = _at_precision(graph, once)
    if configuration.checkpointing != "none":
        segments = SegmentShare.parse(configuration.checkpoint_blocks)
        program = checkpointed(
            program, configuration.checkpointing, segments, configuration.checkpoint_inputs
        )
    program = _with_operands_cast(fused(program, configuration), configuration)
    program = with_models_beside(program, configuration, len(graph.storages.owner))
    program = _offloaded(program, configuration)
    return _with_gradients(program, configuration)


def _compiler_of_formats(configuration: Configuration) -> Compiler:
    """What compilers that give the same formats have in common: which, matters to fusion alone."""
    precision = find_precision(configuration.precision)
    has_wide_weights = configuration.frozen_weights == "same"
    has_wide_weights &= precision.name not in _WEIGHT_ONLY
    is_wide = has_wide_weights and precision.matmul_dtype != DType.INT8
    return "eager" if is_wide or configuration.compiler == "eager" else "compiled"


def _with_operands_cast(program: Program, configuration: Configuration) -> Program:
    precision = find_precision(configuration.precision)
    narrow = precision.matmul_dtype
    if narrow not in (DType.FP8, DType.FP4) or not np.isfinite(program.first_backward()):
        return program
    return with_operands_cast(program, matmul_dtypes(program, precision) == narrow)


def retrained(graph: Graph, configuration: Configuration) -> Program:
    """``graph`` with what ``configuration`` trains of it, and its adapters, before all else."""
    is_narrow = find_precision(configuration.precision).activation_dtype != DType.FP32
    casts = configuration.adapter_inputs == "cast" and not is_narrow
    return _retrained(
        graph,
        configuration.frozen,
        configuration.lora_rank,
        configuration.lora_modules,
        "shared" if casts else configuration.adapter_inputs,
        2.0 if is_narrow and configuration.training_format == "pure" else 1.0,
        configuration.lora_kind,
    )


@lru_cache(maxsize=_NUM_REWRITTEN)
def _memory(graph: Graph, configuration: Configuration) -> MemoryTable:
    """Moments that may be the peak of what `_rewritten` gives."""
    return memory_table(_rewritten(graph, configuration))


@lru_cache(maxsize=_NUM_ON_THE_WAY)
def _at_precision(graph: Graph, configuration: Configuration) -> Program:
    """``graph`` with the kernels and formats of a configuration; the last few are kept."""
    precision = find_precision(configuration.precision)
    program = with_table_updates(retrained(graph, configuration), configuration.table_updates)
    if configuration.results == "dropped":
        program = without_results(program)
    if configuration.is_served:
        program = served(program)
    program = on_platform(program, configuration)
    program = _narrowed(program, precision, configuration, kept_format(graph, configuration))
    if configuration.is_served and configuration.num_adapters:
        program = with_served_adapters(
            program, rank=configuration.lora_rank, count=configuration.num_adapters,
            is_shared=graph.variables[1] != PAST,
            element_bytes=ELEMENT_BYTES[precision.activation_dtype],
        )  # fmt: skip
    if configuration.is_served and configuration.cache_format == "fp8":
        program = with_narrow_cache(program, element_bytes=ELEMENT_BYTES[DType.FP8])
    if configuration.attention == "eager":
        program = with_wide_softmax(program)
    program = with_loss(program, configuration.loss)
    if "softmax-inputs" in kept_by(configuration.libraries):
        program = with_softmax_inputs(program)
    return program


def _check_trainable(graph: Graph, precision: Precision) -> None:
    is_training = bool((graph.ops.phase == Phase.BACKWARD).any())
    if is_training and not precision.is_trainable:
        own = {"int4": "nf4", "mxfp4": "mxfp4"}.get(precision.name)
        frozen = f"; adapters over weights in 4 bits: --rewrite lora_rank=16,frozen_weights={own}"
        raise InvalidInputError(
            f"nothing is trained in `{precision.name}`",
            hint="train in bf16, fp16, tf32 or fp32" + (frozen if own else ""),
        )


@lru_cache(maxsize=_NUM_ON_THE_WAY)
def _retrained(
    graph: Graph,
    frozen_modules: tuple[str, ...],
    lora_rank: int,
    lora_modules: tuple[str, ...],
    inputs: AdapterInputs,
    width_ratio: float,
    kind: AdapterKind,
) -> Program:
    """Transfer learning: what is trained, and with which adapters; the last few are kept."""
    program = Program.from_graph(graph)
    if not np.isfinite(program.first_backward()):
        return program
    is_whole = all(pattern.startswith(EXCEPT) for pattern in frozen_modules)
    if frozen_modules and not (lora_rank and is_whole):
        program = frozen(program, frozen_modules)
    if kind != "lora" and not lora_rank:
        raise InvalidInputError(
            f"lora_kind={kind} without adapters", hint="say their rank, lora_rank=16"
        )
    if lora_rank and kind == "prefix":
        return with_projected_prefix(program, tokens=lora_rank)
    if lora_rank:
        program = with_adapters(
            program, rank=lora_rank, patterns=lora_modules, inputs=inputs,
            width_ratio=width_ratio, trained=frozen_modules if is_whole else (), kind=kind,
        )  # fmt: skip
    return program


def _narrowed(
    program: Program, precision: Precision, configuration: Configuration, kept: KeptFormat
) -> Program:
    is_training = bool(np.isfinite(program.first_backward()))
    convolves = not is_training and _convolves_in_8_bits(program, precision, configuration)
    activation_bytes = ELEMENT_BYTES[DType.INT8 if convolves else precision.activation_dtype]
    weights = configuration.frozen_weights if is_training else _WEIGHT_ONLY.get(precision.name)
    head = ""
    if configuration.engine_kernels == "portable" and not is_training:
        weights, head = _IN_FILES_OF_LLAMACPP.get(weights or "", (weights, ""))
    if weights not in (None, "same"):
        if is_training:
            _check_frozen(program, weights)
        is_fused = configuration.compiler != "eager" or configuration.widens_in_kernels
        keeps_inputs = "quantised-inputs" in kept_by(configuration.libraries)
        program = quantised(
            program, weights, is_fused=is_fused, keeps_inputs=keeps_inputs,
            has_convolutions=convolves, products=configuration.frozen_products, head_format=head,
            finds_outliers=precision.name in _IN_INT8 and not is_training,
        )  # fmt: skip
    if precision.activation_dtype == DType.FP32:
        return program
    narrow = kept if is_training else configuration.inference_format
    if narrow in ("half-weights", "half-gradients", "joined-gradients"):
        return with_master_weights(
            program, element_bytes=activation_bytes,
            has_wide_gradients=narrow == "half-weights",
            joins_gradients=narrow == "joined-gradients",
        )  # fmt: skip
    if narrow == "pure":
        return narrowed(program, element_bytes=activation_bytes)
    if narrow == "narrow-autocast":
        program = with_narrow_weights(program, element_bytes=activation_bytes)
    return autocast(program, element_bytes=activation_bytes)


def _convolves_in_8_bits(
    program: Program, precision: Precision, configuration: Configuration
) -> bool:
    """Whether weights of convolutions, and what they hand on, are kept in INT8.

    Compiled engines fuse norms and activations into convolutions, whose output they quantise.
    Source: NVIDIA, "TensorRT Developer Guide", working with quantized types.
    """
    is_compiled = configuration.compiler != "eager"
    in_8_bits = precision.matmul_dtype == DType.INT8 and is_compiled
    return in_8_bits and bool((program.ops.kind == OpKind.CONV).any())


def _check_frozen(program: Program, weights: str) -> None:
    stores = program.stores
    if stores.is_trainable[stores.owner == Owner.PARAMETER].all():
        raise InvalidInputError(
            f"`frozen_weights={weights}` is of weights that are not trained, and all of them are",
            hint="add adapters with lora_rank=16, or freeze modules with frozen=…",
        )


#: Weight formats of the precisions that keep weights narrower than activations in inference.
_WEIGHT_ONLY = {
    "int8": "int8", "int4": "int4", "int8-full": "int8", "fp8": "int8",
    "nvfp4": "nvfp4", "mxfp4": "mxfp4",
}  # fmt: skip


#: Precisions that a loop runs by LLM.int8(), whose products take kernels of their own.
_IN_INT8 = ("int8", "int8-full")

#: Formats of weights and of the head in files that llama.cpp's users run.
_IN_FILES_OF_LLAMACPP = {"int4": ("q4_k_m", "q6_k"), "int8": ("q8_0", "q8_0")}


def _with_gradients(program: Program, configuration: Configuration) -> Program:
    """How long gradients are there, and the buffers that they pass through."""
    stores, backward = program.stores, np.flatnonzero(program.ops.phase == Phase.BACKWARD)
    if not len(backward):
        return program
    if configuration.update == "in-backward":
        program = _updated_in_backward(program)
    elif configuration.accumulates:
        birth = np.where(stores.owner == Owner.GRADIENT, -1, stores.birth)
        program = replace(program, stores=replace(stores, birth=birth))
    if not configuration.gradient_buffers:
        return program
    dtype = find_precision(configuration.precision).activation_dtype
    draft = Draft(program)
    size = constant(np.array([float(configuration.gradient_buffers)]))
    buffer = draft.workspaces(size, element_bytes=float(ELEMENT_BYTES[dtype]))
    joined = draft.joined()
    birth, death = joined.stores.birth.copy(), joined.stores.death.copy()
    birth[buffer], death[buffer] = backward[0], backward[-1]
    return replace(joined, stores=replace(joined.stores, birth=birth, death=death))


def _updated_in_backward(program: Program) -> Program:
    """Each gradient gone once the last op that adds to it has run, where its update does."""
    stores, reads, writes = program.stores, program.reads, program.writes
    is_update = program.ops.phase == Phase.OPTIMIZER
    last = np.full(len(stores), -1)
    np.maximum.at(last, writes.storage, np.where(is_update[writes.op], -1, writes.op))
    goes = (stores.owner == Owner.GRADIENT) & (last >= 0)
    is_spent = is_update[reads.op] & goes[reads.storage]
    return replace(
        program,
        reads=reads.kept(~is_spent),
        spent=reads.kept(is_spent),
        stores=replace(stores, death=np.where(goes, last, stores.death)),
    )


def _offloaded(program: Program, configuration: Configuration) -> Program:
    if configuration.offload in ("optimizer", "weights"):
        return with_optimizer_on_host(program)
    if configuration.offload == "activations":
        return with_activations_on_host(program)
    return program


def lowered_program(
    program: Program, name: str, configuration: Configuration, memory: MemoryTable,
    standing: Standing | None = None,
) -> LoweredPass:  # fmt: skip
    """Costs and memory of a program that was rewritten.

    Args:
        program: Of `rewritten`.
        name: Of its graph.
        configuration: What it was rewritten for.
        memory: Its moments that matter, as `memory_table` has them.
        standing: Which of its layers stand for others; none where it is the whole model. Ops are
            those of the program, and all sums those of the whole.
    """
    precision = find_precision(configuration.precision)
    stores, counts = program.stores, np.ones(len(program.stores))
    whole = program if standing is None else with_whole_updates(program, standing)
    costs = cost_table(whole, configuration, precision)
    if standing is not None:
        counts = standing.storage_counts.astype(np.float64)
        every = standing.op_counts(len(program.ops)).astype(np.float64)
        count = np.bincount(costs.order, every, len(costs.kind)).astype(np.float64)
        costs = replace(costs, count=count)
    num_bytes = stores.num_bytes()[:, 0] * counts
    is_parameter = stores.owner == Owner.PARAMETER
    is_state = among(stores.owner, (Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT))
    elements = stores.elements[:, 0] * counts
    return LoweredPass(
        name=name,
        configuration=configuration,
        costs=costs,
        memory=memory,
        num_parameters=int(elements[is_parameter].sum()),
        num_trainable_parameters=int(elements[is_parameter & stores.is_trainable].sum()),
        gradient_bytes=float(num_bytes[_sent(program)].sum())
        * sent_gradient_frac(program, configuration),
        parameter_bytes=float(num_bytes[is_parameter].sum()),
        optimizer_state_bytes=float(num_bytes[is_state].sum()),
        gradient_ready=_gradient_ready(program, num_bytes),
    )


def _sent(program: Program) -> npt.NDArray[np.bool_]:
    """Storages as large as what replicas exchange: gradients, and tables that have none."""
    is_sent = program.stores.owner == Owner.GRADIENT
    return np.asarray(is_sent | updated_by_rows(program))


def _gradient_ready(program: Program, num_bytes: FloatArray) -> FloatArray:
    """(op that writes it last in the backward pass, bytes) of each gradient, in that order."""
    storage, last = _gradients(program)
    return np.stack((last.astype(np.float64), num_bytes[storage]), axis=1)


def _gradients(program: Program) -> tuple[IntArray, IntArray]:
    """Gradients in the order in which they are whole, and the op that writes each last."""
    stores, writes = program.stores, program.writes
    is_gradient = stores.owner[writes.storage] == Owner.GRADIENT
    last = np.full(len(stores), -1)
    np.maximum.at(last, writes.storage[is_gradient], writes.op[is_gradient])
    gradients = np.flatnonzero((stores.owner == Owner.GRADIENT) & (last >= 0))
    order = gradients[np.argsort(last[gradients], kind="stable")]
    return order, last[order]
