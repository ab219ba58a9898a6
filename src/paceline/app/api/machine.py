"""The public functions for the machine at hand: measure it, judge it, and show what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from paceline.app.options import check_above_zero
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.app.truth.measuring import Examination, MeasureRequest
    from paceline.execution.ceilings import Ceiling
    from paceline.execution.measure import Notice
    from paceline.execution.stacks import Stack
    from paceline.measurements.compare import CellComparison
    from paceline.measurements.ledger import LedgerRow


class MeasureOptions(TypedDict, total=False):
    """What is measured and how, named as on the command line; see `MeasureRequest`."""

    batch: tuple[int, ...] | None
    devices: tuple[int, ...]
    mode: tuple[str, ...]
    precision: tuple[str, ...]
    compiler: tuple[str, ...]
    stack: tuple[str, ...]
    python: str | None
    device: str
    threads: int | None
    seq: int
    image_size: int | None
    optimizer: str
    channels_last: bool
    timeout: str
    memory: str | None
    seconds: float
    profile: Path | None
    store: Path | None


def measure(
    *models: str,
    html: Path | None = None,
    on_progress: Callable[[Notice], None] | None = None,
    on: str | None = None,
    settings: Mapping[str, str] | None = None,
    directory: str | None = None,
    runs: Path | None = None,
    on_notice: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> tuple[LedgerRow, ...]:
    """Measure models here or elsewhere: batch against devices, precision, compiler and stack.

    Each cell runs in a process of its own; running out of memory, crashing and hanging are
    outcomes of a cell. What was measured is kept, and the same call goes on from there.

    Args:
        *models: As in `plan`; with ``on`` also one plan file, whose first offers are measured.
        html: Writes a report that opens offline.
        on_progress: Called when a cell begins and ends; silent if None.
        on: What runs it elsewhere, such as ``"slurm"`` or ``"ssh:HOST"``; this machine if None.
            ``python`` is then one there that has paceline.
        settings: Facts of the launch file there, as `deploy` takes them, or of a plain task; of a
            plan also ``offers``, how many of its first are measured.
        directory: Folder there in which it runs.
        runs: Folder of all runs, which those elsewhere stand in; the user's own if None.
        on_notice: Called with each line about a run elsewhere; silent if None.
        **options: ``batch`` (items per device, None for the largest that fits), ``devices``,
            ``mode``, ``precision``, ``compiler``, ``stack``: tuples, each against each;
            ``python``, ``device`` (``"cpu,gpu"`` measures on both), ``threads``, ``seq``,
            ``image_size``, ``optimizer``, ``channels_last``, ``timeout``, ``memory``, ``seconds``,
            ``profile``, ``store``: one value each, as on the command line.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.api.running import check_elsewhere
    from paceline.app.truth import measuring

    request = measuring.MeasureRequest(models=models, **options)
    check_above_zero(
        threads=request.threads,
        seq=request.seq,
        image_size=request.image_size,
        seconds=request.seconds,
    )
    if html is not None:
        measuring.check_page(html)
    if on is None:
        _check_here(models, runs)
        check_elsewhere(on, settings, directory, has_plan=False)
        rows = measuring.measure(request, talk=on_progress or (lambda _: None))
    else:
        rows = _measure_elsewhere(request, on, settings or {}, directory, runs, on_notice)
    if html is not None:
        measuring.write_html(rows, html)
    return rows


def _check_here(models: Sequence[str], runs: Path | None) -> None:
    from paceline.app.truth.measuring_elsewhere import plan_named

    if plan_named(models) is not None:
        raise InvalidInputError(
            f"`{models[0]}` is a plan, and its machines are elsewhere",
            hint="say where with --on, such as --on slurm, or name a model",
        )
    if runs is not None:
        raise InvalidInputError(
            "`--runs` says nothing of a sweep on this machine", hint="it belongs to --on"
        )


def _measure_elsewhere(
    request: MeasureRequest, on: str, settings: Mapping[str, str], directory: str | None,
    runs: Path | None, on_notice: Callable[[str], None] | None,
) -> tuple[LedgerRow, ...]:  # fmt: skip
    from paceline.app.api.running import check_elsewhere
    from paceline.app.truth.measuring_elsewhere import Elsewhere, measure_elsewhere, plan_named

    check_elsewhere(on, settings, directory, has_plan=plan_named(request.models) is not None)
    there = Elsewhere(on=on, settings=settings, directory=directory, runs=runs)
    return measure_elsewhere(request, there, say=on_notice or (lambda _: None))


def doctor(log: Path | None = None) -> Examination:
    """What this machine has, and what is wrong with it or with a failed run's output.

    Args:
        log: Output of a failed run.

    Raises:
        InvalidInputError: The log cannot be read.
    """
    from paceline.app.truth.measuring import examine

    return examine(log)


