"""What a published row runs: the model, its configuration and its batch, or why we cannot tell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Literal

from paceline.catalog.entities import Device
from paceline.model.graph.costs import AttentionKernels, Checkpointing, Compiler, Configuration
from paceline.model.graph.workload import Task
from paceline.model.items import is_denoiser
from paceline.model.names.lookup import hub_entry_of
from paceline.model.settings import read_settings
from paceline.parallelism.split import SplitShape
from paceline.scoring.assumed import Assumed, note_of, widening
from paceline.scoring.naming.inference_ranks import WHOLE, split_of
from paceline.scoring.naming.models import PublishedModel, UnresolvedRowError, resolve_model
from paceline.scoring.naming.precisions import (
    cache_format_of,
    names_adapters,
    resolve_precision,
)
from paceline.scoring.naming.serving import Requests, note_on_host, requests_of
from paceline.scoring.naming.software import inference_format_of, optimizer_kernel_of
from paceline.scoring.naming.stated_lengths import decoding_steps
from paceline.scoring.rows import Row
from paceline.scoring.tables import fitting_lines, read_table
from paceline.stack.engines import USUAL_LOOP, find_engine, runs_models
from paceline.stack.releases import shipped_release_dates
from paceline.stack.trainers import builds_hub_models
from paceline.values import dataclass

__all__ = ["ENGINES", "Reading", "UnresolvedRowError", "leaving_open", "on_device", "read_job"]

#: Releases of PyTorch before this one had no fused attention.
_FUSED_ATTENTION_SINCE = 2.0
#: Frameworks that came with fused attention or after it.
_FUSES_ATTENTION = (
    r"vllm|sglang|tensorrt|mlperf.*cuda|trt-llm|text-generation-inference|lmdeploy|llm-foundry|litgpt|onediff|"
    r"megatron|nemo|diffusers|xdit|torchtitan|torchtune|torchao|llama-recipes|\btimm\b|jax|flax|"
    r"maxtext"
)
#: Of Transformers since it takes PyTorch's fused attention by itself (4.36, December 2023).
_TRANSFORMERS_OF_OLD = re.compile(r"transformers v?4\.([12]?\d|3[0-5])\b", re.IGNORECASE)
#: Its sweeps run Triton's version of the first FlashAttention (mosaicml/llm-foundry,
#: scripts/train/benchmarking/submit_benchmarks.py: ``attn_impl`` is ``triton``).
_FIRST_FUSED_ATTENTION = re.compile(r"llm-foundry", re.IGNORECASE)
#: Where NVIDIA's own libraries bring the attention.
_VENDORS_ATTENTION = re.compile(
    r"megatron|nemo|nvidia release|\bngc\b|transformer[- ]?engine", re.IGNORECASE
)
_CHANNELS_LAST = re.compile(r"\bnhwc\b|channels[_ ]last", re.IGNORECASE)
#: Training code that rounds vocabularies up to multiples of 8 to 512 words: Megatron-LM
#: (`--make-vocab-size-divisible-by`), NVIDIA's examples and MLPerf's (run_pretraining.py: "Padding
#: for divisibility by 8"), LitGPT (`padded_vocab_size`), nanoGPT and llm-foundry.
_PADS_WIDTHS = re.compile(r"ngc|nvidia|mlperf|megatron|nemo|litgpt|nanogpt|foundry", re.IGNORECASE)
#: Inference engines, as the table of frameworks calls their host and graph.
ENGINES = "vllm"
_TUNED = re.compile(r"\btuned convolutions\b", re.IGNORECASE)
_OPTIMIZER = re.compile(r"\boptimizer[=: ]\s*([\w-]+)", re.IGNORECASE)
_CHECKPOINTING = re.compile(r"(?<!no )(activation|gradient) checkpointing", re.IGNORECASE)
#: LLaMA-Adapter trains a few prompts per layer: as good as nothing beside the base, as LoRA does.
_PROMPT_ADAPTER = re.compile(r"\badapter\b(?!.?v2)", re.IGNORECASE)
_ADAPTER = re.compile(r"\badapter\b", re.IGNORECASE)
_NARROW_WEIGHTS: dict[Literal["int4", "int8"], re.Pattern[str]] = {
    "int4": re.compile(r"\b(nf4|fp4|int4|4-?bit|awq|gptq|qlora)\b", re.IGNORECASE),
    "int8": re.compile(r"\bbnb\.int8\b|\b8-bit weights\b", re.IGNORECASE),
}
#: bitsandbytes multiplies one token with 4-bit weights in one kernel (`matmul_4bit` takes
#: `gemv_4bit` where ``A.numel() == A.shape[-1]``); more tokens are multiplied with a widened copy.
_ONE_TOKEN_KERNEL = re.compile(r"\bbnb\.[nf]", re.IGNORECASE)
#: LitGPT wraps and recomputes blocks on several devices (finetune/*.py: ``FSDPStrategy`` with
#: ``activation_checkpointing_policy={Block}``).
_RECOMPUTES_SHARDED = re.compile(r"litgpt", re.IGNORECASE)
_CASTS_PARAMETERS = re.compile(r"llm-?foundry|composer|torchtitan", re.IGNORECASE)
#: Trainers of models whose own code has attention without a fused kernel.
_WRITES_OUT = ("transformers", "deepspeed", "unsloth")
_VERSION = re.compile(r"torch[ =:/-]+v?(\d+\.\d+)", re.IGNORECASE)


#: What the tables of adapters on quantised weights ran.
_QUANTISES = ("bitsandbytes==0.41",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a row runs, in paceline's terms.

    Attributes:
        entry: Model as typed.
        task: Training or inference.
        seq: Sequence length; None takes the model's default.
        peak_seq: Length at which memory peaks; None for ``seq``.
        image_size: Side of the input; None takes the model's default.
        optimizer: As stated; None takes the model's default.
        configuration: Precision, compiler, layout and the rest.
        framework: Whose host dispatch applies.
        batch_per_gpu: Items per device and microbatch.
        grad_accumulation: Microbatches per step.
        units_per_item: What the sources of this model count per batch item, where it is neither
            items nor tokens of the whole sequence.
        num_passes: Passes that make one step of the row.
        log_level: Log of the time that the framework takes over that of its kernels.
        log_sigma: What is left out of the graph, and what is assumed, widens the interval so much.
        framework_log_sigma: As its framework's rows spread, likewise.
        is_cut: Memory of the graph is not that of an item.
        has_adapters: The entry is the framework's own code with its adapters.
        note: What was assumed where the row is silent.
        requests: What is served, where the row says so.
        split: How devices share the model in inference.
        assumed: What the row does not say; such rows are predicted and never fitted to.
    """

    entry: str
    task: Task
    seq: int | None
    peak_seq: int | None
    image_size: int | None
    optimizer: str | None
    configuration: Configuration
    framework: str
    batch_per_gpu: float
    grad_accumulation: float
    units_per_item: float | None
    num_passes: float
    log_level: float
    log_sigma: float
    framework_log_sigma: float
    is_cut: bool = False
    has_adapters: bool = False
    note: str = ""
    requests: Requests | None = None
    split: SplitShape = WHOLE
    assumed: tuple[Assumed, ...] = ()


