"""The input side of a step: read, decode, shrink, batch, copy; and what it leaves of the step.

A sample costs a worker its decoding, resizing, conversion and its part of a batch, and the main
process the hand-over. Workers run beside each other until the cores are used up; storage and the
main process are ceilings of their own. Costs per stage were measured (``data/stage_costs.csv``,
``benchmarks/input_pipeline.py``); one measured pipeline scales them to another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.shipped import read_as, shipped_rows
from paceline.values import dataclass

Encoding = Literal["jpeg", "png", "raw"]
SentAs = Literal["uint8", "float32"]
#: What makes the batches: processes that decode with Pillow, as PyTorch's loader is mostly used, or
#: the threads of ``paceline.loop.feed``.
Loader = Literal["processes", "threads"]
InputLimit = Literal["workers", "cores", "main process", "storage", "copy"]

#: A change that gains less is within what predictions of pipelines are wrong by, and not named.
_LEAST_GAIN_FRAC = 0.02
#: What a core gives by two hardware threads against one; decoding keeps its units busy (recalled
#: from vendors' papers on hardware threads, 16 to 30 % more; not measured here).
_SHARED_CORE_YIELD = 1.25
#: Share of a measured rate that a calibrated host must reach, else storage held it back.
_REACHED_FRAC = 0.99
_SENT_BYTES: Mapping[SentAs, int] = {"uint8": 1, "float32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFormat:
    """A sample as it lies on disk.

    Attributes:
        encoding: How it is stored.
        width: Pixels.
        height: Pixels.
        disk_bytes: Mean size of one.
        channels: Colour channels.
        num_samples: Of its data set, to train on; None where it is not known.
    """

    encoding: Encoding
    width: int
    height: int
    disk_bytes: float
    channels: int = 3
    num_samples: float | None = None

    def __post_init__(self) -> None:
        if min(self.width, self.height, self.disk_bytes, self.channels) <= 0:
            raise InvalidInputError(
                "a sample needs a size above zero", hint="give width, height and bytes on disk"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPipeline:
    """What is done to a sample until the device has it.

    Attributes:
        sample: As stored.
        width: Pixels after resizing.
        height: Pixels after resizing.
        sent_as: Format that is handed over and copied to the device.
        batch: Samples per step and device.
        num_workers: Loader processes; zero does everything in the main process.
        is_resized: Whether the host resizes; False where files already have the final size.
        is_overlapped: Whether loading and copying go on while the device computes (prefetching
            workers, pinned memory); else the step waits for them.
        loader: What makes the batches; threads send bytes.
    """

    sample: SampleFormat
    width: int
    height: int
    sent_as: SentAs = "float32"
    batch: int = 32
    num_workers: int = 2
    is_resized: bool = True
    is_overlapped: bool = True
    loader: Loader = "processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputHost:
    """The machine that feeds the devices.

    Attributes:
        num_cores: Processors that the system counts.
        threads_per_core: How many of them share a core, where that is known.
        storage_read_bytes_per_s: Read rate of its data disk; None where it is no limit (cached).
        copy_bytes_per_s: Host-to-device copy; None where there is none.
        core_speed: Speed of a core against the one the stage costs were measured on.
    """

    num_cores: int
    threads_per_core: int = 1
    storage_read_bytes_per_s: float | None = None
    copy_bytes_per_s: float | None = None
    core_speed: float = 1.0

    @property
    def full_cores(self) -> float:
        """Cores' worth of work that all processors do together.

        >>> InputHost(num_cores=16, threads_per_core=2).full_cores
        10.0
        """
        yields = 1.0 if self.threads_per_core == 1 else _SHARED_CORE_YIELD
        return self.num_cores / self.threads_per_core * yields


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPrediction:
    """What the host can deliver.

    Attributes:
        samples_per_s: To all devices together.
        limit: What holds it back.
        worker_s: Core time of one sample in a worker.
        main_s: Core time of one sample in the main process.
        sent_bytes: Of one sample, handed over and copied.
        decoded_bytes: Of one sample after decoding.
        copy_s: Host-to-device copy of one batch; zero where there is none.
        stage_s: Core time of one sample by stage.
    """

    samples_per_s: float
    limit: InputLimit
    worker_s: float
    main_s: float
    sent_bytes: float
    decoded_bytes: float
    copy_s: float
    stage_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change of the input side and what it gives."""

    change: str
    samples_per_s: float
    gain_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FedStep:
    """A step with its input side.

    Attributes:
        step_s: With the input.
        compute_s: Without it.
        input_s: Time the host needs for the batches of all devices.
        is_input_bound: Whether the devices wait.
        starved_frac: Share of the step in which they do.
        num_fed_devices: Devices that this host can keep busy.
        remedies: What would help, most first; empty if nothing waits.
    """

    step_s: float
    compute_s: float
    input_s: float
    is_input_bound: bool
    starved_frac: float
    num_fed_devices: int
    remedies: tuple[Remedy, ...]


