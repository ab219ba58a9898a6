"""Complete strategies for models that one device cannot train: stages, tensor and data parallel.

The search over sharded data parallel and tensor groups comes first. On the machines that look best
after it, all legal meshes and schedules are evaluated (`paceline.parallel.search`), and the best of
them join the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.catalog.entities import Device
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallel import Cluster, LinkTable
from paceline.parallel.offload import known_host
from paceline.parallel.search import (
    FoundStrategy,
    SearchSpace,
    prepare_search,
    search_strategies,
)
from paceline.parallel.stated import as_stated
from paceline.parallel.strategy_table import Fabric
from paceline.parallel.traced_job import TracedJob
from paceline.plan.candidates import CandidateTable
from paceline.plan.evaluation import Evaluation
from paceline.plan.forecasts import Forecast
from paceline.plan.place_table import PlaceTable
from paceline.plan.places import Place
from paceline.plan.question import Question
from paceline.predict import DeviceTable

_HALF_PRECISIONS = ("bf16", "fp16")
#: Models from so many parameters on are worth it.
LEAST_PARAMETERS = 5_000_000_000
#: Kinds of machine that are searched in full, and strategies kept of each number of them.
_NUM_FABRICS = 8
_NUM_BEST = 2
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


def search_whole(
    ground: Ground,
    candidates: CandidateTable,
    evaluation: Evaluation,
    node_counts: Sequence[int],
) -> WholeStrategies | None:
    """Search complete strategies; None where none fits.

    Args:
        ground: What is asked, and where it could run.
        candidates: Of the first search.
        evaluation: Their figures.
        node_counts: Machine counts to try.
    """
    rows: list[PlacedStrategy] = []
    tables: dict[str, DeviceTable] = {}
    for members in _shortlist(ground, candidates, evaluation):
        configuration = known_configuration(ground, members[0], _HALF_PRECISIONS)
        if configuration is not None:
            device = ground.places[members[0]].device
            table = tables.setdefault(device.name, DeviceTable.from_devices([device]))
            rows += _searched(ground, members, configuration, node_counts, table)
    return as_candidates(rows, ground) if rows else None


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


def _shortlist(
    ground: Ground, candidates: CandidateTable, evaluation: Evaluation
) -> list[list[int]]:
    """Places of the best few kinds of machine: alike in device, number and links.

    The kinds nearest the front of time and cost, whatever the goal bounds: plans of two goals
    that differ in a limit alone are chosen from the same candidates.
    """
    kind_of = {
        index: members for members in machine_kinds(ground, are_ranked=True) for index in members
    }
    nearest = _nearest_front(ground.table, candidates, evaluation)
    first = [*nearest, *_roomiest(ground.table, kind_of)]
    chosen = {id(kind_of[index]): kind_of[index] for index in first if index in kind_of}
    return list(chosen.values())[:_NUM_FABRICS]


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


def _nearest_front(
    table: PlaceTable, candidates: CandidateTable, evaluation: Evaluation
) -> list[int]:
    """Places by how little dearer they are than what is as fast, of the first search."""
    time, cost = evaluation.pareto_time, evaluation.pareto_cost
    rows = np.flatnonzero(table.is_ranked[candidates.place] & np.isfinite(time) & np.isfinite(cost))
    rows = rows[np.argsort(time[rows], kind="stable")]
    dearer = cost[rows] / np.minimum.accumulate(cost[rows])
    by_excess = rows[np.argsort(dearer, kind="stable")]
    return list(dict.fromkeys(candidates.place[by_excess].tolist()))


def _roomiest(table: PlaceTable, members: Iterable[int]) -> list[int]:
    """Places that could hold what nothing holds yet: in turn by price and by size of memory.

    The cheapest memory alone would be that of many small cards, too many for a model to span.
    """
    ranked = [index for index in members if np.isfinite(table.usd_per_hour[index])]
    machine_bytes = table.devices_per_node * table.memory_bytes
    by_price = sorted(ranked, key=lambda i: float(table.usd_per_hour[i] / machine_bytes[i]))
    by_size = sorted(ranked, key=lambda i: -float(machine_bytes[i]))
    return [index for pair in zip(by_price, by_size, strict=True) for index in pair]


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


def _searched(
    ground: Ground, members: Sequence[int], configuration: int, node_counts: Sequence[int],
    device: DeviceTable,
) -> list[PlacedStrategy]:  # fmt: skip
    """The best strategies of one kind of machine, for each number of them, in all its places."""
    first, question, table = members[0], ground.question, ground.table
    space = _space(ground, first, configuration, device)
    rows = []
    for num_nodes in node_counts:
        num_devices = int(num_nodes * table.devices_per_node[first])
        if num_devices > question.goal.max_devices or (
            num_nodes > 1 and not table.has_node_link[first]
        ):
            continue
        found = as_stated(
            traced_job(ground, first, configuration),
            _best(question, space, num_devices, num_nodes),
            capacity_bytes=space.capacity_bytes,
            memory_confidence=space.memory_confidence,
        )
        rows += placed(ground, members, num_nodes, configuration, found)
    return rows


def _space(ground: Ground, index: int, configuration: int, device: DeviceTable) -> SearchSpace:
    question, table, place = ground.question, ground.table, ground.places[index]
    how = ground.forecast.configurations[configuration]
    return prepare_search(
        question.workload.passes[0].graph,
        how,
        device,
        Fabric(
            devices_per_node=int(table.devices_per_node[index]),
            device_link=LinkTable.from_links([place.links.device]),
            node_link=LinkTable.from_links([place.links.node]),
            platform=how.platform,
        ),
        seq=question.seq,
        capacity_bytes=float(table.memory_bytes[index]),
        memory_confidence=question.goal.memory_confidence,
        calibration=question.calibration,
        host=known_host(place.links.host, place.offer.host_memory_bytes),
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
    )


def traced_job(ground: Ground, place: int, configuration: int) -> TracedJob:
    """The training step in one place, run in one configuration of the forecast."""
    question = ground.question
    return TracedJob(
        graph=question.workload.passes[0].graph,
        configuration=ground.forecast.configurations[configuration],
        cluster=cluster_of(ground.places[place], int(ground.table.devices_per_node[place])),
        seq=question.seq,
        calibration=question.calibration,
    )


def batch_limit(question: Question) -> int:
    """Most items per optimizer step: as asked, of the recipe, or four million tokens."""
    limit = question.goal.global_batch or question.workload.max_global_batch
    return limit or max(1, _TOKENS_PER_STEP // question.seq)


def _best(
    question: Question, space: SearchSpace, num_devices: int, num_nodes: int
) -> tuple[FoundStrategy, ...]:
    """Nothing where no strategy is legal or fits."""
    limit = batch_limit(question)
    global_batch = limit if question.goal.global_batch else limit // num_nodes * num_nodes
    if not space.variants or global_batch < 1:
        return ()
    try:
        return search_strategies(
            space, num_devices=num_devices, global_batch=global_batch, num_best=_NUM_BEST
        )
    except (DoesNotFitError, InvalidInputError):
        return ()


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