def read_job(row: Row) -> Reading:
    """The job of a row.

    Raises:
        UnresolvedRowError: The row cannot be believed, the model or the precision is unknown, or
            the batch that is served.
    """
    if row.damage:
        raise UnresolvedRowError(row.damage)
    model = resolve_model(row)
    framework = _framework(row) or _framework(replace(row, framework=""))
    assert framework is not None
    task: Task = "train" if row.task.startswith("train") else "infer"
    split = split_of(row) if task == "infer" else WHOLE
    batch, accumulation = _batch(row, split.num_sharing)
    assumed = _assumed(row, batch)
    requests = requests_of(row) if task == "infer" else None
    notes = (
        row.note,
        framework["note"] if not row.framework else "",
        note_of(assumed),
        note_on_host(row.framework) if requests else "",
    )
    return Reading(
        entry=_as_written(model.entry, row.framework),
        task=task,
        seq=model.seq if model.is_seq_given else _whole(row.seq) or _context(requests) or model.seq,
        peak_seq=_whole(row.peak_seq) or (None if row.seq else model.peak_seq),
        image_size=None if model.has_own_size else _whole(row.image_size) or model.image_size,
        optimizer=_optimizer(row, task),
        configuration=_configuration(row, framework, model),
        framework=framework["framework"],
        batch_per_gpu=batch,
        grad_accumulation=accumulation,
        units_per_item=model.train_units if task == "train" else model.infer_units,
        num_passes=_passes(model, row, task, batch),
        log_level=float(framework["log_level"] or 0.0),
        log_sigma=math.hypot(model.log_sigma, widening(assumed)),
        framework_log_sigma=float(framework["log_sigma"] or 0.0),
        is_cut=model.is_cut,
        has_adapters=model.has_adapters,
        note="; ".join(note for note in notes if note),
        requests=requests,
        split=split,
        assumed=assumed,
    )


