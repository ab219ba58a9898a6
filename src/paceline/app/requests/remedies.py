"""What a user can do where a job does not fit: what each rewrite saves, and the least that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from paceline.model.graph.distinct import distinct
from paceline.model.graph.workload import Task
from paceline.parallelism.strategy.strategy import Sharding
from paceline.planning.forecast.grid import GridCell
from paceline.planning.forecast.grid_jobs import MAX_DEVICES_PER_MACHINE
from paceline.prediction.memory.remedies import LEAST_SAVED_FRAC, known_remedies
from paceline.reporting.figures import MEMORY_BOUND, memory_bound_bytes
from paceline.units import format_bytes
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change of how a job is run.

    Attributes:
        rewrite: Settings, as `--rewrite` reads them.
        precision: Of an inference; None leaves it.
        sharding: What the devices of a training job split.
        count: Devices in one machine.
    """

    rewrite: str = ""
    precision: str | None = None
    sharding: Sharding = "none"
    count: int = 1

    def options(self, rewrite: str) -> str:
        """As a user types it who had typed ``rewrite`` already."""
        rewrite = ",".join(filter(None, (rewrite, self.rewrite)))
        words = (
            f"--rewrite {rewrite}" if rewrite else "",
            f"--precision {self.precision}" if self.precision else "",
            f"--sharding {self.sharding}" if self.sharding != "none" else "",
            f"--devices {self.count}" if self.count > 1 else "",
        )
        return " ".join(filter(None, words))


#: What to try where nothing fits, the least change first. The result of training stays what it is.
_REMEDIES: dict[Task, tuple[Remedy, ...]] = {
    "train": (
        Remedy(rewrite="checkpointing=block"),
        Remedy(rewrite="loss=chunked,checkpointing=block"),
        Remedy(rewrite="update=in-backward"),
        Remedy(rewrite="checkpointing=block,update=in-backward"),
        Remedy(rewrite="offload=optimizer"),
        Remedy(rewrite="checkpointing=block,offload=optimizer"),
        *(Remedy(sharding="zero3", count=count) for count in (2, 4, 8)),
        *(
            Remedy(rewrite=rewrite, sharding="zero3", count=count)
            for rewrite in ("checkpointing=block", "loss=chunked,checkpointing=block")
            for count in (2, 4, 8, 16)
        ),
    ),
    "infer": (
        Remedy(rewrite="cache_format=fp8"),
        Remedy(precision="int8"),
        Remedy(precision="int4"),
        *(Remedy(count=count) for count in (2, 4, 8, 16)),
        *(Remedy(precision="int4", count=count) for count in (2, 4, 8)),
    ),
}

#: Smaller batches that are tried, evenly spaced by factors.
_NUM_TRIED = 24
#: Changes that are told, of those that save anything.
_NUM_SHOWN = 5

_ONLY_TO_RUN = "all this is training; to run the model and not train it: --task infer"

#: The predictions with a remedy, on a device at some batches; none where there is no answer.
Evaluate = Callable[[Remedy, str, Sequence[int]], Sequence[GridCell]]


def remedy_lines(
    task: Task, stuck: Sequence[GridCell], evaluate: Evaluate, *, rewrite: str
) -> Iterator[str]:
    """For devices on which nothing fits: what rewrites save, and the least change that fits.

    Where that is training, a last line says how to ask about running the model: whoever types the
    name of a large one often means that.

    Args:
        task: What the model is for.
        stuck: What was predicted for devices on which nothing fits; at least one.
        evaluate: The predictions with a remedy.
        rewrite: Settings of the prediction, as `--rewrite` reads them.
    """
    if saved := _saved_words(task, _least_of(stuck), evaluate):
        yield saved
    for name in dict.fromkeys(cell.device for cell in stuck):
        own = _least_of([cell for cell in stuck if cell.device == name])
        yield from _fewer_that_fit(own, evaluate)
        yield _least_that_fits(task, own, evaluate, rewrite)
    if task == "train":
        yield _ONLY_TO_RUN


def _least_of(cells: Sequence[GridCell]) -> GridCell:
    """The one that needs least."""
    return min(cells, key=lambda cell: (cell.batch_per_device, cell.num_devices))


def _saved_words(task: Task, stuck: GridCell, evaluate: Evaluate) -> str:
    """What single changes take off what is needed, those that take most first."""
    needed = memory_bound_bytes(stuck.memory_bytes)
    saved = {
        remedy.rewrite or remedy.options(""): needed - memory_bound_bytes(cell.memory_bytes)
        for remedy in _single_changes(task)
        for cell in evaluate(_as_it_is(stuck, remedy), stuck.device, (stuck.batch_per_device,))
    }
    # Of changes that save alike, the simplest, which stands first.
    of_frac = {round(size / needed, 3): (size, way) for way, size in reversed(saved.items())}
    told = [
        f"{way} saves {format_bytes(size)}"
        for frac, (size, way) in sorted(of_frac.items(), reverse=True)[:_NUM_SHOWN]
        if frac >= LEAST_SAVED_FRAC
    ]
    if not told:
        return ""
    return f"of {format_bytes(needed)} at batch {stuck.batch_per_device}, {', '.join(told)}"


def _single_changes(task: Task) -> Iterator[Remedy]:
    """Changes that need no more devices; of services those of the list that are tried."""
    if task == "train":
        return (Remedy(rewrite=settings) for settings, _ in known_remedies(task))
    return (one for one in _REMEDIES[task] if one.count == 1)


def _as_it_is(stuck: GridCell, remedy: Remedy) -> Remedy:
    """A remedy on as many devices, which share what they shared."""
    return replace(remedy, count=stuck.num_devices, sharding=stuck.sharding)


def _fewer_that_fit(stuck: GridCell, evaluate: Evaluate) -> Iterator[str]:
    """The most items that fit as it is, or nearly, where more were asked for."""
    if stuck.batch_per_device == 1:
        return
    fewer = distinct(np.geomspace(1, stuck.batch_per_device - 1, _NUM_TRIED).round())
    cells = evaluate(_as_it_is(stuck, Remedy()), stuck.device, [int(b) for b in fewer])
    fitting = [cell for cell in cells if cell.status != "out of memory"]
    if fitting:
        largest = max(fitting, key=lambda cell: cell.batch_per_device)
        yield f"{stuck.device}: batch {largest.batch_per_device} fits: {_needed(largest)}"


def _needed(cell: GridCell) -> str:
    is_endless = math.isinf(cell.memory_capacity_bytes)
    room = "" if is_endless else f" of {format_bytes(cell.memory_capacity_bytes)}"
    return f"{format_bytes(memory_bound_bytes(cell.memory_bytes))}{room}, {MEMORY_BOUND}"


def _least_that_fits(task: Task, stuck: GridCell, evaluate: Evaluate, rewrite: str) -> str:
    name, batch = stuck.device, stuck.batch_per_device
    for remedy in _REMEDIES[task]:
        cell = next(iter(evaluate(remedy, name, (batch,))), None)
        if cell is not None and cell.status != "out of memory":
            saved = memory_bound_bytes(stuck.memory_bytes) - memory_bound_bytes(cell.memory_bytes)
            return (
                f"{name}: batch {batch} fits with {remedy.options(rewrite)}: {_needed(cell)}; "
                f"{format_bytes(saved)} less"
            )
    most = f"{MAX_DEVICES_PER_MACHINE} in one machine" if task == "train" else "int4"
    return f"{name}: batch {batch} does not fit with any of these, up to {most}"
