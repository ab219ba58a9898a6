"""What is excluded: grouped by reason, and one by one for ``--why-not``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.planfile import RejectedChoice
from paceline.planning.explain.repriced import Winning, cost_per_price, per_sample_price
from paceline.planning.explain.wording import (
    better_words,
    candidate_name,
    failure_text,
    figures_text,
    more_text,
    objective_text,
    option_text,
    plural,
)
from paceline.planning.places.own_machines import OWN
from paceline.planning.places.place_table import domain_of
from paceline.planning.places.places import Place, pinned_offers
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import place_of
from paceline.planning.search.evaluation import objective_name
from paceline.planning.search.pareto import Index
from paceline.planning.search.selection import best_of
from paceline.prediction.uncertainty.normal import normal_quantile
from paceline.units import format_bytes, format_usd
from paceline.values import dataclass

#: Names given in a group, and sentences about offers of one device.
_NUM_EXAMPLES = 3
_NUM_SENTENCES = 5

#: Groups in the order they are printed, with their noun.
_NOUNS = {
    "stale price": "older price",
    "no price": "offer without a known price",
    "perhaps not sold": "offer not known to be still sold",
    "does not fit": "offer whose devices are too small",
    "not as pinned": "offer that the pinned strategy does not fill or fit",
    "misses the deadline": "offer missing the deadline",
    "over the budget": "offer over the budget",
    "too high a latency": "offer with too high a latency",
    "first token too late": "offer with a first token too late",
    "too low a throughput": "offer with too low a throughput",
    "over the power limit": "offer over the power limit",
    "too hot for the room": "own machine too hot for the room",
    "no framework": "offer of devices that no framework release supports",
    "not predicted": "offer of devices that cannot be predicted",
    "too uncertain": "offer of devices predicted too loosely to rank",
    "device slice": "offer of a part of a device",
    "licence": "offer of consumer cards, whose licence excludes data centres",
    "unknown device": "offer whose device is not told apart",
    "no longer sold": "offer no longer sold",
    "filtered": "offer excluded by the filters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """What became of an offer.

    Attributes:
        name: ``Offer.name``, with ``spot`` where that price is meant.
        device: ``Device.name`` or the provider's word for it.
        kind: Why it is excluded.
        reason: As a sentence.
        wins_below_usd_per_hour: Price of one machine at which it would be first.
        usd_per_hour: Price that is known, old or not.
        is_owned: Whether it is the user's own machine.
        place: Its number among the places of the search; None where it is none of them.
    """

    name: str
    device: str
    kind: str
    reason: str
    wins_below_usd_per_hour: float | None = None
    usd_per_hour: float | None = None
    is_owned: bool = False
    place: int | None = None


def fates(search: Search, best: int | None) -> tuple[Exclusion, ...]:
    """Every offer that is excluded, in catalogue order of its kind.

    Prices at which they would be first are about right; `priced` finds that of one as it is.
    """
    return _fates(search, best, None if best is None else Winning.of(search))


def _fates(search: Search, best: int | None, winning: Winning | None) -> tuple[Exclusion, ...]:
    early = [
        Exclusion(
            name=r.offer.name,
            device=r.offer.device_name or r.offer.accelerator,
            kind=r.kind,
            reason=r.reason,
            is_owned=r.offer.cloud == OWN,
        )
        for r in search.found.rejections
    ]
    bests = _best_per_place(search)
    prices = (
        {} if best is None else _winning_prices(search, _unpriced(search, bests), winning, best)
    )
    late = [
        fate
        for index, place in enumerate(search.found.places)
        if (fate := _fate_of(search, index, place, int(bests[index]), prices.get(index)))
    ]
    return (*late, *early)


def _unpriced(search: Search, bests: Index) -> list[int]:
    """Places that lack nothing but a price of today, as far as is known."""
    return [
        index
        for index, place in enumerate(search.found.places)
        if bests[index] >= 0 and place.price_state != "fresh" and not place.num_idle
    ]


def priced(search: Search, fate: Exclusion, winning: Winning) -> Exclusion:
    """The same with the price below which it is first by the rule, or none if it never is."""
    guess = fate.wins_below_usd_per_hour
    if guess is None or fate.place is None or objective_name(search.goal) == "time":
        return fate
    rows, per_price = _repriced(search, fate.place)
    exact = winning.exact_usd_per_hour(rows, per_price, guess)
    return replace(fate, wins_below_usd_per_hour=exact)


def rejected_groups(search: Search, best: int) -> tuple[RejectedChoice, ...]:
    """One line per reason; first the user's own machines by name, if no filter left them out."""
    winning = Winning.of(search)
    all_fates = _fates(search, best, winning)
    owned: dict[tuple[str, str], list[Exclusion]] = {}
    groups: dict[str, list[Exclusion]] = {kind: [] for kind in _NOUNS}
    for fate in all_fates:
        if fate.is_owned and fate.kind != "filtered":
            owned.setdefault((fate.kind, fate.reason), []).append(fate)
        else:
            groups.setdefault(fate.kind, []).append(fate)
    return (
        *(_own_group(members) for members in owned.values()),
        *(
            _group(kind, members, _nearest(search, members, winning))
            for kind, members in groups.items()
            if members
        ),
    )


