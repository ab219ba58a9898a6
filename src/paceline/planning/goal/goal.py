"""What is wanted: constraints with the chance at which they hold, one objective, and the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from paceline.catalog.freshness import MAX_PRICE_AGE_DAYS
from paceline.dtypes import find_precision
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.costs import Compiler
from paceline.model.graph.workload import Workload
from paceline.model.items import StatedItem
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE
from paceline.parallelism.strategy.complexity import STRATEGY_KINDS, StrategyKind
from paceline.planning.goal.rewrites import check_rewrite
from paceline.simulation.queue.load import Lengths, check_rate
from paceline.stack.engines import USUAL_LOOP, find_engine

Objective = Literal["auto", "cost", "time", "balanced", "energy", "performance-per-usd"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)

#: Shares of requests, of 100, whose times are told.
PERCENTILES = (50, 95, 99)

#: What a user may fix beforehand with ``--pin KEY=VALUE``.
PIN_KEYS = ("offer", "device", "nodes", "batch", "precision", "compiler", "strategy")


#: Most devices in one plan unless stated or needed.
USUAL_DEVICES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Constraints, which hold at a stated chance, and one objective, best at the median.

    Attributes:
        deadline_s: The whole job must be done within.
        budget_usd: The whole job must cost no more.
        power_limit_w: Rated power of all devices together.
        cooling_limit_w: Heat that the user's own room takes away; rented machines warm another's.
        latency_s: Time per output token of a language model, of one batch for the rest.
        ttft_s: Time to the first token of a language model.
        percentile: Of requests that come at a rate, which keep both: 50, 95 or 99 of 100.
        min_samples_per_s: Throughput of the whole job.
        vendors: Accepted device vendors; empty accepts all, as below.
        clouds: Accepted clouds (``own`` for owned machines).
        regions: Accepted regions; ``eu`` accepts every region that begins so.
        device_classes: Accepted device classes.
        devices: Accepted devices or families.
        allow_spot: Whether interruptible prices compete.
        in_datacenter: Whether consumer cards are excluded because the driver licence of the vendor
            does not allow them in a data centre.
        max_devices: Most devices in one plan; None takes `USUAL_DEVICES`, and more where a deadline
            or a rate asks for them.
        confidence: Chance at which constraints of time and money hold.
        memory_confidence: Chance at which the job must fit.
        objective: What is best; ``auto`` is time under a budget alone, else cost; ``balanced`` is
            cost with every hour until the job is done at ``hour_value_usd``.
        hour_value_usd: What an hour is worth to the user; None takes what a developer costs.
        strategies: Kinds of strategy that the training script can do, beside data parallel; empty
            takes the usual ones, and others only where they gain more than writing them costs.
        is_ideal: Whether a training job is its steps alone: nothing is evaluated, saved, or fails.
        precisions: Accepted precisions; empty takes those that keep the usual quality.
        compilers: Accepted compilers; empty takes the fastest that the device can use.
        framework: What runs the model, as `paceline.stack.engines` names it: an engine that serves
            requests, or a framework whose releases must run on the device; None takes what is
            usual.
        global_batch: Exact items per optimizer step; None allows any up to the workload's limit.
        max_price_age_days: Older prices are excluded.
        data: How samples lie on disk: a well-known data set such as ``imagenet``, or ``ready`` if
            they need no work on the host; None takes the reference job's, else ``ready``.
        rewrite: Further settings of every configuration, such as ``lora_rank=8``; those that are
            not searched, see `paceline.planning.goal.rewrites`.
        pins: What is fixed beforehand, see `PIN_KEYS`.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None
    power_limit_w: float | None = None
    cooling_limit_w: float | None = None
    latency_s: float | None = None
    ttft_s: float | None = None
    percentile: int = 95
    min_samples_per_s: float | None = None
    vendors: tuple[str, ...] = ()
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    device_classes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    allow_spot: bool = False
    in_datacenter: bool = False
    max_devices: int | None = None
    confidence: float = 0.8
    memory_confidence: float = MEMORY_CONFIDENCE
    objective: Objective = "auto"
    hour_value_usd: float | None = None
    strategies: tuple[StrategyKind, ...] = ()
    is_ideal: bool = False
    precisions: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    framework: str | None = None
    global_batch: int | None = None
    max_price_age_days: int = MAX_PRICE_AGE_DAYS
    data: str | None = None
    rewrite: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_positive(self, ("deadline_s", "budget_usd", "latency_s", "ttft_s"))
        _check_positive(self, ("power_limit_w", "cooling_limit_w", "min_samples_per_s"))
        _check_positive(self, ("hour_value_usd",))
        _check_positive(self, ("max_devices", "global_batch", "max_price_age_days"))
        if self.percentile not in PERCENTILES:
            raise InvalidInputError(
                f"the percentile {self.percentile} is not told", hint="take 50, 95 or 99"
            )
        for name in ("confidence", "memory_confidence"):
            _check_chance(name, getattr(self, name))
        _check_known("objective", (self.objective,), OBJECTIVES)
        _check_known("kind of strategy", self.strategies, STRATEGY_KINDS)
        _check_known("pin", self.pins, PIN_KEYS)
        for precision in _with_pin(self.precisions, self.pins, "precision"):
            find_precision(precision)
        compilers = _with_pin(self.compilers, self.pins, "compiler")
        _check_known("compiler", compilers, get_args(Compiler))
        check_rewrite(self.rewrite)
        if self.framework is not None:
            find_engine(self.framework)

    @property
    def most_devices(self) -> int:
        """Most devices in one plan."""
        return self.max_devices or USUAL_DEVICES

    @property
    def software(self) -> str:
        """The framework whose releases must run on the device."""
        return find_engine(self.framework or USUAL_LOOP).framework


#: Of `Work`, what need not be above zero.
_UNCHECKED = ("is_guided", "length_spread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much is to be done. Nothing set means the reference job of the workload.

    Attributes:
        num_samples: Samples per epoch in training, in all in inference.
        num_epochs: Passes over them.
        num_tokens: Tokens in all, instead of samples and epochs.
        requests_per_s: Requests to be served without end.
        prompt_tokens: Prompt of one request to a language model; None takes what is usual.
        output_tokens: Answer of one request, likewise.
        concurrency: Requests in flight at once, on all devices together; None leaves it open.
        length_spread: Standard deviation of both lengths over their mean; None makes all alike.
        denoising_steps: Of a picture or clip; None takes what is usual, as of the next three.
        is_guided: Whether each of them runs with and without the prompt.
        sound_s: Length of a recording that is heard.
        beams: Answers that a search keeps beside each other.
    """

    num_samples: float | None = None
    num_epochs: float | None = None
    num_tokens: float | None = None
    requests_per_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    denoising_steps: int | None = None
    is_guided: bool | None = None
    sound_s: float | None = None
    beams: int | None = None
    length_spread: float | None = None

    def __post_init__(self) -> None:
        _check_positive(self, tuple(f.name for f in fields(self) if f.name not in _UNCHECKED))
        if self.requests_per_s is not None:
            check_rate(self.requests_per_s)
        Lengths(mean=1.0, spread=self.length_spread or 0.0)
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
            sound_s=self.sound_s, beams=self.beams,
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


def _check_positive(value: Goal | Work, names: tuple[str, ...]) -> None:
    for name in names:
        number = getattr(value, name)
        if number is not None and not 0 < number < float("inf"):
            raise InvalidInputError(
                f"`{name}` must be above zero and finite, not {number}",
                hint=f"leave `{name}` out or give a number above zero",
            )


def _check_chance(name: str, chance: float) -> None:
    if not 0.5 <= chance < 1.0:
        raise InvalidInputError(
            f"`{name}` must be at least 0.5 and below 1, not {chance}",
            hint="0.8 means: in four of five cases",
        )


def _with_pin(accepted: tuple[str, ...], pins: Mapping[str, str], key: str) -> tuple[str, ...]:
    return (*accepted, pins[key]) if key in pins else accepted


def _check_known(kind: str, names: object, known: tuple[str, ...]) -> None:
    for name in names if isinstance(names, (tuple, Mapping)) else ():
        if name not in known:
            raise UnknownNameError.from_name(kind, str(name), known, command="paceline plan --help")
