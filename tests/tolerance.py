"""How far answers of the same question may be apart."""

from __future__ import annotations

import math

from paceline.planfile import Interval
from paceline.planning.goal.chance import STATED_CHANCE, Z_80, normal_quantile

#: Relative. Slowdowns come of 32-bit matrix products, whose last bits follow the number of rows
#: that are multiplied together: what is asked alone and beside others may differ by so much
#: (docs/explanation/predicting.md). The same call gives the same bits.
ASKED_TOGETHER = 1e-6


def is_told_less(first: Interval | None, second: Interval | None) -> bool:
    """Whether one of two figures is the smaller at the stated chance; nothing is not."""
    if first is None or second is None:
        return first is not None
    sigmas = [math.log(one.high / one.low) / (2.0 * Z_80) for one in (first, second)]
    return math.log(second.mid / first.mid) > normal_quantile(STATED_CHANCE) * math.hypot(*sigmas)
