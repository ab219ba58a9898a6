"""A lifecycle as people state it: one model, the hours to develop it, the job, the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import get_args

from paceline.documents import parse_mapping, parse_yaml, validate
from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Task, Workload
from paceline.model.items import as_items
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.options import parse_goal, parse_work
from paceline.planning.goal.scenarios import Option, texts_of
from paceline.planning.lifecycle.lifecycle import AskedPhase, PhaseName, Stay
from paceline.planning.places.interruption import MONTH_S
from paceline.planning.places.relocation import Dataset
from paceline.reading import read_text
from paceline.units import DAY_S, HOUR_S, parse_bytes
from paceline.values import dataclass

_EXAMPLE = "examples/scenarios/lifecycle.yaml"
_PHASES = frozenset(get_args(PhaseName))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedDevelopment:
    """Short interactive runs, one after the other, while somebody works.

    Attributes:
        hours_per_day: In which the machine is kept.
        days: On so many days.
        work: Of one run: options as on the command line.
        goal: What must hold, the deadline of one run among it.
    """

    hours_per_day: float
    days: float
    work: dict[str, Option]
    goal: dict[str, Option]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTraining:
    """The job; no work means the model's reference job.

    Attributes:
        work: Options as on the command line.
        goal: What must hold.
    """

    work: dict[str, Option] = field(default_factory=dict)
    goal: dict[str, Option] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedService:
    """Requests without a break.

    Attributes:
        months: For so long.
        work: Options as on the command line, ``rps`` among them.
        goal: What must hold.
    """

    months: float
    work: dict[str, Option]
    goal: dict[str, Option] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedDataset:
    """Data that must be where the model is developed or trained.

    Attributes:
        size: Such as ``140GB``.
        at: The cloud where it lies, or ``own``.
        per_second: How much leaves there in a second, such as ``100MB``.
        usd_per_gb_out: What leaving costs; the catalogue's price if absent.
    """

    size: str
    at: str
    per_second: str
    usd_per_gb_out: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleFile:
    """The layout of the file.

    Attributes:
        model: Zoo name, ``torchvision:NAME`` or ``package.module:function``.
        title: What it is about.
        seq: Sequence length; the workload's if absent.
        facts: File with your own devices, offers and machines, relative to this one.
        goal: Options that hold for every phase; a phase's own go before them.
        dataset: What is brought along; nothing if absent.
        develop: Interactive work.
        train: The job.
        serve: What comes after.
    """

    model: str
    title: str = ""
    seq: int | None = None
    facts: str | None = None
    goal: dict[str, Option] = field(default_factory=dict)
    dataset: StatedDataset | None = None
    develop: StatedDevelopment | None = None
    train: StatedTraining | None = None
    serve: StatedService | None = None


def is_lifecycle(path: Path) -> bool:
    """Whether a YAML file states a lifecycle, and not a plan.

    Raises:
        InvalidInputError: It cannot be read, or is no YAML.
    """
    content = parse_yaml(read_text(path, what="file"), what="file")
    return isinstance(content, dict) and not _PHASES.isdisjoint(content)


def read_lifecycle(path: Path) -> LifecycleFile:
    """Read a lifecycle file, which may come from anybody.

    Raises:
        InvalidInputError: Not such a file, or a value that makes no sense.
    """
    what, hint = "lifecycle file", f"begin it with `model:`, as {_EXAMPLE}"
    content = parse_mapping(read_text(path, what=what), what=what, hint=hint)
    stated = validate(LifecycleFile, content, what="lifecycle file")
    if not (stated.develop or stated.train or stated.serve):
        raise InvalidInputError(
            "the lifecycle file states none of develop, train and serve",
            hint=f"state one or more of them, as {_EXAMPLE}",
        )
    return stated


def stated_dataset(stated: LifecycleFile) -> Dataset | None:
    """The data set, in SI units; None if none is stated.

    Raises:
        InvalidInputError: A size that is none.
    """
    data = stated.dataset
    if data is None:
        return None
    per_gb = data.usd_per_gb_out
    return Dataset(
        size_bytes=parse_bytes(data.size),
        at=data.at.lower(),
        bytes_per_s=parse_bytes(data.per_second),
        usd_per_byte_out=None if per_gb is None else per_gb / 1e9,
    )


def stated_phases(
    stated: LifecycleFile, load: Callable[[Task], Workload]
) -> tuple[AskedPhase, ...]:
    """The phases that the file states, in their order.

    Raises:
        InvalidInputError: A phase that does not say what it must.
        UnknownNameError: An option that is none.
    """
    found: list[AskedPhase] = []
    if stated.develop is not None:
        found.append(_develop(stated, stated.develop, load))
    if stated.train is not None:
        goal = _goal(stated, stated.train.goal)
        work = parse_work(texts_of(stated.train.work))
        found.append(
            AskedPhase(
                name="train", workload=as_items(load("train"), work.item), goal=goal, work=work
            )
        )
    if stated.serve is not None:
        found.append(_serve(stated, stated.serve, load))
    return tuple(found)


def _develop(
    stated: LifecycleFile, phase: StatedDevelopment, load: Callable[[Task], Workload]
) -> AskedPhase:
    goal, work = _goal(stated, phase.goal), parse_work(texts_of(phase.work))
    _check("develop", "hours_per_day: 4", holds=0 < phase.hours_per_day <= DAY_S / HOUR_S)
    _check("develop", "days: 30", holds=phase.days > 0)
    _check("develop", "work: {samples: 5k}, which is one run", holds=work != Work())
    _check("develop", "goal: {deadline: 3min}, for one run", holds=goal.deadline_s is not None)
    stay = Stay(num_times=phase.days, each_s=phase.hours_per_day * HOUR_S)
    workload = as_items(load("train"), work.item)
    return AskedPhase(name="develop", workload=workload, goal=goal, work=work, stay=stay)


def _serve(
    stated: LifecycleFile, phase: StatedService, load: Callable[[Task], Workload]
) -> AskedPhase:
    goal, work = _goal(stated, phase.goal), parse_work(texts_of(phase.work))
    _check("serve", "months: 12", holds=phase.months > 0)
    _check("serve", "work: {rps: 20}", holds=work.requests_per_s is not None)
    stay = Stay(num_times=1, each_s=phase.months * MONTH_S)
    workload = as_items(load("infer"), work.item, typed=stated.model)
    return AskedPhase(name="serve", workload=workload, goal=goal, work=work, stay=stay)


def _goal(stated: LifecycleFile, own: Mapping[str, Option]) -> Goal:
    """What holds for every phase, with the phase's own options before it."""
    return parse_goal(texts_of({**stated.goal, **own}))


def _check(phase: PhaseName, example: str, *, holds: bool) -> None:
    if not holds:
        raise InvalidInputError(
            f"{phase}: something is missing, or makes no sense", hint=f"write, such as, {example}"
        )
