"""What rows of inference share whose engine serves them, or whose devices share the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.catalog import Catalog
from paceline.parallel.split import RankGraph, SplitShape
from paceline.predict import Calibration, StepPrediction
from paceline.predict.traits import StepTraits
from paceline.scoring.workloads import WorkloadKey
from paceline.trace.costs import Configuration, LoweredPass
from paceline.trace.workload import Workload

#: Cells of one group share a traced model, a configuration, a framework and a split of inference.
GroupKey = tuple[WorkloadKey, Configuration, str, SplitShape]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What cells of one key share, predicted on one device.

    Attributes:
        workload: As traced, or as one of the ranks runs it that share it in inference.
        lowered: The pass that tables time, as its configuration runs it.
        catalog: Devices and links.
        prediction: Of the pass, on every device and at every size that a cell asks for.
        calibration: That it was made with.
        passes: What those ranks run and exchange, by name; empty without any.
        framework: Whose host dispatch applies.
        is_learned_from: Whether answers say what measurements know their steps by.
    """

    workload: Workload
    lowered: LoweredPass
    catalog: Catalog
    prediction: StepPrediction
    calibration: Calibration
    passes: Mapping[str, RankGraph] = field(default_factory=dict)
    framework: str = "torch"
    is_learned_from: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """One step of a whole job.

    Attributes:
        step_s: Its time.
        items: Batch items in it; None where each device takes the row's batch.
        memory_bytes: Peak of a rank; None where it is that of a replica.
        log_sigma: What is not known of the split widens the interval by that much.
        note: What was taken where the row is silent.
        traits: What measurements know it by, where ranks share the model and that was asked for.
    """

    step_s: float
    items: float | None = None
    memory_bytes: float | None = None
    log_sigma: float = 0.0
    note: str = ""
    traits: StepTraits | None = None
