"""Complete strategies in the plan's terms: when they are searched, and as candidates.

For models that one device cannot train: stages, tensor and data parallel. The search itself is in
`paceline.planning.search.whole_search`, which is loaded where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.catalog.entities import Device
from paceline.columns import join_tables, take_rows
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import IntArray
from paceline.model.settings import read_settings
from paceline.model.table_updates import updates_rows
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.replicas.shares import Share
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.complexity import USUAL_KINDS
from paceline.parallelism.uncertainty import lanes_s, shared_log_sigmas, sharing_log_sigma
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.forecast.question import Question
from paceline.planning.goal.batch_limit import most_items
from paceline.planning.places.place_table import PlaceTable
from paceline.planning.places.places import Place
from paceline.planning.search.candidates import CandidateTable
from paceline.simulation.job import Job, usual_habits
from paceline.simulation.machine import Machine
from paceline.values import dataclass

#: Models from so many parameters on are worth it.
LEAST_PARAMETERS = 5_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchContext:
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
        jobs: What each runs, its strategy and microbatch with it, in the same order.
        steps: Of each, likewise.
        shares: What each of two kinds of device does of a batch; empty where all do the same.
    """

    candidates: CandidateTable
    jobs: tuple[Job, ...]
    steps: Steps
    shares: tuple[tuple[Share, ...], ...]

    @classmethod
    def of(cls, parts: Sequence[WholeStrategies]) -> WholeStrategies:
        """All of some, in this order; at least one."""
        ends = np.cumsum([len(one.jobs) for one in parts])
        rows = [np.arange(end - len(one.jobs), end) for one, end in zip(parts, ends, strict=True)]
        steps = zip(rows, (one.steps for one in parts), strict=True)
        return cls(
            candidates=join_tables(*(one.candidates for one in parts)),
            jobs=tuple(job for one in parts for job in one.jobs),
            steps=Steps.joined(list(steps), int(ends[-1])),
            shares=tuple(share for one in parts for share in one.shares),
        )

    def take(self, rows: IntArray) -> WholeStrategies:
        """Some of them, in this order."""
        return take_rows(self, rows)


def is_searched_whole(question: Question) -> bool:
    """Whether complete strategies can pay: a large model or tables, and none is stated."""
    how = read_settings(question.goal.rewrite, Configuration()).table_updates
    is_large = question.workload.num_parameters >= LEAST_PARAMETERS
    is_large |= updates_rows(question.workload.passes[0].graph, how)
    stated = question.goal.strategies
    is_able = not stated or any(kind not in USUAL_KINDS for kind in stated)
    return question.is_training and is_large and is_able and "strategy" not in question.goal.pins


def without_searched(candidates: CandidateTable, forecast: Forecast, places: IntArray) -> IntArray:
    """Rows of candidates but for tensor groups in places where the search has better figures.

    Args:
        candidates: Of the first search.
        forecast: What they are made of.
        places: Those that were searched, also those where no strategy can gain.
    """
    is_group = forecast.tensor_degree[candidates.configuration] > 1
    is_searched = np.isin(candidates.place, places)
    return np.flatnonzero(~(is_group & is_searched))


def machine_kinds(
    ground: SearchContext, *, are_ranked: bool = False, with_processors: bool = False
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


def known_configuration(ground: SearchContext, place: int, precisions: Sequence[str]) -> int | None:
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
            and np.isfinite(forecast.steps.step_s[configuration, device]).any()
            and forecast.tensor_degree[configuration] == 1
        ):
            return configuration
    return None


def placed(
    ground: SearchContext, members: Sequence[int], num_nodes: int, configuration: int,
    jobs: Sequence[Job], steps: Steps,
) -> WholeStrategies:  # fmt: skip
    """Strategies of one kind of machine in all its places.

    What stands for the device is one of it with a batch as near to the microbatch as is predicted.

    Args:
        ground: What is asked, and where it could run.
        members: Rows of its places.
        num_nodes: Machines.
        configuration: As found, row of the forecast.
        jobs: What runs; at least one.
        steps: Of each.
    """
    forecast = ground.forecast
    step_s = forecast.steps.step_s[configuration, int(ground.table.device[members[0]])]
    batches = np.where(np.isfinite(step_s), forecast.batch, np.nan)
    sizes = np.array([max(one.batch, 1.0) for one in jobs])
    nearest = np.nanargmin(np.abs(np.log(batches / sizes[:, None])), axis=1)
    every = np.tile(np.arange(len(jobs)), len(members))
    return as_candidates(
        ground,
        place=np.repeat(np.array(members, dtype=np.int64), len(jobs)),
        num_nodes=num_nodes,
        cell=(configuration, nearest[every]),
        jobs=[jobs[row] for row in every.tolist()],
        steps=steps.take(every),
    )