def _own_group(members: Sequence[Exclusion]) -> RejectedChoice:
    return RejectedChoice(
        name=f"your own {', '.join(fate.name for fate in members)}",
        reason=members[0].reason,
        kind=members[0].kind,
        num_rejected=len(members),
    )


def _group(kind: str, members: Sequence[Exclusion], nearest: Exclusion | None) -> RejectedChoice:
    devices = list(dict.fromkeys(fate.device for fate in members))
    examples = ", ".join(devices[:_NUM_EXAMPLES]) + (" …" if len(devices) > _NUM_EXAMPLES else "")
    reason = examples if nearest is None else f"{nearest.name} is nearest to winning"
    if nearest is not None and nearest.usd_per_hour is not None:
        reason += f" (last seen at {format_usd(nearest.usd_per_hour)} USD/h)"
    reasons = {fate.reason for fate in members}
    says_more = len(reasons) == 1 and not members[0].reason.startswith(kind)
    if nearest is None and says_more and kind not in ("filtered", "does not fit"):
        reason = f"{examples}: {members[0].reason}"
    return RejectedChoice(
        name=_group_name(kind, len(members)),
        reason=reason,
        kind=kind,
        num_rejected=len(members),
        wins_below_usd_per_hour=nearest.wins_below_usd_per_hour if nearest else None,
    )


def _group_name(kind: str, count: int) -> str:
    noun = _NOUNS.get(kind, f"offer: {kind}")
    head, space, rest = noun.partition(" ")
    if count == 1:
        return f"1 {noun}"
    if kind == "stale price":
        return plural(count, noun)
    return f"{count} {head}s{space}{rest}"


def _nearest(search: Search, members: Iterable[Exclusion], winning: Winning) -> Exclusion | None:
    """The one whose known price is nearest to the price at which it wins, else any that can win."""
    able = [fate for fate in members if fate.wins_below_usd_per_hour is not None]
    nearest = sorted(able, key=_nearness, reverse=True)[:_NUM_EXAMPLES]
    exact = (priced(search, fate, winning) for fate in nearest)
    return next((fate for fate in exact if fate.wins_below_usd_per_hour is not None), None)


def _nearness(fate: Exclusion) -> tuple[bool, float]:
    if fate.wins_below_usd_per_hour is None:
        return False, 0.0
    if fate.usd_per_hour is None:
        return False, fate.wins_below_usd_per_hour
    return True, fate.wins_below_usd_per_hour / fate.usd_per_hour


def _best_per_place(search: Search) -> Index:
    """Row of the best candidate of each place: feasible if it has one; -1 if it has none."""
    place = search.candidates.place
    bests = np.full(len(search.found.places), -1, dtype=np.int64)
    failed = sum((~c.is_met for c in search.constraints), start=np.zeros(len(place), dtype=int))
    failed[list(search.refused)] += 1
    order = np.lexsort((np.nan_to_num(search.objective, nan=np.inf), failed))
    bests[place[order[::-1]]] = order[::-1]
    return bests


def _fate_of(
    search: Search, index: int, place: Place, row: int, wins_below_usd_per_hour: float | None
) -> Exclusion | None:
    """Why a place has no feasible candidate; None if it has one, or is a part of one's machine."""
    if place.num_idle or (row >= 0 and search.is_feasible[row]):
        return None
    kind, reason = _why_not_ranked(search, index, place, row)
    return Exclusion(
        name=place.offer.name + (" spot" if place.is_spot else ""),
        device=place.device.name,
        kind=kind,
        reason=reason,
        usd_per_hour=place.usd_per_hour,
        wins_below_usd_per_hour=wins_below_usd_per_hour,
        is_owned=place.is_owned,
        place=index,
    )


def _why_not_ranked(search: Search, index: int, place: Place, row: int) -> tuple[str, str]:
    device = int(search.places.device[index])
    if not np.isfinite(search.forecast.steps.step_s[:, device]).any():
        return (
            "not predicted",
            f"facts of {place.device.name} that the prediction needs are unknown",
        )
    if row < 0 and place.parts:
        return "does not fit", (
            "no split of a batch fits both of its machines, or no precision suits both"
        )
    if row < 0 and len(pinned_offers(search.goal)) > 1:
        return "filtered", "pinned together with another, not alone"
    if row < 0 and "strategy" in search.goal.pins:
        pinned = search.goal.pins["strategy"]
        return "not as pinned", f"`{pinned}` fills no number of its machines, or does not fit"
    if row < 0:
        is_usable = search.forecast.tensor_degree <= domain_of(place)
        least = float(np.nanmin(search.forecast.steps.memory_mid_bytes[is_usable, device]))
        capacity = float(search.places.memory_bytes[index])
        if least > capacity:
            return "does not fit", f"needs {format_bytes(least)} of {format_bytes(capacity)}"
        return "does not fit", "fits only with less margin, or at a batch that is not allowed"
    if place.price_state != "fresh":
        return place.price_state, place.price_remark
    if not search.is_certain[row]:
        return "too uncertain", "its 80 % interval is wider than half to double"
    for constraint in search.constraints:
        if not constraint.is_met[row]:
            return constraint.kind, f"{constraint.kind} ({option_text(search, constraint)})"
    if row in search.refused:
        return "does not fit", "its allocations, replayed one by one, take more than there is"
    return "not predicted", "its figures are not finite"


