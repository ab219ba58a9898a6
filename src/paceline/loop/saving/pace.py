"""How often to save: from what a save costs and how often runs are interrupted."""

import math
from collections import namedtuple

#: Without a rate of interruptions, saves may cost this share of the time.
_SHARE = 0.01
_SHORTEST_S, _LONGEST_S = 10.0, 1800.0

#: Seconds between saves, and why, as printed.
Pace = namedtuple("Pace", ["interval_s", "reason"])


def best_interval_s(cost_s, between_interruptions_s):
    """Seconds of work between saves that lose the least time.

    Args:
        cost_s: What a save keeps the training waiting.
        between_interruptions_s: Mean time between interruptions.

    Source:
        Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
        Future Generation Computer Systems 22(3), 2006, equation 37.

    >>> round(best_interval_s(cost_s=1.0, between_interruptions_s=3600.0))
    84
    """
    if cost_s >= 2 * between_interruptions_s:
        return between_interruptions_s
    x = cost_s / (2 * between_interruptions_s)
    return math.sqrt(2 * cost_s * between_interruptions_s) * (1 + math.sqrt(x) / 3 + x / 9) - cost_s


def pace_of(cost_s, save_s, interruptions_per_hour):
    """How often to save.

    Args:
        cost_s: What the last save kept the training waiting.
        save_s: How long it took until it was committed.
        interruptions_per_hour: Of the place; None where nobody knows it.
    """
    # A save begins when the one before has ended, and leaves time between.
    shortest_s = max(2 * save_s, 1.0)
    if interruptions_per_hour:
        mean_s = 3600.0 / interruptions_per_hour
        found_s = max(best_interval_s(cost_s, mean_s), shortest_s)
        return Pace(found_s, "%.3g interruptions an hour expected" % interruptions_per_hour)
    found_s = min(max(cost_s / _SHARE, _SHORTEST_S), _LONGEST_S)
    reason = "no rate of interruptions known; saves cost at most %.0f %% of the time"
    return Pace(max(found_s, shortest_s), reason % (100 * _SHARE))
