"""`make_plan`: from a model and a goal to a ranked plan that explains itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from itertools import permutations

from paceline.catalog.entities import Catalog
from paceline.catalog.lookup import find_devices
from paceline.catalog.naming.launchers import skypilot_cloud, word_of_device
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.workload import Workload
from paceline.planfile import SCHEMA_VERSION, PlanFile, PlannedChoice, PlannedWorkload
from paceline.planning.effects import check_search_acts
from paceline.planning.explain.assumptions import assumptions, goal_text
from paceline.planning.explain.emissions import emissions_sentence
from paceline.planning.explain.exclusions import rejected_groups, why_not_sentences
from paceline.planning.explain.impossible import check_possible
from paceline.planning.explain.notes import choice_notes, loop_note
from paceline.planning.explain.provenance import explanation
from paceline.planning.explain.reasons import turns, why
from paceline.planning.explain.rent_or_buy import rent_or_buy_sentence
from paceline.planning.explain.scaling_note import knee_sentence, scaling_curve
from paceline.planning.explain.sufficiency import enough_sentences
from paceline.planning.explain.wording import cost_text, failure_text, speed_text
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.amounts import is_generation
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.options import format_goal
from paceline.planning.places.own_machines import OWN
from paceline.planning.places.places import JOINED_BY, Place, matches
from paceline.planning.queues import is_written
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.choices import planned_choice
from paceline.planning.search.evaluation import objective_name
from paceline.planning.search.more_devices import finished, opening
from paceline.planning.search.selection import Selection
from paceline.planning.service_advice import load_curve, settings_words
from paceline.planning.services import select_services, with_nearest_simulated
from paceline.prediction.calibration.fitted import Calibration
from paceline.release import __version__

_LABELS = {
    "cost": ("cheapest", "fastest"),
    "time": ("fastest", "cheapest"),
    "balanced": ("best balance", "fastest"),
    "energy": ("least energy", "fastest"),
    "performance-per-usd": ("cheapest per sample", "fastest"),
}


def make_plan(
    workload: Workload | Mapping[str, Workload],
    goal: Goal,
    work: Work,
    catalog: Catalog,
    *,
    today: date,
    options: SearchOptions | None = None,
    calibration: Calibration | None = None,
    asked_as: str = "",
    plan_file: str = "plan.yaml",
) -> PlanFile:
    """Rank complete plans.

    Args:
        workload: The model with its task; or a mapping with one workload, by name.
        goal: Constraints and objective.
        work: How much is to be done; empty means the reference job.
        catalog: Devices and offers.
        today: The day prices are judged on.
        options: How far to search.
        calibration: Of the predictor; the built-in one if None.
        asked_as: What the user named the job as; the workload's own name if empty.
        plan_file: Where the plan will lie.

    Raises:
        NoOfferError: No offer keeps the goal; the message says which constraint excludes what.
        DoesNotFitError: The job fits on nothing that is left.
        UnknownNameError: A device of the goal is not in the catalogue.
    """
    question = resolve_question(
        _only(workload), goal, work, today=today, options=options, calibration=calibration
    )
    first = opening(question, catalog)
    search = run_search(first.question, catalog, has_meshes=first.has_meshes)
    search = finished(search, question, catalog)
    check_search_acts(search, catalog)
    search = with_nearest_simulated(search)
    check_possible(search, catalog)
    search, selection = select_services(search)
    curve = scaling_curve(search, selection.best)
    return PlanFile(
        schema_version=SCHEMA_VERSION,
        paceline_version=__version__,
        catalog_version=catalog.version,
        calibration=search.question.calibration.name,
        created_on=today.isoformat(),
        assumptions=assumptions(search, selection),
        workload=_planned_workload(search),
        goal=format_goal(goal),
        choices=_choices(search, selection),
        rejected=rejected_groups(search, selection.best),
        turns=(*turns(search, selection), *enough_sentences(search, selection.best)),
        goal_text=goal_text(search),
        why=why(search, selection),
        scaling=curve,
        knee=knee_sentence(search, curve),
        rent_or_buy=rent_or_buy_sentence(search, selection.best),
        emissions=emissions_sentence(search, selection.best),
        next_commands=_next_commands(search, selection, asked_as, plan_file),
        num_candidates=len(search.candidates),
        explanation=explanation(search, selection.best),
    )


def why_not(
    workload: Workload | Mapping[str, Workload],
    goal: Goal,
    work: Work,
    catalog: Catalog,
    name: str,
    *,
    today: date,
    options: SearchOptions | None = None,
    calibration: Calibration | None = None,
) -> tuple[str, ...]:
    """Why a device or offer is not the first choice, one sentence each.

    Args:
        workload: As in `make_plan`, as the rest.
        goal: Constraints and objective.
        work: How much is to be done.
        catalog: Devices and offers.
        name: Device, family, offer, instance type, cloud or own machine.
        today: The day prices are judged on.
        options: How far to search.
        calibration: Of the predictor.

    Raises:
        UnknownNameError: Neither a device nor an offer has that name.
        NoOfferError: Nothing keeps the goal at all.
    """
    names = _offers_named(catalog, name)
    question = resolve_question(
        _only(workload), goal, work, today=today, options=options, calibration=calibration
    )
    first = opening(question, catalog)
    search = run_search(first.question, catalog, has_meshes=first.has_meshes)
    search = with_nearest_simulated(finished(search, question, catalog))
    check_possible(search, catalog)
    search, selection = select_services(search)
    sentences = why_not_sentences(search, selection.best, names)
    return sentences or (f"no offer holds `{name}`, and no own machine",)


def _only(workload: Workload | Mapping[str, Workload]) -> Workload:
    if isinstance(workload, Workload):
        return workload
    if len(workload) != 1:
        raise InvalidInputError(
            f"{len(workload)} workloads given; a plan is for one job",
            hint="plan each of them, or use the pool for several jobs",
        )
    return next(iter(workload.values()))


def _offers_named(catalog: Catalog, name: str) -> set[str]:
    """Offers, a cloud's offers, own machines or two together, that a user may mean by a name."""
    by_offer = {
        offer.name
        for offer in catalog.offers
        if matches(offer, name) or offer.cloud.lower() == name.strip().lower()
    }
    machines = {machine.name.lower(): machine.name for machine in catalog.machines}
    if name.strip().lower() == OWN and machines:
        return set(machines.values())
    parts = [machines.get(part.strip().lower()) for part in name.split(JOINED_BY.strip())]
    own = {JOINED_BY.join(both) for both in permutations(filter(None, parts))}
    if by_offer or None not in parts:
        return by_offer | own
    try:
        devices = {device.name for device in find_devices(catalog, name)}
    except UnknownNameError as error:
        if not machines:
            raise UnknownNameError(
                f"no device, offer or cloud named `{name}` in the catalogue", hint=error.hint
            ) from None
        yours = ", ".join(f"`{machine}`" for machine in machines.values())
        raise UnknownNameError(
            f"no device, offer, cloud or own machine is named `{name}`",
            hint=f"your own: {yours}; {error.hint}",
        ) from None
    own = {machine.name for machine in catalog.machines if machine.device_name in devices}
    return own | {offer.name for offer in catalog.offers if offer.device_name in devices}


