"""Rows with what they run and where, and what those of one group share."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.app.scoring.names import Job
from paceline.app.scoring.rows import Row
from paceline.app.scoring.workloads import WorkloadKey
from paceline.catalog import Catalog, Device
from paceline.predict import Calibration, StepPrediction
from paceline.trace.costs import Configuration, LoweredPass
from paceline.trace.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A row with what it runs and where.

    Attributes:
        index: Position of the row in its table.
        row: The row.
        job: What it runs.
        device: Where.
        capacities_bytes: Least and most memory of the devices that the row may mean; None where
            one is unknown.
    """

    index: int
    row: Row
    job: Job
    device: Device
    capacities_bytes: tuple[float, float] | None


#: Cells of one group share a traced model, a configuration and a framework.
GroupKey = tuple[WorkloadKey, Configuration, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What cells of one key share, predicted on one device.

    Attributes:
        workload: As traced.
        lowered: The pass that tables time, as its configuration runs it.
        catalog: Devices and links.
        prediction: Of the pass, on every device and at every size that a cell asks for.
        calibration: That it was made with.
    """

    workload: Workload
    lowered: LoweredPass
    catalog: Catalog
    prediction: StepPrediction
    calibration: Calibration