def _as_written(entry: str, framework: str) -> str:
    """The entry as the framework of the row writes the model."""
    return hub_entry_of(entry) if builds_hub_models(framework) else entry


def _assumed(row: Row, batch: float) -> tuple[Assumed, ...]:
    """What the row does not say, in the order of the table of assumptions."""
    missing: dict[Assumed, bool] = {
        "framework": _framework(row) is None,
        "batch": math.isnan(batch),
    }
    return tuple(what for what, is_missing in missing.items() if is_missing)


def _context(requests: Requests | None) -> int | None:
    return requests.mean_context if requests else None


#: Formats that engines multiply in 16 bits where units have none of their own (vLLM, FP8 W8A8:
#: Ampere runs weights alone in FP8 by Marlin's kernels; recalled).
_WIDENED = {"fp8": "int8", "nvfp4": "int4"}


def _passes(model: PublishedModel, row: Row, task: Task, batch: float) -> float:
    """Passes of an item. Training of a denoiser takes one, of a step that it draws."""
    if task == "train" and is_denoiser(model.entry):
        return 1.0
    return decoding_steps(model.entry, row.framework, batch, model.num_passes)


def on_device(job: Reading, device: Device) -> Reading:
    """The job as frameworks run it there: TF32 is plain FP32 where no unit has it.

    FP16 runs in the other format of 16 bits where units have that alone. Engines keep
    narrow weights where no unit multiplies them, and widen them on the way. Modules for
    the edge have power modes, and rows do not say which was set. PyTorch without a release is no
    older than the device. What is neither a GPU nor a CPU runs whole graphs.
    """
    if device.device_class == "edge":
        job = leaving_open(job, "power-mode")
    job = _in_graphs(_no_older_than(job, device), device)
    peaks = device.peak_flop_per_s
    instead = {"tf32": "fp32"}
    if "bf16" in peaks:
        instead["fp16"] = "bf16"
    if job.configuration.is_served:
        instead |= _WIDENED
    precision = job.configuration.precision
    if precision in peaks or precision not in instead:
        return job
    return replace(job, configuration=replace(job.configuration, precision=instead[precision]))


def leaving_open(job: Reading, *what: Assumed) -> Reading:
    """The job with what its row does not say: in its note, and in the width of its interval."""
    note = "; ".join(filter(None, (job.note, note_of(what))))
    return replace(job, log_sigma=math.hypot(job.log_sigma, widening(what)), note=note)


def _no_older_than(job: Reading, device: Device) -> Reading:
    """The job with fused attention, where its device came out after PyTorch had that."""
    how = job.configuration
    is_undated = job.framework == USUAL_LOOP and how.attention == "math" and not how.libraries
    if not is_undated or (device.year or 0) < int(_fused_attention_year()):
        return job
    return replace(job, configuration=replace(how, attention="flash-2"))


def _in_graphs(job: Reading, device: Device) -> Reading:
    """The job compiled where nothing launches op by op: on TPUs, Gaudi and Trainium."""
    how = job.configuration
    if device.kind in ("gpu", "cpu"):
        return job
    return replace(job, configuration=replace(how, compiler="xla"))


@cache
def _fused_attention_year() -> float:
    return shipped_release_dates().years[f"torch=={_FUSED_ATTENTION_SINCE}"]


def _framework(row: Row) -> dict[str, str] | None:
    """The line for what a row names, else for the nearest to it that has one."""
    found = _framework_line(row.framework, row.task, row.flags)
    if found or not row.framework.strip() or not runs_models(row.framework):
        return found
    return _framework_line(find_engine(row.framework).name, row.task, row.flags)


