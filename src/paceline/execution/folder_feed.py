"""What this host feeds from some data: asked of the Python that has torch, next to a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.execution.loop_worker import ask_loop
from paceline.parallelism.uncertainty import INPUT_LOG_SIGMA, interval_of
from paceline.planfile import Interval
from paceline.prediction.input_side import (
    InputHost,
    InputPipeline,
    Remedy,
    SampleFormat,
    predict_input,
)
from paceline.values import dataclass

#: A sample of the folder takes seconds; reading all of it, as long as it takes.
_TIMEOUT_S = 600.0
#: A change that gains less is within the noise of its trial.
_LEAST_GAIN_FRAC = 0.05
_CHANGES = {
    "scaled": "decode at a lower resolution (is_scaled=True)",
    "shrunk": "shrink the files once beforehand",
    "raw": "store decoded and resized samples",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStage:
    """A stage of one thread's work.

    Attributes:
        name: Such as ``decode``.
        core_s: Time of a core for one sample.
        wall_s: Time of the clock, waiting for storage and for a core included.
    """

    name: str
    core_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FedDevice:
    """How many of a device the host keeps busy.

    Attributes:
        device: Its name.
        samples_per_s: What one takes, predicted.
        num_fed: How many are fed; less than one means that it waits.
    """

    device: str
    samples_per_s: Interval
    num_fed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFeed:
    """What a host feeds from some data.

    Attributes:
        data: As named.
        num_classes: Folders that are classes; 0 where there are none.
        formats: Samples that were looked at, by format.
        disk_bytes: Mean size of a sample as stored.
        width: Mean, in pixels; 0 where samples are no images.
        height: Likewise.
        num_cores: Cores that this process may use.
        stages: Of one sample, in order.
        num_threads: Chosen or asked for.
        samples_per_s: Measured with them; None where there is too little data for it.
        core_s: Time of all cores for one sample, measured with them.
        predicted_samples_per_s: From size, format and cores alone; None for what is not modelled.
        remedies: Changes tried on some samples, the largest gain first.
        wanted_samples_per_s: Of all devices; None if it was not stated.
        num_threads_needed: For that rate; None if no number would do, or if it was not stated.
        num_checked: Samples that were read to find damaged ones.
        num_damaged: Of those.
        damaged: Name and reason of the first 10,000.
        devices: How many of which are fed; empty if no model was named.
    """

    data: str
    num_samples: int
    num_classes: int
    formats: Mapping[str, int]
    disk_bytes: float
    width: float
    height: float
    num_cores: int
    stages: tuple[FeedStage, ...]
    num_threads: int
    samples_per_s: float | None
    core_s: float | None
    predicted_samples_per_s: Interval | None
    remedies: tuple[Remedy, ...]
    wanted_samples_per_s: float | None
    num_threads_needed: int | None
    num_checked: int
    num_damaged: int
    damaged: tuple[tuple[str, str], ...]
    devices: tuple[FedDevice, ...] = ()


def ask(request: Mapping[str, Any], python: str | None) -> dict[str, Any]:
    """The worker's answer, as ``loop.feeding.measured`` describes it.

    Raises:
        InvalidInputError: There is no data, or no Python with torch.
        WorkerError: The worker died or hung.
    """
    return ask_loop("feeding.measured", request, python=python, timeout_s=_timeout_s(request))


def _timeout_s(request: Mapping[str, Any]) -> float | None:
    return None if request["check"] else _TIMEOUT_S + 3 * float(request["seconds"])


def folder_feed(data: str, size: int, found: Mapping[str, Any], wanted: float | None) -> FolderFeed:
    """The worker's answer with what follows from it, without devices.

    Args:
        data: As named.
        size: Pixels of a side of what is sent.
        found: The answer.
        wanted: Samples per second of all devices; None if not stated.
    """
    facts, stages = found["facts"], tuple(FeedStage(**stage) for stage in found["stages"])
    return FolderFeed(
        data=data,
        num_samples=found["num_samples"],
        num_classes=found["num_classes"],
        formats=facts["formats"],
        disk_bytes=facts["disk_bytes"],
        width=facts["width"],
        height=facts["height"],
        num_cores=found["num_cores"],
        stages=stages,
        num_threads=found["num_threads"],
        samples_per_s=found["measured_per_s"],
        core_s=found["core_s"],
        predicted_samples_per_s=_predicted(facts, size, found),
        remedies=tuple(_remedies(found)),
        wanted_samples_per_s=wanted,
        num_threads_needed=_threads_needed(wanted, found),
        num_checked=found["num_checked"],
        num_damaged=found["num_damaged"],
        damaged=tuple((name, reason) for name, reason in found["damaged"]),
    )


def _threads_needed(wanted: float | None, found: Mapping[str, Any]) -> int | None:
    """Threads for a rate, if the cores reach it at all."""
    rate, num_threads = found["measured_per_s"], found["num_threads"]
    if wanted is None or rate is None or wanted > rate:
        return None
    return max(1, -int(-wanted * num_threads // rate))


def _predicted(facts: Mapping[str, Any], size: int, found: Mapping[str, Any]) -> Interval | None:
    """From what the files are, with the shipped costs of a core; None where those say nothing."""
    counts = facts["formats"]
    usual = max(counts, key=lambda name: counts[name]) if counts else ""
    if usual not in ("JPEG", "PNG"):
        return None
    sample = SampleFormat(
        encoding="jpeg" if usual == "JPEG" else "png",
        width=round(facts["width"]),
        height=round(facts["height"]),
        disk_bytes=facts["disk_bytes"],
    )
    pipeline = InputPipeline(
        sample=sample, width=size, height=size, sent_as="uint8", num_workers=found["num_threads"],
        loader="threads",
    )  # fmt: skip
    host = InputHost(num_cores=found["num_cores"], threads_per_core=found["threads_per_core"])
    rate = predict_input(pipeline, host).samples_per_s
    return interval_of(rate, INPUT_LOG_SIGMA)


def _remedies(found: Mapping[str, Any]) -> Iterator[Remedy]:
    """Changes that were tried, with what they would make of the measured rate."""
    rate, rows = found["measured_per_s"], []
    for row in found["remedies"] if rate else ():
        gain = row["before_core_s"] / row["core_s"] - 1
        if gain > _LEAST_GAIN_FRAC:
            rows.append(
                Remedy(
                    change=_CHANGES[row["change"]], samples_per_s=rate * (1 + gain), gain_frac=gain
                )
            )
    yield from sorted(rows, key=lambda remedy: -remedy.gain_frac)
