"""Complete strategies in the plan's terms: when they are searched, and as candidates.

For models that one device cannot train: stages, tensor and data parallel. The search itself is in
`paceline.planning.search.whole_search`, which is loaded where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.catalog.entities import Device
from paceline.parallelism.collectives.cluster import Cluster
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.forecast.question import Question
from paceline.planning.places.place_table import PlaceTable
from paceline.planning.places.places import Place
from paceline.planning.search.candidates import CandidateTable
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine

if TYPE_CHECKING:
    from paceline.parallelism.search import FoundStrategy

#: Models from so many parameters on are worth it.
LEAST_PARAMETERS = 5_000_000_000
#: Tokens per step where neither the goal nor the workload limits the global batch.
_TOKENS_PER_STEP = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ground:
    """What complete strategies are searched on.

    Attributes:
        question: What is asked.
        places: Where it could run.
        devices: Inside, by row of the forecast.
        table: The places as arrays.
        forecast: Of one device each.
    """

    question: Question
    places: tuple[Place, ...]
    devices: tuple[Device, ...]
    table: PlaceTable
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeStrategies:
    """Candidates whose strategy was searched as a whole.

    Attributes:
        candidates: They, each with a cell of the forecast that stands for its device.
        found: Strategy of each, in the same order.
    """

    candidates: CandidateTable
    found: tuple[FoundStrategy, ...]


def is_searched_whole(question: Question) -> bool:
    """Whether complete strategies can pay: a large model is trained, and none is stated."""
    is_large = question.workload.num_parameters >= LEAST_PARAMETERS
    return question.is_training and is_large and "strategy" not in question.goal.pins


def without_searched(
    candidates: CandidateTable, forecast: Forecast, whole: WholeStrategies
) -> CandidateTable:
    """The candidates without tensor groups in places where the search has better figures of them.

    Args:
        candidates: Of the first search.
        forecast: What they are made of.
        whole: What was searched.
    """
    is_group = forecast.tensor_degree[candidates.configuration] > 1
    is_searched = np.isin(candidates.place, whole.candidates.place)
    return candidates.take(np.flatnonzero(~(is_group & is_searched)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStrategy:
    """One strategy in one place.

    Attributes:
        place: Row of the place.
        num_nodes: Machines.
        cell: Configuration and batch of the forecast that stand for its device.
        found: How, with its figures.
    """

    place: int
    num_nodes: int
    cell: tuple[int, int]
    found: FoundStrategy


def machine_kinds(
    ground: Ground, *, are_ranked: bool = False, with_processors: bool = False
) -> list[list[int]]:
    """Places by kind of machine: alike in device, number, links and, of processors, memory.

    Args:
        ground: Where it could run.
        are_ranked: Whether only places with a fresh price count.
        with_processors: Whether machines count whose processors are the device.
    """
    kinds: dict[tuple[object, ...], list[int]] = {}
    table = ground.table
    for index, place in enumerate(ground.places):
        is_kind = (with_processors or place.device.kind != "cpu") and not place.parts
        if is_kind and (table.is_ranked[index] or not are_ranked):
            kinds.setdefault(_kind(place, table, index), []).append(index)
    return list(kinds.values())


def _kind(place: Place, table: PlaceTable, index: int) -> tuple[object, ...]:
    links = tuple(link.name if link else "" for link in (place.links.device, place.links.node))
    memory_bytes = float(table.memory_bytes[index])
    return place.device.name, int(table.devices_per_node[index]), memory_bytes, links


def known_configuration(ground: Ground, place: int, precisions: Sequence[str]) -> int | None:
    """The first configuration in which a device is known; None where none is.

    Args:
        ground: What is asked, and where it could run.
        place: Row of a place with the device.
        precisions: Accepted ones.
    """
    forecast, device = ground.forecast, int(ground.table.device[place])
    for configuration, how in enumerate(forecast.configurations):
        if (
            how.precision in precisions
            and np.isfinite(forecast.step_s[configuration, device]).any()
            and forecast.tensor_degree[configuration] == 1
        ):
            return configuration
    return None


def placed(
    ground: Ground, members: Sequence[int], num_nodes: int, configuration: int,
    found: Sequence[FoundStrategy],
) -> list[PlacedStrategy]:  # fmt: skip
    """Strategies of one kind of machine in all its places.

    What stands for the device is one of it with a batch as near to the microbatch as is predicted.

    Args:
        ground: What is asked, and where it could run.
        members: Rows of its places.
        num_nodes: Machines.
        configuration: As found, row of the forecast.
        found: The strategies.
    """
    forecast = ground.forecast
    step_s = forecast.step_s[configuration, int(ground.table.device[members[0]])]
    batches = np.where(np.isfinite(step_s), forecast.batch, np.nan)
    nearest = [int(np.nanargmin(np.abs(np.log(batches / max(one.microbatch, 1))))) for one in found]
    return [
        PlacedStrategy(place=place, num_nodes=num_nodes, cell=(configuration, batch), found=one)
        for place in members
        for one, batch in zip(found, nearest, strict=True)
    ]


def cluster_of(place: Place, devices_per_node: int) -> Cluster:
    """Machines of a place as strategies see them."""
    return Cluster(
        device=place.device,
        devices_per_node=devices_per_node,
        device_link=place.links.device,
        node_link=place.links.node,
        host_link=place.links.host,
        host_memory_bytes=place.offer.host_memory_bytes,
    )


def machine_of(ground: Ground, place: int) -> Machine:
    """One machine of a place; its host may keep an optimizer."""
    per_node = int(ground.table.devices_per_node[place])
    return Machine.of_cluster(cluster_of(ground.places[place], per_node), per_node)


def job_of(ground: Ground, configuration: int) -> Job:
    """What is trained, run in one configuration of the forecast."""
    question = ground.question
    return Job(
        workload=question.workload,
        configuration=ground.forecast.configurations[configuration],
        seq=question.seq,
    )


def batch_limit(question: Question) -> int:
    """Most items per optimizer step: as asked, of the recipe, or four million tokens."""
    limit = question.goal.global_batch or question.workload.max_global_batch
    return limit or max(1, _TOKENS_PER_STEP // question.seq)


def as_candidates(rows: Sequence[PlacedStrategy], ground: Ground) -> WholeStrategies:
    """Placed strategies as rows of the candidate table."""
    table = ground.table
    place = np.array([row.place for row in rows], dtype=np.int64)
    configuration = np.array([row.cell[0] for row in rows], dtype=np.int64)
    batch = np.array([row.cell[1] for row in rows], dtype=np.int64)
    num_nodes = np.array([row.num_nodes for row in rows], dtype=np.int64)
    return WholeStrategies(
        candidates=CandidateTable(
            place=place,
            num_nodes=num_nodes,
            num_devices=num_nodes * table.devices_per_node[place],
            num_groups=np.array([row.found.strategy.num_batches for row in rows], dtype=np.int64),
            sharding=np.zeros(len(rows), dtype=np.int64),
            configuration=configuration,
            batch=batch,
            microbatches=np.array(
                [row.found.strategy.schedule.num_microbatches for row in rows], dtype=np.int64
            ),
            memory_mid_bytes=np.array([row.found.memory_mid_bytes for row in rows]),
            memory_high_bytes=np.array([row.found.memory_bytes for row in rows]),
        ),
        found=tuple(row.found for row in rows),
    )
