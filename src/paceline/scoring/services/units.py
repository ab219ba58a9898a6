"""Capacity in the unit that a row of what serves requests asks for."""

from __future__ import annotations

import re

from paceline.scoring.naming.units import counted_in
from paceline.scoring.rows import Row
from paceline.simulation.queue.percentiles import Served

_BOTH = re.compile(r"(total|all|in(put)? ?(\+|and) ?out(put)?).*tok(en)?s?.*", re.IGNORECASE)
_PROMPT = re.compile(r"(input|prompt|prefill).*tok(en)?s?.*", re.IGNORECASE)
_TOKENS = re.compile(r"(.*\b)?tok(en)?s?.*", re.IGNORECASE)
_TIME = re.compile(r"(?P<milli>ms|milliseconds?)|(s|seconds?)", re.IGNORECASE)


def rate_in_unit(row: Row, seen: Served) -> float | None:
    """What the row's column of throughput holds; None where its unit is not known.

    Args:
        row: Its ``unit`` is what is wanted; ``/GPU`` counts one device's share.
        seen: Of all replicas.
    """
    unit = row.unit.strip()
    first = unit.split(maxsplit=1)[0] if unit else ""
    if found := _TIME.fullmatch(first):
        percentile = seen.request.p99_s if "multi" in row.scenario else seen.request.p50_s
        return percentile * (1e3 if found["milli"] else 1.0)
    what, _, rest = unit.partition("/")
    share = (
        1.0 / row.num_devices if re.search(r"/ ?(gpu|device|chip)", rest, re.IGNORECASE) else 1.0
    )
    if _BOTH.fullmatch(what):
        return share * seen.tokens_per_s
    if _PROMPT.fullmatch(what):
        return share * (seen.tokens_per_s - seen.output_tokens_per_s)
    if _TOKENS.fullmatch(what):
        return share * seen.output_tokens_per_s
    if not unit or counted_in(what.lower().strip()) == "items":
        return share * seen.requests_per_s
    return None
