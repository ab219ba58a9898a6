"""How much is to be done, from what the user gave or the workload's reference job."""

from __future__ import annotations

import math

from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Workload
from paceline.planning.goal.goal import Work
from paceline.planning.goal.rewrites import has_adapters
from paceline.prediction.input_side import sample_format
from paceline.units import format_count
from paceline.values import dataclass

#: Steps are counted in 64-bit integers.
_MOST_SAMPLES = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The work in the search's own terms.

    Attributes:
        items_per_epoch: Batch items per epoch; None if only rates are asked for.
        num_epochs: Passes over them.
        samples_per_item: Samples (in the workload's unit) that one batch item counts for.
        samples_per_s: Throughput that must be served without end; None without.
    """

    items_per_epoch: int | None
    num_epochs: float
    samples_per_item: float
    samples_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work in the search's terms and in words.

    Attributes:
        num_samples: Per epoch, in the workload's unit; None if only rates are asked for.
        num_epochs: Passes over them; None likewise.
        text: Such as ``1,281,167 images × 90 epochs``; empty likewise.
        assumption: Which amount was assumed and how to change it; empty if the user gave it.
    """

    amount: Amount
    num_samples: float | None
    num_epochs: float | None
    text: str
    assumption: str


def resolve_job(
    workload: Workload, work: Work, *, seq: int, rewrite: str = "", data: str | None = None
) -> Job:
    """The job that is planned.

    Args:
        workload: Its unit says what a sample is.
        work: What the user gave; all empty means the reference job.
        seq: Tokens of one batch item, where the unit is tokens; a stated sample is one item then.
        rewrite: Settings of the job, such as ``lora_rank=16``: nobody pretrains adapters.
        data: The data set that is passed over, such as ``coco``.

    Raises:
        UnknownNameError: No such data set.
        InvalidInputError: Tokens for a model that reads none, requests for a training job, or
            more work than can be counted.
    """
    samples_per_item = _samples_per_item(workload, work, seq)
    if work.requests_per_s is not None:
        return _served(workload, work, samples_per_item)
    if work.num_tokens is not None:
        return _tokens(workload, work, samples_per_item, seq)
    if work.num_samples is not None or work.num_epochs is not None:
        return _given(workload, work, samples_per_item, data)
    adapts = workload.sample_unit == "tokens" and has_adapters(rewrite)
    return (
        _endless(workload, samples_per_item) if adapts else _reference(workload, samples_per_item)
    )


def check_global_batch(global_batch: int | None, job: Job, workload: Workload) -> None:
    """Refuse a stated global batch that no epoch can fill.

    Raises:
        InvalidInputError: It is larger than an epoch.
    """
    items = job.amount.items_per_epoch
    if workload.task == "infer" or global_batch is None or items is None or global_batch <= items:
        return
    per_item = job.amount.samples_per_item
    unit = f" sequences of {per_item:,.0f} tokens" if per_item > 1 else f" {workload.sample_unit}"
    more = _options(workload).split(",")[0]
    raise InvalidInputError(
        f"a global batch of {global_batch:,} is more than the {items:,}{unit} of an epoch",
        hint=f"give --global-batch {items} or less, or more work with {more}",
    )


def check_has_work(job: Job, workload: Workload) -> None:
    """Refuse a job that says no amount of work.

    Raises:
        InvalidInputError: It does not.
    """
    if job.amount.items_per_epoch is None:
        raise InvalidInputError(
            f"`{workload.name}` says no amount of work", hint="give work: {samples: …, epochs: …}"
        )


def is_generation(workload: Workload) -> bool:
    """Whether requests are answered token by token."""
    return workload.generates


def _samples_per_item(workload: Workload, work: Work, seq: int) -> float:
    if workload.sample_unit != "tokens":
        return workload.samples_per_item
    return float(work.output_length if is_generation(workload) else seq)


def _served(workload: Workload, work: Work, samples_per_item: float) -> Job:
    assert work.requests_per_s is not None
    if workload.task == "train":
        raise InvalidInputError(
            "requests are served, not trained", hint="add --task infer, or leave --rps out"
        )
    amount = Amount(
        items_per_epoch=None,
        num_epochs=1.0,
        samples_per_item=samples_per_item,
        samples_per_s=work.requests_per_s * samples_per_item,
    )
    text = f"{work.requests_per_s:g} requests/s"
    return Job(amount=amount, num_samples=None, num_epochs=None, text=text, assumption="")


def _tokens(workload: Workload, work: Work, samples_per_item: float, seq: int) -> Job:
    assert work.num_tokens is not None
    if seq < 2 and workload.sample_unit != "tokens":
        raise InvalidInputError(
            f"{workload.title} reads {workload.sample_unit}, not tokens",
            hint="give the work as --samples and --epochs",
        )
    epochs = work.num_epochs or 1.0
    tokens_per_item = samples_per_item if workload.sample_unit == "tokens" else float(seq)
    items = math.ceil(work.num_tokens / tokens_per_item)
    text = f"{format_count(work.num_tokens)} tokens" + _times_epochs(epochs)
    return _job(items, epochs, samples_per_item, text, "")


def _epoch(workload: Workload, work: Work, data: str | None) -> tuple[float, str]:
    """Samples of an epoch, and whose they are where nobody stated their number."""
    if work.num_samples:
        return work.num_samples, ""
    stored = sample_format(data) if data not in (None, "ready") else None
    if stored is not None and stored.num_samples is not None and workload.sample_unit == "images":
        return stored.num_samples, str(data)
    if workload.reference_job is not None:
        return workload.reference_job.num_samples, "the reference job"
    named = ", or the data set with --data coco" if workload.sample_unit == "images" else ""
    raise InvalidInputError(
        f"{workload.title} has no reference job, so epochs alone do not say how much to do",
        hint=f"give --samples too, such as --samples 1M{named}",
    )


def _given(workload: Workload, work: Work, samples_per_item: float, data: str | None = None) -> Job:
    num_samples, whose = _epoch(workload, work, data)
    epochs = work.num_epochs or 1.0
    assumption = f"samples per epoch of {whose}: {num_samples:,.0f}" if whose else ""
    items = _items_of(workload, samples_per_item) if work.num_samples else ""
    text = f"{num_samples:,.0f} {items or workload.sample_unit}"
    if items:
        num_samples *= samples_per_item
    return _job(
        math.ceil(num_samples / samples_per_item),
        epochs,
        samples_per_item,
        text + _times_epochs(epochs),
        assumption,
    )


def _reference(workload: Workload, samples_per_item: float) -> Job:
    reference = workload.reference_job
    if reference is None:
        return _endless(workload, samples_per_item)
    items = math.ceil(reference.num_samples / samples_per_item)
    assumption = f"reference job: {reference.description} (change with {_options(workload)})"
    return _job(items, reference.num_epochs, samples_per_item, _words(workload), assumption)


def _endless(workload: Workload, samples_per_item: float) -> Job:
    """What is done without an end, as nobody says how much."""
    options = "--tokens" if workload.sample_unit == "tokens" else "--samples and --epochs"
    return Job(
        amount=Amount(items_per_epoch=None, num_epochs=1.0, samples_per_item=samples_per_item),
        num_samples=None,
        num_epochs=None,
        text="",
        assumption="no amount of work given and no reference job known: rates and cost per "
        f"million {workload.sample_unit} (give {options} for time and cost)",
    )


def _words(workload: Workload) -> str:
    reference = workload.reference_job
    assert reference is not None
    samples = f"{reference.num_samples:,.0f} {workload.sample_unit}"
    return samples + _times_epochs(reference.num_epochs)


def _options(workload: Workload) -> str:
    return "--tokens" if workload.sample_unit == "tokens" else "--samples, --epochs"


def _items_of(workload: Workload, samples_per_item: float) -> str:
    """What stated samples are where work is counted in parts of them; empty elsewhere."""
    if workload.sample_unit == "seconds of sound":
        return f"recordings of {samples_per_item:,.0f} s"
    if workload.sample_unit != "tokens":
        return ""
    unit = "answers" if is_generation(workload) else "sequences"
    return f"{unit} of {samples_per_item:,.0f} tokens"


def _times_epochs(epochs: float) -> str:
    return "" if epochs == 1 else f" × {epochs:g} epochs"


def _job(items: int, epochs: float, samples_per_item: float, text: str, assumption: str) -> Job:
    if items * samples_per_item * epochs > _MOST_SAMPLES:
        raise InvalidInputError(
            f"{text} are more than can be counted", hint=f"give less than {_MOST_SAMPLES:g} in all"
        )
    amount = Amount(items_per_epoch=items, num_epochs=epochs, samples_per_item=samples_per_item)
    return Job(
        amount=amount,
        num_samples=items * samples_per_item,
        num_epochs=epochs,
        text=text,
        assumption=assumption,
    )
