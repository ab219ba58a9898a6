"""``feed`` and ``infer``: what a host feeds its devices with, and a trained model over data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, answer_of

if TYPE_CHECKING:
    from paceline.app.api.decisions import Feed
    from paceline.app.api.feeding import Inference


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("feed", feed)
    app.add_verb("infer", infer)


@common.answers
def feed(
    data: Annotated[
        str,
        Argument(
            metavar="DATA",
            help="imagenet, coco, cifar10 or mnist: predicted; a folder or file: measured.",
        ),
    ],
    size: Annotated[int, Option(help="Pixels of the square image that is sent.")] = 224,
    cores: Annotated[int | None, Option(help="Cores of the host; 8 if absent.")] = None,
    workers: Annotated[
        int | None,
        Option(help="Loader processes, one per core if absent; for a folder threads, chosen then."),
    ] = None,
    storage: Annotated[
        str | None,
        Option(help="nvme, sata-ssd, hdd, network-disk or object-store; nvme if absent."),
    ] = None,
    rate: Annotated[
        float | None, Option(metavar="1200", help="Samples per second one device could do.")
    ] = None,
    num_devices: Annotated[int, Option(help="Devices fed.", flags=("--devices",))] = 1,
    sent_as: Annotated[
        str | None, Option(help="float32 or uint8; float32 if absent, uint8 from a folder.")
    ] = None,
    measured: Annotated[
        float | None, Option(metavar="310", help="Samples per second this pipeline gives now.")
    ] = None,
    seconds: Annotated[
        float | None, Option(metavar="3", help="Run with all threads for so long; a folder.")
    ] = None,
    model: Annotated[
        str | None, Option(metavar="resnet50", help="Model whose training a folder should feed.")
    ] = None,
    device: common.Devices = None,
    check: Annotated[
        bool, Option(help="Read every sample of a folder, list damaged ones.")
    ] = False,
    damaged: Annotated[
        Path | None, Option(metavar="FILE", help="Write names and reasons of damaged samples.")
    ] = None,
    window: Annotated[
        int | None, Option(metavar="1024", help="Tokens of a sample; for token files.")
    ] = None,
    dtype: Annotated[
        str | None, Option(metavar="uint16", help="Numbers of token files without a header.")
    ] = None,
    python: common.Python = None,
) -> Answer:
    """Say what a host can feed its devices with, what holds it back, and what would help."""
    from paceline.app.api.decisions import Feed
    from paceline.app.api.decisions import feed as feed_devices
    from paceline.app.api.feeding import is_data, write_damaged
    from paceline.errors import InvalidInputError
    from paceline.reporting.screens import decisions as report

    if damaged is not None and not is_data(data):
        raise InvalidInputError(
            f"`{data}` is predicted, nothing is read: `--damaged` would change nothing",
            hint="leave it out",
        )
    given = {
        "seconds": seconds, "model": model, "device": device, "check": check, "window": window,
        "dtype": dtype, "python": python,
    }  # fmt: skip
    found = feed_devices(
        data, size=size, cores=cores, workers=workers, storage=storage, rate=rate,
        devices=num_devices, sent_as=sent_as, measured=measured,
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )  # fmt: skip
    if isinstance(found, Feed):
        table = report.input_table(found.samples_per_s_interval, found.remedies)
        stages = report.stage_table(found.delivered)
        return answer_of("input_side", found, _feed_sentence(found, num_devices), table, stages)
    if damaged is not None:
        write_damaged(found, damaged, warn=lambda line: print(line, file=sys.stderr))
    return answer_of(
        "folder_feed", found, report.folder_text(found, damaged), *report.folder_tables(found)
    )


def _feed_sentence(found: Feed, num_devices: int) -> str:
    from paceline.prediction.input_side import describe_feed

    if found.fed is None:
        rate = f"{found.delivered.samples_per_s:,.0f} samples/s"
        return f"delivers {rate}, limited by {found.delivered.limit}"
    needed = found.num_workers_needed
    workers = "1 worker" if needed == 1 else f"{needed or 'no number of'} workers"
    return f"{describe_feed(found.fed, found.delivered, num_devices)}; {workers} would do"


@common.answers
def infer(
    model: Annotated[
        str, Argument(metavar="MODEL", help="ONNX file, or module:function returning the model.")
    ],
    data: Annotated[str, Option(metavar="FOLDER", help="Images, shards or tables to label.")],
    out: Annotated[str, Option(metavar="FILE", help="Parquet file to write.")],
    batch: Annotated[int, Option(help="Samples at once; one in latency mode.")] = 32,
    size: Annotated[int, Option(help="Pixels of the square image.")] = 224,
    normalise: Annotated[
        str, Option(help="imagenet: by its means and deviations; none: bytes.")
    ] = "imagenet",
    runtime: Annotated[
        str, Option(help="torch, onnxruntime, openvino, or auto: predicted to be the fastest.")
    ] = "auto",
    mode: Annotated[str, Option(help="throughput, or latency: one at a time.")] = "throughput",
    device: Annotated[str, Option(metavar="cpu", help="cpu or cuda.")] = "cpu",
    workers: Annotated[int | None, Option(help="Threads that decode; chosen if absent.")] = None,
    scores: Annotated[bool, Option(help="Keep all scores, not only the highest.")] = False,
    part: Annotated[
        int | None, Option(metavar="4096", help="Rows that a stop may lose at most.")
    ] = None,
    export: Annotated[
        str | None, Option(metavar="FILE", help="Write module:function as a checked ONNX file too.")
    ] = None,
    python: common.Python = None,
) -> Answer:
    """Run a trained model over data into a Parquet file; after a stop it goes on where it was."""
    from paceline.app.api.feeding import infer as run_model

    found = run_model(
        model, data, out, batch=batch, size=size, normalise=normalise, runtime=runtime, mode=mode,
        device=device, workers=workers, scores=scores, part=part, export=export, python=python,
    )  # fmt: skip
    return answer_of("inference", found, "\n".join(_infer_lines(found)))


def _infer_lines(found: Inference) -> list[str]:
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
