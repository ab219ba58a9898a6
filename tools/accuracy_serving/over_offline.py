"""What a server gives over the same system offline: published pairs, with rates that are not told.

PYTHONPATH=tools python -m accuracy_serving.over_offline ROWS UNTOLD

A server's row states the rate that kept its limits; without it `score` answers the largest rate
that does. The rows that are written ask so; their answers go to ``accuracy_serving.services`` with
``--untold UNTOLD ANSWERS``.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from accuracy_serving.asked import Row, stated

#: A row with its answer.
Pair = tuple[Mapping[str, str], Mapping[str, str]]
_RATE, _LIMIT = "rate_per_s", "ttft_p99_limit_ms"


def main() -> None:
    """Write the servers' rows without their rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("untold", type=Path)
    paths = parser.parse_args()
    with paths.rows.open(encoding="utf-8") as lines:
        found = list(untold(list(csv.DictReader(lines))))
    with paths.untold.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, found[0].keys())
        writer.writeheader()
        writer.writerows(found)


def untold(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows of servers with limits whose system ran offline too, without their rate."""
    offline = {_system(row) for row in rows if stated(row).get("scenario") == "offline"}
    for row in rows:
        if _LIMIT in stated(row) and _system(row) in offline:
            kept = (pair for pair in row["extra"].split(";") if not pair.startswith(_RATE))
            yield row | {"extra": ";".join(kept)}


def _system(row: Mapping[str, str]) -> tuple[str, ...]:
    """Whose rows of several scenarios belong together: the source but for its last part."""
    inputs = (row[name] for name in ("model", "gpu", "n_gpus", "precision"))
    return row["source"].rpartition("/")[0], *inputs


def table(offline: Sequence[Pair], servers: Sequence[Pair]) -> Iterator[str]:
    """Predicted and measured shares by device; the error is in points of the offline rate."""
    of_system = {
        _system(row): (row, answer)
        for row, answer in offline
        if stated(row).get("scenario") == "offline" and answer["throughput_mid"]
    }
    found = defaultdict[str, list[tuple[float, float]]](list)
    for row, answer in servers:
        whole = of_system.get(_system(row))
        if whole and answer["throughput_mid"]:
            measured = float(row["throughput"]) / float(whole[0]["throughput"])
            predicted = float(answer["throughput_mid"]) / float(whole[1]["throughput_mid"])
            found[answer["device"]].append((predicted, measured))
    yield "| device | pairs | predicted | measured | median error |\n|---|--:|--:|--:|--:|"
    everything = [pair for pairs in found.values() for pair in pairs]
    for name, pairs in [("all", everything), *sorted(found.items())]:
        predicted, measured = np.median(np.array(pairs), axis=0)
        points = 100 * np.median([abs(one - other) for one, other in pairs])
        yield f"| {name} | {len(pairs)} | {predicted:.2f} | {measured:.2f} | {points:.1f} points |"


if __name__ == "__main__":
    main()
