"""The update: one op for all parameters. What each optimizer touches is in ``optimizers.csv``."""

from __future__ import annotations

from paceline.model.graph.kinds import OpKind
from paceline.model.ops.facts import KindFacts

KINDS = (
    KindFacts(
        kind=OpKind.OPTIMIZER,
        dims=("elements", "tensors", "state_tensors"),
        stream="update",
        feature_dims=("elements",),
    ),
)
