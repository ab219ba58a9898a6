"""One step of inference whose devices share a model: a rank's own part, and what they exchange."""

from __future__ import annotations

import math

import numpy as np

from paceline.catalog import Link
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.parallel.serving.engine import exchanged_s
from paceline.parallel.split import RankGraph, busiest_frac, calls_s
from paceline.predict import DeviceTable, Points, predict_pass
from paceline.scoring.assumed import widening
from paceline.scoring.groups import Group, JobStep
from paceline.scoring.jobs import Cell
from paceline.scoring.models import UnresolvedRowError
from paceline.scoring.networks import links_of_row
from paceline.trace.graph import FloatArray, Graph
from paceline.trace.lowering import lower

_GENERATES = "decode"


def shared_step(cell: Cell, group: Group, alone_s: float, place: tuple[int, int]) -> JobStep:
    """One step of the whole job.

    Args:
        cell: A row of inference and what it runs.
        group: What its group shares: passes as a rank runs them.
        alone_s: Of a step, a rank's own part.
        place: Device and point of the group's prediction.

    Raises:
        UnresolvedRowError: What joins its devices is not known, or they are not of one node.
    """
    split = cell.reading.split
    num_devices = cell.row.num_devices
    items = (
        cell.reading.batch_per_gpu
        * cell.reading.grad_accumulation
        * num_devices
        / split.num_sharing
    )
    if split.num_ranks == 1:
        return JobStep(step_s=alone_s, items=items)
    link = _link(cell, group)
    passes = group.passes
    one = passes.get(_GENERATES) or next(iter(passes.values()))
    points = Points.of([cell.reading.batch_per_gpu], seq=_seq(cell, group))
    log_sigma = 0.0
    if one.shape.sequence * one.shape.guidance > 1:
        log_sigma = widening(["tokens"]) * math.log2(split.num_ranks)
        shared_s = _denoising_s(cell, group, one, points, link, place)
        step_s = max(alone_s, cell.reading.grad_accumulation * shared_s)
    else:
        step_s = alone_s + _serving_exchange_s(cell, group, one, points, link)
    if not math.isfinite(step_s):
        raise UnresolvedRowError("the link between its devices is unknown")
    return JobStep(step_s=step_s, items=items, log_sigma=log_sigma)


def _link(cell: Cell, group: Group) -> Link | None:
    """Between the ranks that share a model.

    Raises:
        UnresolvedRowError: They are not of one node.
    """
    links = links_of_row(group.catalog, cell.device, cell.row)
    if cell.reading.split.num_ranks > links.devices_per_node:
        raise UnresolvedRowError(
            f"{cell.reading.split.num_ranks} ranks share the model, and a node has "
            f"{links.devices_per_node} devices"
        )
    return links.links.device


def _serving_exchange_s(
    cell: Cell, group: Group, one: RankGraph, points: Points, link: Link | None
) -> float:
    """Seconds of what a step exchanges and waits for."""
    total_s = float(exchanged_s(one, points, link, _width(group))[0])
    return total_s + _waiting_s(cell, group, one, points)


def _waiting_s(cell: Cell, group: Group, one: RankGraph, points: Points) -> float:
    """Seconds in which ranks wait for the one whose experts more tokens happen to reach."""
    more_frac = float(busiest_frac(one, points)[0])
    if not more_frac:
        return 0.0
    return more_frac * float(_device_s(cell, group, one.only(one.expert_products), points)[0])


def _denoising_s(
    cell: Cell, group: Group, one: RankGraph, points: Points, link: Link | None,
    place: tuple[int, int],
) -> float:  # fmt: skip
    """Seconds of a denoising step with what ranks exchange: the device's, or the host's if longer.

    Each op that the host issues besides takes it as long as those of the graph in the mean.
    """
    busy_s, num_rounds = np.zeros((1, len(one.calls))), len(one.calls.along("ring"))
    if num_rounds and len(one.attention):
        attention_s = _device_s(cell, group, one.only(one.attention), points)
        busy_s += attention_s / num_rounds
    wires = one.shape.wires_in_node(1, link)
    exchanged_s = calls_s(one.calls, points, wires, element_bytes=_width(group), busy_s=busy_s)
    issued = 1.0 + one.host_ops / len(group.lowered.costs.order)
    device_s = float(group.prediction.device_s[place]) + float(exchanged_s.sum())
    return max(device_s, float(group.prediction.host_s[place]) * issued)


def _device_s(cell: Cell, group: Group, graph: Graph, points: Points) -> FloatArray:
    """Device time of some of the ops of a rank's pass, (1,)."""
    prediction = predict_pass(
        lower(graph, group.lowered.configuration), DeviceTable.from_devices([cell.device]), points,
        calibration=group.calibration, framework=cell.reading.framework,
    )  # fmt: skip
    device_s: FloatArray = prediction.device_s[0]
    return device_s


def _seq(cell: Cell, group: Group) -> float:
    return float(cell.reading.seq or group.workload.default_seq)


def _width(group: Group) -> float:
    """Bytes of an activation."""
    precision = group.lowered.configuration.precision
    return float(ELEMENT_BYTES[find_precision(precision).activation_dtype])
