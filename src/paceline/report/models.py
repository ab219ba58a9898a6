"""The zoo as a table."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.report.figures import ABSENT
from paceline.report.tables import Column, Table
from paceline.trace.zoo_facts import ZooFacts
from paceline.units import format_count


def model_table(models: Mapping[str, ZooFacts]) -> Table:
    """One row per model."""
    return Table(
        columns=(
            Column(title="model"),
            Column(title="title", drop_order=1),
            Column(title="parameters", is_number=True),
            Column(title="counts", drop_order=2),
            Column(title="reference training", min_width=20, told_below=True),
        ),
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
