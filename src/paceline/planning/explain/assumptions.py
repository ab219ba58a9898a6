"""What a plan takes for granted, said first; and the goal in words."""

from __future__ import annotations

from datetime import date

from paceline.catalog.freshness import MAX_PRICE_AGE_DAYS, OLD_CATALOGUE_DAYS
from paceline.model.graph.costs import Configuration
from paceline.model.rewrite.master_weights import kept_format
from paceline.planning.explain.notes import rough_note
from paceline.planning.explain.wording import cost_value_text, matters_text, plural
from paceline.planning.goal.amounts import is_generation
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.rewrites import (
    OF_A_SEARCH,
    habit_words,
    run_words,
    table_words,
    usual_words,
)
from paceline.planning.goal.service import (
    arrival_words,
    kernels_words,
    service_of,
    service_words,
    widened_words,
)
from paceline.planning.places.own_machines import electricity_text
from paceline.planning.places.place_table import place_terms
from paceline.planning.places.regions import moved_words
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import cell_of, place_of, strategy_of, widens_weights
from paceline.planning.search.evaluation import objective_name
from paceline.planning.search.more_devices import usual_deadline_text, widened_text
from paceline.planning.search.preference import what_matters
from paceline.planning.search.selection import Selection
from paceline.simulation.job import usual_habits
from paceline.units import format_bytes, format_duration, format_percent

#: How weights are kept in training, in words.
_KEPT = {
    "autocast": "autocast", "narrow-autocast": "weights under autocast",
    "half-weights": "with FP32 master weights", "pure": "alone",
    "half-gradients": "with FP32 master weights and gradients in 16 bits",
    "joined-gradients": "with FP32 master weights and gradients in 16 bits, joined to be widened",
}  # fmt: skip
_OBJECTIVES = {
    "cost": "cheapest first",
    "time": "fastest first",
    "balanced": "cost and time balanced",
    "energy": "least energy first",
    "performance-per-usd": "cheapest per sample first",
}


def assumptions(search: Search, selection: Selection) -> tuple[str, ...]:
    """One sentence each; stale prices, a short name's reading and the reference job first."""
    found = (
        rough_note(search, selection.best),
        _stale_prices(search),
        _old_catalogue(search),
        search.workload.reading,
        search.job.assumption,
        search.workload.item,
        _generation(search),
        _service(search, selection.best),
        _configuration(search, selection.best),
        _widened_weights(search, selection.best),
        run_words(search.goal.rewrite),
        table_words(search.workload, search.goal.rewrite),
        usual_words(
            search.goal.framework,
            search.goal.rewrite,
            is_training=search.workload.task == "train",
            leaving=OF_A_SEARCH,
        ),
        _habits(search, selection.best),
        kernels_words(search.goal, search.workload),
        _batch(search, selection.best),
        usual_deadline_text(search),
        widened_text(search),
        _prices(search),
        moved_words((place.offer for place in search.found.places), search.goal.regions),
        _electricity(search),
        _setup(search),
        _beside_machines(search.goal),
        _spot(search, selection.best),
        _beside_steps(search, selection.best),
        _own_measurements(search),
        _own_links(search, selection.best),
        place_of(search, selection.best).host_assumption,
        _input_side(search),
    )
    return tuple(sentence for sentence in found if sentence)


def _beside_machines(goal: Goal) -> str:
    """What is paid beside machines, in words; empty where nothing is stated."""
    stated = (
        f"{format_bytes(goal.storage_bytes)} on the provider's disks" if goal.storage_bytes else "",
        f"{format_bytes(goal.egress_bytes)} taken out at the end" if goal.egress_bytes else "",
    )
    told = " and ".join(filter(None, stated))
    return f"the cost includes {told}" if told else ""


def goal_text(search: Search) -> str:
    """The goal in words, such as ``done within 24 h (chance ≥ 80 %), cheapest first``."""
    goal = search.goal
    stated = [
        f"done within {format_duration(goal.deadline_s)}" if goal.deadline_s else "",
        f"for at most {cost_value_text(search, goal.budget_usd)}" if goal.budget_usd else "",
        f"{_latency_name(search)} at most {format_duration(goal.latency_s)}"
        if goal.latency_s
        else "",
        f"first token within {format_duration(goal.ttft_s)}" if goal.ttft_s else "",
        f"kept by {goal.percentile} of 100 requests" if _has_percentile(search) else "",
        f"at least {goal.min_samples_per_s:g} {search.workload.sample_unit}/s"
        if goal.min_samples_per_s
        else "",
        f"at most {goal.power_limit_w:g} W of rated power" if goal.power_limit_w else "",
        f"at most {goal.cooling_limit_w:g} W of heat in the own room"
        if goal.cooling_limit_w
        else "",
    ]
    constraints = ", ".join(text for text in stated if text)
    chance = f" (chance ≥ {format_percent(goal.confidence)})" if constraints else ""
    frac, matters = what_matters(search)
    least = f" or {matters_text(search, matters)}" if matters else ""
    equal = f"; less than {format_percent(frac)}{least} is no gain" if frac else ""
    best_first = _OBJECTIVES[objective_name(goal)] + equal
    return f"{constraints}{chance}, {best_first}" if constraints else best_first


