"""Units: SI inside, people's units only when reading and printing.

Everything in paceline counts seconds, bytes, FLOP, watts, joules and US dollars. GiB, ms, hours
and percent exist in this module, in input parsing and in printing, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from paceline.errors import InvalidInputError
from paceline.patterns import pattern

HOUR_S = 3600.0
DAY_S = 86_400.0
#: What a device is counted in.
_COUNTED = pattern(r" \(per (?:GPU|chip)\)")

_DURATION_S: Mapping[str, float] = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0,
    "h": HOUR_S, "hour": HOUR_S, "hours": HOUR_S, "d": DAY_S, "day": DAY_S, "days": DAY_S,
    "w": 7 * DAY_S, "week": 7 * DAY_S, "weeks": 7 * DAY_S,
}  # fmt: skip
_COUNT: Mapping[str, float] = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_BYTES: Mapping[str, float] = {
    "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_USD: Mapping[str, float] = {
    f"{size}{unit}": factor
    for size, factor in (("", 1.0), ("k", 1e3), ("m", 1e6))
    for unit in ("", "usd", "$")
}
_POWER_W: Mapping[str, float] = {"w": 1.0, "kw": 1e3, "mw": 1e6}

#: Beyond it counts no longer fit the integers of our arrays, and no job is that large.
_LARGEST = 1e18

_NUMBER = pattern(r"^\s*\$?\s*([0-9][0-9_,]*\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+)\s*([a-zµ$]*)\s*$")


def parse_duration_s(text: str) -> float:
    """Seconds in a duration such as ``24h``, ``90min``, ``3d``, ``50ms``.

    Raises:
        InvalidInputError: No number, no known unit, or not above zero.

    >>> parse_duration_s("24h")
    86400.0
    """
    return _parse(text, _DURATION_S, what="a duration", example="24h, 90min, 3d, 50ms")


def parse_count(text: str) -> float:
    """A count such as ``1M``, ``400k``, ``10B`` (decimal suffixes).

    >>> parse_count("1.5M")
    1500000.0
    """
    return _parse(text, _COUNT, what="a count", example="1281167, 400k, 1M, 10B")


def parse_bytes(text: str) -> float:
    """Bytes in a size such as ``80GB`` (decimal) or ``24GiB`` (binary).

    >>> parse_bytes("24GiB") == 24 * 2**30
    True
    """
    return _parse(text, _BYTES, what="a size", example="80GB, 24GiB, 500MB")


def parse_usd(text: str) -> float:
    """US dollars in an amount such as ``5usd``, ``$5`` or ``1,500``.

    >>> parse_usd("5usd"), parse_usd("$15k")
    (5.0, 15000.0)
    """
    return _parse(text, _USD, what="an amount in US dollars", example="5usd, $1500, 15k")


def parse_power_w(text: str) -> float:
    """Watts in a power such as ``300W`` or ``1.2kW``.

    >>> parse_power_w("1.2kW")
    1200.0
    """
    return _parse(text, _POWER_W, what="a power", example="30W, 1.2kW")


def _parse(text: str, units: Mapping[str, float], *, what: str, example: str) -> float:
    match = _NUMBER.match(text.lower())
    factor = units.get(match.group(2)) if match else None
    if match is None or factor is None:
        raise InvalidInputError(f"`{text}` is not {what}", hint=f"write it like {example}")
    value = float(match.group(1).replace("_", "").replace(",", "")) * factor
    if not 0 < value <= _LARGEST:
        raise InvalidInputError(
            f"`{text}` must be above zero and at most {_LARGEST:g}", hint=f"write it like {example}"
        )
    return value


def format_significant(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits and no exponent between 1e-3 and 1e6.

    >>> format_significant(15.1234), format_significant(0.4567), format_significant(1234.5)
    ('15.1', '0.457', '1,234')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    if abs(value) < 1e-3 or abs(value) >= 1e9:
        return f"{value:.{digits}g}"
    return f"{value:,.{decimals}f}"


def duration_scale(seconds: float) -> tuple[float, str]:
    """Seconds in the largest unit that keeps a duration above one, and that unit.

    >>> duration_scale(54360.0)
    (3600.0, 'h')
    """
    steps = ((2 * DAY_S, DAY_S, "d"), (HOUR_S, HOUR_S, "h"), (60.0, 60.0, "min"), (1.0, 1.0, "s"),
             (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"))  # fmt: skip
    _, scale_s, unit = next(step for step in steps if abs(seconds) >= step[0])
    return scale_s, unit


def format_duration(seconds: float, digits: int = 3) -> str:
    """A duration in the largest unit that keeps it above one.

    >>> format_duration(54360.0), format_duration(0.0123), format_duration(8.6e6)
    ('15.1 h', '12.3 ms', '99.5 d')
    """
    scale_s, unit = duration_scale(seconds)
    return f"{format_significant(seconds / scale_s, digits)} {unit}"


def format_bytes(num_bytes: float, digits: int = 3) -> str:
    """A size in decimal units.

    >>> format_bytes(22.04e9)
    '22.0 GB'
    """
    return _scaled(num_bytes, digits, ("B", "kB", "MB", "GB", "TB", "PB"))


def format_count(count: float, digits: int = 3) -> str:
    """A count with a decimal suffix.

    >>> format_count(25_557_032)
    '25.6 M'
    """
    return _scaled(count, digits, ("", "k", "M", "G", "T", "P", "E", "Z")).strip()


def format_usd(usd: float) -> str:
    """US dollars without the sign: cents below ten, dollars above a thousand, then millions.

    >>> format_usd(1.288), format_usd(19.5), format_usd(12345.6), format_usd(0.0002)
    ('1.29', '19.5', '12,346', '<0.01')
    >>> format_usd(39_638_234)
    '39.6 M'
    """
    if 0 < usd < 0.005:
        return "<0.01"
    if abs(usd) < 10:
        return f"{usd:.2f}"
    if abs(usd) >= 1e6:
        return f"{usd / 1e6:,.3g} M" if abs(usd) < 1e9 else f"{usd / 1e6:,.0f} M"
    return f"{usd:.1f}" if abs(usd) < 1000 else f"{usd:,.0f}"


def format_percent(frac: float) -> str:
    """A ratio in 0–1 as whole percent.

    >>> format_percent(0.614)
    '61 %'
    """
    return f"{100 * frac:.0f} %"


def counted_name(device: str) -> str:
    """A device behind its number, which is not told what it is counted in.

    >>> counted_name("GB200 (per GPU)"), counted_name("Tesla T4")
    ('GB200', 'Tesla T4')
    """
    return _COUNTED.sub("", device)


def efficiency_text(frac: float) -> str:
    """What a device does among many, against alone; above one as a multiple.

    >>> efficiency_text(0.843), efficiency_text(1.39)
    ('84 % efficient', 'each 1.4× as fast as alone')
    """
    is_faster = frac >= 1.05
    most = format_percent(min(frac, 1.0))
    return f"each {frac:.1f}× as fast as alone" if is_faster else f"{most} efficient"


def _scaled(value: float, digits: int, suffixes: tuple[str, ...]) -> str:
    power = 0 if value == 0 else math.floor(math.log10(abs(value)) / 3 + 1e-12)
    power = min(max(power, 0), len(suffixes) - 1)
    if power == 0:
        return f"{value:.{0 if float(value).is_integer() else 2}f} {suffixes[0]}"
    return f"{format_significant(value / 1000**power, digits)} {suffixes[power]}"
