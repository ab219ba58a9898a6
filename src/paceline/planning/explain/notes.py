"""What else a person must know of a choice: its input side, its licence, the age of its support."""

from __future__ import annotations

from paceline.loop.parallel.notation import keras_refusals, parse, refusals, size
from paceline.parallelism.uncertainty import is_rough, width_words
from paceline.planfile import PlannedChoice
from paceline.planning.places.input_side import fed_step, input_host, input_pipeline
from paceline.planning.places.places import Place
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import cell_of, place_of
from paceline.planning.search.joint_placement import shares_note
from paceline.prediction.input_side import describe_feed, predict_input
from paceline.simulation.queue.figures import ServiceFigures
from paceline.stack.versions import version_key
from paceline.units import format_duration, format_percent

#: What the loop does not run, of the frameworks that it trains with.
_REFUSALS = {"torch": refusals, "jax": keras_refusals, "tensorflow": keras_refusals}
_WHOLE_HEAD = (
    "`paceline.loop` leaves output head and loss whole on every tensor rank, which takes more "
    "memory than a script that splits them: `habits=loop` in a job of `predict` says how much"
)


def choice_notes(search: Search, row: int) -> tuple[str, ...]:
    """One sentence each, the dearest to overlook first."""
    place = place_of(search, row)
    found = (
        rough_note(search, row),
        service_note(search, row),
        shares_note(search.shares(row)),
        input_note(search, row),
        _licence_note(place),
        _support_note(search, place),
        place.offer.note,
    )
    return tuple(note for note in found if note)


def rough_note(search: Search, row: int) -> str:
    """How little is known of the step of a device that was named; else empty."""
    log_sigma = float(search.evaluation.steps.log_sigma[row])
    if not is_rough(log_sigma):
        return ""
    words = width_words(log_sigma, int(search.candidates.num_devices[row]))
    return f"its step is {words}; measure one there before you rent for long"


def loop_note(choice: PlannedChoice) -> str:
    """What of a choice to train so `paceline.loop` does not run or does otherwise; else empty."""
    framework = "torch" if choice.stack is None else choice.stack.framework
    if framework not in _REFUSALS:
        return ""
    strategy = parse(choice.strategy)
    reasons = _REFUSALS[framework](strategy, choice.precision)
    if not reasons:
        return _WHOLE_HEAD if size(strategy, "tp") > 1 else ""
    return f"`paceline.loop` does not run it: {'; '.join(reasons)}; your script must"


def service_note(search: Search, row: int) -> str:
    """What requests of a service see, and how much of its capacity they take; else empty."""
    found = search.services.get(row)
    if not isinstance(found, ServiceFigures) or search.work.requests_per_s is None:
        return ""
    percentile = search.goal.percentile
    first, token = (
        format_duration(found.seconds(name, percentile)[1]) for name in ("first_token", "per_token")
    )
    seen = f"first token {first}, {token} per token" if found.writes else f"answered in {token}"
    used = search.work.requests_per_s / found.capacity_per_s
    return (
        f"p{percentile} of requests: {seen}; "
        f"{search.work.requests_per_s:g} of up to {found.capacity_per_s:,.3g} requests/s "
        f"({format_percent(used)}) on {found.num_replicas} "
        f"{'replica' if found.num_replicas == 1 else 'replicas'} of {found.num_ranks}"
    )


def input_note(search: Search, row: int) -> str:
    """Whether the machine feeds its devices, and what would help; empty where nothing is known."""
    place = place_of(search, row)
    host = input_host(place)
    if search.question.stored is None or host is None:
        return ""
    pipeline = input_pipeline(search.workload, search.question.stored, host)
    evaluation = search.evaluation
    busy_s = float(evaluation.steps.step_s[row] - evaluation.starved_s[row])
    batch = int(search.forecast.batch[cell_of(search, row)[2]])
    batch *= int(search.candidates.microbatches[row])
    fed = fed_step(place, search.workload, search.question.stored, step_s=busy_s, batch=batch)
    if fed is None or pipeline is None:
        return ""
    delivered = predict_input(pipeline, host)
    if fed.is_input_bound:
        return f"input, for each device: {describe_feed(fed, delivered, 1)}"
    wanted = batch / busy_s
    return (
        f"input: {host.num_cores} virtual CPUs feed {delivered.samples_per_s:,.0f} "
        f"{search.workload.sample_unit}/s to each device, which takes {wanted:,.0f}"
    )


def _licence_note(place: Place) -> str:
    is_consumer = place.device.device_class in ("consumer", "laptop")
    if place.is_owned or not is_consumer or place.device.vendor != "NVIDIA":
        return ""
    return (
        "the licence of the GeForce driver excludes data centres: the provider answers for it "
        "(leave such offers out with --datacenter)"
    )


def _support_note(search: Search, place: Place) -> str:
    """Whether newer releases of the framework have dropped the device."""
    versions = {p.stack.framework_version for p in search.found.places}
    newest = max(versions, key=version_key)
    own = place.stack.framework_version
    if version_key(own) >= version_key(newest):
        return ""
    framework = place.stack.framework
    return f"{framework} {own} is the newest release for {place.device.name}; {newest} is out"
