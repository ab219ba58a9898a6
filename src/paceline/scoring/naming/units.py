"""Throughput in the unit that a row asks for."""

from __future__ import annotations

import re

from paceline.model.graph.workload import Workload
from paceline.scoring.rows import Row
from paceline.scoring.tables import read_table

_RATE = re.compile(
    r"(?:(?:total|aggregate|overall|output)\s+)*(?P<what>[a-z ]+?)\s*"
    r"(?:(?:/|\bper)\s*(?P<time>s(?:ec(?:ond)?s?)?|min(?:ute)?s?|h(?:(?:ou)?rs?)?|days?)\b|(?<=f)ps)"
    r"(?P<each>\s*(?:/|per)\s*(?:gpu|device|chip))?\s*(?:\(.*\))?",
    re.IGNORECASE,
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(
    r"(?:(?P<milli>ms(?:ec)?|milliseconds?)|s|sec|seconds?)"
    r"(?:\s*(?:/|per)\s*(?:step|it|iter|iteration|batch))?",
    re.IGNORECASE,
)


def items_to_unit(
    row: Row, workload: Workload, seq: int, units_per_item: float | None, *, items_per_step: float
) -> tuple[float | None, str]:
    """Units per batch item, and the unit; None where a row's unit cannot be derived.

    Args:
        row: Its ``unit`` is what is wanted, by the second, minute, hour or day; a trailing
            ``/GPU`` counts one device's share.
        workload: Tells generation from the rest, and what has no tokens.
        seq: Tokens per item.
        units_per_item: What the model's sources count per item, if neither items nor tokens.
        items_per_step: Items of one step of the whole job.
    """
    if not row.unit:
        return 1.0, f"{workload.sample_unit}/s"
    match = _RATE.fullmatch(row.unit)
    if match is None:
        return None, ""
    share = _SECONDS[(match["time"] or "s")[0].lower()]
    share /= row.num_devices if match["each"] else 1.0
    generates = any(one.name == "decode" for one in workload.passes)
    is_seen = workload.sample_unit == "images"
    tokens = 1.0 if generates else None if is_seen else float(seq)
    if workload.encodes and tokens is not None:
        tokens = float(workload.usual_output_tokens)
    what = match["what"].lower().strip()
    if workload.sample_unit == "seconds of sound" and "seconds" in what.split():
        return share * workload.samples_per_item, row.unit
    per_item = _per_item(what, units_per_item, tokens, items_per_step)
    return (None, "") if per_item is None else (share * per_item, row.unit)


def _per_item(
    what: str, units_per_item: float | None, tokens: float | None, items_per_step: float
) -> float | None:
    counts = counted_in(what)
    if counts == "steps":
        return 1.0 / items_per_step
    if counts == "items" and not (what == "samples" and units_per_item):
        return 1.0
    if units_per_item is not None:
        return units_per_item
    return {"tokens": tokens, "frames": 1.0}.get(counts)


def counted_in(what: str) -> str:
    """What a word of a unit counts; empty where it is unknown."""
    lines = read_table("unit_words.csv")
    return next((line["counts"] for line in lines if what in line["words"].split()), "")


def units_of_time(unit: str) -> float | None:
    """How many of a unit make a second, where it is one of time per step; else None.

    >>> units_of_time("ms/step"), units_of_time("s"), units_of_time("img/s")
    (1000.0, 1.0, None)
    """
    match = _TIME.fullmatch(unit.strip())
    if match is None:
        return None
    return 1e3 if match["milli"] else 1.0
