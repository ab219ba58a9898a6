"""What the model asks: the op graph, its rewrites, its lowering, and the zoo.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.lazy import lazy_exports

if TYPE_CHECKING:
    from paceline.trace.costs import Configuration, CostTable, LoweredPass, MemoryTable
    from paceline.trace.graph import Graph, OpKind, Owner, Phase, monomials
    from paceline.trace.load import load_workload, trace_workload, zoo_names
    from paceline.trace.lowering import lower
    from paceline.trace.store import read_workload, save_workload
    from paceline.trace.workload import Pass, ReferenceJob, Workload

__all__ = [
    "Configuration",
    "CostTable",
    "Graph",
    "LoweredPass",
    "MemoryTable",
    "OpKind",
    "Owner",
    "Pass",
    "Phase",
    "ReferenceJob",
    "Workload",
    "load_workload",
    "lower",
    "monomials",
    "read_workload",
    "save_workload",
    "trace_workload",
    "zoo_names",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "costs": ("Configuration", "CostTable", "LoweredPass", "MemoryTable"),
        "graph": ("Graph", "OpKind", "Owner", "Phase", "monomials"),
        "load": ("load_workload", "trace_workload", "zoo_names"),
        "lowering": ("lower",),
        "store": ("read_workload", "save_workload"),
        "workload": ("Pass", "ReferenceJob", "Workload"),
    },
)
