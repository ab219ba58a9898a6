"""What passes between devices, or between a device and its host."""

from __future__ import annotations

from paceline.trace.ops.facts import KindFacts
from paceline.trace.ops.kinds import OpKind

KINDS = (
    KindFacts(kind=OpKind.COLLECTIVE),
    KindFacts(kind=OpKind.HOST_COPY),
    KindFacts(kind=OpKind.HOST_WAIT),
)
