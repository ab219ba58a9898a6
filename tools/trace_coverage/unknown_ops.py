"""Operators of models that the operator table does not know.

Usage: PYTHONPATH=tools python -m trace_coverage.unknown_ops ENTRY [ENTRY ...]
Prints how often each occurs. Such an operator costs what it reads and writes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from paceline.model.graph.graph import OpKind
from paceline.model.ops.optable import find_rule
from paceline.model.reading.worker import run_worker


def operators(entry: str, task: str) -> Iterator[str]:
    """The name of each op that a model's passes run."""
    for one in run_worker({"entry": entry, "task": task})["passes"]:
        topology = one["topology"]
        yield from (topology["names"][op[0]] for op in topology["ops"])


def unknown(names: Iterator[str]) -> Counter[str]:
    """How often each operator occurs that has no row and no tag."""
    updates = "paceline::optimizer"
    known = (name for name in names if not name.startswith(updates))
    return Counter(n.partition("|")[0] for n in known if find_rule(n).kind == OpKind.OTHER)


def main(entries: list[str]) -> None:
    """Print the table."""
    found: Counter[str] = Counter()
    for entry in entries:
        found += unknown(operators(entry, "train"))
    for name, count in found.most_common():
        print(f"{count:6} {name}")
    if not found:
        print("every operator is known")


if __name__ == "__main__":
    main(sys.argv[1:])
