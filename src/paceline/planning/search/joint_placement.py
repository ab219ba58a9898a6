"""Two of the user's own machines as one place, each device with a share of the batch by its speed.

Machines of one's own work together where both say what network they are on, or that they stand in
one box. They run plain data parallel: every device has a whole copy of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from paceline.catalog.entities import Catalog, Link, OfferLinks
from paceline.catalog.offer_links import joint_link
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.replicas.shares import Share
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.forecast.question import Question
from paceline.planning.places.own_machines import electricity_usd_per_hour
from paceline.planning.places.places import JOINED_BY, Place, PlaceSearch
from paceline.planning.search.whole_strategies import (
    SearchContext,
    WholeStrategies,
    as_candidates,
    batch_limit,
    job_of,
)
from paceline.simulation.job import Job

if TYPE_CHECKING:
    from paceline.simulation.unequal import Part

#: Global batches kept of each pair of machines and configuration: the largest that fit.
_NUM_LARGEST = 2


def with_joined(found: PlaceSearch, catalog: Catalog, question: Question) -> PlaceSearch:
    """The places and, for training, what the user's own machines are together, two at a time.

    Args:
        found: Places of single machines.
        catalog: Where the machines say how they are joined.
        question: What is asked.
    """
    if not question.is_training or len(question.workload.passes) != 1:
        return found
    machines = {machine.name: machine for machine in catalog.machines}
    owned = [place for place in found.places if _can_be_joined(place)]
    joined = [
        _joined(first, second, link, share_box=one.box is not None and one.box == other.box)
        for first, second in combinations(owned, 2)
        for one, other in [(machines[first.offer.name], machines[second.offer.name])]
        if (link := joint_link(catalog, one, other)) is not None
        and first.offer.num_devices + second.offer.num_devices <= question.goal.most_devices
    ]
    return replace(found, places=(*found.places, *joined))


def _can_be_joined(place: Place) -> bool:
    """A machine of the user's own, with device memory of a known size: shares must fit into it."""
    has_room = place.device.kind != "cpu" and place.device.capacity_bytes is not None
    is_one = place.is_owned and place.num_machines == 1
    return is_one and not place.num_idle and has_room


def _joined(first: Place, second: Place, link: Link, *, share_box: bool) -> Place:
    one, other = first.offer, second.offer
    spared = electricity_usd_per_hour(second.device, 0) if share_box else 0.0
    usd_per_hour = (one.usd_per_hour or 0.0) + (other.usd_per_hour or 0.0) - spared
    kinds = [f"{place.offer.num_devices:g}×{place.device.name}" for place in (first, second)]
    said = f"{one.name} and {other.name} share each batch by their speed, over {link.name}"
    offer = replace(
        one,
        name=f"{one.name}{JOINED_BY}{other.name}",
        instance_type="own machines",
        accelerator=JOINED_BY.join(kinds),
        num_devices=one.num_devices + other.num_devices,
        num_vcpus=_sum(one.num_vcpus, other.num_vcpus),
        host_memory_bytes=None,
        usd_per_hour=usd_per_hour,
    )
    return replace(
        first,
        offer=offer,
        links=OfferLinks(device=None, node=link, host=None, assumptions=(said,)),
        usd_per_hour=usd_per_hour,
        parts=(first, second),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def search_together(ground: SearchContext) -> WholeStrategies | None:
    """Every joined place with the largest global batches that fit; None where none does.

    Args:
        ground: What is asked, and where it could run.
    """
    rows = [
        found
        for index, place in enumerate(ground.places)
        if place.parts
        for cell in _cells(ground, place)
        for found in _found(ground, index, cell)
    ]
    return WholeStrategies.of(rows) if rows else None


def _cells(ground: SearchContext, place: Place) -> Iterator[tuple[int, int]]:
    """Configurations that both kinds run, each with a batch whose spread stands for the first."""
    forecast = ground.forecast
    rows = {device.name: row for row, device in enumerate(ground.devices)}
    devices = [rows[part.device.name] for part in place.parts]
    is_known = np.all(np.isfinite(forecast.steps.step_s[:, devices]).any(axis=2), axis=1)
    for configuration in np.flatnonzero(is_known & (forecast.tensor_degree == 1)).tolist():
        known = np.isfinite(forecast.steps.step_s[configuration, devices[0]])
        yield configuration, int(np.argmax(known))


def _found(ground: SearchContext, index: int, cell: tuple[int, int]) -> list[WholeStrategies]:
    """The largest few global batches that fit, halved from the limit; every device gets some."""
    question, place = ground.question, ground.places[index]
    count = int(place.offer.num_devices)
    job = replace(job_of(ground, cell[0]), strategy=Strategy.from_degrees(dp=count))
    kept: list[WholeStrategies] = []
    limit = batch_limit(question) // count
    if question.goal.global_batch and question.goal.global_batch % count:
        return []
    while limit >= 1 and len(kept) < _NUM_LARGEST:
        one = replace(job, batch=limit)
        if found := _shared(question, place, one, limit * count):
            steps, shares = found
            kept.append(
                as_candidates(
                    ground, place=np.array([index]), num_nodes=1,
                    cell=(cell[0], np.array([cell[1]])), jobs=[one], steps=steps, shares=[shares],
                )
            )  # fmt: skip
        limit = 0 if question.goal.global_batch else limit // 2
    return kept


def _shared(
    question: Question, place: Place, job: Job, global_batch: int
) -> tuple[Steps, tuple[Share, ...]] | None:
    """A step of both machines; None where no split of the batch fits or they have no link."""
    from paceline.simulation.unequal import unequal_step

    first, second = (_part(part, place) for part in place.parts)
    try:
        found = unequal_step(
            job, first, second, global_batch=global_batch,
            memory_confidence=question.goal.memory_confidence, calibration=question.calibration,
        )  # fmt: skip
    except (DoesNotFitError, InvalidInputError):
        return None
    room_bytes = [part.room_bytes for part in (first, second)]
    mid_frac, bound_frac = (
        max(getattr(s, name) / r for s, r in zip(found.shares, room_bytes, strict=True))
        for name in ("memory_mid_bytes", "memory_bytes")
    )
    columns = {
        "step_s": found.step_s,
        "bubble_s": 0.0,
        "tensor_s": 0.0,
        "exposed_s": found.exposed_communication_s,
        "per_token_s": found.step_s,
        "memory_mid_bytes": mid_frac * room_bytes[0],
        "memory_high_bytes": bound_frac * room_bytes[0],
    }
    return Steps.of(1, columns), found.shares


def _part(part: Place, place: Place) -> Part:
    """One of the machines, on the link that joins it with the other."""
    from paceline.simulation.unequal import Part

    count = int(part.offer.num_devices)
    cluster = Cluster(
        device=part.device,
        devices_per_node=count,
        device_link=part.links.device,
        node_link=place.links.node,
    )
    return Part(cluster=cluster, count=count)


def shares_note(shares: Sequence[Share]) -> str:
    """Who does how much of each batch; empty where all do the same."""
    if not shares:
        return ""
    each = ", ".join(f"{one.items_per_device} on each {one.device}" for one in shares)
    return f"each batch is shared by speed: {each}; losses must be weighted by items"
