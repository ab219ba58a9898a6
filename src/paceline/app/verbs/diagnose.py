"""``paceline diagnose``: what slows a training script, by experiments inside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from paceline.app import options as common
from paceline.app.command_line import Option
from paceline.app.output import Answer, answer_of


@common.answers
def diagnose(
    command: Sequence[str] = (),
    limit: Annotated[
        str, Option(metavar="90s", help="About how long things are tried, after the first steps.")
    ] = "90s",
    device: Annotated[
        str | None,
        Option(
            metavar="a100,4090",
            help="Devices on which the same script is predicted; the best offer if absent.",
        ),
    ] = None,
    facts: common.Facts = (),
    calibration: common.Calibration = None,
    runs: Annotated[Path | None, Option(metavar="FOLDER", help="Folder of all runs.")] = None,
) -> Answer:
    """Say what slows a script and what each remedy gains: paceline diagnose -- python train.py.

    The script runs as a throwaway, unedited: one batch is replayed, its loader is emptied by
    itself, other workers, threads, precisions and batches are tried between its steps. Then it is
    ended, and what it saved meanwhile is deleted.
    """
    from paceline.app.api.diagnosis import diagnose as diagnose_script
    from paceline.app.verbs.run import tell
    from paceline.reporting.screens.runs import causes_table, diagnosis_lines, last_lines

    found = diagnose_script(
        command, limit=limit, device=device, facts=facts, calibration=calibration,
        runs=runs, on_notice=tell,
    )  # fmt: skip
    head, tail = tuple(diagnosis_lines(found)), tuple(last_lines(found))
    if not found.causes:
        return answer_of("diagnosis", found, head, tail)
    return answer_of("diagnosis", found, head, causes_table(found), tail)
