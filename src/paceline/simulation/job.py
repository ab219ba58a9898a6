"""A Job: what is run, and how, as one frozen value with one canonical line of text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Literal, get_args

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import CacheFormat, Configuration
from paceline.model.graph.workload import Task, Workload
from paceline.model.items import StatedItem, as_items
from paceline.model.settings import format_settings, read_settings
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.training_profile import TrainingProfile, find_training_profile
from paceline.stack.engines import USUAL_LOOP, EngineProfile, engine_in
from paceline.stack.recipes import training_recipe
from paceline.values import dataclass

#: What the software of a job does beside its strategy: tokens go once to each rank that has one of
#: their experts; tensor ranks keep whole experts; tokens travel while another microbatch is
#: computed; ranks that shard an optimizer gather behind the next forward pass, in large buckets;
#: what tensor ranks sum travels behind products, chunk by chunk, all but the first (Transformer
#: Engine's ``userbuffers``), which recipes of models with expert ranks leave off; the hooks of each
#: block that gathers its parameters take time of the host (`parallelism/data/sharding_hosts.csv`),
#: and so do those of each tensor of an adapter, where these are wrapped by themselves;
#: stages let go of what they received and sent once it is used;
#: ranks that split gradients keep them whole until the last microbatch, as FSDP does where trainers
#: accumulate under ``no_sync`` (accelerate, Lightning Fabric);
#: stages get equal numbers of layers rather than equal cost;
#: ranks that split weights do as stage 3 of DeepSpeed (`parallelism/data/frameworks.toml`), and may
#: have the whole model on their device first, which a script avoids under ``zero.Init``;
#: replicas of an expert rank shard everything but its experts, of which each has its own whole;
#: modules launch each kernel, also those that a library fused, and experts are a loop of the host;
#: `paceline.loop.parallelize` runs the strategy (`loop` of `parallelism/data/frameworks.toml`).
Habit = Literal[
    "tokens-once",
    "whole",
    "hidden",
    "gathers-ahead",
    "hidden-sums",
    "hooks",
    "adapter-hooks",
    "frees-messages",
    "whole-gradients",
    "even-layers",
    "stage-3",
    "made-whole",
    "kept-experts",
    "launched",
    "looped-experts",
    "loop",
]
HABITS: tuple[Habit, ...] = get_args(Habit)
#: Habits of software whose ranks have items of their own and share no layer.
OF_REPLICAS: tuple[Habit, ...] = (
    "gathers-ahead", "hooks", "adapter-hooks", "whole-gradients", "stage-3",
    "made-whole",
)  # fmt: skip

#: Finds a workload by what it is called and its task.
Load = Callable[[str, Task], Workload]

#: Word of a job whose items are those of one pass, not the pictures or answers people mean.
PASS = "item=pass"
#: The host of loops that write tokens.
_GENERATION = "generation"
_HINT = "write jobs like `gpt2 train bf16 eager dp8+zero1 batch=4`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is run, and how.

    Attributes:
        workload: Passes and how often each runs; the task.
        configuration: Every rewrite of its graphs.
        strategy: How ranks share it; one device without axes.
        batch: Items of a microbatch, on each rank that has items of its own.
        seq: Tokens of a sequence; the workload's own if None.
        prompt_tokens: Of a request whose answer is generated.
        output_tokens: Of its answer.
        rounds: Requests of each place in flight that come one after the other; one if all come at
            once, infinite if they come one by one.
        profile: Framework whose host dispatches it, or engine that serves it.
        habits: What its software does beside the strategy, in the order of `HABITS`.
    """

    workload: Workload
    configuration: Configuration = field(default_factory=Configuration)
    strategy: Strategy = field(default_factory=Strategy)
    batch: float = 1
    seq: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    rounds: float = 1
    profile: str = "torch"
    habits: tuple[Habit, ...] = ()

    def __post_init__(self) -> None:
        if not self.batch > 0:
            raise InvalidInputError(f"a batch of {self.batch:g} has no items", hint=_HINT)
        if not self.rounds >= 1:
            raise InvalidInputError(f"{self.rounds:g} rounds are less than one", hint=_HINT)
        if tuple(habit for habit in HABITS if habit in self.habits) != self.habits:
            known = ", ".join(HABITS)
            raise InvalidInputError(
                f"`{','.join(self.habits)}` are no habits", hint=f"choose among {known}, in order"
            )

    def __str__(self) -> str:
        """The canonical line, which `parse` reads back; what is usual is left out."""
        how = self.configuration
        plain = Configuration(precision=how.precision, compiler=how.compiler)
        rewrite = format_settings(how, plain)
        words = [self.workload.name, self.workload.task, how.precision, how.compiler]
        words += [str(self.strategy), f"batch={_number(self.batch)}"]
        words += [f"seq={self.seq}"] if self.seq is not None else []
        words += [f"prompt={self.prompt_tokens}"] if self.prompt_tokens is not None else []
        words += [f"output={self.output_tokens}"] if self.output_tokens is not None else []
        words += [f"rounds={_number(self.rounds)}"] if self.rounds != 1 else []
        words += self.workload.stated_item.split()
        words += [f"rewrite={rewrite}"] if rewrite else []
        words += [f"profile={self.profile}"] if self.profile != "torch" else []
        words += [f"habits={','.join(self.habits)}"] if self.habits else []
        return shlex.join(words)

    @classmethod
    def parse(cls, text: str, load: Load) -> Job:
        """Read what `str` writes.

        Raises:
            InvalidInputError: Not a job.
            UnknownNameError: No such model, precision or setting.
        """
        try:
            name, task, precision, compiler, strategy, *rest = shlex.split(text)
        except ValueError as error:
            raise InvalidInputError(f"`{text[:80]}` is no job", hint=_HINT) from error
        known = next((one for one in get_args(Task) if one == task), None)
        if known is None:
            raise InvalidInputError(f"`{task}` is no task", hint=_HINT)
        facts = dict(word.partition("=")[::2] for word in rest)
        how = read_settings(f"precision={precision},compiler={compiler}", Configuration())
        return cls(
            workload=_workload(load, known, name, facts),
            configuration=read_settings(facts.pop("rewrite", ""), how),
            strategy=Strategy.parse(strategy),
            batch=_positive(facts, "batch"),
            seq=_whole(facts, "seq"),
            prompt_tokens=_whole(facts, "prompt"),
            output_tokens=_whole(facts, "output"),
            rounds=_positive(facts, "rounds"),
            profile=facts.pop("profile", "torch"),
            habits=_habits(facts),
        )

    @property
    def length(self) -> int:
        """Tokens of a sequence."""
        return self.seq or self.workload.default_seq

    @property
    def is_generation(self) -> bool:
        """Whether requests are answered token by token."""
        return self.workload.generates

    @property
    def engine(self) -> EngineProfile | None:
        """The engine that serves its requests; None where it runs as it is."""
        return engine_in(self.profile) if self.is_generation else None

    @property
    def host(self) -> str:
        """Whose dispatch applies: a row of the calibration's ``host`` table."""
        if self.engine is not None:
            return self.engine.dispatcher
        writes = self.is_generation and not self.workload.encodes
        return _GENERATION if writes and self.profile == USUAL_LOOP else self.profile

    @property
    def how(self) -> Configuration:
        """How a rank runs: what its engine and its strategy say, else the configuration."""
        how, engine = self.configuration, self.engine
        if engine is not None:
            how = replace(
                how, is_served=True, compiler=engine.compiler or how.compiler,
                engine_kernels=engine.kernels,
                cache_format=_cache_format(how, engine),
            )  # fmt: skip
        adapters = self.workload.adapters
        if adapters is not None:
            how = replace(how, lora_rank=adapters.rank, num_adapters=adapters.held)
        if self.strategy.recompute == "none":
            return how
        return replace(how, checkpointing=self.strategy.recompute)


