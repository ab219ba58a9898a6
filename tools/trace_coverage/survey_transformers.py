"""Trace the causal and masked language models of transformers at their own default sizes.

Usage: PYTHONPATH=tools python -m trace_coverage.survey_transformers OUT.csv [SHARD/SHARDS]

Writes one line per class: whether its default config builds, whether a training step and an
inference (prefill and decode of a decoder, forward of all else) become op graphs, and at which
lengths those are known. Classes that OUT.csv has already are not tried again, so that a survey can
be stopped and taken up.
"""

from __future__ import annotations

import csv
import importlib
import signal
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.model.graph.workload import Task
from paceline.model.reading.load import workload_from_report

WORKERS = Path(__file__).parents[2] / "src" / "paceline" / "frontends" / "torch"
LIMIT_S = 600
#: The one length that models with a loop over time, chunks or windows are traced at.
LENGTH = 64
COLUMNS = ("model_class", "builds", "train", "infer", "train_lengths", "infer_lengths",
           "parameters", "cpu_s")  # fmt: skip


class TooSlowError(Exception):
    """A class took longer than the survey grants it."""


def class_names() -> list[str]:
    """Every causal and masked language model, in an order of which any beginning is a sample."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    names = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    names |= set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))


def attempt(work: Callable[[], Any]) -> tuple[str, Any]:
    """``ok`` and the result, or the reason and None."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"longer than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    try:
        return "ok", work()
    except Exception as error:  # noqa: BLE001 - a survey records whatever a library raises
        first_line = next(iter(str(error).splitlines()), "")[:120]
        return f"{type(error).__name__}: {first_line}", None
    finally:
        signal.alarm(0)


def traced(subject: Any, name: str, task: Task) -> str:
    """Lengths at which the op graphs of a task are known."""
    report = importlib.import_module("torch_worker").report(subject, task, LENGTH)
    workload = workload_from_report(report, entry=name, task=task, optimizer="adamw")
    if workload.has_fixed_length:
        return f"{workload.default_seq} only"
    return "all"


def survey(name: str) -> dict[str, object]:
    """One line of the table."""
    hf = importlib.import_module("torch_transformers.families")
    start = time.process_time()
    row: dict[str, object] = dict.fromkeys(COLUMNS, "")
    row["model_class"] = name
    row["builds"], subject = attempt(lambda: hf.hf_subject(name, {}))
    if subject is not None:
        row["parameters"] = sum(p.numel() for p in subject.model.parameters())
        row["train"], row["train_lengths"] = attempt(lambda: traced(subject, name, "train"))
        row["infer"], row["infer_lengths"] = attempt(lambda: traced(subject, name, "infer"))
    return {**row, "cpu_s": round(time.process_time() - start, 1)}


def surveyed(path: Path) -> set[str]:
    """Classes that the file has already."""
    if not path.exists():
        return set()
    with path.open(encoding="utf-8") as file:
        return {row["model_class"] for row in csv.DictReader(file)}


def main(out: str, share: str = "0/1") -> None:
    """Survey the classes of one share that are still to do."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(WORKERS))
    importlib.import_module("torch_networks.zoo").import_torchvision()
    shard, num_shards = (int(part) for part in share.split("/"))
    path, done = Path(out), surveyed(Path(out))
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not done:
            writer.writeheader()
        for name in class_names()[shard::num_shards]:
            if name not in done:
                writer.writerow(survey(name))
                file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