def predict_input(pipeline: InputPipeline, host: InputHost) -> InputPrediction:
    """What ``host`` delivers through ``pipeline`` when the devices never make it wait."""
    stage_s = {name: cost / host.core_speed for name, cost in _stage_s(pipeline).items()}
    main_s = stage_s.get("loader-main", 0.0)
    worker_s = sum(stage_s.values()) - main_s
    sent_bytes = pipeline.width * pipeline.height * pipeline.sample.channels
    sent_bytes *= _SENT_BYTES[pipeline.sent_as]
    ceilings = _ceilings(pipeline, host, worker_s, main_s, sent_bytes)
    limit = min(ceilings, key=lambda name: ceilings[name])
    copy_rate = host.copy_bytes_per_s
    return InputPrediction(
        samples_per_s=ceilings[limit],
        limit=limit,
        worker_s=worker_s,
        main_s=main_s,
        sent_bytes=sent_bytes,
        decoded_bytes=_decoded_bytes(pipeline.sample),
        copy_s=pipeline.batch * sent_bytes / copy_rate if copy_rate else 0.0,
        stage_s=stage_s,
    )


def workers_needed(pipeline: InputPipeline, host: InputHost, samples_per_s: float) -> int | None:
    """Fewest workers that deliver a rate; None if this host cannot with any number."""
    for num_workers in range(1, host.num_cores + 1):
        trial = replace(pipeline, num_workers=num_workers)
        if predict_input(trial, host).samples_per_s >= samples_per_s:
            return num_workers
    return None


def feed_step(
    compute_s: float, pipeline: InputPipeline, host: InputHost, *, num_devices: int = 1
) -> FedStep:
    """A step of ``num_devices`` devices fed by one host.

    Overlapped, the step is the longer of computing and loading; else it is their sum.

    Args:
        compute_s: Step of one device with its input ready.
        pipeline: With the batch of one device.
        host: Feeds all of them.
        num_devices: Fed at once.
    """
    delivered = predict_input(pipeline, host)
    input_s = num_devices * pipeline.batch / delivered.samples_per_s
    if pipeline.is_overlapped:
        step_s = max(compute_s, input_s)
    else:
        step_s = compute_s + input_s + delivered.copy_s
    waits = step_s > compute_s * (1 + 1e-9)
    wanted = pipeline.batch / compute_s
    return FedStep(
        step_s=step_s,
        compute_s=compute_s,
        input_s=input_s,
        is_input_bound=waits,
        starved_frac=1 - compute_s / step_s,
        num_fed_devices=int(delivered.samples_per_s / wanted + 1e-9),
        remedies=remedies(pipeline, host) if waits else (),
    )


def remedies(pipeline: InputPipeline, host: InputHost) -> tuple[Remedy, ...]:
    """Changes that make the host deliver more, each alone, most first."""
    now = predict_input(pipeline, host).samples_per_s
    sample = pipeline.sample
    shrunk = replace(
        sample,
        width=pipeline.width,
        height=pipeline.height,
        disk_bytes=sample.disk_bytes * min(1.0, _shrink_frac(pipeline)),
    )
    raw = replace(shrunk, encoding="raw", disk_bytes=_decoded_bytes(shrunk))
    changes = {
        f"{host.num_cores} workers": (replace(pipeline, num_workers=host.num_cores), host),
        "send uint8, normalise on the device": (replace(pipeline, sent_as="uint8"), host),
        "resize the files once beforehand": (
            replace(pipeline, sample=shrunk, is_resized=False), host),
        "store decoded and resized samples": (
            replace(pipeline, sample=raw, is_resized=False), host),
        "data on local NVMe": (pipeline, replace(
            host, storage_read_bytes_per_s=storage_read_bytes_per_s("nvme"))),
    }  # fmt: skip
    found = [
        Remedy(change=change, samples_per_s=rate, gain_frac=rate / now - 1)
        for change, (changed, on) in changes.items()
        for rate in (predict_input(changed, on).samples_per_s,)
        if rate > (1.0 + _LEAST_GAIN_FRAC) * now
    ]
    return tuple(sorted(found, key=lambda remedy: -remedy.samples_per_s))


def describe_feed(fed: FedStep, delivered: InputPrediction, num_devices: int) -> str:
    """One sentence for the report: whether the host feeds the devices, and the best remedy."""
    rate = f"this host feeds {delivered.samples_per_s:,.0f} samples/s ({delivered.limit})"
    if not fed.is_input_bound:
        return f"{rate}: enough for {'it' if num_devices == 1 else f'{num_devices} devices'}"
    busy = num_devices * (1 - fed.starved_frac)
    waits = (
        f"keeps {busy:.2g} of {num_devices} devices busy" if num_devices > 1 else "the device waits"
    )
    best = fed.remedies[0] if fed.remedies else None
    remedy = f"; {best.change} gives {best.samples_per_s:,.0f}/s" if best else ""
    return f"{rate}: {waits}, {fed.starved_frac:.0%} of the step lost{remedy}"


