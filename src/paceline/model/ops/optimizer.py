"""The update: one op for all parameters. What each optimizer touches is in ``optimizers.csv``."""

from __future__ import annotations

from paceline.model.ops.facts import KindFacts
from paceline.model.ops.kinds import OpKind

KINDS = (
    KindFacts(
        kind=OpKind.OPTIMIZER,
        dims=("elements", "tensors", "state_tensors"),
        stream="update",
        feature_dims=("elements",),
    ),
)
