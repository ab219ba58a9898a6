"""``paceline report``, ``export`` and ``ceilings``: pages, pictures and files of what is known."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, answer_of, to_json


class _Precision(TypedDict, total=False):
    precision: common.Precision


class _RunOptions(TypedDict, total=False):
    compiler: common.Compiler
    rewrite: common.Rewrite


class ReportOptions(_Precision, common.ModelOptions, _RunOptions, common.FactOptions, total=False):
    """How the model of a page is traced and run, and the day of a lifecycle's prices."""

    as_of: common.AsOf


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("report", report)
    app.add_verb("export", export)
    app.add_verb("ceilings", ceilings)


def report(
    subject: Annotated[
        str,
        Argument(
            metavar="SUBJECT",
            help="A plan or lifecycle file, a folder or file of measurements, or a model (with "
            "--device).",
        ),
    ],
    html: Annotated[
        Path, Option(help="The page to write.", flags=("--html", "--output", "-o"))
    ] = Path("report.html"),
    svg: Annotated[Path | None, Option(help="Folder for its charts as SVG pictures.")] = None,
    png: Annotated[Path | None, Option(help="Folder for its charts as PNG pictures.")] = None,
    device: common.Devices = None,
    batch: Annotated[str, Option(help="Items per device, for a model.")] = "32",
    is_json: common.Json = False,
    **options: Unpack[ReportOptions],
) -> None:
    """Write one HTML file that opens offline: tables, charts, and where each number comes from."""
    from paceline.app.api.machine import report as write_report

    written = write_report(
        subject,
        html,
        svg=svg,
        png=png,
        device=device,
        batch=common.whole_numbers(batch, "batch"),
        **options,
    )
    if is_json:
        print(to_json(written, kind="files"))
    print(f"{html} written", file=sys.stderr)
    for folder, count in Counter(path.parent for path in written[1:]).items():
        print(f"{count} pictures written to {folder}", file=sys.stderr)


def export(
    path: Annotated[
        Path, Argument(metavar="FILE", help="Ends in .csv, .json, .jsonl or .parquet.")
    ],
    where: Annotated[
        str, Option(help="SQL condition over the fields of a record, such as workload = 'vgg16'.")
    ] = "1",
    store: common.Store = None,
    is_json: common.Json = False,
) -> None:
    """Write measurements to a file that other programs read."""
    from paceline.app.api.machine import export as export_records

    num_records = export_records(path, where=where, store=store)
    if is_json:
        print(to_json({"path": path, "num_records": num_records}, kind="export"))
    print(f"{num_records} records in {path}", file=sys.stderr)


@common.answers
def ceilings(
    stack: Annotated[
        str | None, Option(help="Such as torch, opencl, jax; the torch at hand without.")
    ] = None,
    devices: Annotated[int, Option(help="Ranks of the all-reduce.")] = 1,
    threads: Annotated[int | None, Option(help="CPU threads of each process.")] = None,
    size: Annotated[int, Option(help="Side of the largest matrix.")] = 1024,
    store: common.Store = None,
) -> Answer:
    """Measure what this machine can do at best: products, memory, copies, all-reduce."""
    from paceline.app.api.machine import ceilings as measure_ceilings
    from paceline.reporting.screens.machines import ceilings_table

    found = measure_ceilings(stack=stack, devices=devices, threads=threads, size=size, store=store)
    return answer_of("ceilings", found, ceilings_table(found))