def calibrated_host(host: InputHost, pipeline: InputPipeline, measured_per_s: float) -> InputHost:
    """``host`` with the core speed that makes one measured pipeline come out right.

    Raises:
        InvalidInputError: Not a rate, or storage and not the cores held that pipeline back.
    """
    if not 0 < measured_per_s < float("inf"):
        raise InvalidInputError(
            f"{measured_per_s} samples/s is no rate", hint="measure the loader alone, some seconds"
        )
    unlimited = replace(host, core_speed=1.0, storage_read_bytes_per_s=None, copy_bytes_per_s=None)
    found = replace(
        host, core_speed=measured_per_s / predict_input(pipeline, unlimited).samples_per_s
    )
    if predict_input(pipeline, found).samples_per_s < _REACHED_FRAC * measured_per_s:
        raise InvalidInputError(
            "the stated storage cannot deliver the measured rate", hint="state the storage it has"
        )
    return found


def sample_format(name: str) -> SampleFormat:
    """The format of a well-known data set.

    Raises:
        UnknownNameError: None of that name.
    """
    rows = {row["name"]: row for row in shipped_rows("prediction", "sample_formats.csv")}
    row = rows.get(name.lower())
    if row is None:
        unknown = UnknownNameError.from_name("data set", name, rows)
        hint = f"{unknown.hint}; a folder or file that is there is measured"
        raise UnknownNameError(str(unknown), hint=hint)
    return read_as(SampleFormat, row)


def storage_read_bytes_per_s(name: str) -> float:
    """Read rate of a kind of storage.

    Raises:
        UnknownNameError: No such kind.
    """
    rates = {
        row["name"]: float(row["read_bytes_per_s"])
        for row in shipped_rows("prediction", "storage_rates.csv")
    }
    if name not in rates:
        raise UnknownNameError.from_name("storage", name, rates)
    return rates[name]


def _stage_s(pipeline: InputPipeline) -> dict[str, float]:
    """Core time of one sample by stage, on the core that was measured."""
    sample = pipeline.sample
    sent_pixels = pipeline.width * pipeline.height
    sent_bytes = sent_pixels * sample.channels * _SENT_BYTES[pipeline.sent_as]
    source_pixels = min(sample.width, sample.height) ** 2
    if pipeline.loader == "threads":
        return _thread_stage_s(pipeline, source_pixels)
    stages = {
        f"decode-{sample.encoding}": (sample.disk_bytes, sample.width * sample.height),
        "loader-worker": (sent_bytes, 0),
        "loader-main": (sent_bytes, 0),
    }
    if pipeline.is_resized:
        stages["resize"] = (0, source_pixels)
    if pipeline.sent_as == "float32":
        stages["to-float32"] = (0, sent_pixels)
    return {name: _cost_s(name, num_bytes, pixels) for name, (num_bytes, pixels) in stages.items()}


def _thread_stage_s(pipeline: InputPipeline, source_pixels: int) -> dict[str, float]:
    """As ``paceline.loop.feed`` works: JPEG by libjpeg-turbo, resized as bytes, in one process."""
    sample = pipeline.sample
    decoder = "jpeg-turbo" if sample.encoding == "jpeg" else sample.encoding
    stages = {f"decode-{decoder}": (sample.disk_bytes, sample.width * sample.height)}
    if pipeline.is_resized:
        stages["resize-bytes"] = (0, source_pixels)
    stages["feed-row"] = (0, 0)
    return {name: _cost_s(name, num_bytes, pixels) for name, (num_bytes, pixels) in stages.items()}


def _cost_s(stage: str, num_bytes: float, pixels: float) -> float:
    fixed_s, s_per_byte, s_per_pixel = _stage_costs()[stage]
    return fixed_s + s_per_byte * num_bytes + s_per_pixel * pixels


def _ceilings(
    pipeline: InputPipeline, host: InputHost, worker_s: float, main_s: float, sent_bytes: float
) -> dict[InputLimit, float]:
    ceilings: dict[InputLimit, float]
    if pipeline.num_workers == 0:
        ceilings = {"main process": 1 / (worker_s + main_s)}
    else:
        ceilings = {
            "workers": pipeline.num_workers / worker_s,
            "cores": host.full_cores / (worker_s + main_s),
        }
        if main_s:
            ceilings["main process"] = 1 / main_s
    if host.storage_read_bytes_per_s is not None:
        ceilings["storage"] = host.storage_read_bytes_per_s / pipeline.sample.disk_bytes
    if host.copy_bytes_per_s is not None:
        ceilings["copy"] = host.copy_bytes_per_s / sent_bytes
    return ceilings


def _decoded_bytes(sample: SampleFormat) -> float:
    return float(sample.width * sample.height * sample.channels)


def _shrink_frac(pipeline: InputPipeline) -> float:
    before = pipeline.sample.width * pipeline.sample.height
    return pipeline.width * pipeline.height / before


@cache
def _stage_costs() -> dict[str, tuple[float, float, float]]:
    return {
        row["stage"]: (float(row["fixed_s"]), float(row["s_per_byte"]), float(row["s_per_pixel"]))
        for row in shipped_rows("prediction", "stage_costs.csv")
    }
