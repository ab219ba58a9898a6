"""Figures with their intervals as short text, the way every table and page prints them."""

from __future__ import annotations

import math

from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.patterns import pattern
from paceline.planfile import Interval
from paceline.planning.goal.chance import chance_text
from paceline.reporting.tables import ABSENT
from paceline.units import (
    counted_name,
    duration_scale,
    format_count,
    format_duration,
    format_significant,
    format_usd,
)
from paceline.values import dataclass

#: What every figure of planned memory is, in words.
MEMORY_BOUND = "the bound that holds in nine of ten cases"
_MILLION = 1e6
_HALF_A_CENT = 0.005
#: From which figure on the next scale is shown, what it divides by, and how it is written.
_THOUSANDS = 1e4
_SCALES = ((_MILLION, _MILLION, " M"), (_THOUSANDS, 1e3, " k"), (-math.inf, 1.0, ""))
#: A brand, and a generation beside a form that tells a device apart.
_BRANDS = pattern(r"(?:^|(?<=×))(GeForce|Tesla|Instinct|Radeon Instinct|AWS) ")
_GENERATION = pattern(r" Blackwell(?= (?:Workstation|Server|Max-Q))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRate:
    """What a throughput is printed in.

    Attributes:
        unit: Such as ``images``; tokens of language models.
        per_item: How many of them one item of a batch counts for: the tokens of a sequence.
    """

    unit: str
    per_item: float = 1.0

    def text(self, items_per_s: float) -> str:
        """Units per second, such as ``39,210`` and ``1.79 M``."""
        figure = items_per_s * self.per_item
        return format_significant(figure) if figure < _MILLION else format_count(figure)

    def range_of(self, items_per_s: Interval) -> Interval:
        """Units per second with their interval."""
        ends = (items_per_s.low, items_per_s.mid, items_per_s.high)
        low, mid, high = (end * self.per_item for end in ends)
        return Interval(low=low, mid=mid, high=high)


#: Ends of an interval that differ by such a factor have units of their own.
_FAR_APART = 100.0


def duration_range(seconds: Interval) -> str:
    """A duration with its interval, all in one unit unless they lie far apart.

    >>> duration_range(Interval(low=48240, mid=54360, high=61200))
    '15.1 h (13–17)'
    >>> duration_range(Interval(low=0.462, mid=62.4, high=378))
    '1.04 min (462 ms–6.3 min)'
    """
    scale_s, unit = duration_scale(seconds.mid)
    if seconds.low > 0 and seconds.high > _FAR_APART * seconds.low:
        ends = (format_duration(end, 2) for end in (seconds.low, seconds.high))
        return f"{format_duration(seconds.mid)} ({'–'.join(ends)})"
    mid = format_significant(seconds.mid / scale_s)
    return f"{mid} {unit}{_bounds(seconds, scale_s)}"


def percentile_range(p50_s: Interval, p95_s: Interval, p99_s: Interval) -> str:
    """Three percentiles of a time, the 95th with its interval; one where they print alike.

    >>> wait = [Interval(low=0.8 * mid, mid=mid, high=1.25 * mid) for mid in (0.235, 0.686, 0.907)]
    >>> percentile_range(*wait)
    '235 / 686 (549–858) / 907 ms'
    >>> percentile_range(wait[1], wait[1], wait[1])
    '686 ms (549–858)'
    >>> percentile_range(Interval(low=0.004, mid=0.005, high=0.006), wait[1], wait[2])
    '5.00 ms / 686 ms (549–858) / 907 ms'
    """
    times_s = (p50_s.mid, p95_s.mid, p99_s.mid)
    if len({format_duration(time_s) for time_s in times_s}) == 1:
        return duration_range(p95_s)
    scale_s, unit = duration_scale(p95_s.mid)
    if min(times_s) <= 0 or max(times_s) > _FAR_APART * min(times_s):
        p50, p99 = format_duration(p50_s.mid), format_duration(p99_s.mid)
        return f"{p50} / {duration_range(p95_s)} / {p99}"
    p50, p95, p99 = (format_significant(time_s / scale_s) for time_s in times_s)
    return f"{p50} / {p95}{_bounds(p95_s, scale_s)} / {p99} {unit}"


def usd_range(usd: Interval) -> str:
    """An amount of money with its interval, in dollars.

    >>> usd_range(Interval(low=17.2, mid=19.5, high=22.1))
    '19.5 (17–22)'
    >>> usd_range(Interval(low=0.0001, mid=0.0002, high=0.0004))
    '<0.01'
    >>> usd_range(Interval(low=19_779_156, mid=34_099_084, high=58_788_656))
    '34.1 M (20–59)'
    """
    if usd.mid >= _THOUSANDS:
        return number_range(usd)
    if usd.high < _HALF_A_CENT:
        return format_usd(usd.mid)
    return f"{format_usd(usd.mid)}{_bounds(usd)}"


def short_name(device: str) -> str:
    """A device as people say it, without its brand.

    >>> short_name("GeForce RTX 4090"), short_name("TPU v5e (per chip)")
    ('RTX 4090', 'TPU v5e')
    """
    return _GENERATION.sub("", _BRANDS.sub("", counted_name(device)))


def number_range(figure: Interval) -> str:
    """A plain figure with its interval.

    >>> number_range(Interval(low=2310.0, mid=2512.0, high=2720.0))
    '2,512 (2,310–2,720)'
    >>> number_range(Interval(low=127_298.0, mid=174_990.0, high=240_550.0))
    '175 k (127–241)'
    """
    scale, unit = next((s, u) for least, s, u in _SCALES if figure.mid >= least)
    return f"{format_significant(figure.mid / scale)}{unit}{_bounds(figure, scale)}"


def memory_bound_bytes(used: Interval) -> float:
    """Peak memory at the bound that holds with a chance of 90 %: `MEMORY_BOUND`.

    That is the chance at which a plan must fit unless its goal says otherwise; ``used.high`` holds
    at 95 %, and the logarithm of a peak is taken to be normal.
    """
    return float(quantile_bytes(used.mid, used.high))


def memory_share(used: Interval, capacity_bytes: float) -> str:
    """Peak memory against what there is, at `memory_bound_bytes`.

    >>> memory_share(Interval(low=20e9, mid=21e9, high=22.1e9), 40e9)
    '22/40 GB'
    """
    gb = format_significant(memory_bound_bytes(used) / 1e9, 2)
    if math.isinf(capacity_bytes):
        return f"{gb} GB"
    return f"{gb}/{format_significant(capacity_bytes / 1e9, 2)} GB"


def memory_range(used: Interval) -> str:
    """Peak memory with its interval: from the lower end to `memory_bound_bytes`.

    >>> memory_range(Interval(low=18e9, mid=20.4e9, high=26e9))
    '20.4 GB (18–25)'
    """
    bounds = Interval(low=used.low, mid=used.mid, high=memory_bound_bytes(used))
    return f"{format_significant(used.mid / 1e9)} GB{_bounds(bounds, 1e9)}"


def chance(frac: float | None) -> str:
    """A chance as percent, never rounded up to certainty.

    >>> chance(0.9996), chance(0.71), chance(None)
    ('>99 %', '71 %', '–')
    """
    return ABSENT if frac is None else chance_text(frac)


def _bounds(figure: Interval, scale: float = 1.0) -> str:
    """The interval in brackets; nothing where it is narrower than what is shown."""
    low, high = (format_significant(x / scale, 2) for x in (figure.low, figure.high))
    return "" if low == high else f" ({low}–{high})"
