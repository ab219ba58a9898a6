"""From constraints to the newest working combinations, or to what contradicts what."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from operator import itemgetter

from paceline.stack.rules import USER_FIELDS, Facts, Judgement, Violation, judge
from paceline.stack.tables import Build, Rule, Tables, load_tables
from paceline.values import dataclass

#: Facts whose mismatch says nothing by itself: other builds are merely not meant.
_SELECTION = "selection"

#: What a user can change, from a command line to a machine.
_EASIEST_FIRST = (
    "compiler",
    "python",
    "release",
    "platform_version",
    "driver",
    "framework",
    "system",
    "device",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination(Build):
    """A build with what it works with on the machine that was described.

    Its ``pythons`` are those that work, newest first.

    Attributes:
        min_driver: Oldest driver that runs it; None where it does not apply.
        below_driver: First driver branch that no longer drives the device; None if none is known.
        runs_by: How its code reaches the device: ``binary``, ``ptx`` (translated at first run),
            ``target``, or empty where nothing is known or needed.
    """

    min_driver: str | None
    below_driver: str | None
    runs_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A rule that a conflict rests on.

    Attributes:
        rule: Its key.
        text: The rule as a sentence.
        source: Where it was read.
    """

    rule: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """What works once one constraint is given up, all the others kept.

    Attributes:
        combination: The newest that then works.
    """

    dropped: str
    combination: Combination


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A smallest set of constraints that nothing satisfies together.

    Attributes:
        constraints: Pairs of constraint and value; dropping any one of them leaves a solution.
        reasons: Rules that rule out every build, the one that hits most first.
        ways_out: What works without one of the constraints, where giving up one is enough.
    """

    constraints: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...]
    ways_out: tuple[WayOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The answer: combinations, or conflicts, never both.

    Attributes:
        combinations: Newest first.
        conflicts: All the smallest contradictory sets; empty where there are combinations.
    """

    combinations: tuple[Combination, ...]
    conflicts: tuple[Conflict, ...]


def resolve_facts(
    facts: Facts, *, max_combinations: int = 6, tables: Tables | None = None
) -> Resolution:
    """The newest builds that satisfy ``facts`` and every rule, or why there are none.

    Without a framework in ``facts``, the newest of each stands before the second of any, in the
    order in which the table of compilers names them: releases of two frameworks do not compare. A
    bare CUDA toolkit is offered only when ``facts.framework`` is ``cuda``.

    Args:
        facts: What is known and wanted.
        max_combinations: How many to return.
        tables: Facts to judge by; the shipped ones by default.
    """
    tables = tables or load_tables()
    found = _working(facts, tables)
    ordered = found if facts.framework else _newest_of_each_first(found, tables)
    combinations = tuple(itertools.islice(ordered, max_combinations))
    conflicts = () if combinations else _conflicts(facts, tables)
    return Resolution(combinations=combinations, conflicts=conflicts)


def _newest_of_each_first(
    combinations: Iterable[Combination], tables: Tables
) -> Iterator[Combination]:
    order = list(dict.fromkeys(row.framework for row in tables.compilers))
    num_before: Counter[str] = Counter()
    ranked = []
    for combination in combinations:
        place = order.index(combination.framework) if combination.framework in order else len(order)
        ranked.append(((num_before[combination.framework], place), combination))
        num_before[combination.framework] += 1
    return (combination for _, combination in sorted(ranked, key=itemgetter(0)))


def newest_combination(facts: Facts, *, tables: Tables | None = None) -> Combination | None:
    """The newest stable build that satisfies ``facts``, else the newest experimental one."""
    tables = tables or load_tables()
    fallback = None
    for combination in _working(facts, tables):
        if combination.status == "stable":
            return combination
        fallback = fallback or combination
    return fallback


def applied_rules(facts: Facts) -> tuple[Rule, ...]:
    """Rules that bear on the newest build that satisfies ``facts``; empty if none does."""
    tables = load_tables()
    for build in _candidates(facts, tables):
        judgement = judge(build, facts, tables)
        if not judgement.violations:
            return judgement.rules
    return ()


def reasons_against(facts: Facts) -> tuple[Reason, ...]:
    """Few rules that together rule out every build of the wanted framework and platform."""
    tables = load_tables()
    found = [judge(build, facts, tables).violations for build in _candidates(facts, tables)]
    if not found:
        text = f"no build of {facts.framework} for {facts.platform} is on record"
        return (Reason(rule=_SELECTION, text=text, source=""),)
    return _cover(frozenset(USER_FIELDS), found)