def cluster_of(place: Place, devices_per_node: int) -> Cluster:
    """Machines of a place as strategies see them."""
    return Cluster(
        device=place.device,
        devices_per_node=devices_per_node,
        device_link=place.links.device,
        node_link=place.links.node,
        host_link=place.links.host,
        host_memory_bytes=place.offer.host_memory_bytes,
        num_vcpus=place.offer.num_vcpus,
    )


def machine_of(ground: SearchContext, place: int) -> Machine:
    """One machine of a place; its host may keep an optimizer."""
    per_node = int(ground.table.devices_per_node[place])
    return Machine.of_cluster(cluster_of(ground.places[place], per_node), per_node)


def job_of(ground: SearchContext, configuration: int, place: int | None = None) -> Job:
    """What is trained, run in one configuration of the forecast, as the named software does.

    Args:
        ground: What is asked, and where it could run.
        configuration: Of the forecast.
        place: Where ranks share a model; without, only what replicas do is of interest.
    """
    question, how = ground.question, ground.forecast.configurations[configuration]
    device = None if place is None else ground.places[place].device.name
    return Job(
        workload=question.workload,
        configuration=how,
        seq=question.seq,
        habits=usual_habits(
            question.goal.framework or "", model=question.workload.name, device=device,
            configuration=how,
        ),
    )  # fmt: skip


def batch_limit(question: Question) -> int:
    """Most items per optimizer step: as asked, as the job allows, or four million tokens."""
    return question.goal.global_batch or most_items(question.batch_limit, question.seq)


def as_candidates(
    ground: SearchContext, *, place: IntArray, num_nodes: int, cell: tuple[int, IntArray],
    jobs: Sequence[Job], steps: Steps, shares: Sequence[tuple[Share, ...]] = (),
) -> WholeStrategies:  # fmt: skip
    """Jobs in places as rows of the candidate table.

    Args:
        ground: What is asked, and where it could run.
        place: Row of each place.
        num_nodes: Machines.
        cell: Configuration and batches of the forecast that stand for the device.
        jobs: What runs in each place.
        steps: Of each.
        shares: What each of two kinds of device does of a batch; none where all do the same.
    """
    table, strategies = ground.table, [one.strategy for one in jobs]
    configuration, batch = np.full(len(jobs), cell[0], dtype=np.int64), cell[1]
    num_devices = num_nodes * table.devices_per_node[place]
    groups = np.array([one.num_batches for one in strategies], dtype=np.int64)
    count = np.array([one.schedule.num_microbatches for one in strategies], dtype=np.int64)
    items = np.array([one.batch for one in jobs]).astype(np.int64)
    return WholeStrategies(
        candidates=CandidateTable(
            place=place,
            num_nodes=np.full_like(place, num_nodes),
            num_devices=num_devices,
            num_groups=groups,
            sharding=np.zeros_like(place),
            configuration=configuration,
            batch=batch,
            microbatches=count,
            global_batch=groups * items * count,
            memory_mid_bytes=steps.memory_mid_bytes,
            memory_high_bytes=steps.memory_high_bytes,
        ),
        jobs=tuple(jobs),
        steps=_as_sure(
            ground, steps, place, num_nodes, (configuration, table.device[place], batch), shares
        ),
        shares=tuple(shares) or ((),) * len(jobs),
    )


def _as_sure(
    ground: SearchContext, steps: Steps, place: IntArray, num_nodes: int,
    cell: tuple[IntArray, IntArray, IntArray], shares: Sequence[tuple[Share, ...]],
) -> Steps:  # fmt: skip
    """The steps as sure as the cell that stands for the device, or as the device known least."""
    none = np.full(len(place), np.nan)
    if shares:
        device, sharing = np.array([shared_log_sigmas(one) for one in shares]).T
    else:
        device = ground.forecast.steps.log_sigma[cell]
        pairs = [ground.places[row].links for row in place.tolist()]
        lanes = LinkTable.from_links([one.device for one in pairs])
        network = LinkTable.from_links([one.node for one in pairs])
        sent_s = lanes_s(steps.communication_s, lanes, network, num_nodes > 1)
        per_node = ground.table.devices_per_node[place]
        sharing = sharing_log_sigma(lanes, per_node, sent_s=sent_s, step_s=steps.step_s)
    return replace(
        steps, step_low_s=none, step_high_s=none, device_log_sigma=device, sharing_log_sigma=sharing
    )