def _cache_format(how: Configuration, engine: EngineProfile) -> CacheFormat:
    if how.cache_format != "usual":
        return how.cache_format
    return "fp8" if how.precision in engine.narrow_cache_of else "wide"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _workload(load: Load, task: Task, typed: str, facts: dict[str, str]) -> Workload:
    """The workload whose items are what people mean, or with ``item=pass`` those of a pass."""
    loaded = load(typed, task)
    if f"item={facts.get('item')}" == PASS:
        facts.pop("item")
        return replace(loaded, stated_item=PASS)
    item = StatedItem.taken_from(facts)
    guesser = item.speculation.model if item.speculation is not None else ""
    draft = load(guesser, "infer") if guesser else None
    return as_items(loaded, item, typed=typed, draft=draft)


def _positive(facts: dict[str, str], name: str) -> float:
    text = facts.pop(name, "1")
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"`{name}={text}` is no number", hint=_HINT) from error


def _whole(facts: dict[str, str], name: str) -> int | None:
    text = facts.pop(name, None)
    if text is not None and not text.isdecimal():
        raise InvalidInputError(f"`{name}={text}` is no count", hint=_HINT)
    return None if text is None else int(text)


def usual_habits(
    framework: str, *, model: str, device: str | None, configuration: Configuration
) -> tuple[Habit, ...]:
    """What a named software does beside any strategy, in the order of `HABITS`.

    Args:
        framework: As typed; empty where none is named, which does nothing beside.
        model: What is trained.
        device: ``Device.name``; None where ranks share no layer, and do what replicas do alone.
        configuration: How a rank runs.
    """
    if not framework:
        return ()
    recipe = training_recipe(
        framework, model=model, device=device or "", precision=configuration.precision,
        parallelism="fsdp",
    )  # fmt: skip
    said = recipe.habits | ({"whole"} if recipe.is_megatron else set())
    known = OF_REPLICAS if device is None else HABITS
    return tuple(habit for habit in known if habit in said)


