"""Throughput in the unit that a row asks for."""

from __future__ import annotations

from paceline.app.scoring.rows import Row
from paceline.trace.workload import Workload

_ITEMS = frozenset(
    {
        "",
        "img/s",
        "images/s",
        "imgs/s",
        "image/s",
        "seq/s",
        "sequences/s",
        "samples/s",
        "sample/s",
        "sentences/s",
        "items/s",
        "examples/s",
        "utterances/s",
        "molecules/s",
        "video/s",
        "videos/s",
    }
)


def items_to_unit(
    row: Row, workload: Workload, seq: int, units_per_item: float | None
) -> tuple[float | None, str]:
    """Units per batch item, and the unit; None where a row's unit cannot be derived.

    Args:
        row: Its ``unit`` is what is wanted; a trailing ``/GPU`` counts one device's share.
        workload: Tells generation from the rest.
        seq: Tokens per item.
        units_per_item: What the model's sources count per item, if neither items nor tokens.
    """
    unit = row.unit
    plain = unit.removesuffix("/GPU").strip()
    share = 1.0 / max(row.num_gpus or 1.0, 1.0) if plain != unit else 1.0
    if plain in _ITEMS:
        per_item = units_per_item if plain == "samples/s" and units_per_item else 1.0
        return share * per_item, unit or f"{workload.sample_unit}/s"
    if units_per_item is not None and plain.endswith("/s"):
        return share * units_per_item, unit
    if plain.startswith(("tok/s", "tokens/s")):
        generates = any(one.name == "decode" for one in workload.passes)
        return share * (1.0 if generates else float(seq)), unit
    return None, ""