def ceilings(
    *,
    stack: str | None = None,
    devices: int = 1,
    threads: int | None = None,
    size: int = 1024,
    store: Path | None = None,
) -> tuple[Ceiling, ...]:
    """Measure what this machine can do at best: products, memory, copies, collectives.

    Args:
        stack: Such as ``torch``, ``opencl``, ``jax``; the torch at hand if None.
        devices: Ranks of the collectives.
        threads: CPU threads of each process; shared evenly if None.
        size: Side of the largest matrix.
        store: Folder of measurements; the usual one if None.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.api.pages import find_ceilings

    check_above_zero(devices=devices, threads=threads)
    return find_ceilings(stack, num_devices=devices, num_threads=threads, size=size, store=store)


def compare(before: Path, after: Path, *, tolerance: float = 0.05) -> tuple[CellComparison, ...]:
    """Judge two sets of measurements cell by cell.

    Args:
        before: Store folder or ``.jsonl`` file.
        after: The same.
        tolerance: Change of the median that does not matter, as a fraction.

    Raises:
        InvalidInputError: One of them holds no measurements.
    """
    from paceline.app.truth.measuring import compare_files

    return compare_files(Path(before), Path(after), tolerance_frac=tolerance)


def export(path: Path, *, where: str = "1", store: Path | None = None) -> int:
    """Write measurements to a file that other programs read; returns how many.

    Args:
        path: Ends in ``.csv``, ``.json``, ``.jsonl`` or ``.parquet``.
        where: SQL condition over the fields of a record, such as ``workload = 'vgg16'``.
        store: Folder of measurements; the usual one if None.

    Raises:
        InvalidInputError: There is no store, or the condition or the file cannot be used.
    """
    from paceline.measurements.export import export_records
    from paceline.measurements.index import find_records
    from paceline.measurements.store import default_store_folder

    folder = store or default_store_folder()
    if not folder.is_dir():
        raise InvalidInputError(
            f"there is no store of measurements in `{folder}`",
            hint="measure first (`paceline measure resnet18`), or name a store with --store",
        )
    records = find_records(folder, where)
    if not records and where == "1":
        raise InvalidInputError(
            f"`{folder}` holds no measurements", hint="name a store folder with --store"
        )
    export_records(records, Path(path))
    return len(records)


def report(
    subject: str | Path,
    html: Path = Path("report.html"),
    *,
    svg: Path | None = None,
    png: Path | None = None,
    device: str | None = None,
    batch: Sequence[int] = (32,),
    precision: str | None = None,
    task: str = "train",
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    compiler: str = "eager",
    rewrite: str = "",
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    as_of: str | date | None = None,
) -> tuple[Path, ...]:
    """Write one HTML file that opens offline, and its charts as pictures; returns their paths.

    Args:
        subject: A plan or lifecycle file, a folder or file of measurements, or a model (with
            ``device``).
        html: The page.
        svg: Folder for its charts as SVG pictures.
        png: Folder for its charts as PNG pictures.
        device: Of a model: one, several with commas.
        batch: Of a model: items per device.
        precision: Of a model; the usual one if None.
        task: Of a model: ``train`` or ``infer``.
        seq: Of a model, as the rest in `predict`.
        image_size: Pixels of the square input image.
        optimizer: ``sgd``, ``adam``, ``adamw``.
        python: The Python that has the model's framework; also of a lifecycle.
        compiler: ``eager`` or ``compiled``.
        rewrite: Further fields of `Configuration`: ``"lora_rank=8"``.
        facts: Files with your own devices; also of a lifecycle.
        calibration: File that `calibrate` wrote; also of a lifecycle.
        as_of: Of a lifecycle: day on which prices are judged; today if None.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.api.pages import ModelOptions, page_of
    from paceline.reporting.pages.html import page_html, write_pictures
    from paceline.writing import write_whole

    options = ModelOptions(
        task=task, seq=seq, image_size=image_size, optimizer=optimizer, python=python,
        device=device, batches=tuple(batch), precision=precision, compiler=compiler,
        rewrite=rewrite, facts=tuple(facts), calibration=calibration, as_of=as_of,
    )  # fmt: skip
    page = page_of(str(subject), options)
    write_whole(Path(html), page_html(page))
    written = [Path(html)]
    for folder, ending in ((svg, "svg"), (png, "png")):
        if folder is not None:
            written += write_pictures(page, Path(folder), ending=ending)
    return tuple(written)


def stacks_list() -> tuple[Stack, ...]:
    """Isolated environments to measure in that exist."""
    from paceline.execution.stacks import list_stacks, stacks_folder

    return list_stacks(stacks_folder())


def stacks_create(
    *names: str, on_progress: Callable[[str], None] | None = None
) -> tuple[Stack, ...]:
    """Make stacks with pip as you have configured it; those that exist are left as they are.

    Args:
        *names: Such as ``torch`` or ``torch==2.8.0``.
        on_progress: Called with one line per stage; silent if None.

    Raises:
        UnknownNameError: No such stack.
        WorkerError: An environment could not be made.
    """
    from paceline.execution.stacks import create_stack, find_spec, stacks_folder

    tell = on_progress or (lambda _: None)
    specs = [find_spec(name) for name in names]
    return tuple(create_stack(spec, stacks_folder(), talk=tell) for spec in specs)


def stacks_check(*names: str) -> tuple[str, ...]:
    """Start each stack's engine and say what it finds, a line each; all that exist without names.

    Raises:
        UnknownNameError: No such stack.
        WorkerError: One does not work.
    """
    from paceline.app.truth.measuring import check_stacks

    return tuple(check_stacks(names))


def stacks_remove(*names: str) -> tuple[bool, ...]:
    """Delete stacks; returns for each whether it was there."""
    from paceline.execution.stacks import remove_stack, stacks_folder

    return tuple(remove_stack(name, stacks_folder()) for name in names)
