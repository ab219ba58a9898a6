"""A model developed, trained and served: a place for each, together at the least cost.

Each phase is searched like any other job. What differs is how it is paid: training by its own
time, developing by working hours, serving by months without a break.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from typing import Literal

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.errors import InvalidInputError, PacelineError, UnknownNameError
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.workload import Workload
from paceline.planning.explain.impossible import check_possible
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.amounts import check_has_work
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.own_machines import OWN
from paceline.planning.places.relocation import (
    Dataset,
    Stops,
    bring_again_usd,
    bring_usd,
    cheapest_way,
    weights_usd,
)
from paceline.planning.search.all_candidates import Search, run_search
from paceline.prediction.calibration.fitted import Calibration
from paceline.units import HOUR_S
from paceline.values import dataclass

PhaseName = Literal["develop", "train", "serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """How long machines are kept: so many times, so long each; set up anew each time."""

    num_times: float
    each_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedPhase:
    """One phase as the user states it.

    Attributes:
        workload: The model, training or inference.
        goal: What must hold; of developing, the deadline is that of one run.
        work: Of the job, of one run, or the rate that is served.
        stay: How long machines are kept; None as long as the job takes.
    """

    name: PhaseName
    workload: Workload
    goal: Goal
    work: Work
    stay: Stay | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchedPhase:
    """One phase with every candidate priced.

    Attributes:
        held_s: Paid time of each machine, (num_candidates,).
        usd: Of the phase, (num_candidates,).
        stops: The cheapest candidate of each place that keeps the goal.
    """

    asked: AskedPhase
    search: Search
    held_s: FloatArray
    usd: FloatArray
    stops: Stops


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ways:
    """Stops of all phases, and what moving between them costs.

    A way is one stop of each phase, by its position among the phase's `Stops`.

    Attributes:
        phases: In their order.
        first_usd: Moving to the stops of the first phase, (num_stops,).
        moves_usd: Between each phase and the next, (num_before, num_after).
    """

    phases: tuple[SearchedPhase, ...]
    first_usd: FloatArray
    moves_usd: tuple[FloatArray, ...]

    def split(self) -> tuple[int, ...]:
        """The cheapest of all ways."""
        first, *rest = [phase.stops.usd for phase in self.phases]
        return cheapest_way([first + self.first_usd, *rest], self.moves_usd)

    def one_place(self) -> tuple[int, ...] | None:
        """The cheapest way that stays in one place; None if no place can do every phase."""
        names = [phase.stops.names for phase in self.phases]
        shared = sorted(set(names[0]).intersection(*names[1:]))
        found = [tuple(stops.index(name) for stops in names) for name in shared]
        return min(found, key=self.usd, default=None)

    def moving_usd(self, way: Sequence[int]) -> tuple[float, ...]:
        """What moving to each stop of a way costs."""
        between = zip(self.moves_usd, way, way[1:], strict=False)
        return (float(self.first_usd[way[0]]), *(float(usd[a, b]) for usd, a, b in between))

    def usd(self, way: Sequence[int]) -> float:
        """Machines and moves together."""
        stops = sum(float(p.stops.usd[at]) for p, at in zip(self.phases, way, strict=True))
        return stops + sum(self.moving_usd(way))


def search_ways(
    asked: Sequence[AskedPhase],
    dataset: Dataset | None,
    catalog: Catalog,
    *,
    today: date,
    calibration: Calibration | None = None,
) -> Ways:
    """Every place that can do each phase, with its cost there and the cost of moving.

    Args:
        asked: In the order in which they follow one another.
        dataset: Brought to wherever the model is developed or trained; None if that costs nothing.
        catalog: Devices, offers and machines.
        today: The day prices are judged on.
        calibration: Of the predictor; the built-in one if None.

    Raises:
        NoOfferError: No offer keeps the goal of a phase, which the message names.
        DoesNotFitError: A phase fits on nothing that is left.
        UnknownNameError: The data set lies in no cloud of the catalogue.
        MissingFactError: Traffic out of where the data set lies has no known price.
    """
    if dataset is not None:
        clouds = {offer.cloud for offer in catalog.offers} | {OWN}
        if dataset.at not in clouds:
            raise UnknownNameError.from_name("cloud", dataset.at, sorted(clouds))
    phases = tuple(_searched(one, catalog, today, calibration) for one in asked)
    return Ways(
        phases=phases,
        first_usd=_first_usd(phases[0], dataset),
        moves_usd=tuple(_between_usd(before, after, dataset) for before, after in pairwise(phases)),
    )


def _searched(
    asked: AskedPhase, catalog: Catalog, today: date, calibration: Calibration | None
) -> SearchedPhase:
    try:
        return _search(asked, catalog, today, calibration)
    except PacelineError as error:
        raise type(error)(f"{asked.name}: {error}", hint=error.hint) from None


def _search(
    asked: AskedPhase, catalog: Catalog, today: date, calibration: Calibration | None
) -> SearchedPhase:
    if asked.goal.objective not in ("auto", "cost"):
        raise InvalidInputError(
            f"places are chosen by cost, not by {asked.goal.objective}",
            hint="leave `objective` out, and state a deadline or a latency",
        )
    # A machine to develop on is set up once a day, not for each run.
    options = SearchOptions(setup_s=0.0) if asked.name == "develop" else SearchOptions()
    question = resolve_question(
        asked.workload,
        asked.goal,
        asked.work,
        today=today,
        options=options,
        calibration=calibration,
    )
    if asked.name != "serve":
        check_has_work(question.job, asked.workload)
    search = run_search(question, catalog)
    check_possible(search, catalog)
    held_s = search.evaluation.billed_s if asked.stay is None else _held_s(search, asked.stay)
    usd = held_s * search.evaluation.usd_per_hour / HOUR_S
    return SearchedPhase(
        asked=asked, search=search, held_s=held_s, usd=usd, stops=_stops(search, usd)
    )


def _held_s(search: Search, stay: Stay) -> FloatArray:
    """Paid time of each machine of a candidate, in whole granules of the provider."""
    places = search.places
    each_s = np.where(places.is_owned, 0.0, SearchOptions().setup_s) + stay.each_s
    granules = np.ceil(np.round(each_s / places.granularity_s, 9))
    paid_s = np.maximum(granules * places.granularity_s, places.minimum_s)
    return np.asarray(stay.num_times * paid_s[search.candidates.place])


def _stops(search: Search, usd: FloatArray) -> Stops:
    """Per place, the cheapest candidate that keeps the goal; of equals the fastest."""
    rows = np.flatnonzero(search.is_feasible & np.isfinite(usd))
    rows = rows[np.lexsort((search.evaluation.pareto_time[rows], usd[rows]))]
    names = np.array([place.offer.name + " spot" * place.is_spot for place in search.found.places])
    found, first = np.unique(names[search.candidates.place[rows]], return_index=True)
    best = rows[first]
    places = [search.found.places[place] for place in search.candidates.place[best]]
    return Stops(
        names=tuple(found.tolist()),
        clouds=tuple(place.offer.cloud for place in places),
        usd=usd[best],
        usd_per_hour=search.evaluation.usd_per_hour[best],
        rows=tuple(best.tolist()),
    )


def _first_usd(phase: SearchedPhase, dataset: Dataset | None) -> FloatArray:
    if dataset is None or phase.asked.name == "serve":
        return np.zeros(len(phase.stops.names))
    return bring_usd(phase.stops, dataset)


def _between_usd(
    before: SearchedPhase, after: SearchedPhase, dataset: Dataset | None
) -> FloatArray:
    """Data on the way to training, weights on the way to serving."""
    if after.asked.name == "serve" and before.asked.name == "train":
        return weights_usd(before.stops, after.stops, weights_bytes(before))
    if after.asked.name == "train" and dataset is not None:
        return bring_again_usd(before.stops, after.stops, dataset)
    return np.zeros((len(before.stops.names), len(after.stops.names)))


def weights_bytes(phase: SearchedPhase) -> FloatArray:
    """Trained weights at each stop of a phase, (num_stops,)."""
    rows = np.array(phase.stops.rows, dtype=np.int64)
    return np.asarray(phase.search.evaluation.steps.parameter_bytes[rows])


def busy_frac(phase: SearchedPhase, row: int) -> float | None:
    """Share of what the machines could do that is asked of them; None of developing."""
    evaluation, amount = phase.search.evaluation, phase.search.job.amount
    if phase.asked.name == "develop":
        return None
    if amount.samples_per_s is not None:
        return float(amount.samples_per_s / evaluation.samples_per_s[row])
    return float(evaluation.num_steps[row] * evaluation.steps.step_s[row] / phase.held_s[row])
