"""Rows to score: the input columns of a table of published measurements, and nothing else.

Measured columns (throughput, step time, memory, extras) are dropped while reading, so that no
prediction can see them. Of ``extra``, which holds both, `extras` reads the inputs.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.app.scoring.extras import stated_inputs
from paceline.errors import InvalidInputError

INPUT_COLUMNS: tuple[str, ...] = (
    "model", "task", "framework", "precision", "compiler_flags", "gpu", "gpu_mem_gb", "n_gpus",
    "n_nodes", "interconnect", "parallelism", "batch_per_gpu", "global_batch", "grad_accum",
    "seq_len", "img_size", "params_m", "unit", "extra",
)  # fmt: skip

#: Words for training and fine-tuning; anything else runs a model forward.
_TRAINING = re.compile(r"train|tun(e|ing)|\bsft\b|backward|\bfit\b", re.IGNORECASE)
#: Without these no row can be understood.
_REQUIRED = ("model", "gpu")
_MAX_BYTES = 500_000_000
#: How many, before the name of a device or after it.
_GPU_COUNT = re.compile(
    r"^(\d+) ?[x×*] ?(?=[a-z])|[ (](?:[x×] ?(\d+)|(\d+)[x×])\)?$", re.IGNORECASE
)
#: Commas between groups of three digits.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
#: No input of a job is larger; beyond it a cell is damaged.
_LARGEST = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The inputs of one row; None or an empty text where the row says nothing.

    Attributes:
        model: As named by the source.
        task: ``train`` or ``infer``.
        framework: As stated.
        precision: As stated.
        flags: Compiler flags, layout, checkpointing, optimizer, as stated.
        gpu: As named by the source.
        gpu_memory_gb: As stated.
        num_gpus: Of the whole job; 0 is a CPU.
        num_nodes: Machines.
        interconnect: As stated.
        parallelism: As stated.
        batch_per_gpu: Items per device and microbatch.
        global_batch: Items per step.
        grad_accumulation: Microbatches per step.
        seq: Tokens.
        image_size: Pixels of the square input.
        num_parameters: As stated.
        unit: Unit in which throughput is wanted.
        variant: Which of the models of that name, where ``extra`` says so.
        num_steps: Passes that make one item, where ``extra`` says so.
    """

    model: str
    task: str
    framework: str
    precision: str
    flags: str
    gpu: str
    gpu_memory_gb: float | None
    num_gpus: float | None
    num_nodes: float | None
    interconnect: str
    parallelism: str
    batch_per_gpu: float | None
    global_batch: float | None
    grad_accumulation: float | None
    seq: float | None
    image_size: float | None
    num_parameters: float | None
    unit: str
    variant: str = ""
    num_steps: float | None = None


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the input columns of a CSV file.

    Args:
        path: The table, with the columns of ``INPUT_COLUMNS``; others are ignored.

    Raises:
        InvalidInputError: No such file, not text, no rows, or a needed column is missing.
    """
    rows = tuple(parse_row(cells) for cells in read_cells(path))
    if not rows:
        raise InvalidInputError(f"`{path}` has no rows", hint="give at least one row to score")
    return rows


def read_cells(path: Path) -> list[dict[str, str]]:
    """Every line of a table by column, names in lower case.

    Commas, semicolons and tabs separate, as the header shows; a mark of the byte order is skipped.
    A file that begins with a brace holds one JSON object per line.

    Raises:
        InvalidInputError: No such file, not text, or a needed column is missing.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidInputError(f"`{path}` is larger than 500 MB", hint="split the table")
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            if header.lstrip().startswith("{"):
                return _json_cells(path, [header, *file])
            names = next(csv.reader([header], delimiter=_separator(header)), [])
            columns = [name.strip().lower() for name in names]
            _check_columns(path, columns)
            return list(csv.DictReader(file, columns, delimiter=_separator(header)))
    except OSError as error:
        raise InvalidInputError(
            f"cannot read `{path}`: {error.strerror}", hint="name a CSV file"
        ) from None
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise InvalidInputError(
            f"`{path}` cannot be read as a table: {error}",
            hint="give a CSV file in UTF-8 with a header line, or one JSON object per line",
        ) from None


def _json_cells(path: Path, lines: Iterable[str]) -> list[dict[str, str]]:
    """One row per line that is not blank; what is null is an empty cell."""
    objects = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(one, dict) for one in objects):
        raise InvalidInputError(
            f"`{path}` holds lines that are no JSON object", hint="give one object per line"
        )
    rows = [
        {name.strip().lower(): "" if value is None else str(value) for name, value in one.items()}
        for one in objects
    ]
    _check_columns(path, [name for row in rows for name in row])
    return rows


def _separator(header: str) -> str:
    """What stands between the names of the columns.

    >>> _separator("model;gpu;unit"), _separator("model,gpu"), _separator("model")
    (';', ',', ',')
    """
    return max(",;\t", key=header.count)


def _check_columns(path: Path, names: list[str]) -> None:
    if missing := [name for name in _REQUIRED if name not in names]:
        raise InvalidInputError(
            f"`{path}` lacks the columns {', '.join(missing)}",
            hint=f"its header should name {', '.join(INPUT_COLUMNS)}",
        )


def parse_row(values: Mapping[str, str | None]) -> Row:
    """The inputs of one line of a table; a cell that is no finite number is unknown."""

    def text(name: str) -> str:
        return (values.get(name) or "").strip()

    def number(name: str) -> float | None:
        return _number(text(name))

    parameters_m = number("params_m")
    stated = stated_inputs(text("extra"))
    return Row(
        model=text("model"),
        task="train" if _TRAINING.search(text("task")) else "infer",
        framework=text("framework"),
        precision=text("precision"),
        flags="; ".join(part for part in (text("compiler_flags"), stated.flags) if part),
        gpu=text("gpu"),
        gpu_memory_gb=number("gpu_mem_gb"),
        num_gpus=_count(number("n_gpus"), text("gpu")),
        num_nodes=number("n_nodes"),
        interconnect=text("interconnect"),
        parallelism=text("parallelism"),
        batch_per_gpu=number("batch_per_gpu"),
        global_batch=number("global_batch"),
        grad_accumulation=number("grad_accum"),
        seq=number("seq_len"),
        image_size=number("img_size") or stated.image_size,
        num_parameters=None if parameters_m is None else parameters_m * 1e6,
        unit=text("unit"),
        variant=stated.variant,
        num_steps=stated.num_steps,
    )


def _count(stated: float | None, gpu: str) -> float | None:
    """Devices of a job: as stated, else as its device is written.

    >>> _count(None, "8x A100"), _count(4.0, "8x A2"), _count(None, "A2"), _count(None, "A2 x4")
    (8.0, 4.0, None, 4.0)
    """
    match = _GPU_COUNT.search(gpu)
    return float(match[match.lastindex or 0]) if stated is None and match else stated


def _number(text: str) -> float | None:
    """A sensible number, else None: a damaged cell is unknown, and the row says so later.

    >>> _number("1,024"), _number("64.0"), _number("many")
    (1024.0, 64.0, None)
    """
    try:
        value = float(_THOUSANDS.sub("", text))
    except ValueError:
        return None
    return value if abs(value) < _LARGEST else None
