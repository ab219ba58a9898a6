"""The public functions that let a user's own measurements correct the predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from paceline.app.options import check_above_zero
from paceline.app.requests.plan_request import read_calibration
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.app.goal_options import ClusterOptions
    from paceline.app.requests.trials import Trials
    from paceline.app.truth.calibrating import CalibrationSummary
    from paceline.prediction.calibration.fitted import Update


def calibrate(
    rows: Path | None,
    out: Path,
    *,
    run: str | None = None,
    calibration: Path | None = None,
    python: str | None = None,
    facts: Sequence[Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> CalibrationSummary:
    """Learn from a table of your own measurements how far steps of its devices are off.

    Args:
        rows: The table (CSV): the columns of `score`, with ``step_time_ms`` or ``throughput``; runs
            that `trials` asked for, with their times; or a folder of `measure`. None where a run
            is named.
        out: Where the calibration goes (JSON), for the ``calibration`` of the other verbs.
        run: A run that was watched, by its name or how that begins. One on a CPU goes to the
            measurements of this machine, whose model learns from them; nothing is written to
            ``out``.
        calibration: A calibration to add to.
        python: The Python that has torch, for models that must be traced; found if None.
        facts: Files with your own devices.
        on_progress: Called with one line per model; silent if None.

    Raises:
        InvalidInputError: A table that cannot be read, holds nothing that can be used, or a row
            that is more than ten times off.
    """
    from paceline.app.truth.calibrating import calibrate_rows
    from paceline.catalog.load import load_catalog
    from paceline.prediction.calibration.from_measurements import write_updates

    if run is not None:
        from paceline.app.truth.run_lessons import is_on_cpu, measurements_of, teach_this_cpu
        from paceline.watch.folder import find_run

        watched = find_run(run)
        if is_on_cpu(watched):
            return teach_this_cpu(watched)
        rows = measurements_of(watched)
    if rows is None:
        raise InvalidInputError("nothing to learn from", hint="give rows, or the name of a run")
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
    from paceline.prediction.calibration.fitted import builtin_calibration
    from paceline.prediction.calibration.from_measurements import read_updates

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
    from paceline.prediction.calibration.fitted import builtin_calibration
    from paceline.prediction.calibration.from_measurements import read_updates, undo, write_updates

    kept = read_updates(builtin_calibration(), Path(calibration))
    kept = undo(kept, None if name == "last" else name)
    write_updates(kept, Path(calibration))
    return kept.updates


def trials(
    model: object,
    *,
    devices: int = 8,
    num: int = 3,
    rows: Path | None = None,
    **options: Unpack[ClusterOptions],
) -> Trials:
    """Name the runs whose times would most improve the choice between strategies of training.

    Args:
        model: As in `plan`.
        devices: How many.
        num: How many runs at most.
        rows: Where the runs are written (CSV), for their times and then for `calibrate`.
        **options: As in `scale`: ``device`` or ``offer``; ``global_batch``, what keeps every device
            busy if None; ``seq``, ``image_size``, ``optimizer``, ``python``, ``precision``,
            ``compiler``, ``framework``, ``rewrite``, ``as_of``, ``calibration``, ``facts``.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    from paceline.app.requests.scaling import read_question
    from paceline.app.requests.trials import answer_trials
    from paceline.app.truth.trial_rows import write_trials

    check_above_zero(devices=devices, num=num)
    found = answer_trials(*read_question(model, (devices,), **options), num)
    if rows is not None:
        write_trials(found.trials, found.device, found.global_batch, rows)
    return found
