"""How far answers of the same question may be apart."""

from __future__ import annotations

import math

from paceline.planfile import Interval
from paceline.planning.goal.chance import STATED_CHANCE, Z_80
from paceline.prediction.uncertainty.normal import normal_quantile

#: Relative. Slowdowns come of 32-bit matrix products, whose last bits follow the number of rows
#: that are multiplied together: what is asked alone and beside others may differ by so much
#: (docs/explanation/predicting.md). The same call gives the same bits.
ASKED_TOGETHER = 1e-6
#: What a person earns in a minute, in dollars, and the minute, in seconds: less matters to nobody.
MATTERS_USD, MATTERS_S = 64.0 / 60.0, 60.0


def is_told_less(first: Interval | None, second: Interval | None, *, matters: float) -> bool:
    """Whether one of two figures is less at the stated chance, by what matters; nothing is not.

    Args:
        first: In the unit of the other.
        second: Of the same quantity.
        matters: The least gain that counts; a tenth at least.
    """
    if first is None or second is None:
        return first is not None
    least = first.mid + max(0.1 * first.mid, matters)
    sigmas = [math.log(one.high / one.low) / (2.0 * Z_80) for one in (first, second)]
    return math.log(second.mid / least) > normal_quantile(STATED_CHANCE) * math.hypot(*sigmas)