def _latency_name(search: Search) -> str:
    if is_generation(search.workload) and not search.workload.encodes:
        return "time per output token"
    return "time of one batch" if search.work.requests_per_s is None else "time of an answer"


def _stale_prices(search: Search) -> str:
    if not search.found.ranks_stale_prices:
        return ""
    days = search.goal.max_price_age_days
    age = "twelve months" if days == MAX_PRICE_AGE_DAYS else f"{days:,} days"
    priced = (p for p in search.found.places if p.usd_per_hour is not None and not p.is_owned)
    days_seen = [place.priced_on for place in priced]
    kinds = (("old prices", any(days_seen)), ("prices without a day", not all(days_seen)))
    ranked = " and ".join(kind for kind, is_there in kinds if is_there)
    return f"no price of the last {age} is left: {ranked} are ranked, check them first"


def _own_measurements(search: Search) -> str:
    updates = search.question.calibration.updates
    if not updates:
        return ""
    names = sorted({one.device_name for update in updates for one in update.residuals})
    labels = ", ".join(update.label for update in updates)
    return f"times of {', '.join(names)} corrected by your own measurements ({labels})"


def _has_percentile(search: Search) -> bool:
    """Whether limits are of requests that come by themselves."""
    is_limited = search.goal.latency_s is not None or search.goal.ttft_s is not None
    return is_limited and search.work.requests_per_s is not None and bool(search.services)


def _generation(search: Search) -> str:
    if not is_generation(search.workload):
        return ""
    work = search.work
    stated = f"{work.prompt_length} tokens in, {work.output_length} out"
    if work.concurrency is not None:
        return f"each request: {stated}, {work.concurrency} in flight on all devices together"
    if search.goal.latency_s is None and search.goal.ttft_s is None:
        return f"each request: {stated} (change with --prompt-tokens, --output-tokens)"
    if work.requests_per_s is not None:
        return f"each request: {stated}; as many at once as the engine takes"
    return (
        f"each request: {stated}, one at a time on each device (change with --prompt-tokens, "
        "--output-tokens, --concurrency)"
    )


def _service(search: Search, best: int) -> str:
    service = service_of(search.goal, search.workload)
    if service is None and search.services:
        return "requests come by themselves (Poisson, simulated): a batch is of those that wait"
    engine = search.forecast.configured[cell_of(search, best)[0]].engine
    if service is None or engine is None:
        return ""
    return service_words(
        engine, arrival_words(search.work), is_stated=service.is_stated,
        window=search.workload.window,
    )  # fmt: skip


def _configuration(search: Search, best: int) -> str:
    configuration = search.forecast.configurations[cell_of(search, best)[0]]
    workload, stack = search.workload, place_of(search, best).stack
    loop = search.goal.engine
    library = f"{loop.stands_for} on " if loop is not None and loop.runs_on else ""
    parts = [
        _input_text(search),
        _width_text(search, configuration),
        workload.optimizer or "",
        f"{library}{stack.framework} {stack.framework_version} {configuration.compiler}",
    ]
    return ", ".join(part for part in parts if part)


def _widened_weights(search: Search, best: int) -> str:
    return widened_words(place_of(search, best).device.name) if widens_weights(search, best) else ""


def _habits(search: Search, best: int) -> str:
    """What the named software does beside the strategy of the first choice."""
    if search.workload.task != "train":
        return ""
    whole, framework = search.whole_job(best), search.goal.framework
    if whole is not None:
        return habit_words(framework, whole.habits)
    if strategy_of(search, best).sharding == "none":
        return ""
    usual = usual_habits(
        framework or "", model=search.workload.name, device=None,
        configuration=search.forecast.configurations[cell_of(search, best)[0]],
    )  # fmt: skip
    return habit_words(framework, usual)


def _width_text(search: Search, configuration: Configuration) -> str:
    """The precision, and in training how it keeps weights."""
    width, workload = configuration.precision.upper(), search.workload
    if workload.task != "train" or width not in ("BF16", "FP16"):
        return width
    return f"{width} {_KEPT[kept_format(workload.passes[0].graph, configuration)]}"


def _input_text(search: Search) -> str:
    """Image size as the workload says it; tokens with their number."""
    description = search.workload.input_description
    if description != "tokens" or is_generation(search.workload):
        return "" if description == "tokens" else description
    return f"sequences of {search.question.seq:,} tokens" if search.question.seq > 1 else ""