def _winning_prices(
    search: Search, places: Sequence[int], winning: Winning | None, best: int
) -> dict[int, float | None]:
    """Price of one machine below which each place would be first; None if no price would do.

    What machines cost is proportional to their price. Constraints other than the budget must hold
    anyway.
    """
    asked = {place: _repriced(search, place) for place in places}
    able = {place: one for place, one in asked.items() if len(one[0])}
    objective = objective_name(search.goal)
    if objective == "time":
        return {place: _buys_time(search, *one, best) for place, one in able.items()}
    if objective == "energy" or winning is None:
        return {}
    return dict(zip(able, winning.usd_per_hour(list(able.values())), strict=True))


def _repriced(search: Search, index: int) -> tuple[Index, FloatArray]:
    """Candidates of a place that keep the goal at some price, and objective per dollar an hour."""
    rows = _rows_unpriced(search)[index]
    is_per_usd = objective_name(search.goal) == "performance-per-usd"
    return rows, (per_sample_price if is_per_usd else cost_per_price)(search, rows)


def _buys_time(search: Search, rows: Index, per_price: FloatArray, best: int) -> float | None:
    """Price at which something faster than the first choice comes into the budget."""
    faster = search.evaluation.pareto_time[rows] < search.evaluation.pareto_time[best]
    if search.goal.budget_usd is None or not faster.any():
        return None
    fixed_frac = 1.0 - search.evaluation.run_s[rows] / search.evaluation.time_s[rows]
    spread = np.exp(
        normal_quantile(search.goal.confidence) * search.evaluation.cost_log_sigma[rows]
    )
    left_usd = search.goal.budget_usd - search.evaluation.beside_usd[rows]
    prices = left_usd / (per_price * (fixed_frac + (1.0 - fixed_frac) * spread))
    return float(prices[faster].max())


@lru_cache(maxsize=1)
def _rows_unpriced(search: Search) -> tuple[Index, ...]:
    """Of each place, candidates that keep the goal at some price; those of one search are kept."""
    others = [c.is_met for c in search.constraints if c.option != "--budget"]
    rows = np.flatnonzero(np.logical_and.reduce([search.is_certain, *others]))
    place = search.candidates.place[rows]
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(1, len(search.found.places)))
    return tuple(np.split(rows[order], ends))


def why_not_sentences(search: Search, best: int, names: set[str]) -> tuple[str, ...]:
    """Why none of these offers is first, one sentence each, the nearest to winning first."""
    wanted = np.array([p.offer.name in names for p in search.found.places], dtype=bool)
    mask = wanted[search.candidates.place] if len(wanted) else np.zeros(0, dtype=bool)
    sentences: list[str] = []
    feasible = best_of(search, search.is_feasible & mask)
    ranked = best_of(search, search.is_ranked & mask)
    if feasible is not None:
        sentences.append(_behind(search, feasible, best))
    elif ranked is not None:
        sentences.append(
            f"{candidate_name(search, ranked)} at {objective_text(search, ranked)} "
            f"{failure_text(search, ranked)}"
        )
    told = "" if ranked is None else place_of(search, ranked).offer.name
    winning = Winning.of(search)
    below = [
        f
        for f in _fates(search, best, winning)
        if f.name.removesuffix(" spot") in names and (f.name != told or feasible is not None)
    ]
    below.sort(key=lambda f: (f.wins_below_usd_per_hour is None, -_nearness(f)[1]))
    shown = [priced(search, fate, winning) for fate in below[:_NUM_SENTENCES]]
    sentences.extend(_fate_sentence(fate) for fate in shown)
    if len(below) > _NUM_SENTENCES:
        sentences.append(f"{len(below) - _NUM_SENTENCES} more offers of it are excluded")
    return tuple(dict.fromkeys(sentences))


def _behind(search: Search, row: int, best: int) -> str:
    """How far a candidate that keeps the goal is behind the first choice."""
    if row == best:
        return f"{candidate_name(search, best)} is the first choice"
    share = float(search.objective[row] / search.objective[best] - 1.0)
    figures = figures_text(search, row)
    more = more_text(share)
    than = "as" if more.endswith("as much") else "than"
    return (
        f"{candidate_name(search, row)} keeps the goal at {figures}: {more} {than} the first "
        f"choice, {candidate_name(search, best)} at {objective_text(search, best)}, which is "
        f"{better_words(search, best, row)}"
    )


def _fate_sentence(fate: Exclusion) -> str:
    price = fate.wins_below_usd_per_hour
    wins = "" if price is None else f"; it would win below {format_usd(price)} USD/h"
    return f"{fate.name} ({fate.device}): {fate.reason}{wins}"