@lru_cache(maxsize=8192)
def _framework_line(framework: str, task: str, flags: str) -> dict[str, str] | None:
    for known in read_table("framework_names.csv"):
        if (
            re.fullmatch(known["pattern"], framework, re.IGNORECASE)
            and task.startswith(known["task"])
            and re.fullmatch(known["flags_pattern"] or ".*", flags, re.IGNORECASE)
        ):
            return known
    return None


def _configuration(row: Row, framework: dict[str, str], model: PublishedModel) -> Configuration:
    compilers: dict[str, Compiler] = {c: c for c in ("eager", "compiled", "xla", "tensorrt")}
    compiler = compilers[framework["compiler"]]
    checkpointing: Checkpointing = "block" if _recomputes(row) else "none"
    plain = Configuration(
        precision=resolve_precision(row),
        compiler=compiler,
        checkpointing=checkpointing,
        platform="cpu" if row.num_gpus == 0 or row.gpu.startswith("CPU") else "cuda",
        channels_last=_is_channels_last(row, compiler),
        attention=_attention(row, framework),
        optimizer_kernel=optimizer_kernel_of(row.framework),
        training_format="pure" if _is_pure(row) else "autocast",
        inference_format=inference_format_of(row.framework, row.precision),
        libraries=shipped_release_dates().named_in(row.framework),
        widths="padded" if _PADS_WIDTHS.search(row.framework) else "as-written",
        convolutions="tuned" if _TUNED.search(row.flags) else "library",
        is_served=framework["framework"] == ENGINES and not row.task.startswith("train"),
        cache_format=cache_format_of(row),
    )
    tuned = _tuned(row, plain, has_adapters=model.has_adapters)
    asked = read_settings(row.rewrite, tuned)
    return replace(asked, lora_rank=0, lora_modules=()) if model.has_adapters else asked


def _is_channels_last(row: Row, compiler: Compiler) -> bool:
    """Whether convolutions run in NHWC: as the row says, or as builders of engines choose."""
    return compiler == "tensorrt" or bool(_CHANNELS_LAST.search(row.flags))


def _is_pure(row: Row) -> bool:
    """Whether everything between weights and loss is in the narrow format.

    FSDP's mixed precision computes on narrow parameters, and MPT's norm is
    ``low_precision_layernorm`` (``MPTConfig`` of mosaicml/llm-foundry); torchtitan's FSDP2 has
    ``mixed_precision_param`` in BF16. Autocast has no part in it.
    """
    is_fsdp = "fsdp" in row.parallelism.lower()
    casts_parameters = is_fsdp and _CASTS_PARAMETERS.search(row.framework)
    return bool(row.precision.endswith("-true") or casts_parameters)


def _recomputes(row: Row) -> bool:
    is_sharded = row.num_devices > 1 and "fsdp" in row.parallelism.lower()
    by_default = is_sharded and _RECOMPUTES_SHARDED.search(row.framework)
    return bool(by_default or _CHECKPOINTING.search(row.flags))


def _tuned(row: Row, plain: Configuration, *, has_adapters: bool) -> Configuration:
    """With what the flags say of adapters and of the format of weights.

    Raises:
        UnresolvedRowError: Adapters on every dense layer, other than LoRA.
    """
    trains = row.task.startswith("train")
    said = f"{row.flags}; {row.precision}; {row.model}" if trains else row.flags
    weights = next((name for name, words in _NARROW_WEIGHTS.items() if words.search(said)), None)
    if not trains:
        in_kernels = bool(_ONE_TOKEN_KERNEL.search(row.flags)) and row.batch_per_gpu == 1
        quantised = replace(plain, precision=weights or "", widens_in_kernels=in_kernels)
        return quantised if weights else plain
    if has_adapters:
        return replace(
            plain,
            frozen_weights=weights or "same",
            libraries=(*plain.libraries, *(_QUANTISES if weights else ())),
        )
    has_prompts = bool(_PROMPT_ADAPTER.search(row.flags))
    if _ADAPTER.search(row.flags) and not has_prompts:
        raise UnresolvedRowError("adapters that scale every dense layer are not modelled")
    if not (names_adapters(row) or has_prompts):
        return plain
    adapters = next(fitting_lines("lora_defaults.csv", {"framework": row.framework}))
    return replace(
        plain,
        lora_rank=int(adapters["rank"]),
        lora_modules=tuple(adapters["modules"].split()),
        frozen_weights=weights or "same",
        libraries=(*plain.libraries, *(_QUANTISES if weights else ())),
    )


