"""What the reporting verbs do: find out what a subject is and make its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.app.truth.local_prediction import ledger_of_store
from paceline.app.truth.measuring import read_records
from paceline.errors import InvalidInputError, MissingFactError
from paceline.execution.ceilings import Ceiling
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.reporting.pages.page import Page


#: Sides of the matrices of micro-benchmarks: three of the largest take 50 GB.
_LEAST_SIZE, _MOST_SIZE = 64, 65_536
#: Frameworks whose engines have micro-benchmarks.
_WITH_CEILINGS = ("torch", "opencl", "jax", "tensorflow", "keras-torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How the model of a page is run and where; see `paceline.app.api.planning.predict`."""

    device: str | None = None
    batches: tuple[int, ...] = (32,)
    precision: str | None = None
    task: str = "train"
    seq: int | None = None
    image_size: int | None = None
    optimizer: str | None = None
    python: str | None = None
    compiler: str = "eager"
    rewrite: str = ""
    facts: tuple[Path, ...] = ()
    calibration: Path | None = None
    as_of: str | date | None = None

    def shared(self) -> dict[str, Any]:
        """What `predict` and `trace` take alike."""
        names = [field.name for field in fields(self)]
        return {name: getattr(self, name) for name in names if name not in ("batches", "as_of")}


#: Options that each kind of subject has a use for.
_TAKEN_BY: Mapping[str, frozenset[str]] = {
    "plan file": frozenset(),
    "store": frozenset(),
    "lifecycle file": frozenset({"python", "facts", "calibration", "as_of"}),
    "model": frozenset(field.name for field in fields(ModelOptions)) - {"as_of"},
}


def page_of(subject: str, options: ModelOptions) -> Page:
    """The page of a plan or lifecycle file, of measurements, or of a model on a device.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    path = Path(subject)
    _check_taken(path, options)
    if path.suffix in (".yaml", ".yml"):
        return _file_page(path, options)
    if path.is_dir() or path.suffix == ".jsonl":
        from paceline.reporting.pages.measured import measurements_page

        return measurements_page(ledger_of_store(read_records(path)))
    if options.device is None:
        raise InvalidInputError(
            f"`{subject}` is no plan file and no folder of measurements",
            hint="for a model, name a device: paceline report resnet50 --device a100",
        )
    return _model_page(subject, options.device, options)


def _check_taken(path: Path, options: ModelOptions) -> None:
    """Refuse options that the kind of subject has no use for."""
    kind = _kind_of(path)
    plain, taken = ModelOptions(), _TAKEN_BY[kind]
    for field in fields(ModelOptions):
        is_stated = getattr(options, field.name) != getattr(plain, field.name)
        if is_stated and field.name not in taken:
            option = field.name.replace("batches", "batch").replace("_", "-")
            raise InvalidInputError(f"`--{option}` says nothing of a {kind}", hint="leave it out")


def _kind_of(path: Path) -> str:
    """What a page is about, in words."""
    if path.suffix in (".yaml", ".yml"):
        from paceline.planning.lifecycle.file import is_lifecycle

        return "lifecycle file" if is_lifecycle(path) else "plan file"
    return "store" if path.is_dir() or path.suffix == ".jsonl" else "model"


def _file_page(path: Path, options: ModelOptions) -> Page:
    from paceline.planning.lifecycle.file import is_lifecycle

    if is_lifecycle(path):
        from paceline.app.api.decisions import lifecycle
        from paceline.reporting.pages.lifecycle import lifecycle_page

        return lifecycle_page(
            lifecycle(
                path,
                python=options.python,
                facts=options.facts,
                calibration=options.calibration,
                as_of=options.as_of,
            )
        )
    from paceline.planning.goal.files import read_plan
    from paceline.reporting.pages.planned import plan_page

    return plan_page(read_plan(path))


def find_ceilings(
    stack: str | None,
    *,
    num_devices: int,
    num_threads: int | None,
    size: int,
    store: Path | None,
) -> tuple[Ceiling, ...]:
    """Measure the ceilings and keep them.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.truth.measuring import place_here
    from paceline.execution.ceilings import measure_ceilings, summarize_ceilings
    from paceline.execution.conditions import Settings
    from paceline.execution.stacks import default_stack, find_stack, stacks_folder
    from paceline.measurements.store import Store, default_store_folder

    if not _LEAST_SIZE <= size <= _MOST_SIZE:
        limits = f"write {_LEAST_SIZE} to {_MOST_SIZE:,}"
        raise InvalidInputError(f"a matrix of {size}", hint=limits)
    place, device = place_here(num_devices)
    share = 1 if device == "cuda" else num_devices
    settings = Settings(
        num_threads=num_threads or max(1, place.facts.num_threads // share), device=device
    )
    folder = stacks_folder()
    chosen = find_stack(stack, folder) if stack else default_stack(folder)
    if chosen.spec.framework not in _WITH_CEILINGS:
        raise InvalidInputError(
            f"the stack `{stack}` has no micro-benchmarks",
            hint=f"those of {', '.join(_WITH_CEILINGS)} have",
        )
    records = []
    with Store(store or default_store_folder()) as kept:
        for record in measure_ceilings(chosen, place, settings, num_devices=num_devices, size=size):
            kept.append(record)
            records.append(record)
    return summarize_ceilings(records)


def _model_page(model: str, device: str, options: ModelOptions) -> Page:
    from paceline.app.api.planning import predict, trace
    from paceline.catalog.load import load_catalog
    from paceline.catalog.lookup import find_device
    from paceline.dtypes import find_precision
    from paceline.reporting.pages.planned import predictions_page, trace_page

    if "," in device or len(options.batches) > 1:
        return predictions_page(predict(model, batch=options.batches, **options.shared()))
    found = find_device(load_catalog(options.facts), device)
    traced = trace(model, batch=options.batches[0], top=200, **options.shared())
    flop_per_s = found.dense_peak_flop_per_s(find_precision(traced.precision))
    if flop_per_s is None or found.memory_bytes_per_s is None:
        raise MissingFactError(
            f"the peaks of `{found.name}` are not known", hint="choose another device"
        )
    settings = f", {traced.rewrite}" if traced.rewrite else ""
    title = f"{traced.title} on {found.name}, {traced.precision} {traced.compiler}{settings}"
    return trace_page(
        title,
        traced,
        flop_per_s=flop_per_s,
        bytes_per_s=found.memory_bytes_per_s,
        memory_bytes=found.memory_bytes,
    )
