"""What is wanted: constraints with the chance at which they hold, one objective, and the work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Literal, get_args

from paceline.catalog.freshness import MAX_PRICE_AGE_DAYS
from paceline.dtypes import find_precision, read_precision, usual_spelling
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Compiler
from paceline.model.graph.engine_features import read_adapters, read_speculation
from paceline.model.graph.workload import Workload
from paceline.model.items import StatedItem
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE
from paceline.parallelism.strategy.complexity import STRATEGY_KINDS, StrategyKind
from paceline.planning.goal.providers import PROVIDER_KINDS, ProviderKind
from paceline.planning.goal.rewrites import check_rewrite
from paceline.planning.goal.typed import (
    above_zero,
    check_bounds,
    known,
    likely,
    read_chance,
    read_flag,
    read_kinds,
    read_names,
    read_pins,
    read_quotas,
    read_spread,
    read_whole,
    typed,
)
from paceline.simulation.queue.load import Lengths, check_rate
from paceline.stack.engines import USUAL_LOOP, EngineProfile, engine_of_format
from paceline.stack.trainers import loop_of, release_in
from paceline.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_usd,
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_power_w,
    parse_usd,
)
from paceline.values import dataclass

Objective = Literal["auto", "cost", "time", "balanced", "energy", "performance-per-usd"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)

#: How a machine is paid that nobody takes back.
RentalTerm = Literal["on-demand", "reserved-1y", "reserved-3y"]
RENTAL_TERMS: tuple[str, ...] = get_args(RentalTerm)

#: Shares of requests, of 100, whose times are told.
PERCENTILES = (50, 95, 99)

#: What a user may fix beforehand with ``--pin KEY=VALUE``.
PIN_KEYS = ("offer", "device", "nodes", "batch", "precision", "compiler", "strategy")


#: Most devices in one plan unless stated or needed.
USUAL_DEVICES = 64


def _usd(amount_usd: float) -> str:
    return f"{format_usd(amount_usd)} USD"


def _watts(power_w: float) -> str:
    return f"{power_w:g} W"


def _told(name: str, value: int) -> None:
    if value not in PERCENTILES:
        raise InvalidInputError(f"the {name} {value} is not told", hint="take 50, 95 or 99")


def named_precisions(names: Iterable[str]) -> tuple[str, ...]:
    """What we call some precisions; formats of one engine's files keep their names.

    Raises:
        UnknownNameError: One is none.

    >>> named_precisions(["bfloat16", "Q4_K_M", "awq"])
    ('bf16', 'q4_k_m', 'int4')
    """
    return tuple(name.lower() if engine_of_format(name) else read_precision(name) for name in names)


def _read_precisions(text: str) -> tuple[str, ...]:
    return named_precisions(read_names(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Constraints, which hold at a stated chance, and one objective, best at the median.

    The help of each field says what it means. None, or nothing, leaves a constraint out.
    """

    deadline_s: float | None = typed(
        "deadline", "Done within this time.", "24h",
        read=parse_duration_s, show=format_duration, check=above_zero,
    )  # fmt: skip
    budget_usd: float | None = typed(
        "budget", "Costs no more than this.", "50usd", read=parse_usd, show=_usd, check=above_zero
    )
    latency_s: float | None = typed(
        "latency", "Time per output token, or of one batch, at most.", "50ms",
        also=(("tpot", "Time per output token, at most."),),
        read=parse_duration_s, show=format_duration, check=above_zero,
    )  # fmt: skip
    ttft_s: float | None = typed(
        "ttft", "Time to the first token, at most.", "1s",
        read=parse_duration_s, show=format_duration, check=above_zero,
    )  # fmt: skip
    percentile: int = typed(
        "percentile",
        "Of requests that come at --rps, which keep --ttft and --tpot: 50, 95 or 99.",
        "95",
        default=95, read=read_whole, check=_told,
    )  # fmt: skip
    min_samples_per_s: float | None = typed(
        "throughput", "Samples or tokens per second, at least.", "5k",
        read=parse_count, show=lambda rate: f"{format_count(rate)}/s", check=above_zero,
    )  # fmt: skip
    power_limit_w: float | None = typed(
        "power-limit", "Rated power of all devices together, at most.", "1.2kW",
        read=parse_power_w, show=_watts, check=above_zero,
    )  # fmt: skip
    cooling_limit_w: float | None = typed(
        "cooling-limit", "Heat that your own room takes away, at most.", "3kW",
        read=parse_power_w, show=_watts, check=above_zero,
    )  # fmt: skip
    vendors: tuple[str, ...] = typed(
        "vendor", "Accepted makers; several with commas.", "NVIDIA,AMD",
        default=(), read=read_names,
    )  # fmt: skip
    clouds: tuple[str, ...] = typed(
        "cloud", "Accepted clouds, own being your machines; several with commas.", "Lambda,own",
        default=(), read=read_names,
    )  # fmt: skip
    trust: ProviderKind = typed(
        "trust",
        "Providers so dependable at least: hyperscaler, specialised, or marketplace of private "
        "hosts, which is all of them.",
        "specialised",
        default="marketplace", check=known("kind of provider", PROVIDER_KINDS),
    )  # fmt: skip
    regions: tuple[str, ...] = typed(
        "region", "Accepted regions, by their beginning; several with commas.", "eu",
        default=(), read=read_names,
    )  # fmt: skip
    device_classes: tuple[str, ...] = typed(
        "device-class", "Accepted classes: consumer, edge, …; several with commas.", "datacenter",
        default=(), read=read_names,
    )  # fmt: skip
    devices: tuple[str, ...] = typed(
        "device", "Accepted devices or families; several with commas.", "a100,4090",
        default=(), read=read_names,
    )  # fmt: skip
    max_devices: int | None = typed(
        "max-devices", "Most devices in one plan.", "8", read=read_whole, check=above_zero
    )
    allow_spot: bool = typed(
        "spot", "Let interruptible prices compete.", default=False, read=read_flag
    )
    term: RentalTerm = typed(
        "term",
        "How rented machines are paid: on-demand, reserved-1y or reserved-3y; a reserved term is "
        "paid whole, used or not.",
        "reserved-1y", default="on-demand", check=known("term", RENTAL_TERMS),
    )  # fmt: skip
    quotas: Mapping[str, int] = typed(
        "quota",
        "Most devices that you are given: of a cloud, of a device, or of a device at a cloud.",
        "aws:h100=16,gcp=8", default=dict, read=read_quotas,
    )  # fmt: skip
    in_datacenter: bool = typed(
        "datacenter", "Leave out cards whose driver licence forbids data centres.",
        default=False, read=read_flag,
    )  # fmt: skip
    confidence: float = typed(
        "confidence", "Chance at which time and money must be kept.", "0.8",
        default=0.8, read=read_chance, show=format_percent, check=likely,
    )  # fmt: skip
    memory_confidence: float = typed(
        "memory-confidence", "Chance at which the job must fit.", "0.9",
        default=MEMORY_CONFIDENCE, read=read_chance, show=format_percent, check=likely,
    )  # fmt: skip
    objective: Objective = typed(
        "objective", "What is best: cost, time, balanced, energy, performance-per-usd.", "cost",
        default="auto", check=known("objective", OBJECTIVES),
    )  # fmt: skip
    hour_value_usd: float | None = typed(
        "hour-value",
        "What an hour is worth to you: weighs time against cost with --objective balanced, "
        "and strategies against the work on a script.",
        "64usd",
        read=parse_usd, show=_usd, check=above_zero,
    )  # fmt: skip
    strategies: tuple[StrategyKind, ...] = typed(
        "strategies",
        "What the training script can do, several with commas: dp, fsdp, recompute, offload, "
        "tp, pp, cp, ep, interleaved. Others are left out.",
        "dp,fsdp,tp",
        default=(), read=read_kinds, check=known("kind of strategy", STRATEGY_KINDS),
    )  # fmt: skip
    storage_bytes: float | None = typed(
        "storage", "Kept on the provider's disks while it runs, and paid.", "150GB",
        read=parse_bytes, show=format_bytes, check=above_zero,
    )  # fmt: skip
    egress_bytes: float | None = typed(
        "egress", "Taken out at the end, and paid.", "10GB",
        read=parse_bytes, show=format_bytes, check=above_zero,
    )  # fmt: skip
    is_ideal: bool = typed(
        "ideal",
        "A training job is its steps alone: nothing is evaluated or saved, and nothing fails.",
        default=False, read=read_flag,
    )  # fmt: skip
    precisions: tuple[str, ...] = typed(
        "precision", "Accepted precisions; several with commas.", "bf16",
        default=(), read=_read_precisions,
    )  # fmt: skip
    compilers: tuple[str, ...] = typed(
        "compiler", "Accepted compilers; several with commas.", "eager",
        default=(), read=read_names,
    )  # fmt: skip
    framework: str | None = typed(
        "framework",
        "What runs it, with its release if wanted: torch:2.4, jax, tensorflow; tensorrt, "
        "onnxruntime, openvino …; vllm, sglang, trtllm, tgi, llamacpp, which serve; or a trainer. "
        "torch without, vllm for language models.",
        "jax",
        read=str.lower,
    )  # fmt: skip
    global_batch: int | None = typed(
        "global-batch", "Items per optimizer step, exactly.", "256",
        read=read_whole, check=above_zero,
    )  # fmt: skip
    max_price_age_days: int = typed(
        "max-price-age-days", "Older prices are excluded.", "365",
        default=MAX_PRICE_AGE_DAYS, read=read_whole, check=above_zero,
    )  # fmt: skip
    data: str | None = typed(
        "data",
        "How samples lie on disk, and how many an epoch has: a known data set; ready if nothing "
        "is to be decoded.",
        "imagenet",
    )  # fmt: skip
    rewrite: str = typed(
        "rewrite",
        "Run it another way: LoRA adapters (lora_rank=16; frozen_weights=int4 beneath them), "
        "freeze layers (frozen=except:fc), training_format=pure, …; several with commas.",
        "lora_rank=16",
        default="",
    )  # fmt: skip
    pins: Mapping[str, str] = typed(
        "pin",
        "Fix the offer, device, nodes, batch, precision, compiler or strategy; repeatable.",
        "offer=NAME",
        default=dict, read=read_pins, check=known("pin", PIN_KEYS), is_repeatable=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_bounds(self)
        for precision in _with_pin(self.precisions, self.pins, "precision"):
            find_precision(usual_spelling(precision))
        compilers = known("compiler", get_args(Compiler))
        compilers("compiler", _with_pin(self.compilers, self.pins, "compiler"))
        check_rewrite(self.rewrite)
        if self.allow_spot and self.term != "on-demand":
            raise InvalidInputError(
                f"--spot and --term {self.term} exclude each other",
                hint="a machine that is reserved is not taken back: leave one of them out",
            )
        if self.framework is not None:
            loop_of(self.framework)
            release_in(self.framework)

    @property
    def widths(self) -> tuple[str, ...]:
        """The accepted precisions as kernels know them: formats of files by what they hold."""
        return tuple(dict.fromkeys(usual_spelling(name) for name in self.precisions))

    @property
    def engine_of_files(self) -> str:
        """The engine whose files alone have what is accepted; empty where others will do."""
        engines = {engine_of_format(name) for name in self.precisions}
        return engines.pop() if len(engines) == 1 else ""

    @property
    def most_devices(self) -> int:
        """Most devices in one plan."""
        return self.max_devices or USUAL_DEVICES

    @property
    def engine(self) -> EngineProfile | None:
        """What was named to run it; of a trainer the loop beneath it, None where nothing was."""
        return None if self.framework is None else loop_of(self.framework)

    @property
    def software(self) -> str:
        """The framework that must run on the device, with its release where one is stated."""
        if self.framework is None:
            return USUAL_LOOP
        return release_in(self.framework) or loop_of(self.framework).framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much is to be done. Nothing set means the reference job of the workload."""

    num_samples: float | None = typed(
        "samples", "Samples per epoch; of a language model, sequences of --seq tokens.", "400k",
        read=read_whole, check=above_zero,
    )  # fmt: skip
    num_epochs: float | None = typed(
        "epochs", "Passes over the samples.", "30", read=parse_count, check=above_zero
    )
    num_tokens: float | None = typed(
        "tokens", "Tokens in all, for language models.", "10B", read=read_whole, check=above_zero
    )
    requests_per_s: float | None = typed(
        "rps", "Requests per second to be served.", "20", read=parse_count, check=above_zero
    )
    prompt_tokens: int | None = typed(
        "prompt", "Tokens in, of one request.", "512",
        flag="prompt-tokens", read=read_whole, check=above_zero,
    )  # fmt: skip
    output_tokens: int | None = typed(
        "output", "Tokens out, of one request or training target.", "128",
        flag="output-tokens", read=read_whole, check=above_zero,
    )  # fmt: skip
    concurrency: int | None = typed(
        "concurrency", "Requests in flight at once, on all devices.", "8",
        read=read_whole, check=above_zero,
    )  # fmt: skip
    denoising_steps: int | None = typed(
        "denoising-steps", "Steps of one picture or clip; its pipeline's.", "20",
        read=read_whole, check=above_zero,
    )  # fmt: skip
    is_guided: bool | None = typed(
        "guidance", "Whether each of them runs without the prompt too.", "no", read=read_flag
    )
    sound_s: float | None = typed(
        "sound", "Length of one recording that is heard.", "45s",
        read=parse_duration_s, check=above_zero,
    )  # fmt: skip
    beams: int | None = typed(
        "beams", "Answers that a search keeps beside each other.", "5",
        read=read_whole, check=above_zero,
    )  # fmt: skip
    prefix_share: float | None = typed(
        "prefix-share", "Of a prompt, what the engine finds in its cache: 0 without, 1 at most.",
        "0.8", read=read_chance,
    )  # fmt: skip
    adapters: str = typed(
        "adapters",
        "LoRA adapters on the model, of which each request asks for one: count and rank, and "
        "loaded where a device holds fewer at once.",
        "count=32,rank=16", default="",
    )  # fmt: skip
    speculate: str = typed(
        "speculate",
        "Tokens guessed and then checked in a step: draft is ngram, mtp or a model; how many; and "
        "the chance that a guess is kept.",
        "draft=mtp,tokens=3,acceptance=0.7", default="",
    )  # fmt: skip
    length_spread: float | None = typed(
        "spread",
        "How far lengths of requests spread, over their mean: 0 without, about 1 in chats.",
        "1.0",
        read=read_spread,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.requests_per_s is not None:
            check_rate(self.requests_per_s)
        Lengths(mean=1.0, spread=self.length_spread or 0.0)
        str(self.item)
        if self.num_tokens is not None and self.num_samples is not None:
            raise InvalidInputError(
                "the work is given twice, in tokens and in samples",
                hint="give either --tokens or --samples and --epochs",
            )

    @property
    def item(self) -> StatedItem:
        """What is stated of one item of inference."""
        return StatedItem(
            denoising_steps=self.denoising_steps, is_guided=self.is_guided,
            sound_s=self.sound_s, beams=self.beams, prefix_share=self.prefix_share,
            adapters=read_adapters(self.adapters) if self.adapters else None,
            speculation=read_speculation(self.speculate) if self.speculate else None,
            target_tokens=self.output_tokens,
        )  # fmt: skip

    def of(self, workload: Workload) -> Work:
        """The same with the usual lengths of a request where none are stated."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens or workload.usual_prompt_tokens,
            output_tokens=self.output_tokens or workload.usual_output_tokens,
        )

    @property
    def prompt_length(self) -> int:
        """Tokens of a prompt, as stated or filled in (`of`)."""
        assert self.prompt_tokens is not None
        return self.prompt_tokens

    @property
    def output_length(self) -> int:
        """Tokens of an answer, likewise."""
        assert self.output_tokens is not None
        return self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A model with its goal and work, as a ``goal.yaml`` holds it.

    Attributes:
        model: Zoo name, ``torchvision:NAME`` or ``package.module:function``.
        task: Training or inference.
        goal: What is wanted.
        work: How much is to be done.
        seq: Sequence length; None takes the workload's.
        title: What the file is about, in the user's words.
        facts_file: File with the user's own devices, offers and machines; None without.
    """

    model: str
    task: Literal["train", "infer"] = "train"
    goal: Goal = field(default_factory=Goal)
    work: Work = field(default_factory=Work)
    seq: int | None = None
    title: str = ""
    facts_file: str | None = None


def _with_pin(accepted: tuple[str, ...], pins: Mapping[str, str], key: str) -> tuple[str, ...]:
    return (*accepted, pins[key]) if key in pins else accepted
