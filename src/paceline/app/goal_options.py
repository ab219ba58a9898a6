"""The options that state a goal and an amount of work, for the command line and the API.

`paceline.planning.goal.options` reads them; here stands what a user is told about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TypedDict

from paceline.app.option_table import TextOption


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
    region: str
    device_class: str
    device: str
    max_devices: str | int
    spot: bool
    datacenter: bool
    confidence: str | float
    memory_confidence: str | float
    objective: str
    hour_value: str | float
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
        output_tokens: Of its answer.
        denoising_steps: Of one picture or clip.
        guidance: ``yes`` or ``no``: whether each of them runs without the prompt too.
        sound: Length of one recording that is heard, such as ``45s``.
        beams: Answers that a search keeps beside each other.
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
    rps: float | None
    concurrency: int | None
    trace: Path | None
    spread: float | None


class InquiryOptions(PlanOptions, total=False):
    """All that `paceline.plan` takes beside the model."""

    task: str
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
    rewrite: str
    as_of: str | date | None
    calibration: Path | None
    facts: Sequence[Path]


#: How much a training job does.
JOB_OPTIONS = (
    TextOption(
        name="samples", example="400k", help="Samples per epoch; of a language model, tokens."
    ),
    TextOption(name="epochs", example="30", help="Passes over the samples."),
    TextOption(name="tokens", example="10B", help="Tokens in all, for language models."),
)
WORK_OPTIONS = (
    *JOB_OPTIONS,
    TextOption(name="rps", example="20", help="Requests per second to be served."),
    TextOption(
        name="prompt-tokens", key="prompt", example="512", help="Tokens in, of one request."
    ),
    TextOption(
        name="output-tokens", key="output", example="128", help="Tokens out, of one request."
    ),
    TextOption(name="concurrency", example="8", help="Requests in flight at once, on all devices."),
    TextOption(
        name="denoising-steps", example="20", help="Steps of one picture or clip; its pipeline's."
    ),
    TextOption(
        name="guidance", example="no", help="Whether each of them runs without the prompt too."
    ),
    TextOption(name="sound", example="45s", help="Length of one recording that is heard."),
    TextOption(name="beams", example="5", help="Answers that a search keeps beside each other."),
    TextOption(
        name="spread",
        example="1.0",
        help="How far lengths of requests spread, over their mean: 0 without, about 1 in chats.",
    ),
)
#: Settings of a step whose strategy is searched.
REWRITE = TextOption(
    name="rewrite",
    example="lora_rank=16",
    help="Run it another way: LoRA adapters (lora_rank=16; frozen_weights=int4 beneath them), "
    "freeze layers (frozen=except:fc), training_format=pure, …; several with commas.",
)
GOAL_OPTIONS = (
    TextOption(name="deadline", example="24h", help="Done within this time."),
    TextOption(name="budget", example="50usd", help="Costs no more than this."),
    TextOption(
        name="latency", example="50ms", help="Time per output token, or of one batch, at most."
    ),
    TextOption(name="tpot", key="latency", example="50ms", help="Time per output token, at most."),
    TextOption(name="ttft", example="1s", help="Time to the first token, at most."),
    TextOption(
        name="percentile",
        example="95",
        help="Of requests that come at --rps, which keep --ttft and --tpot: 50, 95 or 99.",
    ),
    TextOption(name="throughput", example="5k", help="Samples or tokens per second, at least."),
    TextOption(
        name="power-limit", example="1.2kW", help="Rated power of all devices together, at most."
    ),
    TextOption(
        name="cooling-limit", example="3kW", help="Heat that your own room takes away, at most."
    ),
    TextOption(name="vendor", example="NVIDIA,AMD", help="Accepted makers; several with commas."),
    TextOption(
        name="cloud",
        example="Lambda,own",
        help="Accepted clouds, own being your machines; several with commas.",
    ),
    TextOption(
        name="region",
        example="eu",
        help="Accepted regions, by their beginning; several with commas.",
    ),
    TextOption(
        name="device-class",
        example="datacenter",
        help="Accepted classes: consumer, edge, …; several with commas.",
    ),
    TextOption(
        name="device",
        example="a100,4090",
        help="Accepted devices or families; several with commas.",
    ),
    TextOption(name="max-devices", example="8", help="Most devices in one plan."),
    TextOption(name="spot", help="Let interruptible prices compete."),
    TextOption(
        name="datacenter", help="Leave out cards whose driver licence forbids data centres."
    ),
    TextOption(
        name="confidence", example="0.8", help="Chance at which time and money must be kept."
    ),
    TextOption(name="memory-confidence", example="0.9", help="Chance at which the job must fit."),
    TextOption(
        name="objective",
        example="cost",
        help="What is best: cost, time, balanced, energy, performance-per-usd.",
    ),
    TextOption(
        name="hour-value",
        example="64usd",
        help="What an hour is worth to you: weighs time against cost with --objective balanced, "
        "and strategies against the work on a script.",
    ),
    TextOption(
        name="strategies",
        example="dp,fsdp,tp",
        help="What the training script can do, several with commas: dp, fsdp, recompute, offload, "
        "tp, pp, cp, ep, interleaved. Others are left out.",
    ),
    TextOption(
        name="ideal",
        help="A training job is its steps alone: nothing is evaluated or saved, and nothing fails.",
    ),
    TextOption(name="precision", example="bf16", help="Accepted precisions; several with commas."),
    TextOption(name="compiler", example="eager", help="Accepted compilers; several with commas."),
    TextOption(
        name="framework",
        example="jax",
        help="What runs it: torch, jax, tensorflow; tensorrt, onnxruntime, openvino …; or vllm, "
        "sglang, trtllm, tgi, llamacpp, which serve. torch without, vllm for language models.",
    ),
    TextOption(name="global-batch", example="256", help="Items per optimizer step, exactly."),
    TextOption(name="max-price-age-days", example="365", help="Older prices are excluded."),
    TextOption(
        name="data",
        example="imagenet",
        help="How samples lie on disk: a known data set, or ready if nothing is to be decoded.",
    ),
    REWRITE,
    TextOption(
        name="pin",
        example="offer=NAME",
        help="Fix the offer, device, nodes, batch, precision, compiler or strategy; repeatable.",
        is_repeatable=True,
    ),
)
