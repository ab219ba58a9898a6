"""Rows of an inference engine: from token to token, by the step that `predict` answers by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from paceline.catalog import Catalog, Link
from paceline.errors import PacelineError
from paceline.parallel.serving.batching import ServingRuns
from paceline.parallel.serving.engine import serving_times
from paceline.parallel.split import SplitShape
from paceline.predict import Calibration, DeviceTable
from paceline.scoring.jobs import Cell
from paceline.scoring.networks import links_of_row
from paceline.scoring.serving import engine_of
from paceline.stack.engines import EngineProfile
from paceline.trace.costs import Configuration
from paceline.trace.workload import Workload

#: What is taken of an engine without a profile: prompts are read in steps of their own.
_UNKNOWN = EngineProfile(name="engine", title="engine", framework="torch", platforms=("cuda",))


def served_token_s(
    workload: Workload, configuration: Configuration, framework: str, split: SplitShape,
    cells: Sequence[Cell], *, catalog: Catalog, calibration: Calibration,
) -> Mapping[int, float]:  # fmt: skip
    """Seconds from one token to the next of rows that state their requests, by ``Cell.index``.

    Args:
        workload: As traced.
        configuration: Of all cells.
        framework: Whose host dispatch applies.
        split: How devices share the model.
        cells: Rows.
        catalog: Devices and links.
        calibration: Of the predictor.
    """
    if not (configuration.is_served and workload.generates):
        return {}
    alike: dict[tuple[str, EngineProfile, Link | None], list[Cell]] = {}
    for cell in cells:
        if cell.reading.requests is not None:
            engine = replace(engine_of(cell.row.framework) or _UNKNOWN, host=framework)
            link = _link(catalog, cell, split)
            alike.setdefault((cell.device.name, engine, link), []).append(cell)
    found: dict[int, float] = {}
    for (_, engine, link), served in alike.items():
        device = DeviceTable.from_devices([served[0].device])
        times = serving_times(
            workload, configuration, device, _runs(served), engine=engine, calibration=calibration,
            ranks=split, link=link,
        )  # fmt: skip
        seconds = times.per_token_s.tolist()
        found |= {cell.index: s for cell, s in zip(served, seconds, strict=True)}
    return found


def _runs(cells: Sequence[Cell]) -> ServingRuns:
    """The requests of some rows, in flight on the devices that hold the same ones."""
    requests = [cell.reading.requests for cell in cells if cell.reading.requests is not None]
    return ServingRuns(
        concurrency=np.array([float(cell.reading.batch_per_gpu) for cell in cells]),
        input_tokens=np.array([float(one.input_tokens) for one in requests]),
        output_tokens=np.array([float(one.output_tokens) for one in requests]),
        rounds=np.full(len(cells), np.inf),
    )


def _link(catalog: Catalog, cell: Cell, split: SplitShape) -> Link | None:
    """Between the ranks of a row; None where there is one, or it is not known."""
    if split.num_ranks == 1:
        return None
    try:
        return links_of_row(catalog, cell.device, cell.row).links.device
    except PacelineError:
        return None
