"""What a user can do where a job does not fit: what each rewrite saves, and the least that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from paceline.model.graph.costs import Checkpointing, Configuration
from paceline.model.graph.workload import Task, Workload
from paceline.model.settings import read_settings
from paceline.parallelism.strategy.strategy import Sharding
from paceline.planning.explain.savings import savings_sentence
from paceline.planning.forecast.grid import GridCell
from paceline.planning.forecast.grid_jobs import MAX_DEVICES_PER_MACHINE
from paceline.planning.goal.rewrites import with_usual
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
        Remedy(rewrite="update=in-backward"),
        Remedy(rewrite="checkpointing=block,update=in-backward"),
        Remedy(rewrite="offload=optimizer"),
        Remedy(rewrite="checkpointing=block,offload=optimizer"),
        *(Remedy(sharding="zero3", count=count) for count in (2, 4, 8)),
        *(
            Remedy(rewrite="checkpointing=block", sharding="zero3", count=count)
            for count in (2, 4, 8, 16)
        ),
    ),
    "infer": (
        Remedy(precision="int8"),
        Remedy(precision="int4"),
        *(Remedy(count=count) for count in (2, 4, 8)),
        *(Remedy(precision="int4", count=count) for count in (2, 4, 8)),
    ),
}

_ONLY_TO_RUN = "all this is training; to run the model and not train it: --task infer"

#: The prediction with a remedy, on a device at a batch size; None without one.
Evaluate = Callable[[Remedy, str, int], GridCell | None]


def remedy_lines(
    workload: Workload,
    stuck: Sequence[GridCell],
    evaluate: Evaluate,
    *,
    rewrite: str,
    framework: str | None,
    checkpointing: Checkpointing,
    seq: int | None,
) -> Iterator[str]:
    """For devices on which nothing fits: what rewrites save, and the least change that fits.

    Where that is training, a last line says how to ask about running the model: whoever types the
    name of a large one often means that.

    Args:
        workload: The model with its task.
        stuck: What was predicted for devices on which nothing fits; at least one.
        evaluate: The prediction with a remedy.
        rewrite: Settings of the prediction, as `--rewrite` reads them.
        framework: Software whose habits hold where they say nothing.
        checkpointing: What the prediction recomputes.
        seq: Sequence length; the workload's own if None.
    """
    least = min(stuck, key=lambda cell: (cell.batch_per_device, cell.num_devices))
    settings = (
        f"precision={least.precision},compiler={least.compiler},checkpointing={checkpointing}"
    )
    habits = with_usual(rewrite, framework, is_training=workload.task == "train")
    yield savings_sentence(
        workload,
        read_settings(f"{settings},{habits}", Configuration()),
        batch=least.batch_per_device,
        seq=seq or workload.default_seq,
    )
    for name in dict.fromkeys(cell.device for cell in stuck):
        own = min((c for c in stuck if c.device == name), key=lambda c: c.batch_per_device)
        yield _least_that_fits(workload.task, own, evaluate, rewrite)
    if workload.task == "train":
        yield _ONLY_TO_RUN


def _least_that_fits(task: Task, stuck: GridCell, evaluate: Evaluate, rewrite: str) -> str:
    name, batch = stuck.device, stuck.batch_per_device
    for remedy in _REMEDIES[task]:
        cell = evaluate(remedy, name, batch)
        if cell is not None and cell.status != "out of memory":
            quantile_bytes = memory_bound_bytes(cell.memory_bytes)
            saved = format_bytes(memory_bound_bytes(stuck.memory_bytes) - quantile_bytes)
            room = (
                ""
                if math.isinf(cell.memory_capacity_bytes)
                else (f" of {format_bytes(cell.memory_capacity_bytes)}")
            )
            return (
                f"{name}: batch {batch} fits with {remedy.options(rewrite)}: "
                f"{format_bytes(quantile_bytes)}{room}, {MEMORY_BOUND}; {saved} less"
            )
    most = f"{MAX_DEVICES_PER_MACHINE} in one machine" if task == "train" else "int4"
    return f"{name}: batch {batch} does not fit with any of these, up to {most}"
