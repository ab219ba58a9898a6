"""What a lowered pass costs: distinct ops with counts for time, candidate peaks for memory.

This is the one thing that `predict` and `parallel` read: `lower` in `paceline.model.lowering` makes
it from a `Graph` and a `Configuration` (precision, compiler, checkpointing, platform …).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray, OpKind
from paceline.values import dataclass

Compiler = Literal["eager", "compiled", "xla", "tensorrt"]
Checkpointing = Literal["none", "selective", "experts", "block", "full"]
Platform = Literal["cuda", "rocm", "cpu", "xla"]
AttentionKernels = Literal["math", "eager", "flash", "flash-2", "vendor", "memory-efficient"]
OptimizerKernel = Literal["plain", "foreach", "fused"]
EngineKernels = Literal["tuned", "early", "portable"]
CacheFormat = Literal["usual", "wide", "fp8"]
NarrowFormat = Literal["autocast", "pure"]
KeptFormat = Literal[
    "autocast", "narrow-autocast", "half-weights", "half-gradients", "joined-gradients", "pure"
]
TrainingFormat = Literal[
    "usual", "autocast", "narrow-autocast", "half-weights", "half-gradients", "joined-gradients",
    "pure"
]  # fmt: skip
Loss = Literal[
    "plain", "wide", "shifted", "wide-shifted", "fused", "fused-wide", "compiled-wide",
    "fused-shifted", "fused-wide-shifted", "chunked", "recomputed",
]  # fmt: skip
AdapterInputs = Literal["shared", "cast", "dropped"]
AdapterKind = Literal["lora", "dora", "loha", "prefix"]
CheckpointInputs = Literal["freed", "kept"]
FrozenProducts = Literal["widened", "kept", "cast", "held", "attached"]
TableUpdates = Literal["as-written", "dense", "sparse", "fused"]
Objective = Literal["next-token", "dpo", "kto", "grpo", "ppo"]
Peaks = Literal["measured", "derived", "lengths", "rough"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How a model is run on one device: everything that rewrites its graph.

    Attributes:
        precision: Name in ``dtypes.PRECISIONS``.
        compiler: ``eager`` launches op by op; the others fuse.
        checkpointing: What is recomputed in backward instead of kept.
        checkpoint_blocks: Which blocks are recomputed: all one by one (``1``), all in segments of
            so many (``2``), or so many of every few (``2/4``).
        checkpoint_inputs: What enters a block that is computed again, and its gradient: ``freed``
            once the block has run backward, or ``kept`` until backward has ended, as FSDP1's hooks
            on frozen blocks keep them under reentrant checkpoints.
        platform: Whose kernels and saved tensors the lowering follows.
        channels_last: Whether convolutions run in NHWC.
        attention: Kernel family used for scaled-dot-product attention: ``flash`` is what the
            framework brings for the device, ``flash-2`` FlashAttention 2 on every device,
            ``vendor`` what the vendor's libraries do (cuDNN, Transformer Engine).
        optimizer_kernel: How the optimizer is launched: ``plain``, several kernels per tensor;
            ``foreach``, as many for tensors together; ``fused``, one for tensors together.
        frozen: Module patterns (fnmatch) whose parameters receive no gradients; after ``except:``
            those that do. With a rank of adapters and nothing but exceptions, modules that are
            trained whole beside these.
        lora_rank: Rank of adapters on matrix products; 0 means none.
        lora_modules: Module patterns that get adapters; with a rank and no pattern, all linears.
        lora_kind: Plain adapters (``lora``), such that learn the length of each column of the
            weight beside its direction (``dora``), or such that add a matrix of the weight's shape
            made of two pairs of factors (``loha``); or, on no product, so many virtual tokens as
            the rank before every sequence, whose keys and values a network makes (``prefix``).
        num_adapters: Adapters of that rank that an engine holds on a device, each request with one.
        offload: What lives in host memory between uses; with ``weights`` a rank's shares of weights
            and gradients as well as the ``optimizer``, where ranks split them.
        training_format: In a narrow precision, whether weights, gradients and state stay FP32 and
            passes read narrow copies (``autocast``), weights, gradients and state are narrow under
            autocast, which still widens norms (``narrow-autocast``), weights are narrow with FP32
            masters beside the optimizer's state, and gradients FP32 (``half-weights``) or narrow
            until the update widens them all (``half-gradients``), which ``joined-gradients`` joins
            in one narrow tensor before, or everything is narrow
            (``pure``); the ``usual`` one follows the size of the model, see `kept_format`.
        inference_format: The same of inference, where everything is narrow unless FP32 weights are
            cast on every pass (``autocast``).
        accumulates: Whether gradients of earlier microbatches are kept through the pass.
        gradient_buffers: Elements of the buffers that gradients pass through on their way to other
            ranks, there while backward runs (DeepSpeed's ``reduce_bucket_size``, of each of two
            where it overlaps); 0 for none.
        update: Whether parameters are updated ``after`` backward, or each ``in-backward`` as soon
            as its gradient is there, which goes at once (GaLore per layer, LOMO, torchtune's
            ``optimizer_in_bwd``).
        frozen_weights: Format in which dense weights that are not trained are stored (QLoRA): of
            all linear layers, or with ``gptq`` and ``awq``, which have 4 bits, of the language
            model's blocks alone.
        frozen_products: What products with such weights keep for backward: nothing, as weights are
            ``widened`` again, their widened copies (``kept``, as torchao's tensors of weights alone
            do), their inputs op by op as they are ``cast`` to 8 bits (torchao's of both), or their
            inputs in attributes of the graph (bitsandbytes to 0.43.0). A loop that holds its loss
            has those ``held`` until the next loss is there; with ``attached`` they are there until
            backward is over, whatever is computed again, as checkpoints that are not reentrant take
            from the graph what autograd saved, and nothing else.
        libraries: Releases that run where they are not the newest, such as ``torch==1.10``: what
            they keep for the backward pass (`saved_tensors`), and how ripe their kernels are.
        widens_in_kernels: Whether eager kernels widen quantised weights themselves, rather than
            into a copy.
        convolutions: Kernels of convolutions: those that libraries choose, or ``tuned``, written by
            hand for the shapes of one model, which a compiled graph has with the chain that
            follows inside.
        is_served: Whether an inference engine runs it (`served`).
        engine_kernels: Kernels of that engine: ``tuned`` for the device, of an ``early`` release on
            devices of makers it was not written for, or ``portable``, written once for all.
        cache_format: Of keys and values while an engine serves: as wide as activations (``wide``),
            FP8 (``fp8``), or whatever its checkpoints of that precision bring (``usual``; wide
            where no engine is known).
        loss: How the loss over a vocabulary is computed: ``plain`` as the model is written,
            ``wide`` in FP32, ``shifted`` and ``wide-shifted`` in FP32 on one more copy, ``fused``
            in one kernel on the logits' own memory, ``fused-wide`` and the like on such a copy,
            ``compiled-wide`` with new tensors beside it, ``chunked`` with the head inside and never
            whole logits, ``recomputed`` the same with the head's product repeated in backward
            (`paceline.model.rewrite.loss`).
        results: Whether a step holds what the model returned until its update, as
            ``output = model(x)`` in a loop does, or lets go of it once there is a loss, as
            trainers do: logits, keys and values of a cache, detections.
        widths: Sizes of weights ``as-written``, or ``padded`` to what matrix units load at a time,
            as trainers pad vocabularies.
        table_updates: Whether tables of embeddings are updated whole (``dense``), from the
            gradients of the rows that were read (``sparse``), or row by row within the backward
            pass of the lookup (``fused``); ``as-written`` as the model's trainer does.
        adapter_inputs: What adapters read: what their layer reads (``shared``), an FP32 copy of it
            for FP32 adapters beside a narrow base (``cast``), or that after dropout, with its mask
            (``dropped``).
        objective: What is trained for: the ``next-token`` or whatever else the graph has, or
            preferences, for which frozen references, reward models and critics as large as the
            model run beside it (`paceline.model.objectives`).
        peaks: How well the memory of the software that runs the step is known: its peaks were
            ``measured``, they are ``derived`` from the code of a trainer, the ``lengths`` of its
            texts are not known beside that, or they are ``rough``, as its pictures or its code are
            not known. It widens what a peak may be.
    """

    precision: str = "bf16"
    compiler: Compiler = "eager"
    checkpointing: Checkpointing = "none"
    checkpoint_blocks: str = "1"
    checkpoint_inputs: CheckpointInputs = "freed"
    platform: Platform = "cuda"
    channels_last: bool = True
    attention: AttentionKernels = "flash"
    optimizer_kernel: OptimizerKernel = "foreach"
    frozen: tuple[str, ...] = ()
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = ()
    lora_kind: AdapterKind = "lora"
    num_adapters: int = 0
    offload: Literal["none", "optimizer", "weights", "activations"] = "none"
    training_format: TrainingFormat = "usual"
    inference_format: NarrowFormat = "pure"
    accumulates: bool = False
    gradient_buffers: int = 0
    update: Literal["after", "in-backward"] = "after"
    frozen_weights: Literal["same", "fp8", "int8", "nvfp4", "mxfp4", "int4", "gptq", "awq"] = "same"
    frozen_products: FrozenProducts = "widened"
    libraries: tuple[str, ...] = ()
    widens_in_kernels: bool = False
    convolutions: Literal["library", "tuned"] = "library"
    is_served: bool = False
    engine_kernels: EngineKernels = "tuned"
    cache_format: CacheFormat = "usual"
    loss: Loss = "plain"
    results: Literal["held", "dropped"] = "held"
    widths: Literal["as-written", "padded"] = "as-written"
    table_updates: TableUpdates = "as-written"
    adapter_inputs: AdapterInputs = "shared"
    objective: Objective = "next-token"
    peaks: Peaks = "measured"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostTable:
    """Distinct ops of a lowered pass with their counts, and the order in which they run.

    Attributes:
        kind: ``OpKind``, int16 (num_rows,).
        variant: Meaning within the kind, int16.
        phase: ``Phase``, int8.
        matmul_dtype: ``DType`` of matrix-product operands (selects the peak), int8.
        count: How often the row occurs, float64.
        num_kernels: Kernels one occurrence launches on the platform (0 if fused away), float64.
        flop: (num_rows, 9) coefficients.
        read_bytes: Device-memory bytes read, (num_rows, 9).
        write_bytes: Device-memory bytes written, (num_rows, 9).
        dims: Shape numbers of the kind, (num_rows, NUM_DIMS, 9).
        weight_bytes: Of ``read_bytes``, those of parameters, (num_rows, 9).
        order: Row of each op in execution order, int32 (num_ops,).
        module: Index into ``modules`` of each op in execution order, int32 (num_ops,).
        modules: Dotted module paths.
    """

    kind: npt.NDArray[np.int16]
    variant: npt.NDArray[np.int16]
    phase: npt.NDArray[np.int8]
    matmul_dtype: npt.NDArray[np.int8]
    count: FloatArray
    num_kernels: FloatArray
    flop: FloatArray
    read_bytes: FloatArray
    write_bytes: FloatArray
    dims: FloatArray
    weight_bytes: FloatArray
    order: npt.NDArray[np.int32]
    module: npt.NDArray[np.int32]
    modules: tuple[str, ...]

    @classmethod
    def joined(cls, tables: Sequence[CostTable]) -> CostTable:
        """Rows and ops of some tables of the same modules, one table after the other."""
        starts = np.cumsum([0, *(len(one.kind) for one in tables[:-1])])
        columns = {
            one.name: np.concatenate([getattr(table, one.name) for table in tables])
            for one in fields(cls)
            if one.name not in ("order", "modules")
        }
        orders = [one.order + start for one, start in zip(tables, starts, strict=True)]
        return cls(**columns, order=np.concatenate(orders), modules=tables[0].modules)

    def moved_bytes(self, powers: FloatArray) -> FloatArray:
        """Device-memory bytes that each row reads and writes, (num_points, num_rows).

        Weights of experts that no token reaches are not read. A mixture of experts is a batch of
        products with equally many rows on average; a token has a share ``f`` of the experts, so
        of ``n`` tokens that are routed independently none reaches an expert at a chance of
        ``(1 - f)^n``.

        Args:
            powers: Monomials at the points, (num_points, 9).
        """
        moved: FloatArray = powers @ (self.read_bytes + self.write_bytes).T
        rows = self.expert_rows()
        unread_frac = self.unread_frac(rows, powers @ self.dims[rows, 1].T)
        moved[:, rows] -= unread_frac * (powers @ self.weight_bytes[rows].T)
        return moved

    def widens(self) -> npt.NDArray[np.bool_]:
        """Whether a row multiplies with weights of less than eight bits, (num_rows,)."""
        elements = self.dims[:, [0, 2, 3], 0].prod(axis=1)
        weights = self.weight_bytes[:, 0]
        is_product = self.kind == OpKind.MATMUL
        widens: npt.NDArray[np.bool_] = is_product & (weights > 0.0) & (weights < elements)
        return widens

    def expert_rows(self) -> npt.NDArray[np.intp]:
        """Rows that are products of experts: one token has less than a row in each."""
        is_product = (self.kind == OpKind.MATMUL) & (self.dims[:, 0, 0] > 1)
        rows_of_one = self.dims[:, 1].sum(axis=1)
        is_shared = (rows_of_one > 0.0) & (rows_of_one < 1.0)
        return np.flatnonzero(is_product & is_shared & self.weight_bytes.any(axis=1))

    def unread_frac(self, rows: npt.NDArray[np.intp], each: FloatArray) -> FloatArray:
        """Share of experts that get no token.

        Args:
            rows: Of `expert_rows`.
            each: Rows per expert on average, (num_points, len(rows)).
        """
        share = self.dims[rows, 1].sum(axis=1)
        unread: FloatArray = (1.0 - share) ** (each / share)
        return unread


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatheredShares:
    """What ranks that split weights hold whole at the moments that can be the peak.

    Shapes: (2, num_moments).

    The rows are two ways to wrap a model: each repeated block and each module beside them is
    gathered by itself; or blocks are, and all that lies beside them stays gathered from the
    first forward to the last backward, as PyTorch's FSDP keeps its root.

    Attributes:
        weights: Share of the weights: of what runs and of what comes next.
        gradients: Share of the gradients that are whole until they are reduced.
    """

    weights: FloatArray
    gradients: FloatArray

    def take(self, moments: npt.NDArray[np.int64]) -> GatheredShares:
        """Those of some moments."""
        return GatheredShares(
            weights=self.weights[:, moments], gradients=self.gradients[:, moments]
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryTable:
    """Live bytes at the moments that can be the peak.

    Attributes:
        by_owner: Live bytes per candidate moment and ``Owner``, (num_moments, num_owners, 9):
            exact sums over storages, before allocator rounding.
        op: Op index of each moment, int32 (num_moments,).
        weight_copies: Of the live bytes, narrow copies of parameters, (num_moments, 9).
        largest_bytes: Largest single storages of those that come and go, (num_storages_kept, 9),
            for what an allocator keeps beside them.
        num_allocations: Storages live at each moment, float64 (num_moments,).
        gathered: What ranks that split weights hold whole; None where nobody says.
    """

    by_owner: FloatArray
    op: npt.NDArray[np.int32]
    weight_copies: FloatArray
    largest_bytes: FloatArray
    num_allocations: FloatArray
    gathered: GatheredShares | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoweredPass:
    """One pass as it will run: its costs, its memory and the configuration that made it.

    Attributes:
        name: Name of the graph.
        costs: For time.
        memory: For the peak.
        num_parameters: Parameters of the model.
        num_trainable_parameters: Parameters that receive gradients.
        gradient_bytes: Bytes of all gradients as they would be all-reduced.
        parameter_bytes: Bytes of parameters as stored on the device for this pass.
        optimizer_state_bytes: Bytes of optimizer state (master weights included).
        gradient_ready: For each trainable parameter tensor, in the order gradients become ready:
            (op index in execution order, bytes); float64 (num_tensors, 2). Empty in inference.
    """

    name: str
    configuration: Configuration
    costs: CostTable
    memory: MemoryTable
    num_parameters: int
    num_trainable_parameters: int
    gradient_bytes: float
    parameter_bytes: float
    optimizer_state_bytes: float
    gradient_ready: FloatArray
