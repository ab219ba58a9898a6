"""Settings with which a job may be run another way, and those that have options of their own."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType

from paceline.document_keys import refuse_twice
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.model.objectives import models_beside
from paceline.model.settings import read_settings
from paceline.model.table_updates import written_updates
from paceline.stack.trainers import usual_settings

#: Settings that a prediction takes from elsewhere, and what says them.
OF_A_PREDICTION: Mapping[str, str] = MappingProxyType(
    {
        "precision": "use --precision",
        "compiler": "use --compiler",
        "platform": "name a device with --device",
        "is_served": "the engine decides: --framework vllm serves, --framework torch does not",
        "engine_kernels": "the engine decides: --framework llamacpp, or a release as in 'vllm 0.6'",
    }
)
#: Those that are searched over as well.
OF_A_SEARCH: Mapping[str, str] = MappingProxyType(
    {
        **OF_A_PREDICTION,
        "checkpointing": "it is tried wherever memory is short; to state it, state a strategy, "
        "such as dp8+zero3+recompute-block",
        "offload": "it is tried for large models; to state it, state a strategy, such as "
        "dp8+zero1+offload",
        "accumulates": "microbatches are chosen with the batch",
    }
)
#: What software does beside a strategy, in words; buffers of stages are not worth any.
_HABITS: Mapping[str, str] = MappingProxyType(
    {
        "tokens-once": "tokens go once to each rank that has one of their experts",
        "whole": "tensor ranks keep whole experts",
        "hidden": "tokens travel while another microbatch is computed",
        "gathers-ahead": "updated weights are gathered behind the next forward pass",
        "hidden-sums": "sums of tensor ranks travel behind products",
        "hooks": "hooks of each sharded block take the host's time",
        "adapter-hooks": "and those of each adapter",
        "whole-gradients": "gradients stay whole while they accumulate",
        "even-layers": "stages get equal numbers of layers",
        "stage-3": "under zero3 gradients have a buffer from the start and a billion weights stay",
        "made-whole": "each device has the whole model before zero3 splits it",
        "kept-experts": "replicas shard everything but the experts of their rank",
        "launched": "modules launch each kernel",
        "looped-experts": "experts are launched one by one, and the host waits for their counts",
    }
)


def check_rewrite(text: str, elsewhere: Mapping[str, str] = OF_A_SEARCH) -> None:
    """Refuse settings that are none, or that something else decides.

    Args:
        text: As `read_settings` reads it.
        elsewhere: Settings that something else decides, with a hint at it.

    Raises:
        UnknownNameError: No such setting, or no such value of it.
        InvalidInputError: Not a setting, or one that something else decides.

    >>> check_rewrite("lora_rank=8")
    """
    plain = Configuration()
    changed = read_settings(text, plain)
    names = (pair.partition("=")[0].strip() for pair in text.split(","))
    refuse_twice("--rewrite", filter(None, names))
    for name, hint in elsewhere.items():
        if getattr(changed, name) != getattr(plain, name):
            raise InvalidInputError(f"`{name}` cannot be set with --rewrite here", hint=hint)


def with_usual(
    rewrite: str, framework: str | None, *, is_training: bool, leaving: Container[str] = ()
) -> str:
    """What the software does by default, and behind it what is stated, which wins.

    Args:
        rewrite: As stated.
        framework: Software that was named, if any.
        is_training: Whether it trains.
        leaving: Settings that something else decides.

    Raises:
        UnknownNameError: A release that has no date.

    >>> with_usual("loss=wide", "torchtune", is_training=True, leaving=("optimizer_kernel",))
    'training_format=pure,loss=chunked,results=dropped,peaks=derived,loss=wide'
    """
    trains_all = not has_adapters(rewrite)
    frozen = read_settings(rewrite, Configuration()).frozen_weights
    usual = usual_settings(
        framework, is_training=is_training, trains_all=trains_all, frozen_weights=frozen
    )
    names = {pair.partition("=")[0].strip() for pair in rewrite.split(",")}
    if "checkpointing" in leaving or "checkpointing" in names:
        # What a trainer keeps on the host goes with its own way to recompute.
        usual.pop("offload", None)
    said = [f"{name}={value}" for name, value in usual.items() if name not in leaving]
    return ",".join(filter(None, (*said, rewrite)))


def has_adapters(rewrite: str) -> bool:
    """Whether adapters are trained over weights that are there.

    >>> has_adapters("lora_rank=8,loss=wide"), has_adapters("")
    (True, False)
    """
    return read_settings(rewrite, Configuration()).lora_rank > 0


def run_words(rewrite: str) -> str:
    """What is run another way, as an assumption; empty where nothing is.

    >>> run_words("lora_rank=8"), run_words("objective=dpo").partition(": ")[0]
    ('run with lora_rank=8', 'run with objective=dpo')
    """
    beside = models_beside(read_settings(rewrite, Configuration()).objective)
    return ": ".join(filter(None, (rewrite and f"run with {rewrite}", beside.words)))


def table_words(workload: Workload, rewrite: str) -> str:
    """How tables of embeddings are updated where the model's trainer has its own way."""
    stated = read_settings(rewrite, Configuration()).table_updates
    updates = [written_updates(one.graph) for one in workload.passes]
    how = next((one for one in updates if one != "dense"), "dense")
    if how == "dense" or stated != "as-written":
        return ""
    when = "within the backward pass" if how == "fused" else "after it, from sparse gradients"
    return (
        f"tables are updated by the rows that were read, {when}, as its trainer does "
        "(change with --rewrite table_updates=dense)"
    )


def usual_words(
    framework: str | None, rewrite: str, *, is_training: bool, leaving: Container[str] = ()
) -> str:
    """What `with_usual` takes from the software, as an assumption; empty where it takes nothing.

    >>> usual_words("torch:1.13", "attention=flash", is_training=False)
    'as torch:1.13 does unless --rewrite says otherwise: libraries=torch==1.13'
    """
    stated = [pair.strip() for pair in rewrite.split(",")]
    names = {pair.partition("=")[0] for pair in stated}
    taken = with_usual(rewrite, framework, is_training=is_training, leaving=leaving).split(",")
    plain = Configuration()
    does = ", ".join(
        one
        for one in filter(None, taken)
        if one.partition("=")[0] not in names and read_settings(one, plain) != plain
    )
    return f"as {framework} does unless --rewrite says otherwise: {does}" if does else ""


def habit_words(framework: str | None, habits: Iterable[str]) -> str:
    """What software does beside the strategy, as an assumption; empty where it does nothing.

    >>> habit_words("LitGPT", ["hooks"])
    "as LitGPT does: hooks of each sharded block take the host's time"
    """
    does = ", ".join(_HABITS[habit] for habit in habits if habit in _HABITS)
    return f"as {framework} does: {does}" if does else ""
