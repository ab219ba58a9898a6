"""Peak memory of a rank of a published job: of its steps, its framework and its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.predict import Points, StepPrediction
from paceline.predict.memory import peak_memory_bytes
from paceline.scoring.many_devices import rank_memory_frac, state_frac
from paceline.scoring.tables import fitting_lines
from paceline.trace.costs import LoweredPass
from paceline.trace.graph import FloatArray, Graph
from paceline.trace.lowering import lower

if TYPE_CHECKING:
    from paceline.scoring.jobs import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Peak memory of one rank.

    Attributes:
        low_bytes: Lower end of the 80 % interval.
        mid_bytes: Median.
        high_bytes: What holds at a chance of 95 %.
    """

    low_bytes: float
    mid_bytes: float
    high_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInHalf:
    """A training pass whose layers run wholly in 16 bits beside FP32 weights and state.

    Attributes:
        lowered: The pass with everything in 16 bits.
        master_bytes: FP32 weights, and what FP32 adds to the optimizer's state.
    """

    lowered: LoweredPass
    master_bytes: float


def kept_in_half(graph: Graph, lowered: LoweredPass, cells: Sequence[Cell]) -> KeptInHalf | None:
    """The pass as frameworks keep it that do not autocast; None where no cell has one of them.

    Args:
        graph: Of the pass.
        lowered: The same, lowered as autocast runs it.
        cells: Rows that run it.
    """
    wanted = any((facts := _facts(cell)) and facts["format"] == "half" for cell in cells)
    narrow = replace(lowered.configuration, training_format="pure")
    activation = find_precision(narrow.precision).activation_dtype
    if not wanted or narrow == lowered.configuration or activation == DType.FP32:
        return None
    pure = lower(graph, narrow)
    weights = ELEMENT_BYTES[DType.FP32] * lowered.num_trainable_parameters
    state = lowered.optimizer_state_bytes - pure.optimizer_state_bytes
    return KeptInHalf(lowered=pure, master_bytes=weights + state)


def rank_memory(
    cell: Cell,
    lowered: LoweredPass,
    prediction: StepPrediction,
    place: tuple[int, int],
    seq: float,
    in_half: KeptInHalf | None = None,
) -> RankMemory:
    """Memory of a step, as the framework of the row plans it, or of the start if that is more.

    Args:
        cell: The row and its job.
        lowered: Its pass.
        prediction: Of the pass.
        place: Device and point at which memory is asked.
        seq: Length at that point.
        in_half: What `kept_in_half` says of the pass.
    """
    facts = _facts(cell)
    if facts is not None and facts["format"] == "half" and in_half is not None:
        step = _half_step(cell, in_half, seq)
    else:
        share = rank_memory_frac(cell, lowered, seq)
        step = [share * float(bound[place]) for bound in _bounds(prediction)]
    if facts is not None:
        step = step if cell.reading.has_adapters else _planned(step, facts, lowered)
        start = _start_bytes(cell, lowered, facts)
        step = [max(one, other) for one, other in zip(step, start, strict=True)]
    return RankMemory(low_bytes=step[0], mid_bytes=step[1], high_bytes=step[2])


def split_memory(
    mid_bytes: float, prediction: StepPrediction, place: tuple[int, int]
) -> RankMemory:
    """Memory of a rank that computes a part of the model, as unsure as that of the whole.

    Args:
        mid_bytes: Its median.
        prediction: Of the whole model on one device.
        place: Device and point.
    """
    low, mid, high = (float(bound[place]) for bound in _bounds(prediction))
    return RankMemory(
        low_bytes=mid_bytes * low / mid, mid_bytes=mid_bytes, high_bytes=mid_bytes * high / mid
    )


def _bounds(prediction: StepPrediction) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (
        prediction.memory_low_bytes,
        prediction.memory_mid_bytes,
        prediction.memory_high_bytes,
    )


def _half_step(cell: Cell, in_half: KeptInHalf, seq: float) -> list[float]:
    points = Points.of([cell.reading.batch_per_gpu], seq=seq)
    pure = in_half.lowered
    bounds = peak_memory_bytes(pure.memory, points, platform=pure.configuration.platform)
    share = rank_memory_frac(cell, pure, seq)
    masters = in_half.master_bytes * state_frac(cell)
    return [share * float(bound[0]) + masters for bound in bounds]


def _facts(cell: Cell) -> dict[str, str] | None:
    asked = {
        "framework": cell.row.framework,
        "task": cell.reading.task,
        "parallelism": cell.row.parallelism,
    }
    return next(fitting_lines("framework_memory.csv", asked), None)


def _planned(step: list[float], facts: dict[str, str], lowered: LoweredPass) -> list[float]:
    """With the buffers that a framework plans beyond what is alive."""
    if not facts["activations_high"]:
        return step
    low, mid, high = step
    activations = max(low - lowered.parameter_bytes, 0.0)
    workspace = float(facts["workspace_bytes"])
    return [
        low,
        mid + activations * (float(facts["activations_mid"]) - 1.0),
        high + activations * (float(facts["activations_high"]) - 1.0) + workspace,
    ]


def _start_bytes(cell: Cell, lowered: LoweredPass, facts: dict[str, str]) -> list[float]:
    """All parameters and a rank's share of them, with what making the share takes."""
    if not facts["start_mid"]:
        return [0.0, 0.0, 0.0]
    whole = float(lowered.parameter_bytes * (1.0 + 1.0 / cell.row.num_devices))
    return [whole * float(facts[f"start_{bound}"]) for bound in ("low", "mid", "high")]
