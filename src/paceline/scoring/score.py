"""`score_rows`: predict every row of a table of published measurements from its inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.catalog.entities import Catalog
from paceline.errors import PacelineError
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.scoring.answering import AskedRows, ask_cells
from paceline.scoring.answers import Answer, write_answers
from paceline.scoring.completion import read_published
from paceline.scoring.jobs import Cell
from paceline.scoring.naming.devices import possible_capacities, resolve_device, stated_devices
from paceline.scoring.naming.source_levels import as_published
from paceline.scoring.readings import UnresolvedRowError, on_device, read_job
from paceline.scoring.rows import Row
from paceline.scoring.workloads import WorkloadKey, workload_key
from paceline.simulation.simulator import simulate
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """What was answered.

    Attributes:
        num_rows: Rows read.
        num_predicted: Rows with a step time.
        abstentions: Reason and number of rows, most frequent first.
    """

    num_rows: int
    num_predicted: int
    abstentions: tuple[tuple[str, int], ...]


def score_rows(
    rows_path: Path,
    out_path: Path,
    *,
    catalog: Catalog,
    python: str | None = None,
    cache_folder: Path | None = None,
    calibration: Calibration | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ScoreSummary:
    """Predict every row of ``rows_path`` and write one line per row to ``out_path``.

    Only input columns are read; see `rows.INPUT_COLUMNS`.

    Args:
        rows_path: Table with the columns of the published measurements.
        out_path: Where the answers go.
        catalog: Devices and links.
        python: Interpreter that has torch (and timm), for models that must be traced.
        cache_folder: Where traced models are kept; the user's cache folder if None.
        calibration: Of the user's own rows; None for rows of published tables, which have the
            level of their kind (`source_levels`).
        on_progress: Called with one line per model.

    Raises:
        InvalidInputError: The table cannot be read, or the answers cannot be written.
    """
    rows = read_published(rows_path)
    answers: dict[int, Answer] = {}
    for asked in ask_rows(
        rows, catalog=catalog, python=python, cache_folder=cache_folder, calibration=calibration,
        on_progress=on_progress,
    ):  # fmt: skip
        steps = simulate(asked.jobs, asked.machines, calibration=asked.calibration)
        answers |= asked.answers(steps)
    given = [answers[index] for index in range(len(rows))]
    write_answers(out_path, rows, given)
    return _summary(given)


def predict_rows(
    rows: Sequence[Row],
    *,
    catalog: Catalog,
    python: str | None = None,
    cache_folder: Path | None = None,
    calibration: Calibration | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    is_learned_from: bool = False,
) -> list[Answer]:
    """Answers to rows, in their order; with what measurements know their steps by where asked."""
    answers: dict[int, Answer] = {}
    for asked in ask_rows(
        rows, catalog=catalog, python=python, cache_folder=cache_folder, calibration=calibration,
        on_progress=on_progress,
    ):  # fmt: skip
        steps = simulate(asked.jobs, asked.machines, calibration=asked.calibration)
        answers |= asked.answers(steps, is_learned_from=is_learned_from)
    return [answers[index] for index in range(len(rows))]


def ask_rows(
    rows: Sequence[Row],
    *,
    catalog: Catalog,
    python: str | None,
    cache_folder: Path | None,
    calibration: Calibration | None,
    on_progress: Callable[[str], None],
) -> Iterator[AskedRows]:
    """Rows as jobs on machines, those of one model at a time; arguments are those of `score_rows`.

    Yields:
        Rows without a job first.
    """
    how = calibration or as_published(builtin_calibration())
    refused: dict[int, Answer] = {}
    models: dict[WorkloadKey, list[Cell]] = defaultdict(list)
    for index, row in enumerate(rows):
        cell = read_cell(index, row, catalog)
        if isinstance(cell, Answer):
            refused[index] = cell
        else:
            models[workload_key(cell.reading)].append(cell)
    yield AskedRows(given=refused, asked=(), calibration=how)
    for number, (key, cells) in enumerate(models.items(), start=1):
        on_progress(f"{number} of {len(models)}: {key.entry}")
        yield ask_cells(
            key, cells, catalog, cache_folder=cache_folder, python=python, calibration=how
        )


def read_cell(index: int, row: Row, catalog: Catalog) -> Cell | Answer:
    """A row with what it says and the device that it means; an answer with a reason if neither."""
    try:
        row = replace(row, num_gpus=stated_devices(catalog, row.gpu, row.num_gpus))
        reading = read_job(row)
        device = resolve_device(catalog, row.gpu, row.gpu_memory_gb, row.num_gpus)
        capacities = possible_capacities(catalog, row.gpu, row.gpu_memory_gb)
        if row.num_gpus == 0 and device.kind != "cpu":
            raise UnresolvedRowError(f"n_gpus is 0, and `{row.gpu}` is no CPU")
    except (UnresolvedRowError, PacelineError) as error:
        return Answer(reason=str(error))
    return Cell(
        index=index,
        row=row,
        reading=on_device(reading, device),
        device=device,
        capacities_bytes=capacities,
    )


def _summary(answers: Sequence[Answer]) -> ScoreSummary:
    reasons = Counter(answer.reason for answer in answers if answer.reason)
    return ScoreSummary(
        num_rows=len(answers),
        num_predicted=sum(answer.step_mid_s is not None for answer in answers),
        abstentions=tuple(reasons.most_common()),
    )
