"""Rows on several devices that do not say how these share what one cannot hold."""

from __future__ import annotations

import re
from dataclasses import replace

from paceline.catalog.entities import Catalog
from paceline.model.graph.workload import Workload
from paceline.prediction.calibration.fitted import Calibration
from paceline.scoring.jobs import Cell, row_job
from paceline.scoring.readings import on_device, read_job
from paceline.scoring.services.engines import needed_tensor, states_ranks
from paceline.simulation.simulator import simulate

#: Bytes of a device for each parameter of a model, from which on it holds any such job: FP32
#: weights, their gradients, Adam's states and as much again.
_AMPLE_BYTES = {"infer": 8.0, "train": 32.0}

#: Degrees of one, which say as much as nothing.
_ONES = re.compile(r"(?:[a-z]+ ?[=:]? ?1\b[ ,;/]*)+", re.IGNORECASE)


def as_shared(cell: Cell, workload: Workload, catalog: Catalog, calibration: Calibration) -> Cell:
    """The row with ranks that share its model, where it states none and one device has no room.

    A run that is published had room. Engines then share layers among as few devices as it takes,
    and training shards all that it keeps, as `predict` has it.
    """
    reading = cell.reading
    is_stated = states_ranks(cell) and not _ONES.fullmatch(cell.row.parallelism.strip())
    if is_stated or cell.row.strategy or cell.capacities_bytes is None:
        return cell
    ample = workload.num_parameters * _AMPLE_BYTES[reading.task]
    if ample <= cell.capacities_bytes[0] or reading.configuration.lora_rank:
        return cell
    sharing = _sharing(cell, workload, catalog, calibration)
    if not sharing:
        return cell
    note = "; ".join(filter(None, (cell.row.note, f"one device has no room: taken as {sharing}")))
    row = replace(cell.row, parallelism=sharing, note=note)
    return replace(cell, row=row, reading=on_device(read_job(row), cell.device))


def _sharing(cell: Cell, workload: Workload, catalog: Catalog, calibration: Calibration) -> str:
    """How devices share what one of them has no room for; empty where it has.

    An engine keeps of its requests what there is room for; of training all has to fit.
    """
    alone = replace(cell, row=replace(cell.row, num_gpus=1.0, global_batch=None))
    asked = row_job(alone, workload, catalog)
    steps = simulate([asked.job], [asked.machine], calibration=calibration)
    if cell.reading.task == "train":
        assert cell.capacities_bytes is not None
        return "fsdp" if steps.memory_low_bytes[0] > cell.capacities_bytes[1] else ""
    degree = needed_tensor(cell, float(steps.parameter_bytes[0])) if workload.generates else 1
    return f"tp={degree}" if degree > 1 else ""
