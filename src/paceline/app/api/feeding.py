"""What this host feeds from a folder: measured by stage, next to its prediction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.app.options import check_above_zero
from paceline.errors import InvalidInputError
from paceline.execution.folder_feed import FedDevice, FolderFeed, ask, folder_feed

if TYPE_CHECKING:
    from paceline.planfile import Interval


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
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"cannot write `{path}`: {error.strerror}", hint="name a file in a folder that exists"
        ) from None
    if found.num_damaged > len(lines):
        warn(f"{path} lists the first {len(lines):,} of {found.num_damaged:,}")
