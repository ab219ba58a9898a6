"""``feed`` and ``infer``: what a host feeds its devices with, and a trained model over data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from paceline.app import options as common
from paceline.app.api import decisions
from paceline.app.api import feeding as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of


@common.answers
@asks(
    decisions.feed,
    data=Argument(
        "DATA", "imagenet, coco, cifar10 or mnist: predicted; a folder or file: measured."
    ),
    size=Option("Pixels of the square image that is sent."),
    cores=Option("Cores of the host; 8 if absent."),
    workers=Option("Loader processes, one per core if absent; for a folder threads, chosen then."),
    storage=Option("nvme, sata-ssd, hdd, network-disk or object-store; nvme if absent."),
    rate=Option("Samples per second one device could do.", "1200"),
    devices=Option("Devices fed."),
    sent_as=Option("float32 or uint8; float32 if absent, uint8 from a folder."),
    measured=Option("Samples per second this pipeline gives now.", "310"),
    seconds=Annotated[float | None, Option("Run with all threads for so long; a folder.", "3")],
    model=Annotated[str | None, Option("Model whose training a folder should feed.", "resnet50")],
    device=common.Devices,
    check=Annotated[
        bool, Option("Read every sample of a folder, list damaged ones.", default=False)
    ],
    damaged=Annotated[Path | None, Option("Write names and reasons of damaged samples.", "FILE")],
    window=Annotated[int | None, Option("Tokens of a sample; for token files.", "1024")],
    dtype=Annotated[str | None, Option("Numbers of token files without a header.", "uint16")],
    python=common.Python,
)
def feed(*, data: str, devices: int, damaged: Path | None, **asked: Any) -> Answer:
    """Say what a host can feed its devices with, what holds it back, and what would help."""
    from paceline.errors import InvalidInputError
    from paceline.reporting.screens import decisions as report

    if damaged is not None and not api.is_data(data):
        raise InvalidInputError(
            f"`{data}` is predicted, nothing is read: `--damaged` would change nothing",
            hint="leave it out",
        )
    given = {name: value for name, value in asked.items() if value is not None}
    found = decisions.feed(data, devices=devices, **given)
    if isinstance(found, decisions.Feed):
        table = report.input_table(found.samples_per_s_interval, found.remedies)
        stages = report.stage_table(found.delivered)
        return answer_of("input_side", found, _feed_sentence(found, devices), table, stages)
    if damaged is not None:
        api.write_damaged(found, damaged, warn=lambda line: print(line, file=sys.stderr))
    return answer_of(
        "folder_feed", found, report.folder_text(found, damaged), *report.folder_tables(found)
    )


def _feed_sentence(found: decisions.Feed, num_devices: int) -> str:
    from paceline.prediction.input_side import describe_feed

    if found.fed is None:
        rate = f"{found.delivered.samples_per_s:,.0f} samples/s"
        return f"delivers {rate}, limited by {found.delivered.limit}"
    needed = found.num_workers_needed
    workers = "1 worker" if needed == 1 else f"{needed or 'no number of'} workers"
    return f"{describe_feed(found.fed, found.delivered, num_devices)}; {workers} would do"


@common.answers
@asks(
    api.infer,
    model=Argument("MODEL", "ONNX file, or module:function returning the model."),
    data=Option("Images, shards or tables to label.", "FOLDER"),
    out=Option("Parquet file to write.", "FILE"),
    batch=Option("Samples at once; one in latency mode."),
    size=Option("Pixels of the square image."),
    normalise=Option("imagenet: by its means and deviations; none: bytes."),
    runtime=Option("torch, onnxruntime, openvino, or auto: predicted to be the fastest."),
    mode=Option("throughput, or latency: one at a time."),
    device=Option("cpu or cuda.", "cpu"),
    workers=Option("Threads that decode; chosen if absent."),
    scores=Option("Keep all scores, not only the highest."),
    part=Option("Rows that a stop may lose at most.", "4096"),
    export=Option("Write module:function as a checked ONNX file too.", "FILE"),
    python=common.Python,
)
def infer(**asked: Any) -> Answer:
    """Run a trained model over data into a Parquet file; after a stop it goes on where it was."""
    found = api.infer(**asked)
    return answer_of("inference", found, "\n".join(_infer_lines(found)))


def _infer_lines(found: api.Inference) -> list[str]:
    """What was written, how fast, what held it back."""
    from paceline.units import format_duration

    if not found.is_complete:
        return [f"stopped; the same command goes on: {found.out}.parts"]
    before = f", {found.num_done_before:,} of them before" if found.num_done_before else ""
    damaged = f", {found.num_damaged:,} damaged" if found.num_damaged else ""
    lines = [f"{found.out}: {found.num_rows:,} rows{before}{damaged}"]
    if found.wall_s is None or found.samples_per_s is None or found.device_s is None:
        return lines
    expected = found.predicted_device_s
    predicted = "" if expected is None else f" (predicted {format_duration(expected)})"
    lines.append(
        f"{found.samples_per_s:,.0f} samples/s by {found.runtime}: "
        f"{format_duration(found.wall_s)}, the model {format_duration(found.device_s)}{predicted}, "
        f"waiting for input {format_duration(found.waited_s or 0)}, "
        f"rows {format_duration(found.after_s or 0)}"
    )
    if found.latency_p50_s is not None and found.latency_p99_s is not None:
        p50, p99 = format_duration(found.latency_p50_s), format_duration(found.latency_p99_s)
        lines.append(f"a batch takes {p50} (median), {p99} (99 of 100)")
    return lines