def _working(facts: Facts, tables: Tables) -> Iterable[Combination]:
    for build in _candidates(facts, tables):
        judgement = judge(build, facts, tables, stops_early=True)
        if not judgement.violations:
            yield _combination(build, judgement)


def _candidates(facts: Facts, tables: Tables) -> Iterable[Build]:
    """Builds of the wanted framework and platform, newest first; others cannot satisfy anyway."""
    framework, platform = facts.framework, facts.platform
    return (
        build
        for build in tables.builds
        if (build.framework != "cuda" if framework is None else build.framework == framework)
        and platform in (None, build.platform)
    )


def _combination(build: Build, judgement: Judgement) -> Combination:
    of_build = {field.name: getattr(build, field.name) for field in fields(Build)}
    return Combination(
        **(of_build | {"pythons": tuple(reversed(judgement.pythons))}),
        min_driver=judgement.min_driver,
        below_driver=judgement.below_driver,
        runs_by=judgement.runs_by,
    )


def _conflicts(facts: Facts, tables: Tables) -> tuple[Conflict, ...]:
    """All the smallest sets of stated facts under which every build breaks a rule."""
    stated = [name for name in USER_FIELDS if getattr(facts, name) is not None]
    if facts.device is not None and "platform" in stated:
        stated.remove("platform")
    violations = [judge(b, facts, tables).violations for b in _universe(facts, tables)]
    for size in range(1, len(stated) + 1):
        killing = [
            frozenset(names)
            for names in itertools.combinations(stated, size)
            if _kills_all(frozenset(names), violations)
        ]
        if killing:
            return tuple(_conflict(names, facts, violations, tables) for names in killing)
    raise AssertionError("nothing works, and yet all the facts together kill no build")


def _universe(facts: Facts, tables: Tables) -> tuple[Build, ...]:
    toolkit_only = facts.framework == "cuda"
    return tuple(b for b in tables.builds if (b.framework == "cuda") == toolkit_only)


def _kills_all(names: frozenset[str], violations: Sequence[tuple[Violation, ...]]) -> bool:
    return all(any(v.fields <= names for v in found) for found in violations)


def _conflict(
    names: frozenset[str],
    facts: Facts,
    violations: Sequence[tuple[Violation, ...]],
    tables: Tables,
) -> Conflict:
    stated = tuple((f.name, str(getattr(facts, f.name))) for f in fields(facts) if f.name in names)
    ways_out = tuple(_ways_out(names, facts, tables))
    return Conflict(constraints=stated, reasons=_cover(names, violations), ways_out=ways_out)


def _ways_out(names: frozenset[str], facts: Facts, tables: Tables) -> Iterable[WayOut]:
    """In the order in which a user can most easily give way."""
    for name in (name for name in _EASIEST_FIRST if name in names):
        combination = newest_combination(without(facts, name), tables=tables)
        if combination is not None:
            yield WayOut(dropped=name, combination=combination)


def _cover(
    names: frozenset[str], violations: Sequence[tuple[Violation, ...]]
) -> tuple[Reason, ...]:
    """Few rules that together rule out every build that was meant at all, greedily."""
    killers = [[v for v in found if v.fields <= names] for found in violations]
    left = [found for found in killers if all(v.rule != _SELECTION for v in found)]
    reasons: list[Reason] = []
    if not left:
        return (_nothing_selected(names, killers),)
    while left:
        counts = Counter(rule for found in left for rule in dict.fromkeys(v.rule for v in found))
        best = max(counts, key=lambda rule: counts[rule])
        reasons.append(next(_reason(v) for found in left for v in found if v.rule == best))
        left = [found for found in left if all(v.rule != best for v in found)]
    return tuple(reasons)


def _nothing_selected(names: frozenset[str], killers: Sequence[Sequence[Violation]]) -> Reason:
    words = {"device": "GPU", "platform_version": "toolkit release"}
    named = " with this ".join(words.get(name, name) for name in sorted(names))
    text = f"no build in the tables is for this {named}"
    return Reason(rule=_SELECTION, text=text, source=f"{len(killers):,} builds on record")


def _reason(violation: Violation) -> Reason:
    return Reason(rule=violation.rule, text=violation.text, source=violation.source)


def without(facts: Facts, name: str) -> Facts:
    """``facts`` with one of them forgotten; the platform goes with the device."""
    changes: dict[str, None] = {name: None}
    if name == "device":
        changes["platform"] = None
    return replace(facts, **changes)
