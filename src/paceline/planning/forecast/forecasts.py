"""Steps of one rank, for all configurations, devices and batch sizes at once.

Shape legend: C configurations, D devices, P batch sizes. NaN stands where a configuration is not
used on a device or a device's facts do not suffice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.catalog.entities import Device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.workload import Workload
from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.parallelism.memory.sharded_memory import (
    PeakMoments,
    peak_moments,
    saved_process_bytes,
)
from paceline.parallelism.steps import Steps
from paceline.planning.goal.goal import Work
from paceline.planning.goal.service import rounds_of
from paceline.planning.places.configurations import ConfiguredDevices
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.simulation.job import Job
from paceline.simulation.rank import Lengths, RankPasses, cut, rank_memory_bytes
from paceline.values import dataclass

#: So many ranks share state that more would make no difference.
_MANY_RANKS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """What one batch asks of one rank, in every configuration, on every device, at every batch.

    Attributes:
        configured: C configurations, with the devices that share each layer.
        passes: What a rank runs in each.
        lengths: P batches, rising, and what is asked of each item.
        steps: Of a rank, (C, D, P).
        moments: When memory can be at its peak, C of them.
    """

    configured: tuple[ConfiguredDevices, ...]
    passes: tuple[RankPasses, ...]
    lengths: Lengths
    steps: Steps
    moments: tuple[PeakMoments, ...]

    @property
    def batch(self) -> FloatArray:
        """Items of each batch, (P,)."""
        return self.lengths.batch

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """How a rank runs, C of them."""
        return tuple(one.configuration for one in self.configured)

    @property
    def tensor_degree(self) -> IntArray:
        """Devices that share each layer; figures are then of one of them, (C,)."""
        return np.array([one.tensor_degree for one in self.configured], dtype=np.int64)

    @property
    def num_sharing(self) -> IntArray:
        """Devices that hold a model together, (C,)."""
        return np.array([one.num_sharing for one in self.configured], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchWindow:
    """Which batches can be candidates, known before time is predicted.

    Attributes:
        least_bytes: Memory of the smallest place of each device, (D,).
        most_bytes: Of the largest, (D,).
        memory_confidence: Chance at which the memory of a device must suffice.
        num_largest: Batches kept per candidate; None keeps the small ones too.
        least_batch: Largest batch allowed on the most devices at once.
    """

    least_bytes: FloatArray
    most_bytes: FloatArray
    memory_confidence: float
    num_largest: int | None
    least_batch: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedRanks:
    """What is predicted of the ranks of one configuration.

    Attributes:
        passes: What a rank runs.
        devices: Of ``configured``, as arrays.
        moments: When memory can be at its peak, at every batch.
        points: Batches that can be candidates.
        part: Where these stand among all batches.
    """

    configured: ConfiguredDevices
    passes: RankPasses
    devices: DeviceTable
    moments: PeakMoments
    points: Lengths
    part: slice


def asked_ranks(
    workload: Workload,
    configured: Sequence[ConfiguredDevices],
    devices: Sequence[Device],
    lengths: Lengths,
    *,
    window: BatchWindow | None = None,
) -> list[AskedRanks]:
    """List what a forecast predicts.

    Args:
        workload: The passes.
        configured: C configurations with the devices that use them.
        devices: D devices.
        lengths: P batches, and what is asked of each item.
        window: Batches that can be candidates at all; None takes them all.

    Raises:
        InvalidInputError: A configuration cannot run the model.
    """
    asked: dict[int, AskedRanks] = {}
    # Configurations whose programs begin alike come one after another: the last few are kept.
    for number in sorted(range(len(configured)), key=lambda number: _program(configured[number])):
        one = configured[number]
        job = Job(
            workload=workload, configuration=one.configuration, profile=one.profile,
            strategy=one.of_one_model,
        )  # fmt: skip
        passes = RankPasses.of(job, tensor=one.tensor_degree)
        length = lengths.prompt + lengths.output if passes.is_generation else lengths.seq
        moments = peak_moments(passes.step.largest, Points(batch=lengths.batch, seq=length))
        part = _useful_batches(passes, one.rows, lengths, moments, window)
        asked[number] = AskedRanks(
            configured=one,
            passes=passes,
            devices=DeviceTable.from_devices([devices[row] for row in one.rows]),
            moments=moments,
            points=lengths.take(part),
            part=part,
        )
    return [asked[number] for number in range(len(configured))]


def _program(one: ConfiguredDevices) -> tuple[int, str, str, str, str]:
    how = one.configuration
    return one.num_sharing, how.platform, how.precision, how.compiler, how.checkpointing


def gathered(
    asked: Sequence[AskedRanks], steps: Sequence[Steps], lengths: Lengths, *, num_devices: int
) -> Forecast:
    """The forecast whose cells are these steps.

    Args:
        asked: What was predicted.
        steps: Of each.
        lengths: P batches, and what is asked of each item.
        num_devices: D.
    """
    shape = (len(asked), num_devices, len(lengths))
    rows = np.arange(np.prod(shape)).reshape(shape)
    places = [
        rows[number, list(one.configured.rows), one.part].ravel()
        for number, one in enumerate(asked)
    ]
    whole = Steps.joined(list(zip(places, steps, strict=True)), rows.size)
    return Forecast(
        configured=tuple(one.configured for one in asked),
        passes=tuple(one.passes for one in asked),
        lengths=lengths,
        steps=whole.laid_out(shape),
        moments=tuple(one.moments for one in asked),
    )


def lengths_of(batch: FloatArray, work: Work, *, seq: int) -> Lengths:
    """What is asked of a rank at some batches.

    Args:
        batch: P batch sizes.
        work: Prompt and output lengths of a generation.
        seq: Sequence length of the other passes.
    """
    return Lengths(
        batch=batch,
        seq=np.full_like(batch, seq),
        prompt=np.full_like(batch, work.prompt_length),
        output=np.full_like(batch, work.output_length),
        rounds=np.full_like(batch, rounds_of(work)),
    )


def can_split(workload: Workload, degree: int, *, is_served: bool) -> bool:
    """Whether so many devices can share each layer, as engines do where one serves."""
    try:
        for one in workload.passes:
            cut(one.graph, degree, is_served=is_served)
    except InvalidInputError:
        return False
    return True


def _useful_batches(
    passes: RankPasses, rows: tuple[int, ...], asked: Lengths, moments: PeakMoments,
    window: BatchWindow | None,
) -> slice:  # fmt: skip
    """Batches from the smallest that can be among a row's largest to the largest that can fit.

    The upper end lets ranks share all state; the lower end takes the smallest device at the chance
    that counts. Without a window all batches are useful.
    """
    batch = asked.batch
    if window is None:
        return slice(0, len(batch))
    _, mid, high = rank_memory_bytes(passes, asked)
    shared = saved_process_bytes(moments, _MANY_RANKS, "zero3")[0]
    fits_somewhere = mid - shared <= window.most_bytes[list(rows)].max()
    end = max(int(fits_somewhere.sum()), 1)
    if window.num_largest is None:
        return slice(0, end)
    needed_bytes = quantile_bytes(mid, high, window.memory_confidence)
    fits_everywhere = needed_bytes <= window.least_bytes[list(rows)].min()
    fits_everywhere &= batch <= window.least_batch
    return slice(max(int(fits_everywhere.sum()) - window.num_largest, 0), end)