def _batch(search: Search, best: int) -> str:
    if search.workload.task != "train":
        return ""
    if search.goal.global_batch is not None:
        return f"global batch of exactly {search.goal.global_batch:,}{_few_steps(search, best)}"
    limit = search.question.batch_limit
    if limit.max_items is None:
        most = search.question.options.max_batch
        is_largest = search.forecast.batch[cell_of(search, best)[2]] >= most
        tried = f"; up to {most:,} per device are tried (--pin batch=N for more)"
        known = "no limit on the global batch is known: large ones may train worse"
        return f"{known}{tried if is_largest else ''}"
    return limit.words


def _few_steps(search: Search, best: int) -> str:
    """How few updates a stated batch leaves, where no published job of its kind takes so few."""
    num_steps, fewest = int(search.evaluation.num_steps[best]), search.question.batch_limit
    if not 0 < num_steps < fewest.fewest_steps:
        return ""
    return (
        f": {plural(num_steps, 'optimizer step')} in all, fewer than the "
        f"{fewest.fewest_steps:,} of the shortest published job of its kind"
    )


def _electricity(search: Search) -> str:
    return electricity_text() if search.places.is_owned.any() else ""


def _prices(search: Search) -> str:
    if search.places.is_owned.all():
        return ""
    dates = _days_of_prices(search)
    term = search.goal.term
    is_reserved = term != "on-demand"
    kind = f"{term} (paid whole, used or not)" if is_reserved else term
    kind += " and spot" if search.goal.allow_spot else ""
    if not dates:
        return f"{kind} prices"
    fresh = plural(len(dates), "price")
    first, last = min(dates), max(dates)
    seen = f"on {first}" if first == last else f"between {first} and {last}"
    return f"{kind}, {fresh} seen {seen}, in USD before tax"


def _old_catalogue(search: Search) -> str:
    """Prices move by a tenth in a season: a catalogue that is older says so before all else."""
    dates = _days_of_prices(search)
    if not dates or (search.question.today - max(dates)).days <= OLD_CATALOGUE_DAYS:
        return ""
    return (
        f"no price is younger than three months, the newest is of {max(dates)}: "
        "`paceline offers refresh` reads today's"
    )


def _days_of_prices(search: Search) -> list[date]:
    if search.places.is_owned.all():
        return []
    return [p.priced_on for p in search.found.places if p.price_state == "fresh" and p.priced_on]


def _input_side(search: Search) -> str:
    stored = search.question.stored
    if search.workload.task == "infer":
        return "requests are taken to arrive ready for the device"
    if stored is None:
        return "the input side is taken to keep up (say how samples are stored with --data)"
    return (
        f"input: {stored.encoding.upper()} of {stored.width}×{stored.height}, "
        f"{format_bytes(stored.disk_bytes)} each, read from local NVMe and decoded on the "
        "machine's virtual CPUs (change with --data; `ready` needs no decoding)"
    )


def _setup(search: Search) -> str:
    if search.job.amount.items_per_epoch is None or search.places.is_owned.all():
        return ""
    minutes = format_duration(search.question.options.setup_s)
    goal = search.goal
    stated = {"storage": goal.storage_bytes, "traffic": goal.egress_bytes}
    missing = " and ".join(what for what, size in stated.items() if size is None)
    left_out = f"; {missing} not counted" if missing else ""
    return f"{minutes} to set up a rented machine, paid{left_out}"


def _spot(search: Search, best: int) -> str:
    place = place_of(search, best)
    if not place.is_spot:
        return ""
    if not search.evaluation.num_steps[best]:
        return "spot machines can be taken back at any time"
    low, _, high = place_terms(place, today=search.question.today).interruption_frac_per_month
    stretch = float(search.evaluation.run_s[best]) / float(
        search.evaluation.num_steps[best] * search.evaluation.steps.step_s[best]
    )
    return (
        f"spot: {format_percent(low)} to {format_percent(high)} of machines are taken back a "
        f"month; restarts, lost work and saving add {format_percent(stretch - 1.0)} to the run"
    )


def _beside_steps(search: Search, best: int) -> str:
    """What evaluations, saves, failures and restarts add to the run; of spot machines `_spot`."""
    num_steps, goal = int(search.evaluation.num_steps[best]), search.goal
    if not search.question.is_training or not num_steps or place_of(search, best).is_spot:
        return ""
    if goal.is_ideal:
        return "steps alone: nothing is evaluated or saved, and nothing fails (--ideal)"
    steps_s = num_steps * float(search.evaluation.steps.step_s[best])
    added = format_percent(max(float(search.evaluation.run_s[best]) / steps_s - 1.0, 0.01))
    return f"evaluations, saves, failures and restarts add {added} to the steps (not with --ideal)"


def _own_links(search: Search, best: int) -> str:
    if search.candidates.num_devices[best] == 1:
        return ""
    return "; ".join(place_of(search, best).links.assumptions)
