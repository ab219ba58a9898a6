"""The zoo, and all models that are known by name, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.model.names.registry import KnownModel
from paceline.model.names.zoo_facts import ZooFacts
from paceline.reporting.tables import ABSENT, Table, header
from paceline.units import format_count


def model_table(models: Mapping[str, ZooFacts]) -> Table:
    """One row per model."""
    return Table(
        columns=header("model | title -1 | parameters > | counts -2 | reference training ~20+"),
        rows=tuple(
            (
                name,
                facts.title,
                format_count(facts.parameters),
                facts.sample_unit,
                facts.jobs["train"].description if "train" in facts.jobs else ABSENT,
            )
            for name, facts in models.items()
        ),
    )


def known_table(models: Sequence[KnownModel]) -> Table:
    """One row per model: what to type, its size, what it needs and whose sizes they are."""
    return Table(
        columns=header("model | parameters > | needs -1 | source ~20"),
        rows=tuple(
            (one.name, format_count(one.parameters), one.needs, one.source) for one in models
        ),
    )
