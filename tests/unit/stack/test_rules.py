from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.stack.queries import facts_from
from paceline.stack.resolver import newest_combination, resolve_facts, without
from paceline.stack.rules import USER_FIELDS, Facts, judge
from paceline.stack.tables import Rule, Tables, load_tables
from paceline.stack.versions import version_key

from .known import constraints_of, known_rows

#: Each example resolves whole tables of builds.
EXAMPLES = settings(max_examples=settings.default.max_examples // 4, deadline=None)
TABLES = load_tables()
KNOWN = [(row["rule"], facts_from(constraints_of(row))) for row in known_rows("no")]
KNOWN += [("", facts_from(constraints_of(row))) for row in known_rows("yes")]


def _verdict(facts: Facts, tables: Tables) -> object:
    """What is offered with its bounds, or which rules refuse it."""
    found = newest_combination(facts, tables=tables)
    if found is None:
        conflicts = resolve_facts(facts, tables=tables).conflicts
        return {reason.rule for conflict in conflicts for reason in conflict.reasons}
    return (found.release, found.platform_version, found.pythons, found.min_driver,
                      found.below_driver)  # fmt: skip


@cache
def _told(facts: Facts) -> object:
    """By all rules, for each of them that is left out."""
    return _verdict(facts, TABLES)


def _probes(rule: Rule) -> Iterator[Facts]:
    """Known combinations, those that name the rule first, then each device of the rule alone."""
    yield from (facts for name, facts in sorted(KNOWN, key=lambda known: rule.name not in known[0]))


@pytest.mark.parametrize("rule", TABLES.rules, ids=lambda rule: rule.name)
def test_every_rule_decides_something(rule: Rule) -> None:
    fewer = dataclasses.replace(TABLES, rules=tuple(r for r in TABLES.rules if r is not rule))
    assert any(_told(facts) != _verdict(facts, fewer) for facts in _probes(rule))


def test_rules_have_unique_names_and_a_source() -> None:
    assert len({rule.name for rule in TABLES.rules}) == len(TABLES.rules)
    assert all(rule.source and rule.text for rule in TABLES.rules)


_FACTS = st.builds(
    Facts,
    platform=st.just("cuda"),
    device=st.sampled_from(
        ["3.5", "3.7", "5.2", "6.1", "7.0", "7.5", "8.6", "9.0", "10.3", "12.0"]
    ),
    driver=st.none()
    | st.sampled_from(["418.39", "470.57.02", "525.60.13", "550.54.15", "580.65.06"]),
    framework=st.none() | st.sampled_from(["torch", "tensorflow", "jax", "cuda"]),
    platform_version=st.none() | st.sampled_from(["11", "11.8", "12", "12.8", "13", "13.0"]),
    python=st.none() | st.sampled_from(["3.8", "3.10", "3.12", "3.14"]),
    compiler=st.none() | st.sampled_from(["eager", "compiled"]),
    system=st.sampled_from(["linux-x86_64", "linux-aarch64", "windows"]),
)


@EXAMPLES
@given(_FACTS)
def test_whatever_is_offered_breaks_no_rule(facts: Facts) -> None:
    builds = {(b.framework, b.release, b.tag): b for b in TABLES.builds}
    for found in resolve_facts(facts).combinations:
        build = builds[found.framework, found.release, found.tag]
        python = found.pythons[0] if found.pythons else None
        driver = facts.driver or found.min_driver
        whole = dataclasses.replace(facts, python=facts.python or python, driver=driver)
        assert judge(build, whole, TABLES).violations == ()


@EXAMPLES
@given(_FACTS)
def test_a_refusal_names_a_real_and_smallest_conflict(facts: Facts) -> None:
    answer = resolve_facts(facts)
    assert bool(answer.combinations) != bool(answer.conflicts)
    for conflict in answer.conflicts:
        alone = Facts(**dict(conflict.constraints))
        if alone.device is not None:
            alone = dataclasses.replace(alone, platform=facts.platform)
        if facts.framework == "cuda":  # Bare toolkits are only meant when asked for by name.
            alone = dataclasses.replace(alone, framework="cuda")
        assert not resolve_facts(alone).combinations
        for name, _ in conflict.constraints:
            assert resolve_facts(without(alone, name)).combinations
        assert all(reason.text for reason in conflict.reasons)


@EXAMPLES
@given(_FACTS, st.sampled_from([f for f in USER_FIELDS if f != "platform"]))
def test_forgetting_a_constraint_never_loses_a_solution(facts: Facts, name: str) -> None:
    if facts.framework == "cuda" or not resolve_facts(facts, max_combinations=1).combinations:
        return
    assert resolve_facts(without(facts, name), max_combinations=1).combinations


def test_a_newer_driver_never_loses_a_build_while_the_device_is_still_driven() -> None:
    drivers = sorted(set(TABLES.toolkit_drivers.values()), key=version_key)[::4]
    for older, newer in itertools.pairwise(drivers):
        for device in ("7.5", "8.6", "9.0", "12.0"):
            before, after = (_cuda_builds(device, driver) for driver in (older, newer))
            assert before <= after


def _cuda_builds(device: str, driver: str) -> set[tuple[str, str]]:
    facts = Facts(platform="cuda", device=device, driver=driver, system="linux-x86_64")
    found = resolve_facts(facts, max_combinations=len(TABLES.builds)).combinations
    return {(c.release, c.tag) for c in found}
