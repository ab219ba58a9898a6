"""What the model asks: the op graph, its rewrites, its lowering, and the zoo."""

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
