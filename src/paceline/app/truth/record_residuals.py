"""What steps that `paceline measure` timed on a GPU show against the built-in predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.app.requests.plan_request import read_compiler
from paceline.app.truth.local_prediction import traced_workload
from paceline.catalog.entities import Catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError, PacelineError
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.planning.places.support import configuration_on
from paceline.prediction.calibration.fitted import Residual, builtin_calibration
from paceline.prediction.calibration.from_measurements import residual
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.observed import step_traits
from paceline.simulation.simulator import simulate

#: What one step of a record is, where a prediction stands for the whole of it.
_WHOLE_MODES = frozenset({"step", "forward"})


def read_store(folder: Path, catalog: Catalog) -> tuple[list[Residual], int]:
    """Residuals of a store's records, and how many records it has.

    Raises:
        InvalidInputError: None of them can be learned from.
    """
    records = Store(folder).read().records
    found = residuals_of_records(records, catalog)
    if not found:
        raise InvalidInputError(
            f"no record of `{folder}` is a step of PyTorch on one GPU that can be predicted",
            hint="measure there first, such as `paceline measure resnet50 --device gpu`; steps on "
            "CPUs correct the model of this machine by themselves",
        )
    return found, len(records)


def residuals_of_records(records: Sequence[Record], catalog: Catalog) -> list[Residual]:
    """What records of steps on one device of the catalogue show; others are left out."""
    found = (_residual(record, catalog) for record in records if _is_lesson(record))
    return [one for one in found if one is not None]


def _is_lesson(record: Record) -> bool:
    is_step = record.kind == "step" and record.mode in _WHOLE_MODES
    is_plain = record.framework == "torch" and not record.is_shared and not record.throttle_reasons
    return is_step and is_plain and record.num_devices == 1 and record.median_s is not None


def _residual(record: Record, catalog: Catalog) -> Residual | None:
    workload = traced_workload(record)
    if workload is None or record.batch_per_device is None or record.median_s is None:
        return None
    try:
        device = find_device(catalog, record.device_name)
        configuration = configuration_on(
            device, precision=record.precision, compiler=read_compiler(record.compiler or "eager")
        )
    except PacelineError:
        return None
    if record.channels_last is not None:
        configuration = replace(configuration, channels_last=record.channels_last)
    only = replace(workload, passes=(replace(workload.passes[0], repeats=1.0),))
    job = Job(
        workload=only,
        configuration=configuration,
        batch=record.batch_per_device,
        seq=None if record.seq is None else int(record.seq),
    )
    machine, calibration = Machine.of(device), builtin_calibration()
    predicted_s = float(simulate([job], [machine], calibration=calibration).step_s[0])
    if not np.isfinite(predicted_s):
        return None
    return residual(
        device_name=device.name,
        step=step_traits(job, machine, calibration),
        measured_s=record.median_s,
        predicted_s=predicted_s,
    )
