"""Rows to score: the input columns of a table of published measurements, and nothing else.

Measured columns (throughput, step time, memory) are dropped while reading, so that no prediction
can see them. Rows are spelled as people spell them; beside that, some columns say exactly how the
job ran, in the words of the other verbs (``strategy``, ``rewrite``, ``optimizer``), and what the
source of a row adds to every step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.scoring.cells import SURPLUS, number_of, read_cells
from paceline.values import dataclass

#: Fills in what a line of a table leaves out.
Completion = Callable[[Mapping[str, str]], dict[str, str]]

INPUT_COLUMNS: tuple[str, ...] = (
    "model", "task", "framework", "precision", "compiler_flags", "gpu", "gpu_mem_gb", "n_gpus",
    "n_nodes", "interconnect", "parallelism", "batch_per_gpu", "global_batch", "grad_accum",
    "seq_len", "img_size", "params_m", "unit", "variant", "num_steps", "strategy", "rewrite",
    "optimizer", "time_factor", "added_step_s", "added_item_s", "note", "scenario", "isl", "osl",
    "concurrency", "rate_per_s", "ttft_p99_limit_ms", "tpot_p99_limit_ms", "geometry",
    "memory_kind", "memory_rank", "trainer", "lengths", "peak_seq",
)  # fmt: skip

#: What was measured: read by `calibrate` only.
MEASURED_COLUMNS: tuple[str, ...] = ("step_time_ms", "throughput")

#: Words for training and fine-tuning, then for running forward; any other is taken as the latter.
_TRAINING = re.compile(r"train|tun(e|ing)|\bsft\b|backward|\bfit\b", re.IGNORECASE)
_INFERENCE = re.compile(
    r"infer|forward|predict|serv|generat|eval|valid|test|prefill|decod|sampl|denois|transcri|"
    r"translat|classif|detect|segment|embed|synthes|latency|throughput|offline|online",
    re.IGNORECASE,
)
_NO_TASK = "the row states no task: a column `task` says train or infer"
#: Without these no row can be understood.
_REQUIRED = ("model", "gpu")
#: How many, before the name of a device or after it.
_GPU_COUNT = re.compile(
    r"^(\d+) ?[x×*] ?(?=[a-z])|[ (](?:[x×] ?(\d+)|(\d+)[x×])\)?$", re.IGNORECASE
)
#: Sizes as people write them beside the bare number.
_GIGABYTES = re.compile(r"(.*\d)\s*gi?b", re.IGNORECASE)
_SQUARE = re.compile(r"(\d+)\s*[x×]\s*\1", re.IGNORECASE)
_SIDES = re.compile(r"(\d+)\s*[x×]\s*(\d+)", re.IGNORECASE)
_NAMED_SIDES = re.compile(r"[ _-]\d{3,4}[x×]\d{3,4}$", re.IGNORECASE)
#: Strides of backbones: sides that are a multiple of it are what all networks take.
_GRID = 32
_SPELLED = {"gpu_mem_gb": _GIGABYTES, "img_size": _SQUARE}
_NUMBERS = (
    "gpu_mem_gb", "n_gpus", "n_nodes", "batch_per_gpu", "global_batch", "grad_accum", "seq_len",
    "img_size", "params_m", "num_steps", "time_factor", "added_step_s", "added_item_s", "isl",
    "osl", "concurrency", "rate_per_s", "ttft_p99_limit_ms", "tpot_p99_limit_ms",
    "peak_seq",
)  # fmt: skip
#: Counts; every other number of a job may be a fraction (a batch, as a mean).
_WHOLE = ("n_gpus", "n_nodes")
#: Of these 0 says nothing, and less than one of them there is not.
_FROM_ONE = ("n_nodes", "grad_accum", "seq_len", "img_size", "num_steps")
#: No input of a job is larger; beyond it a cell is damaged.
_LARGEST = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The inputs of one row; None or an empty text where the row says nothing.

    Attributes:
        model: As named by the source.
        task: ``train`` or ``infer``; empty where it is not stated.
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
        variant: Which of the models of that name.
        num_steps: Passes that make one item.
        strategy: How devices share the job, in the notation of every verb; it is stated exactly.
        rewrite: Settings of the step, as ``--rewrite`` takes them.
        optimizer: As ``--optimizer`` takes it; ``flags`` may name one too.
        time_factor: By which the source's way of running or timing makes each step longer.
        added_step_s: What the source's harness adds to each step.
        added_item_s: The same for each item of a device.
        damage: Why the row cannot be believed; empty where nothing is wrong with it.
        note: What was taken where its words leave it open.
        scenario: How requests come, of what serves them; empty where a batch is run as it is.
        input_tokens: Mean of a prompt.
        output_tokens: Mean of an answer.
        item: What engines do for its requests, in the words of a job.
        concurrency: Requests in flight, or all that there are.
        rate_per_s: Requests offered.
        first_token_limit_s: That 99 of 100 first tokens keep.
        per_token_limit_s: The same from one token to the next.
        geometry: The model's sizes as an entry, where the row states them.
        memory_kind: Which figure of memory is asked for: ``allocated``, ``reserved``, what a
            ``driver`` shows, or what the process needs, as if empty.
        memory_rank: ``last`` where that is the rank whose memory is asked for, else the fullest.
        trainer: Whose defaults are taken where the row says how it was trained but not all of it.
        lengths: ``vary`` where sequences are as long as their texts, else empty.
        peak_seq: Length at which memory peaks; None for ``seq``.
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
    strategy: str = ""
    rewrite: str = ""
    optimizer: str = ""
    time_factor: float = 1.0
    added_step_s: float = 0.0
    added_item_s: float = 0.0
    damage: str = ""
    note: str = ""
    scenario: str = ""
    input_tokens: float | None = None
    output_tokens: float | None = None
    item: str = ""
    concurrency: float | None = None
    rate_per_s: float | None = None
    first_token_limit_s: float | None = None
    per_token_limit_s: float | None = None
    geometry: str = ""
    memory_kind: str = ""
    memory_rank: str = ""
    trainer: str = ""
    lengths: str = ""
    peak_seq: float | None = None

    @property
    def num_devices(self) -> int:
        """Devices of the whole job; one where the row says nothing, or names a CPU."""
        return max(int(self.num_gpus or 1), 1)


def read_rows(path: Path, *, complete: Completion = dict) -> tuple[Row, ...]:
    """Read the input columns of a CSV file.

    Args:
        path: The table, with the columns of ``INPUT_COLUMNS``; others are ignored.
        complete: Fills in what a line leaves out; as it is written by default.

    Raises:
        InvalidInputError: No such file, not text, no rows, or a needed column is missing.
    """
    rows = tuple(parse_row(complete(cells)) for cells in read_table_cells(path))
    if not rows:
        raise InvalidInputError(f"`{path}` has no rows", hint="give at least one row to score")
    return rows


def read_table_cells(path: Path) -> list[dict[str, str]]:
    """Every line of a table by column, measured ones included.

    Raises:
        InvalidInputError: No table, or one that would be misread.
    """
    return read_cells(path, columns=(*INPUT_COLUMNS, *MEASURED_COLUMNS), required=_REQUIRED)


def parse_row(values: Mapping[str, str | None]) -> Row:
    """The inputs of one line of a table; what cannot be believed stands in ``damage``."""

    def text(name: str) -> str:
        return (values.get(name) or "").strip()

    task, note = _task(text("task"))
    side, taken = _side(text("img_size"), text("model"))
    numbers, damage = _numbers({name: text(name) for name in _NUMBERS} | {"img_size": side})
    parameters_m = numbers["params_m"]
    return Row(
        model=text("model"),
        task=task,
        framework=text("framework"),
        precision=text("precision"),
        flags=text("compiler_flags"),
        gpu=text("gpu"),
        gpu_memory_gb=numbers["gpu_mem_gb"],
        num_gpus=_count(numbers["n_gpus"], text("gpu")),
        num_nodes=numbers["n_nodes"],
        interconnect=text("interconnect"),
        parallelism=text("parallelism"),
        batch_per_gpu=numbers["batch_per_gpu"],
        global_batch=numbers["global_batch"],
        grad_accumulation=numbers["grad_accum"],
        seq=numbers["seq_len"],
        image_size=numbers["img_size"],
        num_parameters=None if parameters_m is None else parameters_m * 1e6,
        unit=text("unit"),
        variant=text("variant"),
        num_steps=numbers["num_steps"],
        strategy=text("strategy"),
        rewrite=text("rewrite"),
        optimizer=text("optimizer"),
        time_factor=numbers["time_factor"] or 1.0,
        added_step_s=numbers["added_step_s"] or 0.0,
        added_item_s=numbers["added_item_s"] or 0.0,
        damage=_surplus(text(SURPLUS)) or damage or ("" if task else _NO_TASK),
        note="; ".join(filter(None, (note, taken, text("note")))),
        scenario=text("scenario"),
        input_tokens=numbers["isl"],
        output_tokens=numbers["osl"],
        item=text("item"),
        concurrency=numbers["concurrency"],
        rate_per_s=numbers["rate_per_s"],
        first_token_limit_s=_seconds(numbers["ttft_p99_limit_ms"]),
        per_token_limit_s=_seconds(numbers["tpot_p99_limit_ms"]),
        geometry=text("geometry"),
        memory_kind=text("memory_kind"),
        memory_rank=text("memory_rank"),
        trainer=text("trainer"),
        lengths=text("lengths"),
        peak_seq=numbers["peak_seq"],
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _task(text: str) -> tuple[str, str]:
    """``train``, ``infer`` or nothing where nothing is stated; and what was taken for that.

    >>> _task("Fine-tuning"), _task("text generation"), _task("racing")
    (('train', ''), ('infer', ''), ('infer', 'the task `racing` is taken as inference'))
    """
    if _TRAINING.search(text):
        return "train", ""
    is_known = not text or _INFERENCE.search(text)
    return "infer" if text else "", "" if is_known else f"the task `{text}` is taken as inference"


def _side(stated: str, model: str) -> tuple[str, str]:
    """The side of pictures; of what is no square, of one of the same area, and a note on it.

    A model's name may end in the size, which counts where the column is empty.

    >>> _side("512x1024", "")
    ('736', 'pictures of 512×1024 are taken as squares of 736, of about the same area')
    >>> _side("", "PSPNet 769x769"), _side("224", "resnet50")
    (('769x769', ''), ('224', ''))
    """
    if not stated and (named := _NAMED_SIDES.search(model)):
        stated = named.group(0)[1:]
    sides = _SIDES.fullmatch(stated)
    if sides is None or _SQUARE.fullmatch(stated):
        return stated, ""
    height, width = int(sides[1]), int(sides[2])
    side = max(round(math.sqrt(height * width) / _GRID) * _GRID, _GRID)
    return str(side), (
        f"pictures of {height}×{width} are taken as squares of {side}, of about the same area"
    )


def _surplus(text: str) -> str:
    return f"the row has more cells than the header has names: {text}" if text else ""


def _count(stated: float | None, gpu: str) -> float | None:
    """Devices of a job: as stated, else as its device is written.

    >>> _count(None, "8x A100"), _count(4.0, "8x A2"), _count(None, "A2"), _count(None, "A2 x4")
    (8.0, 4.0, None, 4.0)
    """
    match = _GPU_COUNT.search(gpu)
    return float(match[match.lastindex or 0]) if stated is None and match else stated


def _numbers(texts: Mapping[str, str]) -> tuple[dict[str, float | None], str]:
    """Numbers by column, and what is wrong with the first that is no number of its column."""
    found: dict[str, float | None] = {}
    damage = ""
    for name, text in texts.items():
        try:
            found[name] = _number(name, text)
        except ValueError:
            found[name] = None
            damage = damage or f"`{text}` is no {name}"
    return found, damage


def _number(name: str, text: str) -> float | None:
    """A number that a column can hold; None for an empty cell.

    Raises:
        ValueError: Anything else.

    >>> _number("gpu_mem_gb", "80 GB"), _number("img_size", "224x224"), _number("n_gpus", "0")
    (80.0, 224.0, 0.0)
    """
    if match := _SPELLED[name].fullmatch(text) if name in _SPELLED else None:
        text = match.group(1)
    value = number_of(text)
    if value is None or (value == 0.0 and name in _FROM_ONE):
        return None
    least = 1.0 if name in _FROM_ONE else 0.0
    if not least <= value < _LARGEST or (name in _WHOLE and not value.is_integer()):
        raise ValueError(text)
    return value
