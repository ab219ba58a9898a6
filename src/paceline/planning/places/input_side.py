"""Whether the machines of a place can feed their devices, from the input model."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Workload
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.places import Place
from paceline.prediction.input_side import (
    FedStep,
    InputHost,
    InputPipeline,
    SampleFormat,
    feed_step,
    predict_input,
    sample_format,
    storage_read_bytes_per_s,
)

#: Data sets whose samples have the size of an input; the first that is not smaller is meant.
_BY_PIXELS = ((28, "mnist"), (32, "cifar10"), (math.inf, "imagenet"))


def input_format(workload: Workload, goal: Goal, work: Work) -> SampleFormat | None:
    """How samples lie on disk: as stated, else as the reference job's data set does.

    That is meant however often it is passed over. None where nobody said it, or where samples are
    no images; then the input is taken to keep up.

    Raises:
        UnknownNameError: The goal names data that is not known.
        InvalidInputError: It names images, and the model reads none.
    """
    pixels = _pixels(workload)
    if goal.data is not None:
        stored = None if goal.data == "ready" else sample_format(goal.data)
        if stored is not None and pixels is None:
            raise InvalidInputError(
                f"`--data {goal.data}` are images, and {workload.title} reads "
                f"{workload.sample_unit}",
                hint="leave --data out: the input is taken to keep up",
            )
        return stored
    is_reference = work.num_samples is None and workload.reference_job is not None
    if pixels is None or not is_reference or workload.task != "train":
        return None
    return sample_format(next(name for limit, name in _BY_PIXELS if pixels[0] <= limit))


def place_input_samples_per_s(place: Place, workload: Workload, stored: SampleFormat) -> float:
    """Samples per second that one machine delivers to all its devices; infinite if unknown."""
    num_devices = _num_devices(place)
    host = input_host(place)
    pipeline = input_pipeline(workload, stored, host)
    if host is None or pipeline is None:
        return math.inf
    return num_devices * predict_input(pipeline, host).samples_per_s


def input_host(place: Place) -> InputHost | None:
    """The share of a machine that feeds one device; a virtual CPU counts as the core measured.

    None for a CPU place, whose cores are the device, and where the cores are not known.
    """
    if place.device.kind == "cpu" or not place.offer.num_vcpus:
        return None
    num_devices = _num_devices(place)
    link = place.links.host
    return InputHost(
        num_cores=max(1, place.offer.num_vcpus // num_devices),
        storage_read_bytes_per_s=storage_read_bytes_per_s("nvme") / num_devices,
        copy_bytes_per_s=link.bytes_per_s if link else None,
    )


def input_pipeline(
    workload: Workload, stored: SampleFormat, host: InputHost | None
) -> InputPipeline | None:
    """Loading with one worker per core, resized and sent as FP32, as torchvision's recipes do."""
    pixels = _pixels(workload)
    if pixels is None or host is None:
        return None
    return InputPipeline(
        sample=stored,
        width=pixels[0],
        height=pixels[1],
        num_workers=host.num_cores,
        is_resized=(stored.width, stored.height) != pixels,
    )


def fed_step(
    place: Place, workload: Workload, stored: SampleFormat, *, step_s: float, batch: int
) -> FedStep | None:
    """A device's step with its share of the machine's input; None where nothing is known."""
    host = input_host(place)
    pipeline = input_pipeline(workload, stored, host)
    if host is None or pipeline is None:
        return None
    return feed_step(step_s, replace(pipeline, batch=batch), host)


def _num_devices(place: Place) -> int:
    return max(1, round(place.offer.num_devices))


def _pixels(workload: Workload) -> tuple[int, int] | None:
    size = re.match(r"(?:pictures of )?(\d+)×(\d+)", workload.input_description)
    if workload.sample_unit != "images" or size is None:
        return None
    return int(size[1]), int(size[2])
