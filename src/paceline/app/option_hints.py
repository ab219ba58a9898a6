"""What an option that a verb does not have may mean.

People bring the words of other tools. An option is looked for by those words, by its beginning, by
what its help speaks of, and by its spelling, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import click

from paceline.errors import UnknownNameError

#: Words shorter than this begin many names and stand in the help of many options.
_LEAST_LETTERS = 4
#: So many options are a hint.
_FEW = 2
#: So many verbs are a hint.
_MOST_VERBS = 3

#: What says something here, the first that a verb has, and what other tools call it.
_WORDS_OF_OTHERS = {
    "--device NAME": "gpu d gpu-type accelerator instance-type hardware",
    "--devices N|--counts N|--max-devices N": "devices counts count max-devices gpus num-gpus "
    "n-gpus nproc-per-node max-gpus world-size num-devices",
    "--pin nodes=N": "num-nodes nnodes nodes",
    "--batch N|--pin batch=N": "batch-size bs per-device-train-batch-size micro-batch-size "
    "max-num-seqs",
    "--precision fp16": "amp fp16 half",
    "--precision bf16": "bf16",
    "--precision fp8": "fp8",
    "--precision int8": "int8 load-in-8bit",
    "--precision int4": "int4 quantization quantize load-in-4bit bits",
    "--precision NAME": "dtype torch-dtype datatype mixed-precision",
    "--compiler compiled": "compile torch-compile",
    "--seq N": "seq-len seq-length max-seq-length sequence-length block-size",
    "--prompt-tokens N": "context isl input-len input-length input-tokens prompt prompt-len "
    "prompt-length max-model-len",
    "--output-tokens N": "osl output-len output-length max-tokens max-new-tokens",
    "--rps N": "qps rate request-rate",
    "--concurrency N": "users max-concurrency",
    "--latency TIME": "p50 p95 p99 latency-p95 latency-p99 max-latency slo tail-latency",
    "--spot|--term spot": "spot interruptible preemptible use-spot",
    "--cores N": "cpus num-cpus vcpus cpu-cores num-cores",
    "--sound TIME": "duration audio-length audio-seconds",
    "--framework NAME": "engine backend",
    "--rewrite lora_rank=16": "lora lora-r lora-rank use-peft",
    "--rewrite lora_rank=16,frozen_weights=int4": "qlora",
    "--rewrite lora_rank=16,lora_kind=dora": "dora use-dora",
    "--checkpointing block": "gradient-checkpointing activation-checkpointing",
    "--sharding zero3|--strategies fsdp": "fsdp zero deepspeed",
    "--sharding zero3|--strategies fsdp,tp|--strategy NAME": "strategy strategies sharding "
    "parallelism parallel",
    "--strategy tpN|--pin strategy=tpN|--devices N": "tp tensor-parallel-size "
    "tensor-model-parallel-size",
    "--strategy ppN|--pin strategy=ppN": "pp pipeline-parallel-size",
    "--strategy epN|--pin strategy=epN": "ep expert-parallel-size expert-model-parallel-size",
    "--strategy cpN|--pin strategy=cpN": "cp context-parallel-size",
    "--machine 8xNAME@LINK": "nvlink interconnect network bandwidth link",
    "--denoising-steps N": "num-inference-steps inference-steps sampling-steps steps-per-image",
    "--guidance yes": "guidance-scale cfg cfg-scale",
    "--throughput N": "tps tokens-per-second images-per-second",
    "--global-batch N": "global-batch-size train-batch-size",
    "--task infer": "inference serve",
    "--task train": "train training",
    "--samples N": "dataset-size dataset-length num-samples num-examples examples items num-items "
    "images num-images documents rows",
    "--epochs N": "num-epochs num-train-epochs",
    "--tokens N": "train-tokens num-tokens",
    "--deadline TIME": "max-time hours max-hours time-limit",
    "--budget MONEY": "max-cost cost max-price price",
    "--cloud NAME": "provider providers clouds",
    "--optimizer NAME": "optim",
    "--image-size N": "img-size imgsz resolution",
}
MEANT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        word: tuple(here.split("|"))
        for here, words in _WORDS_OF_OTHERS.items()
        for word in words.split()
    }
)


def unknown_option(error: click.NoSuchOption) -> UnknownNameError:
    """The error of an option that a verb does not have, with what may say the same."""
    context = error.ctx
    options = [p for p in context.command.params if isinstance(p, click.Option)] if context else []
    flags = [flag for option in options for flag in option.opts if flag.startswith("-")]
    command = f"{context.command_path if context else 'paceline'} --help"
    word = error.option_name.strip("-").replace("_", "-")
    hint = _without_flag(word, context) or _hint(word, options, flags)
    if not hint and (others := _of_others(word, context)):
        return UnknownNameError(f"no option named `{error.option_name}`", hint=others)
    if not hint:
        return UnknownNameError.from_name("option", error.option_name, flags, command=command)
    return UnknownNameError(
        f"no option named `{error.option_name}`", hint=f"{hint}: see `{command}`"
    )


def _without_flag(word: str, context: click.Context | None) -> str:
    """The line to write where a verb takes the value as a word of its own."""
    if context is None:
        return ""
    arguments = {one.name for one in context.command.params if isinstance(one, click.Argument)}
    if "what" in arguments and "--devices N" in MEANT.get(word, ()):
        return f"write it before the device, `{context.command_path} '8x NAME'`"
    line = f"`{context.command_path} {word.upper()}`"
    return f"write it without a flag, {line}" if word in arguments else ""


def _hint(word: str, options: list[click.Option], flags: list[str]) -> str:
    meant = [one for one in MEANT.get(word, ()) if one.partition(" ")[0] in flags]
    if meant:
        return f"write `{meant[0]}`"
    if len(word) < _LEAST_LETTERS:
        return ""
    begun = [flag for flag in flags if flag.startswith(f"--{word}")]
    for found in (begun, _speaking_of(word, options)):
        if 0 < len(found) <= _FEW:
            return f"{' and '.join(f'`{flag}`' for flag in found)} may say it"
    return ""


def _of_others(word: str, context: click.Context | None) -> str:
    """The verbs that have an option of exactly this name; empty where none, or many, have it."""
    whole = getattr(context.find_root().command, "whole", None) if context else None
    if context is None or whole is None:
        return ""
    having = [
        f"`paceline {name}`"
        for name, verb in whole().commands.items()
        if any(f"--{word}" in option.opts for option in verb.params)
    ]
    if not 0 < len(having) <= _MOST_VERBS:
        return ""
    takes = "takes" if len(having) == 1 else "take"
    return f"{', '.join(having[:-1])}{' and ' * (len(having) > 1)}{having[-1]} {takes} it"


def _speaking_of(word: str, options: list[click.Option]) -> list[str]:
    """Options whose help has a word: whoever types it may mean one of them."""
    spelled = word.lower().replace("-", "_")
    return [
        one.opts[-1] for one in options if spelled in (one.help or "").lower().replace("-", "_")
    ]
