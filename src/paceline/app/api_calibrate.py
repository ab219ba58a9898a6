"""The public functions that let a user's own measurements correct the predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.app.inquiry import load, read_calibration, read_day
from paceline.app.options import check_above_zero

if TYPE_CHECKING:
    from paceline.app.scoring.calibrating import CalibrationSummary
    from paceline.app.trials import Trials
    from paceline.predict import Update


def calibrate(
    rows: Path,
    out: Path,
    *,
    calibration: Path | None = None,
    python: str | None = None,
    facts: Sequence[Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> CalibrationSummary:
    """Learn from a table of your own measurements how far steps of its devices are off.

    Args:
        rows: The table (CSV): the columns of `score`, with ``step_time_ms`` or ``throughput``; runs
            that `trials` asked for, with their times; or a folder of `measure`.
        out: Where the calibration goes (JSON), for the ``calibration`` of the other verbs.
        calibration: A calibration to add to.
        python: The Python that has torch, for models that must be traced; found if None.
        facts: Files with your own devices.
        on_progress: Called with one line per model; silent if None.

    Raises:
        InvalidInputError: A table that cannot be read, holds nothing that can be used, or a row
            that is more than ten times off.
    """
    from paceline.app.scoring.calibrating import calibrate_rows
    from paceline.catalog import load_catalog
    from paceline.predict import write_updates

    found, summary = calibrate_rows(
        Path(rows),
        catalog=load_catalog(tuple(facts)),
        label=f"{date.today()} {Path(rows).resolve().name}",
        start=read_calibration(calibration),
        python=python,
        on_progress=on_progress or (lambda _: None),
    )
    write_updates(found, out)
    return summary


def calibrate_list(calibration: Path) -> tuple[Update, ...]:
    """What a calibration has learned: one update per table, the oldest first.

    Args:
        calibration: File that `calibrate` wrote.

    Raises:
        InvalidInputError: Not such a file.
    """
    from paceline.predict import builtin_calibration, read_updates

    return read_updates(builtin_calibration(), Path(calibration)).updates


def calibrate_undo(calibration: Path, name: str = "last") -> tuple[Update, ...]:
    """Forget one update of a calibration, and write the file again.

    Args:
        calibration: File that `calibrate` wrote.
        name: Label of the update, as `calibrate_list` has it; ``last`` is the newest.

    Returns:
        What is left.

    Raises:
        InvalidInputError: Not such a file, or no update of that name.
    """
    from paceline.predict import builtin_calibration, read_updates, undo, write_updates

    kept = read_updates(builtin_calibration(), Path(calibration))
    kept = undo(kept, None if name == "last" else name)
    write_updates(kept, Path(calibration))
    return kept.updates


def trials(
    model: object,
    *,
    device: str | None = None,
    offer: str | None = None,
    devices: int = 8,
    global_batch: int | None = None,
    num: int = 3,
    rows: Path | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    precision: str | None = None,
    compiler: str = "eager",
    rewrite: str = "",
    as_of: str | date | None = None,
    calibration: Path | None = None,
    facts: Sequence[Path] = (),
) -> Trials:
    """Name the runs whose times would most improve the choice between strategies of training.

    Args:
        model: As in `plan`.
        device: On the largest machines for rent with this device.
        offer: On these machines.
        devices: How many.
        global_batch: Items per step in all; what keeps every device busy if None.
        num: How many runs at most.
        rows: Where the runs are written (CSV), for their times and then for `calibrate`.
        seq: Sequence length; the workload's own if None.
        image_size: Pixels of the square input image; the workload's own if None.
        optimizer: ``sgd``, ``adam``, ``adamw``; the workload's own if None.
        python: The Python that has the model's framework; found if None.
        precision: Name in ``dtypes.PRECISIONS``; the usual one of the device if None.
        compiler: ``eager`` or ``compiled``.
        rewrite: Settings of the step, ``"lora_rank=8"``; what a strategy says is refused.
        as_of: Day on which prices are judged; today if None.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        facts: Files with your own devices and offers.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.scaling import ScalingQuestion
    from paceline.app.trial_rows import write_trials
    from paceline.app.trials import answer_trials

    check_above_zero(devices=devices, num=num)
    workload = load(
        model, task="train", seq=seq, image_size=image_size, optimizer=optimizer, python=python
    )
    question = ScalingQuestion(
        device=device, offer=offer, counts=(devices,), batch_per_device=None,
        global_batch=global_batch, seq=seq, precision=precision, compiler=compiler,
        rewrite=rewrite, facts=tuple(facts), calibration=calibration, today=read_day(as_of),
    )  # fmt: skip
    found = answer_trials(workload, question, num)
    if rows is not None:
        write_trials(found.trials, found.device, found.global_batch, rows)
    return found
