"""What passes between devices, or between a device and its host."""

from __future__ import annotations

from paceline.model.graph.kinds import OpKind
from paceline.model.ops.facts import KindFacts

KINDS = (
    KindFacts(kind=OpKind.COLLECTIVE),
    KindFacts(kind=OpKind.HOST_COPY),
    KindFacts(kind=OpKind.HOST_WAIT),
)
