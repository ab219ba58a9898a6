"""How a published training ran, in words of its source, as columns that `score` reads.

Tables say in remarks (``recompute=full; cross_entropy=fused``), in flags and in the cell of the
precision what a trainer was asked for. Here those words become the settings that ``--rewrite``
takes. What none of them says is left to the framework's own defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from paceline.model.names.denoisers import Denoiser, denoiser_of
from paceline.scoring.naming.precisions import format_of_name
from paceline.scoring.naming.stated_lengths import reaches_limit, stated_lengths
from paceline.scoring.naming.stated_sizes import is_double, stated_sizes
from paceline.scoring.tables import read_table
from paceline.stack.trainers import as_prepared, trainer_of

_NUMBER = re.compile(r"\d+(\.0+)?")
_SIZE = re.compile(r"\d+(\.\d+)?")
#: Ways of fine-tuning that train everything.
_WHOLE = re.compile(r"full\b.*|pre-?training|none|continued.*", re.IGNORECASE)
#: Remarks that only tables have which say how each row was trained.
_SAYING_HOW = {"finetuning", "method", "adapter", "recompute", "checkpoint_mode", "cross_entropy"}
#: Autocast and no word of the weights: a Trainer's ``fp16`` and ``bf16``, whose weights are FP32.
_AUTOCAST = re.compile(r"amp (bf|fp)16|(bf|fp)16 \(?amp\)?", re.IGNORECASE)
_ENCODER = re.compile(r"bert\b|electra", re.IGNORECASE)
_TORCH = re.compile(r"pytorch", re.IGNORECASE)
#: Rank where none is stated: the default of PEFT's LoraConfig.
_USUAL_RANK = "8"
#: A cell that says more than one format.
_MORE_THAN_ONE = re.compile(
    r"\bbase\b|weights|master|\bo2\b|auto\)|script|compute|eager|compil|or fp16"
    r"|full bf16|-mixed"
)
_FORMAT = re.compile(r"bf16|bfloat16|\bfp16|\bfloat16|\bfp32|\bfloat32|\btf32")
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
#: What is narrow where a cell names base weights.
_NARROW_BASE = (
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"gptq(?!.*int8)"), "gptq"),
    (re.compile(r"awq"), "awq"),
    (re.compile(r"nf4|fp4|int4|4-?bit|4/8"), "int4"),
    (re.compile(r"int8|8-?bit|fp8"), "int8"),
)
_TRAINED_TOO = re.compile(r"[^;(]*\btrained (too|as well|whole)\b", re.IGNORECASE)
_WHOLE_MODULES = (
    (re.compile(r"embed|\bwte\b", re.IGNORECASE), "*embed*"),
    (re.compile(r"head\b|output", re.IGNORECASE), "*head"),
    (re.compile(r"norm", re.IGNORECASE), "*norm*"),
)
_LISA = re.compile(r"lisa_activated_layers=(\d+)")
_LAST_LAYERS = re.compile(r"\blast (\d+) layers", re.IGNORECASE)
_NOTE_ALONE = "it states no batch: its memory is taken as that of one sequence"
_NOTE_DOUBLE = (
    "it states no length of what is written: 114 tokens of 512, as T5 is trained, at their mean"
)
#: Tokens that T5's objective writes over those that it reads (Raffel et al., "Exploring the limits
#: of transfer learning", JMLR 21, 2020, section 3.1.4).
_WRITTEN_FRAC = 114 / 512
#: A microbatch of one sequence.
_ALONE = ("1", "1.0")
_BITSANDBYTES = re.compile(r"\bbnb|bitsandbytes|\bnf4|\bfp4|llm\.int8", re.IGNORECASE)
#: Formats of an optimizer's states behind its name, and states that only weights of 16 bits have.
_NARROW_STATES = re.compile(r"[ _-]+(?:(\d)[- ]?(bit)s?|(?=fp8\b))", re.IGNORECASE)
_HALF_STATES = re.compile(r"\bb?f(?:p|loat)?16 states", re.IGNORECASE)
#: Training on preferences, by the objective's name or that of its trainer; each item of some is a
#: pair. Answers are written in the steps of others, and models of other sizes run in some.
_OBJECTIVE = re.compile(r"\b(ppo|dpo|grpo|kto)(?:_?trainer|config)?\b", re.IGNORECASE)
_PAIRED = re.compile(r"\b(dpo|orpo|simpo|cpo)(?:_?trainer|config)?\b", re.IGNORECASE)
_UNCOUNTED = re.compile(r"\b(ppo|grpo|rlhf|distill\w*)\b", re.IGNORECASE)
_NOTE_PAIRS = "its items are pairs, of two sequences each"
#: Plugins of a trainer that prepare a quantised base by themselves.
_UNPREPARED = re.compile(r"fms-acceleration|accelerated", re.IGNORECASE)
_FSDP = re.compile(r"fsdp *v?(?P<second>2)|fsdp|full shard", re.IGNORECASE)
_ZERO = re.compile(r"^(?!.*(fsdp|colossal)).*(deepspeed|\bzero[- ]?[123])", re.IGNORECASE)
#: What has a ZeRO of its own, or is named already.
_OWN_ZERO = re.compile(r"colossal|megatron|litgpt|deepspeed", re.IGNORECASE)
#: Stage 3 with offload has weights on the host as well (deepspeed.ai, "DeepSpeed ZeRO-3 Offload").
_ZERO_3_OFFLOAD = re.compile(r"\bzero[- ]?3[- ]offload", re.IGNORECASE)
#: How weights are kept, by words of the cell; of mixed precision alone, its trainer says.
_KEPT = (
    (re.compile(r"b?f(p|loat)?16 master"), "pure"),
    (re.compile(r"\bo2\b|master"), "half-weights"),
    (re.compile(r"weights[^;,]*(?<!no )\b(amp|autocast)\b(?! off)"), "narrow-autocast"),
    (re.compile(r"no amp|b?f(p|loat)?16 weights|-true|full bf16|optimizer states"), "pure"),
    (re.compile(r"\bamp\b|-mixed|fp32 weights"), "autocast"),
)


def stated_training(row: Mapping[str, str]) -> dict[str, str]:
    """Columns of a training row that its words fill: settings, optimizer, sizes, kind of memory.

    Args:
        row: Cells of a row by column; what they say already stays.
    """
    remarks = remarks_of(row.get("extra", ""))
    precision, kept = stated_precision(row.get("precision", ""))
    published = format_of_name(row.get("model", ""))
    if published in ("int4", "int8") and has_adapters(remarks):
        kept.setdefault("frozen_weights", published)
    trainer = trainer_of(_software_of(row), trains_all=not has_adapters(remarks))
    is_described = bool(remarks.keys() & _SAYING_HOW)
    usual = dict(_pairs(trainer.settings)) if is_described else {}
    settings = _as_trained(usual, settings_of(remarks, kept))
    settings |= _kept_trained(remarks, row.get("compiler_flags", ""))
    settings |= _trained_whole(remarks, row.get("compiler_flags", ""))
    if settings.get("frozen_products") == "attached" and not _is_of_bitsandbytes(remarks, row):
        settings.pop("frozen_products")
    if _ZERO_3_OFFLOAD.search(row.get("parallelism", "")):
        settings["offload"] = "weights"
    said = _objectives_in(row, remarks)
    if named := _OBJECTIVE.search(said):
        settings["objective"] = named[1].lower()
    batch = _batch_of_memory(row, remarks)
    if (batch or row.get("batch_per_gpu", "")) in _ALONE:
        settings = _as_alone(settings)
    settings = _as_network_reads(settings, denoiser_of(row.get("model", "")))
    settings = _as_wrapped(settings, row.get("framework", ""))
    if trainer.name == "transformers" and _ENCODER.search(row.get("model", "")):
        settings = _as_guessed(settings)
    if trainer.name == "transformers":
        sharded = _FSDP.search(row.get("parallelism", ""))
        if _AUTOCAST.fullmatch(row.get("precision", "")):
            settings["training_format"] = "autocast"
        settings = _as_cast(settings, is_sharded=sharded is not None)
        settings = _as_hooked(settings, is_first=sharded is not None and not sharded["second"])
        is_prepared = trainer.prepares and _is_prepared(remarks, row)
        if sharded is None and "lora_rank" in settings and is_prepared:
            frozen = settings.get("frozen_weights", "same")
            settings = as_prepared(settings, frozen)
    lengths = stated_lengths(remarks, row) if is_described else {}
    geometry = row.get("geometry") or stated_sizes(remarks, row, dropout=trainer.dropout)
    guesses_length = (lengths and not reaches_limit(remarks, row)) or is_double(geometry)
    if is_described:
        peaks = "rough" if _UNCOUNTED.search(said) else settings.get("peaks", "rough")
        settings["peaks"] = _known_of(peaks, guesses_length=guesses_length)
    stated = (f"{name}={value}" for name, value in settings.items())
    found = {
        "precision": precision,
        "rewrite": ",".join(filter(None, (*stated, row.get("rewrite", "")))),
        "optimizer": row.get("optimizer") or _optimizer(remarks.get("optimizer", "")),
        "geometry": geometry,
        "trainer": trainer.name if is_described else "",
        "parallelism": _with_chunks(row.get("parallelism", ""), remarks),
        "memory_kind": row.get("memory_kind")
        or _kind(remarks.get("memory_kind", ""), trainer.reports),
        "memory_rank": row.get("memory_rank") or _rank(remarks.get("memory_kind", "")),
        "batch_per_gpu": batch,
        "note": _NOTE_ALONE if batch else _NOTE_DOUBLE if is_double(geometry) else "",
        **(
            _two_of_each({**row, **({"batch_per_gpu": batch} if batch else {})})
            if _PAIRED.search(said)
            else {}
        ),
        "seq_len": _mean_length(row.get("seq_len", "")) if is_double(geometry) else "",
        **lengths,
    }
    return {name: value for name, value in found.items() if value}


def _objectives_in(row: Mapping[str, str], remarks: Mapping[str, str]) -> str:
    """Where a row says what it trains for."""
    cells = (row.get(name, "") for name in ("framework", "compiler_flags"))
    return ";".join((*cells, remarks.get("objective", "")))


def _two_of_each(row: Mapping[str, str]) -> dict[str, str]:
    """The batch in sequences, of one in pairs.

    >>> _two_of_each({"batch_per_gpu": "4", "global_batch": ""})["batch_per_gpu"]
    '8'
    """
    sizes = {name: row.get(name, "") for name in ("batch_per_gpu", "global_batch")}
    twice = {name: f"{2 * float(size):g}" for name, size in sizes.items() if _SIZE.fullmatch(size)}
    return twice | {"note": _NOTE_PAIRS}


def _software_of(row: Mapping[str, str]) -> str:
    """The framework, with DeepSpeed where the layout alone names it or its ZeRO.

    FSDP is called by its own name, ColossalAI's ZeRO by that of its framework.

    >>> _software_of({"framework": "HF Trainer", "parallelism": "ZeRO-3"})
    'HF Trainer, DeepSpeed'
    >>> _software_of({"framework": "HF Trainer", "parallelism": "FSDP (ZeRO-3)"})
    'HF Trainer'
    """
    framework = row.get("framework", "")
    named = _ZERO.search(row.get("parallelism", "")) and not _OWN_ZERO.search(framework)
    return f"{framework}, DeepSpeed" if named else framework


def _mean_length(read: str) -> str:
    """Mean of what an encoder reads and a decoder writes: halves of equal sizes cost as much at it.

    >>> _mean_length("512"), _mean_length("")
    ('313', '')
    """
    return f"{float(read) * (1.0 + _WRITTEN_FRAC) / 2.0:.0f}" if _NUMBER.fullmatch(read) else ""


def _known_of(peaks: str, *, guesses_length: bool) -> str:
    """How well peaks are known of a trainer where nobody says how long its texts were.

    >>> _known_of("derived", guesses_length=True), _known_of("rough", guesses_length=True)
    ('lengths', 'rough')
    """
    return "lengths" if guesses_length and peaks == "derived" else peaks


def _kept_trained(remarks: Mapping[str, str], flags: str) -> dict[str, str]:
    """What stays trained where a row says that its last layers do, of so many.

    >>> said = {"finetuning": "freeze", "layers": "28"}
    >>> _kept_trained(said, "freeze (last 2 layers)")
    {'frozen': 'except:*layers.26|except:*layers.27'}
    >>> _kept_trained({"layers": "32", "tuner_params": "lisa_activated_layers=1"}, "")["frozen"]
    'except:*embed*|except:*head|except:*layers.31'
    """
    if (lisa := _LISA.search(remarks.get("tuner_params", ""))) is not None:
        # Words and head stay trained, and so many layers at a time (Pan et al. 2024, algorithm 1).
        same = {"finetuning": "freeze", "layers": remarks.get("layers", "")}
        kept = _kept_trained(same, f"last {lisa[1]} layers")
        return {name: f"except:*embed*|except:*head|{one}" for name, one in kept.items()}
    last, layers = _LAST_LAYERS.search(flags), remarks.get("layers", "")
    if last is None or not layers.isdigit() or not _freezes(remarks):
        return {}
    trained = range(max(int(layers) - int(last[1]), 0), int(layers))
    return {"frozen": "|".join(f"except:*layers.{number}" for number in trained)}


def _trained_whole(remarks: Mapping[str, str], flags: str) -> dict[str, str]:
    """What is trained whole beside adapters, as remarks or flags say.

    >>> _trained_whole({"finetuning": "lora", "modules_to_save": "embed_tokens+lm_head"}, "")
    {'frozen': 'except:*embed*|except:*head'}
    >>> said = "LoRA (embedding and output layer trained too)"
    >>> _trained_whole({"finetuning": "lora"}, said) == _trained_whole({"finetuning": "full"}, said)
    False
    """
    beside = _TRAINED_TOO.search(flags)
    said = remarks.get("modules_to_save", "") or (beside[0] if beside else "")
    modules = [f"except:{pattern}" for word, pattern in _WHOLE_MODULES if word.search(said)]
    return {"frozen": "|".join(modules)} if modules and has_adapters(remarks) else {}


def _freezes(remarks: Mapping[str, str]) -> bool:
    """Whether what is not trained is frozen, without adapters beside it."""
    method = remarks.get("finetuning") or remarks.get("method") or ""
    return method.startswith(("freeze", "ln_tuning", "lntuning", "trainable_tokens"))


def _batch_of_memory(row: Mapping[str, str], remarks: Mapping[str, str]) -> str:
    """One sequence, where a row of memory states a length and no batch; else empty.

    Tables of memory by length are of single sequences; those of rates fill the device.

    >>> _batch_of_memory({"seq_len": "2048"}, {"memory_kind": "peak"})
    '1'
    """
    is_stated = row.get("batch_per_gpu") or row.get("global_batch")
    is_of_memory = bool(row.get("seq_len")) and "memory_kind" in remarks
    return "1" if is_of_memory and not is_stated else ""


def _as_trained(usual: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
    """Settings that are stated, else a trainer's; one that widens logits widens those of kernels.

    A plain loss is what its trainer makes of one. Beside a frozen base everything is in 16 bits
    where neither says otherwise. What a trainer keeps on the host goes with its own way to
    recompute.

    >>> _as_trained({"loss": "wide"}, {"loss": "fused"}), _as_trained({}, {"loss": "fused"})
    ({'loss': 'fused-wide'}, {'loss': 'fused'})
    >>> _as_trained({"loss": "shifted"}, {"loss": "wide"})
    {'loss': 'shifted'}
    >>> [_as_trained({"loss": "fused-wide"}, {"loss": said})["loss"] for said in ("wide", "fused")]
    ['fused-wide', 'fused-wide']
    """
    settings = {**usual, **stated}
    if "checkpointing" in stated and "offload" not in stated:
        settings.pop("offload", None)
    if "lora_rank" in stated:
        settings.setdefault("training_format", "pure")
    if (loss := usual.get("loss")) in ("plain", "wide", "fused-wide", "shifted", "wide-shifted"):
        fused = {} if loss == "plain" else {"fused": f"fused-{loss.removeprefix('fused-')}"}
        as_usual = {"wide": loss} | fused
        settings["loss"] = as_usual.get(settings["loss"], settings["loss"])
    if "lora_rank" not in stated:
        settings.pop("adapter_inputs", None)
    return settings


def _as_alone(settings: Mapping[str, str]) -> dict[str, str]:
    """One sequence without its last token lies as it lay: nothing is copied before the loss.

    >>> _as_alone({"loss": "fused-wide-shifted"})
    {'loss': 'fused-shifted'}
    """
    loss = settings.get("loss", "")
    return {**settings, "loss": loss.replace("wide-shifted", "shifted")} if loss else dict(settings)


def _as_wrapped(settings: Mapping[str, str], framework: str) -> dict[str, str]:
    """A loss in FP32 where 16-bit weights have FP32 masters and nobody says more.

    What wraps such a model of PyTorch casts what it returns: apex at level O2, and Megatron's
    module of FP16.

    Source: NVIDIA/apex, amp/_initialize.py (``output_caster``), and NVIDIA/Megatron-LM,
        model/module.py (``fp16_to_float32``; recalled 2026-11-29).

    >>> _as_wrapped({"training_format": "half-weights"}, "PyTorch 1.8")["loss"]
    'wide'
    """
    has_masters = settings.get("training_format") == "half-weights"
    is_wrapped = has_masters and bool(_TORCH.search(framework))
    return ({"loss": "wide"} if is_wrapped else {}) | dict(settings)


def _as_guessed(settings: Mapping[str, str]) -> dict[str, str]:
    """The loss of encoders, which guess masked words, in the format of their logits.

    Source: huggingface/transformers 4.48, modeling_bert.py and its like (``BertForMaskedLM``): no
        ``logits.float()``, as decoders have (read 2026-11-29).

    >>> _as_guessed({"loss": "wide"})
    {'loss': 'plain'}
    """
    return {**settings, "loss": "plain"} if settings.get("loss") == "wide" else dict(settings)


def _as_network_reads(settings: Mapping[str, str], family: Denoiser | None) -> dict[str, str]:
    """Which blocks a family of diffusion recomputes where a trainer asks for segments of them.

    Each network has its own loop over its blocks: some take an interval as the width of segments,
    some recompute one block of so many, some each block whatever is asked for, and some none.

    >>> asked = {"checkpointing": "block", "checkpoint_blocks": "2/4"}
    >>> _as_network_reads(asked, denoiser_of("Chroma"))["checkpoint_blocks"]
    '1/2'
    >>> _as_network_reads(asked, denoiser_of("Qwen Image"))
    {'checkpointing': 'block'}
    """
    blocks = settings.get("checkpoint_blocks", "").partition("/")[0]
    others = {name: value for name, value in settings.items() if name != "checkpoint_blocks"}
    if family is None or settings.get("checkpointing") != "block":
        return dict(settings)
    if family.checkpoints == "nothing":
        return {**others, "checkpointing": "none"}
    if not blocks or family.checkpoints == "segments":
        return dict(settings)
    shares = {"checkpoint_blocks": f"1/{blocks}"} if family.checkpoints == "alternate" else {}
    return others | shares


def _as_cast(settings: Mapping[str, str], *, is_sharded: bool) -> dict[str, str]:
    """Weights of 16 bits under autocast, as Hugging Face's models and trainer have them.

    Their norms widen what they read and hand on 16 bits themselves, so that autocast adds nothing.
    FSDP shards FP32 weights, gradients and state instead, and gathers 16 bits (huggingface/
    accelerate, `Accelerator.prepare_model`: "Upcasted low precision parameters").
    """
    if settings.get("training_format") != "narrow-autocast":
        return dict(settings)
    is_upcast = is_sharded and "lora_rank" not in settings
    return {**settings, "training_format": "half-weights" if is_upcast else "pure"}


def _as_hooked(settings: Mapping[str, str], *, is_first: bool) -> dict[str, str]:
    """FSDP1 beside a frozen base holds what enters blocks, checkpoints being reentrant.

    `TrainingArguments.gradient_checkpointing_kwargs` of transformers leaves ``use_reentrant`` on.
    """
    if not is_first or "lora_rank" not in settings or settings.get("checkpointing") != "block":
        return dict(settings)
    return {**settings, "checkpoint_inputs": "kept"}


def _is_prepared(remarks: Mapping[str, str], row: Mapping[str, str]) -> bool:
    """Whether PEFT prepares a base in bitsandbytes' formats, rather than one that GPTQ narrowed.

    Plugins of fms-acceleration prepare by themselves.

    >>> row = {"framework": "trl", "precision": "bf16"}
    >>> _is_prepared({"quant": "bnb 4-bit"}, row), _is_prepared({"quant": "gptq"}, row)
    (True, False)
    """
    plugins = remarks.get("framework_config", row.get("framework", ""))
    return _is_of_bitsandbytes(remarks, row) and not _UNPREPARED.search(plugins)


def _is_of_bitsandbytes(remarks: Mapping[str, str], row: Mapping[str, str]) -> bool:
    """Whether bitsandbytes narrows the base."""
    keys = ("quant", "quantisation", "quantization", "base_weights")
    base = " ".join((*(remarks.get(key, "") for key in keys), row.get("precision", "")))
    return bool(_BITSANDBYTES.search(base))


def _with_chunks(parallelism: str, remarks: Mapping[str, str]) -> str:
    """A layout with the stages of each pipeline rank, where the layers of one are stated.

    Megatron-LM's ``--num-layers-per-virtual-pipeline-stage`` says how many layers a stage has.

    >>> _with_chunks("TP1 PP4", {"virtual_pp": "1", "layers": "12"})
    'TP1 PP4 VP3'
    """
    layers, of_stage = (remarks.get(key, "") for key in ("layers", "virtual_pp"))
    ranks = re.search(r"\bpp *=?(\d+)", parallelism, re.IGNORECASE)
    if ranks is None or not (layers.isdigit() and of_stage.isdigit()):
        return parallelism
    chunks, left = divmod(int(layers), int(ranks[1]) * max(int(of_stage), 1))
    return parallelism if left or chunks < 2 else f"{parallelism} VP{chunks}"


def _pairs(settings: str) -> Iterator[tuple[str, str]]:
    """Name and value of each setting of a line."""
    for pair in filter(None, settings.split(",")):
        name, _, value = pair.partition("=")
        yield name, value


def remarks_of(text: str) -> dict[str, str]:
    """Remarks ``key=value`` by key in lower case; what has no value is left out.

    >>> remarks_of("recompute=full (per block);LoRA rank=16;real")
    {'recompute': 'full (per block)', 'lora rank': '16'}
    """
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def settings_of(remarks: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    """Settings of the step by name, as remarks and the cell of the precision have them.

    Args:
        remarks: By key.
        kept: What the cell of the precision says of weights.

    >>> settings_of({"recompute": "full", "cross_entropy": "plain"}, {})
    {'checkpointing': 'block', 'loss': 'wide'}
    >>> tuned = {"finetuning": "lora", "lora_rank": "16", "lora_targets": "down_proj"}
    >>> settings_of(tuned, {"frozen_weights": "int4"})["lora_modules"]
    '*down_proj|*.down|*fc2'
    >>> settings_of({"optimizer": "AdamW (bf16 states)"}, {})
    {'training_format': 'pure'}
    """
    found = {**kept, **dict(_found(remarks))}
    if _HALF_STATES.search(remarks.get("optimizer", "")):
        found.setdefault("training_format", "pure")
    rank, weights = found.pop("lora_rank", _USUAL_RANK), found.pop("frozen_weights", "same")
    if not has_adapters(remarks):
        # No format below 16 bits is modelled for weights that are trained.
        return {"training_format": "pure"} | found if weights != "same" else found
    modules = "|".join(dict.fromkeys(_patterns(remarks.get("lora_targets", ""))))
    adapters = {"lora_rank": rank, "lora_modules": modules, "frozen_weights": weights}
    return found | {name: value for name, value in adapters.items() if value}


def has_adapters(remarks: Mapping[str, str]) -> bool:
    """Whether a few parameters are trained beside a frozen model; all such ways count as LoRA.

    >>> has_adapters({"finetuning": "full", "lora_rank": "8"}), has_adapters({"method": "qlora"})
    (False, True)
    >>> has_adapters({"finetuning": "freeze"})
    False
    """
    method = remarks.get("finetuning") or remarks.get("method") or remarks.get("adapter", "")
    return bool(method) and not _WHOLE.fullmatch(method) and not _freezes(remarks)


def stated_precision(text: str) -> tuple[str, dict[str, str]]:
    """The format that is computed in, and how weights are kept, of a cell that says both.

    Empty where the cell says one format and no more: other readers know those.

    >>> stated_precision("bf16 compute, nf4 base")
    ('bf16', {'frozen_weights': 'int4'})
    >>> stated_precision("fp16 O2 (fp32 master)"), stated_precision("bf16")
    (('fp16', {'training_format': 'half-weights'}), ('', {}))
    >>> stated_precision("bf16-mixed"), stated_precision("bf16 or fp16 mixed")
    (('bf16', {'training_format': 'autocast'}), ('bf16', {}))
    """
    words = text.lower()
    if not _MORE_THAN_ONE.search(words):
        return "", {}
    parts = re.split(r"[,;]", words)
    base = next((one for one in parts if re.search(r"\bbase\b|weights", one)), "")
    narrow = next((name for pattern, name in _NARROW_BASE if pattern.search(base)), "")
    kept = next((name for pattern, name in _KEPT if pattern.search(words)), "")
    computed = _FORMAT.search(words.replace(base, "") if narrow else words) or _FORMAT.search(words)
    if computed is None and not narrow:
        return "", {}
    found = {"frozen_weights": narrow, "training_format": kept}
    precision = _SHORT.get(computed[0], computed[0]) if computed else "bf16"
    return precision, {name: value for name, value in found.items() if value}


def _found(remarks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and value of each setting: the first line of the table that fits each remark.

    What is said of offload alone wins over what an optimizer's name says of it.

    >>> said = {"offload": "optimizer and parameters to CPU", "optimizer": "adamw (CPU)"}
    >>> dict(_found(said))["offload"]
    'weights'
    """
    for key, value in sorted(remarks.items(), key=lambda pair: pair[0] == "offload"):
        for known in read_table("training_words.csv"):
            match = re.fullmatch(known["value"], value, re.IGNORECASE)
            if match and re.fullmatch(known["key"], key):
                yield from _pairs(match.expand(known["setting"]))
                break


