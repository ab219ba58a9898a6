"""Every op kind has its facts in one place, which all that treats kinds differently reads."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline.model.graph.graph import NUM_DIMS, OpKind
from paceline.model.ops.facts import KindFacts
from paceline.model.ops.registry import FACTS, column, dims_of, kinds_where

PACKAGE = Path(paceline.__file__).parent
#: A pair of kinds is a rule about these two; a list of so many is a column of the registry.
LONGEST_LIST = 2


def test_every_kind_is_declared() -> None:
    assert set(FACTS) == set(OpKind)
    assert all(len(facts.dims) <= NUM_DIMS for facts in FACTS.values())


@pytest.mark.parametrize("kind", OpKind, ids=lambda kind: kind.name)
def test_dims_that_rules_name_are_dims_of_the_kind(kind: OpKind) -> None:
    facts = FACTS[kind]
    for names in (facts.feature_dims, facts.weight_dims or (), facts.loss_dims):
        assert len(dims_of(kind, *names)) == len(names)


def test_what_multiplies_counts_flop_and_runs_narrow() -> None:
    counted = {kind for kind, facts in FACTS.items() if facts.count_flop is not None}
    assert counted == set(kinds_where(lambda facts: facts.is_narrow))
    assert counted == set(kinds_where(lambda facts: facts.efficiency != "stream"))


def test_backward_kinds_share_the_model_and_shape_numbers_of_their_forward() -> None:
    for facts in FACTS.values():
        if facts.backward_of is not None:
            forward = FACTS[facts.backward_of]
            assert (facts.dims, facts.stream) == (forward.dims, forward.stream)


def test_columns_are_masks_over_kinds() -> None:
    narrow = column("is_narrow")
    assert narrow[[OpKind.MATMUL, OpKind.NORM]].tolist() == [True, False]
    assert np.count_nonzero(narrow) == len(kinds_where(lambda facts: facts.is_narrow))


def kinds_listed(path: Path) -> list[tuple[int, list[str]]]:
    """Tuples, lists and sets of op kinds in a module, with their lines."""
    found, text = [], path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text if text.count("OpKind.") > LONGEST_LIST else "")):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names = [
                item.attr
                for item in node.elts
                if isinstance(item, ast.Attribute)
                and isinstance(item.value, ast.Name)
                and item.value.id == "OpKind"
            ]
            if len(names) > LONGEST_LIST:
                found.append((node.lineno, names))
    return found


def test_no_other_module_lists_kinds() -> None:
    listed = {
        str(path.relative_to(PACKAGE)): lists
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "ops" and (lists := kinds_listed(path))
    }
    assert listed == {}


def test_facts_have_no_defaults_that_a_kind_must_know() -> None:
    """A new kind that moves bytes is a name; all else has the value of an op that needs nothing."""
    required = [f.name for f in fields(KindFacts) if f.name == "kind"]
    assert required == ["kind"]
    assert KindFacts(kind=OpKind.OTHER).features == "all"
