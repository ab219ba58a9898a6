"""What this host feeds from a folder, and what a trained model makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from paceline.app.options import check_above_zero
from paceline.app.requests.words import read_word
from paceline.errors import InvalidInputError
from paceline.execution.folder_feed import FedDevice, FolderFeed, ask, folder_feed
from paceline.execution.loop_worker import ask_loop
from paceline.values import dataclass
from paceline.writing import write_whole

if TYPE_CHECKING:
    from paceline.planfile import Interval


Runtime = Literal["auto", "torch", "onnxruntime", "openvino"]
Mode = Literal["throughput", "latency"]
Normalise = Literal["imagenet", "none"]
_INFER_HELP = "paceline infer --help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A model's answers to a data set.

    Attributes:
        out: The Parquet file: index, name, label, score, scores, damage.
        is_complete: Whether all rows are there; else the same command goes on.
        num_rows: Samples of the data, each in one row.
        num_done_before: Rows that an earlier run had written.
        num_damaged: Rows without a label; None where nothing was left to do.
        runtime: What ran the model; None likewise, as all below.
        samples_per_s: Of this run.
        wall_s: Of this run.
        waited_s: In which the device waited for samples.
        device_s: In which the model ran.
        predicted_device_s: As predicted from trials, where several runtimes were tried.
        after_s: In which rows were made and written.
        latency_p50_s: Of a batch, from asking for it to its outputs.
        latency_p99_s: Likewise.
    """

    out: str
    is_complete: bool
    num_rows: int
    num_done_before: int
    num_damaged: int | None = None
    runtime: str | None = None
    samples_per_s: float | None = None
    wall_s: float | None = None
    waited_s: float | None = None
    device_s: float | None = None
    predicted_device_s: float | None = None
    after_s: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None


def infer(
    model: str,
    data: str,
    out: str,
    *,
    batch: int = 32,
    size: int = 224,
    normalise: str = "imagenet",
    runtime: str = "auto",
    mode: str = "throughput",
    device: str = "cpu",
    workers: int | None = None,
    scores: bool = False,
    part: int | None = None,
    export: str | None = None,
    python: str | None = None,
) -> Inference:
    """Run a trained model over data: decode, compute and write at once, and go on after any stop.

    Args:
        model: An ONNX file, or ``module:function`` that returns a ``torch.nn.Module``.
        data: Anything that ``paceline.loop.feed`` reads.
        out: Parquet file that is written.
        batch: Samples at once; one in latency mode.
        size: Pixels of a side of the square image.
        normalise: ``imagenet``: means and deviations of ImageNet; ``none``: bytes.
        runtime: ``torch``, ``onnxruntime``, ``openvino``, or ``auto``: predicted to be the fastest.
        mode: ``throughput``, or ``latency``: one sample at a time, with its latency.
        device: Such as ``cpu`` or ``cuda``.
        workers: Threads that decode; chosen while running if None.
        scores: Keep all scores, not only the highest.
        part: Rows that a stop may lose at most; 4,096 if None.
        export: ONNX file to write of a ``module:function``: checked against PyTorch, for all
            runtimes and for servers.
        python: The Python that has torch; found if None.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    check_above_zero(batch=batch, size=size, workers=workers, part=part)
    request = {
        "model": model, "data": data, "out": out, "batch": batch, "size": size,
        "normalise": read_word(normalise, get_args(Normalise), "way", command=_INFER_HELP),
        "runtime": read_word(runtime, get_args(Runtime), "runtime", command=_INFER_HELP),
        "mode": read_word(mode, get_args(Mode), "mode", command=_INFER_HELP),
        "device": device, "threads": workers, "scores": scores, "part": part,
        "export": export,
    }  # fmt: skip
    found = ask_loop("inferring.inference", request, python=python, is_heard=True)
    return Inference(out=out, **found)


def is_data(name: str) -> bool:
    """Whether a name is of data on this machine, not of a well-known data set.

    >>> is_data("imagenet"), is_data("./imagenet")
    (False, True)
    """
    return os.sep in name or any(c in name for c in "*?") or Path(name).exists()


def measure_folder(
    data: str,
    *,
    size: int = 224,
    threads: int | None = None,
    seconds: float = 3.0,
    rate: float | None = None,
    devices: int = 1,
    model: str | None = None,
    device: str | None = None,
    check: bool = False,
    window: int | None = None,
    dtype: str | None = None,
    python: str | None = None,
) -> FolderFeed:
    """Measure what this host feeds from a folder or file of samples.

    Args:
        data: Anything that ``paceline.loop.feed`` reads.
        size: Pixels of a side of the square image that is sent.
        threads: Chosen by the loader if None.
        seconds: Of the run with all threads.
        rate: Samples per second that one device could do.
        devices: Devices fed.
        model: Ask how many of ``device`` training this model are fed.
        device: Device or family, several with commas.
        check: Read every sample, and list the damaged ones.
        window: Tokens of a sample; for token files.
        dtype: Of token files without a header.
        python: The Python that has torch; found if None.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    check_above_zero(
        size=size, workers=threads, seconds=seconds, rate=rate, devices=devices, window=window
    )
    if (model is None) != (device is None):
        raise InvalidInputError(
            "`--model` and `--device` ask together", hint="--model resnet50 --device 4090,h100"
        )
    request = {
        "data": data, "size": size, "threads": threads, "seconds": seconds, "check": check,
        "window": window, "dtype": dtype,
    }  # fmt: skip
    wanted = None if rate is None else rate * devices
    found = folder_feed(data, size, ask(request, python), wanted)
    return replace(found, devices=tuple(_fed_devices(found.samples_per_s, model, device, python)))


def _fed_devices(
    rate: float | None, model: str | None, device: str | None, python: str | None
) -> Iterator[FedDevice]:
    """How many of each device that trains the model are fed: at its best batch."""
    from paceline.app.api.planning import predict

    if model is None or rate is None:
        return
    best: dict[str, Interval] = {}
    for cell in predict(model, device=device, python=python).cells:
        taken = cell.samples_per_s
        if taken is not None and (cell.device not in best or best[cell.device].mid < taken.mid):
            best[cell.device] = taken
    for name, taken in best.items():
        yield FedDevice(device=name, samples_per_s=taken, num_fed=rate / taken.mid)


def write_damaged(found: FolderFeed, path: Path, *, warn: Callable[[str], None]) -> None:
    """List damaged samples in a file, a line each.

    Raises:
        InvalidInputError: It cannot be written.
    """
    lines = [f"{name}\t{reason}\n" for name, reason in found.damaged]
    write_whole(path, "".join(lines))
    if found.num_damaged > len(lines):
        warn(f"{path} lists the first {len(lines):,} of {found.num_damaged:,}")