def _patterns(targets: str) -> Iterator[str]:
    """Module patterns of the words that are known; of none, LoRA's usual ones.

    Where no word is known there are none, which puts adapters on every dense layer.
    """
    for word in filter(None, re.split(r"[+,|\s]+", targets.lower() or "default")):
        known = (k for k in read_table("adapter_modules.csv") if word in k["word"].split("|"))
        yield from next(known, {"patterns": ""})["patterns"].split()


def _optimizer(stated: str) -> str:
    """Name of the optimizer that words say; empty where none of them is one.

    >>> _optimizer("adamw_torch (fp32 states)"), _optimizer("as in the paper")
    ('adamw', '')
    >>> _optimizer("torchao AdamW 8-bit"), _optimizer("GaLore AdamW 8-bit")
    ('adamw-8bit', 'galore-8bit')
    """
    joined = _NARROW_STATES.sub(r"-\1\2", stated.replace("_", "-").replace("-torch", ""))
    words = re.findall(r"[\w-]+", joined)
    words += [f"{one}-{two}" for one, two in pairwise(words)]
    for known in read_table("optimizer_names.csv"):
        if any(re.fullmatch(known["pattern"], word, re.IGNORECASE) for word in words):
            return known["optimizer"]
    return ""


def _rank(stated: str) -> str:
    """``last`` where a trainer prints the memory of its last rank alone.

    >>> _rank("max_memory_allocated of the last rank"), _rank("allocated")
    ('last', '')
    """
    return "last" if "last rank" in stated.lower() else ""


def _kind(stated: str, reports: str = "") -> str:
    """``allocated`` or ``reserved`` where a trainer printed that, ``driver``, or else empty.

    Args:
        stated: Words of the row.
        reports: What the trainer's own report counts.

    >>> _kind("max_memory_allocated"), _kind("driver (not said)"), _kind("not said")
    ('allocated', 'driver', '')
    >>> _kind("as reported by trainer", "reserved")
    'reserved'
    """
    found = re.match(r"(?:max_memory_)?(allocated|reserved|driver)", stated.lower())
    if found:
        return found[1]
    return reports if re.search(r"report|trainer", stated, re.IGNORECASE) else ""
