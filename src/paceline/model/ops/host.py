"""What passes between devices, or between a device and its host."""

from __future__ import annotations

from paceline.model.ops.facts import KindFacts
from paceline.model.ops.kinds import OpKind

KINDS = (
    KindFacts(kind=OpKind.COLLECTIVE),
    KindFacts(kind=OpKind.HOST_COPY),
    KindFacts(kind=OpKind.HOST_WAIT),
)
