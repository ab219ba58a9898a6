"""Pinned strategies: what can be pinned, and where it can run."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import pytest

from paceline.catalog import load_catalog
from paceline.errors import InvalidInputError
from paceline.plan.goal import Goal
from paceline.plan.pinned import pinned_node_counts, pinned_strategy
from paceline.plan.places import Place, find_places


@cache
def places() -> tuple[Place, ...]:
    found = find_places(load_catalog(), Goal(), today=date(2026, 11, 21))
    return tuple(found.places)


def pin(text: str, **changes: object) -> Goal:
    return replace(Goal(), pins={"strategy": text}, **changes)  # type: ignore[arg-type]


def test_nothing_pinned_is_no_strategy() -> None:
    assert pinned_strategy(Goal(), places()) is None
    assert pinned_node_counts(Goal()) == ()


def test_any_number_of_replicas_can_be_pinned_where_whole_machines_hold_it() -> None:
    assert str(pinned_strategy(pin("dp7+zero2"), places())) == "dp7+zero2"
    assert pinned_node_counts(pin("dp12")) == (1, 2, 3, 4, 6, 12)


@pytest.mark.parametrize(
    ("goal", "said", "hint"),
    [
        (pin("tp8"), "not among the strategies that can be pinned", "scale --strategy"),
        (pin("dp2.fsdp4"), "not among the strategies that can be pinned", "scale --strategy"),
        (pin("dp128"), "128 devices; at most 64", "--max-devices 128"),
        (pin("dp8", global_batch=12), "12 does not divide into 8 replicas", "16"),
    ],
)
def test_what_cannot_be_pinned_says_why(goal: Goal, said: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        pinned_strategy(goal, places())
    assert hint in caught.value.hint


def test_a_machine_without_a_link_between_nodes_says_so() -> None:
    alone = [p for p in places() if p.links.node is None and p.offer.num_devices == 8][:1]
    assert alone, "the catalogue knows machines that nothing joins"
    with pytest.raises(InvalidInputError, match="needs a link between nodes; there is none"):
        pinned_strategy(pin("dp16"), alone)
    with pytest.raises(InvalidInputError, match="no number of whole machines"):
        pinned_strategy(pin("dp12"), alone)
