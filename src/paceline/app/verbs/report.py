"""``paceline report``, ``export`` and ``ceilings``: pages, pictures and files of what is known."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from paceline.app import options as common
from paceline.app.api import machine as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of, to_json


@asks(
    api.report,
    subject=Annotated[
        str,
        Argument(
            "SUBJECT",
            "A plan or lifecycle file, a folder or file of measurements, or a model (with "
            "--device).",
        ),
    ],
    html=Option("The page to write.", flags=("--html", "--output", "-o")),
    svg=Option("Folder for its charts as SVG pictures."),
    png=Option("Folder for its charts as PNG pictures."),
    device=common.Devices,
    batch=Annotated[str, Option("Items per device, for a model.", default="32")],
    is_json=common.Json,
    precision=common.Precision,
    task=common.Task,
    **common.TRACED,
    compiler=common.Compiler,
    rewrite=common.Rewrite,
    **common.KNOWN,
    as_of=common.AsOf,
)
def report(*, html: Path, batch: str, is_json: bool, **asked: Any) -> None:
    """Write one HTML file that opens offline: tables, charts, and where each number comes from."""
    written = api.report(html=html, batch=common.whole_numbers(batch, "batch"), **asked)
    if is_json:
        print(to_json(written, kind="files"))
    print(f"{html} written", file=sys.stderr)
    for folder, count in Counter(path.parent for path in written[1:]).items():
        print(f"{count} pictures written to {folder}", file=sys.stderr)


@asks(
    api.export,
    path=Argument("FILE", "Ends in .csv, .json, .jsonl or .parquet."),
    where=Option("SQL condition over the fields of a record, such as workload = 'vgg16'."),
    store=common.Store,
    is_json=common.Json,
)
def export(*, path: Path, is_json: bool, **asked: Any) -> None:
    """Write measurements to a file that other programs read."""
    num_records = api.export(path, **asked)
    if is_json:
        print(to_json({"path": path, "num_records": num_records}, kind="export"))
    print(f"{num_records} records in {path}", file=sys.stderr)


@common.answers
@asks(
    api.ceilings,
    stack=Option("Such as torch, opencl, jax; the torch at hand without."),
    devices=Option("Ranks of the collectives."),
    threads=Option("CPU threads of each process."),
    size=Option("Side of the largest matrix."),
    store=common.Store,
)
def ceilings(**asked: Any) -> Answer:
    """Measure what this machine can do at best: products, memory, copies, collectives."""
    from paceline.reporting.screens.machines import ceilings_table

    found = api.ceilings(**asked)
    return answer_of("ceilings", found, ceilings_table(found))
