"""Trace what is shipped as a graph, and write its files: zoo, published networks, libraries.

Usage: PYTHONPATH=tools python -m networks [ENTRY ...]
"""

import sys
from collections.abc import Sequence
from typing import get_args

from networks import all_builders, asked_entries, path_of, write
from paceline.model.graph.store import save_workload
from paceline.model.graph.workload import Task
from paceline.model.names.zoo_facts import zoo_facts
from paceline.model.reading.load import trace_workload

TASKS: tuple[Task, ...] = get_args(Task)


def main(entries: Sequence[str]) -> None:
    """Trace what is asked for, or all."""
    built, facts = all_builders(), zoo_facts()
    for entry in entries or sorted({*built, *facts, *asked_entries()}):
        for task in (one for one in TASKS if entry not in facts or one in facts[entry].jobs):
            path = path_of(entry, task)
            if entry in built:
                write(entry, task)
            else:
                path.parent.mkdir(exist_ok=True)
                save_workload(trace_workload(entry, task=task), path)
            print(f"{path.name}: {path.stat().st_size:,} B")


if __name__ == "__main__":
    main(sys.argv[1:])
