"""Goals that nothing keeps: which constraint kills what, and the nearest that would work."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.catalog.lookup import find_devices
from paceline.errors import DoesNotFitError, NoOfferError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.planning.explain.constraint_relaxation import loosening
from paceline.planning.explain.savings import savings_sentence
from paceline.planning.explain.wording import (
    candidate_name,
    cost_text,
    duration_up,
    option_text,
    plural,
    rounded_up,
    speed_text,
)
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.rewrites import OF_A_SEARCH
from paceline.planning.goal.service import service_of
from paceline.planning.places.own_machines import OWN
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import IN_WATTS, Constraint
from paceline.planning.search.pareto import Index
from paceline.stack.devices import compiler_elsewhere
from paceline.units import format_bytes, format_duration, format_percent, format_significant

_NUM_NAMED = 3
_ALIKE_LOG = 0.2
#: Limits that more devices side by side keep.
_OF_RATE = ("--rps", "--throughput")


def check_possible(search: Search, catalog: Catalog) -> None:
    """Pass if something is feasible.

    Raises:
        NoOfferError: No offer is left, or none keeps the goal.
        DoesNotFitError: Nothing that is left has the memory.
    """
    if search.is_feasible.any():
        return
    if not search.found.places:
        raise _nothing_left(search, catalog)
    if not len(search.candidates) or not search.is_certain.any():
        raise _nothing_fits(search)
    if not search.is_ranked.any():
        raise _no_price(search)
    raise no_goal_kept(search)


def _no_price(search: Search) -> NoOfferError:
    today = search.question.today
    offers = {place.offer.name: place.offer for place in search.found.places}
    days = [offer.priced_on for offer in offers.values()]
    later = [day for day in days if day is not None and day > today]
    return NoOfferError(
        f"no offer that is left has a price by {today}: the first was seen on {min(later)}"
        if later
        else f"no price is known of {plural(len(offers), 'offer')} that could be ranked",
        hint=(f"judge prices as of a later day, such as --as-of {max(later)}; " if later else "")
        + "add your own offer and price with --facts FILE, or loosen the filters",
    )


def _nothing_left(search: Search, catalog: Catalog) -> NoOfferError:
    rejections = search.found.rejections
    counts = Counter(r.reason if r.kind == "filtered" else r.kind for r in rejections)
    causes = ", ".join(f"{count} {reason}" for reason, count in counts.most_common(4))
    helps = loosening(catalog, search.goal, today=search.question.today) or "add an offer"
    if not_rented := _not_rented(catalog, search.goal):
        helps = f"{not_rented}; {helps}"
    if OWN in search.goal.clouds and not catalog.machines:
        helps = "describe your own machine and add --facts FILE (docs/how-to/own-devices.md)"
    return NoOfferError(
        f"no offer is left: {causes or 'the catalogue has none'}",
        hint=f"{helps}; `paceline offers --all` lists them",
    )


def _not_rented(catalog: Catalog, goal: Goal) -> str:
    """What to do about devices that are known and asked for, and that nobody rents out."""
    named = (*goal.devices, *filter(None, (goal.pins.get("device"),)))
    if not named and not goal.device_classes:
        return ""
    meant = [device for name in named for device in find_devices(catalog, name)]
    classes = {one.lower() for one in goal.device_classes}
    asked = [d for d in meant or catalog.devices if not classes or d.device_class in classes]
    held = {offer.device_name for offer in catalog.offers}
    if not asked or any(device.name in held for device in asked):
        return ""
    owned = {machine.device_name: machine.name for machine in catalog.machines}
    if mine := next((device for device in asked if device.name in owned), None):
        return (
            f"your machine `{owned[mine.name]}` holds a {mine.name}, but cannot be planned with "
            "(the reason is above); `paceline predict` times it with "
            f"--device {shlex.quote(mine.name)}"
        )
    names = ", ".join(f"`{device.name}`" for device in asked[:_NUM_NAMED])
    more = f" and {len(asked) - _NUM_NAMED} more" if len(asked) > _NUM_NAMED else ""
    return (
        f"no known offer holds {names}{more}: put your own machine with one into a file for "
        f"--facts (docs/how-to/own-devices.md), or `paceline predict` it with --device "
        f"{shlex.quote(asked[0].name)}"
    )


def _nothing_fits(search: Search) -> DoesNotFitError | NoOfferError:
    memory = search.forecast.steps.memory_mid_bytes
    if not np.isfinite(search.forecast.steps.step_s).any():
        if ways := _wanted_ways(search.goal):
            hint = "leave one out; `paceline predict MODEL --device NAME` says what one runs"
            return NoOfferError(
                f"no device that is left runs all of this: {ways}",
                hint="; ".join((hint, *_whose_compilers(search))),
            )
        return NoOfferError(
            "none of the devices that are left can be predicted: facts are missing",
            hint="try other devices, or give the missing facts with --facts FILE",
        )
    if len(search.candidates):
        return NoOfferError(
            "the devices that are left are predicted too loosely to rank (wider than half to "
            "double)",
            hint="name a device that was measured, such as --device a100, or measure on yours",
        )
    stated = _stated_ways(search.goal)
    if stated and _has_room(search):
        return NoOfferError(
            f"{search.workload.title} fits, but on no offer can all of this be: {stated}",
            hint="leave one out; devices × batch × accumulation steps make the global batch",
        )
    least = float(np.nanmin(memory))
    largest = max(search.devices, key=lambda d: d.capacity_bytes or 0.0)
    batch = int(search.forecast.batch[0])
    capacity = format_bytes(largest.capacity_bytes or 0.0)
    row = np.unravel_index(np.nanargmin(memory), memory.shape)[0]
    more = "devices that answer by themselves hold all of it each"
    if _is_shared(search):
        more = f"sharding over up to {search.goal.most_devices} devices does not help enough"
    return DoesNotFitError(
        f"{search.workload.title} does not fit: at batch {batch} it needs "
        f"{format_bytes(least)}, and the largest device that is left, {largest.name}, has "
        f"{capacity}; {more}",
        hint=_what_needs_less(search, search.forecast.configurations[row], batch),
    )


def _what_needs_less(search: Search, configuration: Configuration, batch: int) -> str:
    if search.workload.generates:
        return (
            "try --max-devices above that, --precision int4, or fewer or shorter requests "
            "(--concurrency, --prompt-tokens)"
        )
    is_training = search.question.is_training
    saved = savings_sentence(
        search.workload,
        configuration,
        batch=batch,
        seq=search.question.seq,
        excluded=OF_A_SEARCH if is_training else (),
    )
    first = "--rewrite with one of the following" if is_training else "--precision int4"
    instead = "; --task infer only runs the model" if is_training else ""
    told = f": {saved}" if saved else ""
    ways = ["--max-devices above that"] if _is_shared(search) else ["a device with more memory"]
    ways += [first, *_smaller_items(search.workload)]
    return f"try {', '.join(ways[:-1])} or {ways[-1]}{told}{instead}"


def _is_shared(search: Search) -> bool:
    """Whether several devices may hold a model together: in training, and where it writes."""
    return search.question.is_training or search.workload.generates


def _smaller_items(workload: Workload) -> Iterator[str]:
    """What makes an item smaller, as an option; nothing where its size is its model's."""
    if workload.sample_unit in ("images", "clips", "volumes"):
        yield "a smaller --image-size"
    elif workload.sample_unit in ("seconds of sound", "recordings"):
        yield "a shorter --sound"
    elif workload.default_seq > 1:
        yield "a shorter --seq"


