"""The options that state a goal and an amount of work, for the command line and the API.

They are those that the fields of `Goal` and `Work` declare; here stand their types as keywords.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, TypedDict

from paceline.app.command_line import Option
from paceline.app.option_table import TextOption
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.typed import typed_fields


class PlanOptions(TypedDict, total=False):
    """Goal and work as keywords of the Python API, written as on the command line."""

    samples: str | float
    epochs: str | float
    tokens: str | float
    rps: str | float
    prompt_tokens: str | int
    output_tokens: str | int
    concurrency: str | int
    denoising_steps: str | int
    guidance: str | bool
    sound: str
    beams: str | int
    prefix_share: str | float
    adapters: str
    speculate: str
    spread: str | float
    deadline: str
    budget: str | float
    latency: str
    tpot: str
    ttft: str
    percentile: str | int
    throughput: str | float
    power_limit: str
    cooling_limit: str
    vendor: str
    cloud: str
    trust: str
    region: str
    device_class: str
    device: str
    max_devices: str | int
    spot: bool
    term: str
    quota: str
    datacenter: bool
    confidence: str | float
    memory_confidence: str | float
    objective: str
    hour_value: str | float
    storage: str | float
    egress: str | float
    strategies: str
    ideal: bool
    precision: str
    compiler: str
    framework: str
    global_batch: str | int
    max_price_age_days: str | int
    data: str
    rewrite: str
    pin: str | list[str]


class RequestOptions(TypedDict, total=False):
    """Lengths of a request and what one item of inference is; None takes what is usual.

    Attributes:
        prompt_tokens: Of one request, where text is generated.
        output_tokens: Of its answer, or of the target of an encoder–decoder in training.
        denoising_steps: Of one picture or clip.
        guidance: ``yes`` or ``no``: whether each of them runs without the prompt too.
        sound: Length of one recording that is heard, such as ``45s``.
        beams: Answers that a search keeps beside each other.
        prefix_share: Of a prompt, what an engine finds in its cache.
        adapters: LoRA adapters of which each request asks for one: ``count=32,rank=16``.
        speculate: How tokens are guessed: ``draft=mtp,tokens=3,acceptance=0.7``.
        rps: Requests per second that come to an engine; what they see is in ``services``.
        concurrency: The same of so many requests kept in flight.
        trace: The same of requests in a CSV file: arrival_s, prompt_tokens, output_tokens.
        spread: Standard deviation of both lengths of requests over their mean.
    """

    prompt_tokens: int | None
    output_tokens: int | None
    denoising_steps: int | None
    guidance: str | None
    sound: str | None
    beams: int | None
    prefix_share: str | float | None
    adapters: str | None
    speculate: str | None
    rps: float | None
    concurrency: int | None
    trace: Path | None
    spread: float | None


class InquiryOptions(PlanOptions, total=False):
    """All that `paceline.plan` takes beside the model."""

    task: str | None
    seq: int | None
    image_size: int | None
    optimizer: str | None
    python: str | None
    facts: Sequence[Path]
    as_of: str | date | None
    calibration: Path | None


class ClusterOptions(TypedDict, total=False):
    """What `scale` and `trials` take alike: how a model is traced and run, and where."""

    device: str | None
    offer: str | None
    global_batch: int | None
    seq: int | None
    image_size: int | None
    optimizer: str | None
    python: str | None
    precision: str | None
    compiler: str | None
    framework: str | None
    rewrite: str
    as_of: str | date | None
    calibration: Path | None
    facts: Sequence[Path]


def _declared(kind: type) -> Iterator[TextOption]:
    """The command-line options that the fields of a dataclass declare."""
    for _, one in typed_fields(kind):
        flags = ((one.flag or one.name, one.help), *one.also)
        for flag, told in flags:
            yield TextOption(
                name=flag, key=one.name, help=told, example=one.example,
                is_repeatable=one.is_repeatable,
            )  # fmt: skip


GOAL_OPTIONS = tuple(_declared(Goal))
WORK_OPTIONS = tuple(_declared(Work))
#: How much a training job does.
JOB_OPTIONS = tuple(
    one for one in WORK_OPTIONS if one.name in ("samples", "epochs", "tokens", "output-tokens")
)
#: Settings of a step whose strategy is searched.
REWRITE = next(one for one in GOAL_OPTIONS if one.name == "rewrite")
SearchedRewrite = Annotated[str, Option(metavar=REWRITE.example, help=REWRITE.help, default="")]