def _planned_workload(search: Search) -> PlannedWorkload:
    workload, work, job = search.workload, search.work, search.job
    generates = is_generation(workload)
    return PlannedWorkload(
        model=workload.name,
        title=workload.title,
        task=workload.task,
        sample_unit=workload.sample_unit,
        seq=search.question.seq,
        num_parameters=workload.num_parameters,
        num_samples=job.num_samples,
        num_epochs=job.num_epochs,
        optimizer=workload.optimizer,
        input_description=workload.input_description,
        job=job.text,
        prompt_tokens=work.prompt_length if generates else None,
        output_tokens=work.output_length if generates else None,
        concurrency=work.concurrency if generates else None,
        requests_per_s=work.requests_per_s,
    )


def _choices(search: Search, selection: Selection) -> tuple[PlannedChoice, ...]:
    first, last = _LABELS[objective_name(search.goal)]
    others = [row for row in selection.listed if row not in selection.near_misses]
    by_median = selection.best if selection.leader is None else selection.leader
    labels = {others[-1]: last, by_median: first}
    trains = search.workload.task == "train"
    choices = [_advised(search, selection, row) for row in selection.listed]
    return tuple(
        replace(
            choice,
            reason=_reason(search, selection, row),
            label=labels.get(row, ""),
            remark=failure_text(search, row),
            notes=(
                *filter(None, [loop_note(choice) if trains else ""]),
                *choice_notes(search, row),
            ),
        )
        for row, choice in zip(selection.listed, choices, strict=True)
    )


def _advised(search: Search, selection: Selection, row: int) -> PlannedChoice:
    """A choice; the first of a service with what to change of it, and how it stands other loads."""
    choice = planned_choice(search, row)
    if choice.service is None or row != selection.best:
        return choice
    service = replace(
        choice.service, settings=settings_words(search, row), curve=load_curve(search, row)
    )
    return replace(choice, service=service)


def _reason(search: Search, selection: Selection, row: int) -> str:
    if row == selection.best:
        return why(search, selection)[0]
    if row in selection.near_misses:
        return f"better, but {failure_text(search, row)}"
    return (
        f"{speed_text(search, row)} for {cost_text(search, row)}: nothing on offer is both "
        "faster and cheaper"
    )


def _deploy_command(search: Search, selection: Selection, plan_file: str) -> str:
    """Training is launched with the user's script; what no engine serves is measured first."""
    if is_written(search) and search.services:
        return f"paceline deploy {shlex.quote(plan_file)} --to docker --set weights=ORG/MODEL"
    first = search.found.places[search.candidates.place[selection.best]]
    target = first.scheduler or ("skypilot" if _is_launched(first) else "torchrun")
    is_training = search.workload.task == "train"
    with_what = "--command 'python train.py'" if is_training else "--purpose measure"
    return f"paceline deploy {shlex.quote(plan_file)} --to {target} {with_what}"


def _is_launched(place: Place) -> bool:
    """Whether SkyPilot rents it; else its user does, and starts the job there."""
    is_named = place.device.kind == "cpu" or word_of_device(place.device.name, "skypilot")
    return bool(is_named and skypilot_cloud(place.offer.cloud)) and not place.is_owned


def _next_commands(
    search: Search, selection: Selection, asked_as: str, plan_file: str
) -> tuple[str, ...]:
    commands = [_deploy_command(search, selection, plan_file)]
    if selection.runner_up is not None:
        first, other = (
            search.found.places[search.candidates.place[row]]
            for row in (selection.best, selection.runner_up)
        )
        is_same = first.device.name == other.device.name
        name = other.offer.name if is_same else other.device.name
        job = shlex.quote(asked_as or search.workload.name)
        commands.append(f'paceline plan {job} … --why-not "{name}"')
    return tuple(commands)