def software_of(job: Job, usual: TrainingProfile | None = None) -> TrainingProfile:
    """What the software of a job does beside its strategy.

    ``usual`` is what has no habit of the job; PyTorch if None.
    """
    base = find_training_profile("loop") if "loop" in job.habits else usual
    profile = replace(
        base or find_training_profile(),
        tokens_once="tokens-once" in job.habits,
        whole_experts="whole" in job.habits,
        hides_exchange="hidden" in job.habits,
        launches_each="launched" in job.habits,
        loops_experts="looped-experts" in job.habits,
        host=job.profile,
    )
    if "gathers-ahead" in job.habits:
        profile = profile.with_optimizer_of(find_training_profile("megatron"))
    if "even-layers" in job.habits:
        profile = replace(profile, cut="layers")
    if "stage-3" in job.habits:
        profile = replace(profile, flat_states=find_training_profile("deepspeed").flat_states)
    if "stage-3" in job.habits and job.strategy.sharding == "zero3":
        own = find_training_profile("deepspeed")
        profile = replace(
            profile,
            keeps_gradients=own.keeps_gradients,
            returns_gradients=own.returns_gradients,
            wraps_each=own.wraps_each,
            live_parameters=own.live_parameters,
            starts_whole=own.starts_whole and "made-whole" in job.habits,
        )
    if "kept-experts" in job.habits:
        profile = replace(profile, shards_experts=False)
    if "frees-messages" in job.habits:
        profile = replace(profile, keeps_messages=False)
    return profile


def _habits(facts: Mapping[str, str]) -> tuple[Habit, ...]:
    """The habits named; nothing else is left.

    Raises:
        InvalidInputError: Something is.
    """
    if unknown := facts.keys() - {"habits"}:
        raise InvalidInputError(f"a job has no `{min(unknown)}`", hint=_HINT)
    named = facts.get("habits", "").split(",")
    if wrong := [word for word in named if word and word not in HABITS]:
        raise InvalidInputError(
            f"`{wrong[0]}` is no habit", hint=f"choose among {', '.join(HABITS)}"
        )
    return tuple(habit for habit in HABITS if habit in named)
