"""A law over many cases: some in every run, the others where there is time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from paceline.model.names.shipped_graphs import shipped_file
from paceline.model.names.zoo_facts import zoo_facts


def sampled(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Those that are named run in every run; the others by ``make test-slow``.

    Args:
        cases: Values of a parametrised test; of several parameters, tuples.
        kept: Cases, or the values that they begin with.
    """
    named = [one if isinstance(one, tuple) else (one,) for one in kept]
    values = [one if isinstance(one, tuple) else (one,) for one in cases]
    unknown = [one for one in named if not any(case[: len(one)] == one for case in values)]
    assert not unknown, f"no cases: {unknown}"
    slow = pytest.mark.slow
    return [
        pytest.param(*case, marks=() if any(case[: len(one)] == one for one in named) else slow)
        for case in values
    ]


def zoo_names() -> tuple[str, ...]:
    """Names of the models whose graphs ship for every task that they have."""
    facts = zoo_facts()
    return tuple(sorted(n for n in facts if all(shipped_file(n, task) for task in facts[n].jobs)))
