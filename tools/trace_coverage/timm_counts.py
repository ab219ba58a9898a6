"""Parameters and multiply-adds of timm's models against the figures that timm publishes.

Usage: PYTHONPATH=tools python -m trace_coverage.timm_counts [--cache FOLDER] > TABLE.csv
Traces every model of ``tests/unit/model/data/timm_published.csv``; workload files in FOLDER are
used where they have the model. The published figures were counted by fvcore's
``FlopCountAnalysis`` over several years, and `COUNTED_WAYS` are what it took for arithmetic.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.model.graph.graph import Graph, OpKind, monomials
from paceline.model.graph.store import read_workload
from paceline.model.graph.workload import Workload
from paceline.model.ops.optable import variants
from paceline.model.reading.load import workload_from_report
from paceline.model.reading.worker import WORKERS

PUBLISHED = Path(__file__).parents[2] / "tests" / "unit" / "model" / "data"
#: What fvcore adds for a normalised element (fvcore/nn/jit_handles.py, `batchnorm_flop_jit` and
#: `norm_flop_counter`): two in a batch norm that is not training, five in a layer or group norm.
NORM_OPERATIONS = {"batch": 2, "layer": 5, "group": 5}
#: timm prints billions of multiply-adds with two digits: half a digit, and binary fractions.
ROUNDING_GMAC = 0.0051


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What one image asks of a model's forward pass.

    Attributes:
        num_parameters: Of the model.
        gmac: All multiply-adds, in billions.
        attention_gmac: Of them, the two products of attention.
        recurrent_gmac: Of them, recurrent layers.
        norm_gmac: What fvcore counts for normalisation, not among ``gmac``.
    """

    num_parameters: int
    gmac: float
    attention_gmac: float
    recurrent_gmac: float
    norm_gmac: float


#: What a published figure may leave out or add.
COUNTED_WAYS: dict[str, Callable[[Count], float]] = {
    "everything": lambda c: c.gmac,
    "attention products not counted": lambda c: c.gmac - c.attention_gmac,
    "recurrent layers not counted": lambda c: c.gmac - c.recurrent_gmac,
    "normalisation counted too": lambda c: c.gmac + c.norm_gmac,
    "normalisation counted, attention products not": (
        lambda c: c.gmac + c.norm_gmac - c.attention_gmac
    ),
}


def count_of(workload: Workload) -> Count:
    """The counts of an inference workload, for a batch of one."""
    graph = workload.passes[0].graph
    flop = graph.ops.flop @ monomials(1, 1)[0]
    return Count(
        num_parameters=workload.num_parameters,
        gmac=float(flop.sum()) / 2e9,
        attention_gmac=float(flop[graph.ops.kind == OpKind.ATTENTION].sum()) / 2e9,
        recurrent_gmac=float(flop[graph.ops.kind == OpKind.RECURRENT].sum()) / 2e9,
        norm_gmac=_norm_operations(graph) / 1e9,
    )


def _norm_operations(graph: Graph) -> float:
    dims = graph.ops.dims @ monomials(1, 1)[0]
    elements = dims[:, 0] * dims[:, 1]
    total = 0.0
    for name, operations in NORM_OPERATIONS.items():
        is_norm = graph.ops.kind == OpKind.NORM
        is_norm &= graph.ops.variant == variants()["NORM", name]
        total += operations * float(elements[is_norm].sum())
    return total


def explanation(count: Count, published_gmac: float, *, within_frac: float = 0.02) -> str | None:
    """The first way of counting that gives the published figure, or None."""
    for name, way in COUNTED_WAYS.items():
        off = abs(way(count) - published_gmac)
        if off <= max(within_frac * published_gmac, ROUNDING_GMAC):
            return name
    return None


def published_rows() -> list[dict[str, str]]:
    """The published figures: family, model, image size, millions of parameters, GMAC, file."""
    text = (PUBLISHED / "timm_published.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def traced(model: str, image_size: int) -> Workload:
    """Trace a model of timm in this process."""
    if str(WORKERS) not in sys.path:
        sys.path.append(str(WORKERS))
    worker, entry = importlib.import_module("torch_worker"), f"timm:{model}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = {"entry": entry, "task": "infer", "image_size": image_size}
        report = worker.serve(request, lambda _: None)
    return workload_from_report(report, entry=entry, task="infer", optimizer="adamw")


def _cached(folder: Path | None) -> dict[tuple[str, str], Count]:
    """Counts of the inference workloads in a folder, by model and input."""
    found = {}
    for path in sorted(folder.glob("*.npz")) if folder else ():
        workload = read_workload(path)
        if workload.task == "infer" and workload.name.startswith("timm:"):
            found[workload.name[5:], workload.input_description] = count_of(workload)
    return found


def _lines(cache: dict[tuple[str, str], Count]) -> Iterator[dict[str, object]]:
    for row in published_rows():
        size = row["image_size"]
        count = cache.get((row["model"], f"{size}×{size}"))
        count = count or count_of(traced(row["model"], int(size)))
        why = explanation(count, float(row["gmacs"]))
        yield {**row, "traced_params_m": round(count.num_parameters / 1e6, 3),
               "traced_gmac": round(count.gmac, 4), "counted": why or "unexplained"}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=None)
    columns = [*published_rows()[0], "traced_params_m", "traced_gmac", "counted"]
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for line in _lines(_cached(parser.parse_args().cache)):
        writer.writerow(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