def _stated_ways(goal: Goal) -> str:
    """How the job must be run, as typed; empty where that is free."""
    typed = [f"--global-batch {goal.global_batch}"] if goal.global_batch else []
    typed += [f"--pin {key}={value}" for key, value in goal.pins.items()]
    return ", ".join([*typed, f"--max-devices {goal.most_devices}"]) if typed else ""


def _wanted_ways(goal: Goal) -> str:
    """What must run the job, as typed; empty where that is free."""
    default = Goal()
    wanted = (
        ("framework", () if goal.framework is None else (goal.framework,)),
        ("compiler", goal.compilers if goal.compilers != default.compilers else ()),
        ("precision", goal.precisions),
    )
    return " ".join(f"--{option} {','.join(names)}" for option, names in wanted if names)


def _whose_compilers(search: Search) -> tuple[str, ...]:
    """Who runs a compiler that was asked for by name, on any device that is left."""
    wanted = search.goal.compilers if search.goal.compilers != Goal().compilers else ()
    told = (compiler_elsewhere(name, device) for name in wanted for device in search.devices)
    return tuple(dict.fromkeys(filter(None, told)))


def _has_room(search: Search) -> bool:
    """Whether any batch that was predicted fits a device as it is."""
    places = search.places
    needed = search.forecast.steps.needed_bytes(search.goal.memory_confidence)
    return bool((needed[:, places.device] <= places.memory_bytes[None, :, None]).any())


