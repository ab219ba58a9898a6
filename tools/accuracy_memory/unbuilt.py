"""Published files with memory of which no row is predicted, with the reason."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

_REASONS = {
    "detectron2.csv": "images of many sizes and regions that depend on their content: the peak is "
    "that of one unlucky batch, which is not stated",
    "modded_nanogpt.csv": "architecture, batch and kernels differ per record and stand in its log "
    "only; FlexAttention is not modelled",
}


def unbuilt(truth: Path) -> Iterator[tuple[str, int, str]]:
    """Which, how many rows with memory, and why they are left out."""
    for name, reason in _REASONS.items():
        with (truth / "e2e" / name).open(encoding="utf-8") as file:
            count = sum(bool(row["peak_mem_gb"]) for row in csv.DictReader(file))
        yield name.removesuffix(".csv").replace("_", "-"), count, reason
