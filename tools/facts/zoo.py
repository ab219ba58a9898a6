"""Trace every model of the zoo again and write its files.

Usage: PYTHONPATH=tools python -m facts.zoo [NAME ...]
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from paceline.trace.load import trace_workload
from paceline.trace.store import save_workload
from paceline.trace.workload import Task
from paceline.trace.zoo_facts import zoo_facts

TASKS: tuple[Task, ...] = get_args(Task)
ZOO = Path(__file__).parents[2] / "src" / "paceline" / "trace" / "zoo"


def main(names: Sequence[str]) -> None:
    """Trace the named models, or all."""
    for name in names or sorted(zoo_facts()):
        for task in (one for one in TASKS if one in zoo_facts()[name].jobs):
            workload = trace_workload(name, task=task)
            path = ZOO / f"{name}-{task}.npz"
            save_workload(workload, path)
            print(f"{path.name}: {workload.num_parameters:,} parameters, {path.stat().st_size:,} B")


if __name__ == "__main__":
    main(sys.argv[1:])