def _attention(row: Row, framework: Mapping[str, str]) -> AttentionKernels:
    if _FIRST_FUSED_ATTENTION.search(row.framework):
        return "memory-efficient"
    if not _has_fused_attention(row):
        return "eager" if row.trainer in _WRITES_OUT else "math"
    if _VENDORS_ATTENTION.search(row.framework):
        return "vendor"
    # Measurements of PyTorch that name no release were made before the newest.
    is_torch = framework["framework"] == USUAL_LOOP and framework["compiler"] != "tensorrt"
    is_dated = shipped_release_dates().named_in(row.framework)
    return "flash-2" if is_torch and not is_dated else "flash"


def _has_fused_attention(row: Row) -> bool:
    if match := _VERSION.search(row.framework):
        return float(match.group(1).split(".")[0]) >= _FUSED_ATTENTION_SINCE
    if row.trainer == "transformers" or builds_hub_models(row.framework):
        return not _TRANSFORMERS_OF_OLD.search(row.framework)
    if re.search(_FUSES_ATTENTION, row.framework, re.IGNORECASE):
        return True
    is_undated = not shipped_release_dates().named_in(row.framework)
    return is_undated and row.trainer not in _WRITES_OUT and _is_young_model(row.model)


@lru_cache(maxsize=8192)
def _is_young_model(name: str) -> bool:
    """Whether a model came out after PyTorch had fused attention, which it then ran with."""
    lines = fitting_lines("young_models.csv", {"pattern": name.strip()})
    return any(float(line["since"]) >= _fused_attention_year() for line in lines)


def _optimizer(row: Row, task: Task) -> str | None:
    """As stated, or the nearest that is known; None takes the model's default.

    >>> from paceline.scoring.rows import parse_row
    >>> row = {"model": "m", "gpu": "g", "compiler_flags": "optimizer=adadelta; power_limit_w=100"}
    >>> _optimizer(parse_row(row), "train")
    'adam'
    """
    if task != "train":
        return None
    if row.optimizer:
        return row.optimizer
    stated = _OPTIMIZER.search(row.flags)
    words = [stated.group(1)] if stated else re.findall(r"[\w-]+", row.flags)
    for known in read_table("optimizer_names.csv"):
        if any(re.fullmatch(known["pattern"], word, re.IGNORECASE) for word in words):
            return known["optimizer"]
    return None


def _batch(row: Row, num_sharing: int) -> tuple[float, float]:
    """Items per device and microbatch, not a number where training states none; and microbatches.

    Devices that share items in inference, ``num_sharing`` of them, all have the same ones. A whole
    number of times as many items in a step as devices take at a time are so many microbatches.

    Raises:
        UnresolvedRowError: What is served in which batch nobody can tell, or a batch is none.
    """
    stated = [size for size in (row.batch_per_gpu, row.global_batch) if size is not None]
    if any(size <= 0 for size in stated):
        raise UnresolvedRowError("the row states a batch size of zero or less")
    accumulation = max(row.grad_accumulation or 1.0, 1.0)
    devices = row.num_devices / num_sharing
    if row.batch_per_gpu and row.batch_per_gpu > 0:
        rounds = (row.global_batch or 0.0) / (row.batch_per_gpu * devices)
        is_implied = row.grad_accumulation is None and row.task.startswith("train")
        is_implied &= rounds > 1.0 and rounds.is_integer()
        return row.batch_per_gpu, rounds if is_implied else accumulation
    if row.global_batch and row.global_batch > 0:
        return row.global_batch / devices / accumulation, accumulation
    if row.task.startswith("train"):
        return math.nan, accumulation
    if row.scenario:
        return row.concurrency or 1.0, 1.0
    raise UnresolvedRowError("the row states no batch size")


def _whole(value: float | None) -> int | None:
    return int(value) if value and value >= 1 else None
