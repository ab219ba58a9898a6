"""The job that a script runs, as the observer took it out of its first steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload, workload_from_report
from paceline.model.rewrite.optimizer import find_optimizer
from paceline.units import format_count
from paceline.values import dataclass

CAPTURE_FILE = "capture.json"
MODEL_FILE = "model.npz"

#: Precision of what autocast multiplies, and of what is multiplied as it is stored.
_AUTOCAST = {"bfloat16": "bf16", "float16": "fp16"}
#: Weights in half width without a copy in full.
_PURE = "training_format=pure"
#: Images as PyTorch lays them out where nothing is said; a prediction takes the better layout.
CHANNELS_FIRST = "channels_last=no"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedJob:
    """What was read out of a script.

    Attributes:
        model: Class of the model, or of several.
        batch: Items of a microbatch on each rank.
        seq: Tokens of a sequence; None without any.
        optimizer: As paceline calls it; empty where it knows none like it.
        optimizer_class: As the script calls it.
        precision: As paceline calls it; empty where it has none such.
        precision_note: What the script does, in words of PyTorch.
        rewrite: Settings of the step beside; empty for none.
        compiler: ``eager`` or ``compiled``.
        microbatches: Per optimizer step.
        world_size: Ranks of the job.
        wrappers: Classes of PyTorch that spread the model over ranks.
        num_workers: Of the loader; None where none was seen.
        why_untraced: Why there is no graph; empty where there is one.
        described: File of the model as its own framework describes it; empty where it was traced.
    """

    model: str
    num_parameters: int
    batch: int
    seq: int | None
    optimizer: str
    optimizer_class: str
    precision: str
    precision_note: str
    rewrite: str
    compiler: str
    microbatches: int
    world_size: int
    wrappers: tuple[str, ...]
    num_workers: int | None
    why_untraced: str
    described: str = ""

    @property
    def words(self) -> dict[str, str]:
        """As printed."""
        found = {
            "": f"{self.model} ({format_count(self.num_parameters)} parameters)",
            "batch": str(self.batch) + (f" × {self.microbatches}" * (self.microbatches > 1)),
            "seq": str(self.seq or ""),
            "optimizer": self.optimizer or self.optimizer_class,
            "precision": self.precision or self.precision_note,
            "ranks": str(self.world_size) * (self.world_size > 1),
            "compiled": "yes" * (self.compiler == "compiled"),
            "loader workers": "" if self.num_workers is None else str(self.num_workers),
        }
        return {name: value for name, value in found.items() if value}


def read_capture(folder: Path) -> tuple[CapturedJob | None, Mapping[str, Any]]:
    """The job of a run folder and the tracer's report on its model; None and nothing without."""
    try:
        found = json.loads((folder / CAPTURE_FILE).read_text(encoding="utf-8"))
        job = _job(found, folder)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None, {}
    report = found.get("report")
    return job, report if isinstance(report, dict) else {}


def _job(found: Mapping[str, Any], folder: Path) -> CapturedJob | None:
    facts = found.get("facts")
    if not isinstance(facts, dict):
        return None
    precision, note, rewrite = _precision(facts.get("precision") or {})
    first = facts["optimizer"][0]
    error = str(found.get("error") or "")
    described = "" if error or not facts.get("described") else str(folder / facts["described"])
    is_known = bool(found.get("report") or described)
    return CapturedJob(
        model=str(facts["model"]),
        num_parameters=int(facts["num_parameters"]),
        batch=int(facts["batch"]),
        seq=None if facts["seq"] is None else int(facts["seq"]),
        optimizer=_optimizer(first),
        optimizer_class=str(first["name"]),
        precision=precision,
        precision_note=note,
        rewrite=",".join(filter(None, (rewrite, _layout(facts)))),
        compiler=str(facts["compiler"]),
        microbatches=int(facts["microbatches"]),
        world_size=int(facts["world_size"]),
        wrappers=tuple(map(str, facts["wrappers"])),
        num_workers=(facts["loader"] or {}).get("num_workers"),
        why_untraced="" if is_known else error or "it was not traced",
        described=described,
    )


def _optimizer(seen: Mapping[str, Any]) -> str:
    """By its own name, else by the class of PyTorch that it descends from."""
    for name in (seen.get("name"), seen.get("family")):
        plain = str(name or "").lower()
        if plain == "sgd" and seen.get("momentum"):
            plain = "sgd-momentum"
        try:
            return find_optimizer(plain).name
        except PacelineError:
            continue
    return ""


def _precision(seen: Mapping[str, Any]) -> tuple[str, str, str]:
    """(name, in PyTorch's words, settings beside)."""
    weights, autocast = str(seen.get("weights", "")), seen.get("autocast")
    if autocast is not None:
        return _AUTOCAST.get(str(autocast), ""), f"autocast {autocast} over {weights}", ""
    if weights in _AUTOCAST:
        return _AUTOCAST[weights], f"weights in {weights}", _PURE
    if weights == "float32":
        return ("tf32" if seen.get("tf32") else "fp32"), weights, ""
    return "", weights, ""


def _layout(facts: Mapping[str, Any]) -> str:
    """What an eager script does otherwise with its images; a compiler chooses for itself."""
    is_first = facts.get("channels_last") is False and facts["compiler"] == "eager"
    return CHANNELS_FIRST if is_first else ""


def workload_of(job: CapturedJob, report: Mapping[str, Any], *, name: str) -> Workload:
    """The workload of a captured job.

    Raises:
        InvalidInputError: It was not traced, or its optimizer is none that paceline knows.
    """
    if job.why_untraced or not (report or job.described):
        raise InvalidInputError(
            f"the model of the script ({job.model}) cannot be traced: {job.why_untraced}",
            hint="write a function that builds it, and name that: docs/how-to/own-model.md",
        )
    if not job.optimizer:
        raise InvalidInputError(
            f"the script's optimizer `{job.optimizer_class}` is none that paceline knows",
            hint="predict with one that keeps as much state: `--optimizer adamw`",
        )
    if job.described:
        found = load_workload(job.described, task="train", seq=job.seq, optimizer=job.optimizer)
        return replace(found, name=name, title=name)
    return workload_from_report(dict(report), entry=name, task="train", optimizer=job.optimizer)