def _check_way(search: Search) -> None:
    """Refuse a first token sooner than a request's way to its engine and back.

    Raises:
        NoOfferError: It is asked for.
    """
    service, limit_s = service_of(search.goal, search.workload), search.goal.ttft_s
    way_s = 0.0 if service is None else service.engine.path_s or 0.0
    if service is not None and limit_s is not None and limit_s <= way_s:
        raise NoOfferError(
            f"no first token comes within {format_duration(limit_s)}: the way of a request to "
            f"{service.engine.title} and back takes {format_duration(way_s)} by itself",
            hint=f"ask for --ttft {duration_up(4.0 * way_s).replace(' ', '')} or more",
        )


def no_goal_kept(search: Search) -> NoOfferError:
    """What comes nearest to the goal: of what was simulated, where anything was.

    Raises:
        NoOfferError: The way to an engine alone takes longer than a first token may.
    """
    _check_way(search)
    ranked = search.is_ranked
    total = int(ranked.sum())
    kills = "; ".join(
        f"{option_text(search, c)} excludes {int((ranked & ~c.is_met).sum()):,} of {total:,} "
        "candidates"
        for c in search.constraints
    )
    nearest = int(nearest_rows(search)[0])
    return NoOfferError(
        f"no offer keeps the goal at a chance of {format_percent(search.goal.confidence)}: {kills}",
        hint=f"{_setup_words(search)}nearest is {candidate_name(search, nearest)} "
        f"at {cost_text(search, nearest)} and {speed_text(search, nearest)}; it keeps "
        f"{_kept_text(search, nearest)}{_more_devices_words(search, nearest)}",
    )


def _more_devices_words(search: Search, row: int) -> str:
    """That more machines could answer more, where a rate is what is missed."""
    is_too_slow = any(c.option in _OF_RATE and not c.is_met[row] for c in search.constraints)
    return f", or raise --max-devices (now {search.goal.most_devices})" if is_too_slow else ""


def _kept_text(search: Search, row: int) -> str:
    """What a candidate keeps of what it does not meet, as options."""
    return " ".join(
        f"{option_text(search, c)} {_limit_text(search, c, float(c.value[row]))}"
        for c in search.constraints
        if not c.is_met[row]
    )


def _setup_words(search: Search) -> str:
    """That no device is fast enough, where a deadline is shorter than the set-up alone."""
    deadlines = [c for c in search.constraints if c.option == "--deadline"]
    least_s = min((float(c.fixed[search.is_ranked].min()) for c in deadlines), default=0.0)
    if not deadlines or least_s < deadlines[0].limit:
        return ""
    return f"setting up a machine alone takes {format_duration(round(least_s))}; "


def nearest_rows(search: Search) -> Index:
    """Ranked candidates, or those that were simulated; who needs the least loosening comes first.

    Loosening is counted in total of logs; what differs by less than a fifth is alike, and of
    that the best come first.
    """
    excess = sum(
        (np.log(np.maximum(_known(c.value) / c.limit, 1.0)) for c in search.constraints),
        start=np.zeros(len(search.candidates)),
    )
    simulated = [row for row in search.services if search.is_ranked[row]]
    rows = np.array(simulated) if simulated else np.flatnonzero(search.is_ranked)
    steps = np.floor((excess[rows] - excess[rows].min()) / _ALIKE_LOG)
    return np.asarray(rows[np.lexsort((search.objective[rows], steps))])


def _known(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.nan_to_num(values, nan=np.inf, posinf=1e300))


def _limit_text(search: Search, constraint: Constraint, limit: float) -> str:
    if constraint.option in ("--deadline", "--latency", "--ttft"):
        return duration_up(limit).replace(" ", "")
    if constraint.option == "--budget":
        return f"{rounded_up(limit):.12g}usd"
    if constraint.option in IN_WATTS:
        return f"{rounded_up(limit):g}W"
    per_request = search.job.amount.samples_per_item if constraint.option == "--rps" else 1.0
    return format_significant(1.0 / limit / per_request * 0.999).replace(",", "")
