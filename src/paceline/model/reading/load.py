"""From what a user types to a workload: the zoo, a file, or a worker."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.graph import Graph
from paceline.model.graph.polynomial import GrowthError
from paceline.model.graph.sides import input_bytes
from paceline.model.graph.store import read_workload
from paceline.model.graph.workload import Pass, SampleUnit, Task, Workload, unit_of_item
from paceline.model.names.attention_windows import with_windows
from paceline.model.names.lookup import entry_of, told_reading
from paceline.model.names.registry import origin_of, released_precisions
from paceline.model.names.shipped_graphs import is_built_here, shipped_file
from paceline.model.names.spelling import name_key, reads_only
from paceline.model.names.zoo_facts import ZooFacts, zoo_facts
from paceline.model.ops.optable import UPDATE
from paceline.model.rewrite.optimizer import (
    find_optimizer,
    first_optimizer,
    graphs_with_optimizer,
    with_resident_states,
)
from paceline.model.table_updates import with_usual_updates
from paceline.reading import stamp_of
from paceline.values import dataclass

_UNITS: dict[str, SampleUnit] = {
    "image": "images", "features": "samples", "text": "sequences", "language": "tokens",
}  # fmt: skip
_DEFAULT_OPTIMIZER = "adamw"
_DEFAULT_SEQ = 512
_LABEL_BYTES = 8.0
#: How entries of architectures begin that are written down here, after their papers.
_OWN_ROOMS = "published"
#: Workload files that are kept once read.
_MOST_KEPT = 6
_FP32_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """How a model is asked for; fields as the arguments of `load_workload`."""

    task: Task
    seq: int | None = None
    image_size: int | None = None
    optimizer: str | None = None
    python: str | None = None

    def request(self) -> dict[str, Any]:
        """What a worker is told beside the entry."""
        return {"task": self.task, "seq": self.seq, "image_size": self.image_size}

    def chosen(self, usual: str) -> str:
        """Name of the optimizer of updates that leave it open."""
        return find_optimizer(self.optimizer or usual).name


def load_workload(
    entry: object,
    *,
    task: Task = "train",
    seq: int | None = None,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
) -> Workload:
    """The workload that ``entry`` names.

    Args:
        entry: A name however it is spelled (``qwen3-8b``, ``meta-llama/Llama-3.1-8B``), or: a zoo
            name, ``torchvision:NAME``, ``transformer:layers=…,hidden=…``,
            ``timm:NAME``, ``hf:NAME`` (a class, a type, a known size or a config.json),
            ``published:NAME``, ``package.module:function``, the path of a workload file or of an
            exported program (``.pt2``), or an ``nn.Module``, an ``ExportedProgram`` or an object
            with a ``model`` and ``inputs`` of this process.
        task: Training or inference.
        seq: Sequence length to use when none is given later.
        image_size: Side of the input image, where the model takes another than its usual one.
        optimizer: Replaces the recipe's; one that the model's own code calls stays.
        python: Interpreter that has the framework.

    Raises:
        UnknownNameError: No such model.
        InvalidInputError: A file, size or request that cannot be used.
        WorkerError: The user's code failed.
    """
    _check_sizes(seq, image_size)
    asked = _Asked(task=task, seq=seq, image_size=image_size, optimizer=optimizer, python=python)
    if isinstance(entry, str):
        found = entry_of(entry)
        workload = _of_entry(found, asked)
        workload = workload if found == entry else _meant(entry, workload)
    else:
        workload = _trace_object(entry, asked)
    return workload if seq is None else _at_length(workload, seq)


def _of_entry(entry: str, asked: _Asked) -> Workload:
    """The workload of an entry, from a file or traced."""
    path = _graph_file(entry, asked.task, asked.image_size)
    if path is None:
        return _with_facts(_trace_entry(entry, asked), entry)
    workload = _read_again(path, asked.image_size, entry, stamp_of(path))
    if asked.seq and not workload.knows_length(asked.seq) and is_built_here(entry):
        return _with_facts(_trace_entry(entry, asked), entry)
    _check_side(workload, entry, asked.image_size)
    return workload if asked.optimizer is None else with_optimizer(workload, asked.optimizer)


@lru_cache(maxsize=_MOST_KEPT)
def _read_again(path: Path, side: int | None, entry: str, _stamped: tuple[int, int]) -> Workload:
    """A workload file, read once as long as it stays what it is.

    Whoever asks again, as a page does whose goal is moved, gets the same graphs, by which their
    costs are known.
    """
    workload = read_workload(path, side=side)
    passes = tuple(replace(p, graph=with_usual_updates(p.graph, entry)) for p in workload.passes)
    return _with_facts(replace(workload, passes=passes), entry)


def _with_facts(workload: Workload, entry: str) -> Workload:
    """With what is known of a model beside its graph: windows, and how its weights are released."""
    released = workload.released or released_precisions(entry)
    return with_windows(replace(workload, released=released), entry)


def is_traced(entry: str, *, task: Task, image_size: int | None = None) -> bool:
    """Whether a model is traced, in a Python that has its framework, when it is loaded."""
    return _graph_file(entry_of(entry), task, image_size) is None


def _graph_file(entry: str, task: Task, image_size: int | None) -> Path | None:
    """The file of a graph that is there already."""
    path = Path(entry) if entry.endswith(".npz") else shipped_file(entry, task)
    is_resized = image_size is not None and is_built_here(entry)
    return None if is_resized and not entry.endswith(".npz") else path


def with_optimizer(workload: Workload, optimizer: str) -> Workload:
    """The workload as it is traced with ``optimizer``; what its own code calls stays.

    Raises:
        UnknownNameError: No such optimizer.
    """
    chosen = find_optimizer(optimizer).name
    if workload.has_own_optimizer or workload.optimizer in (None, chosen):
        return workload
    graphs = graphs_with_optimizer([one.graph for one in workload.passes], chosen)
    passes = tuple(replace(one, graph=g) for one, g in zip(workload.passes, graphs, strict=True))
    return replace(workload, passes=passes, optimizer=chosen)


def trace_workload(entry: str, *, task: Task = "train", optimizer: str | None = None) -> Workload:
    """Trace ``entry`` in a worker, also if the zoo has it. Arguments as of `load_workload`."""
    return _trace_entry(entry_of(entry), _Asked(task=task, optimizer=optimizer))


def _trace_entry(entry: str, asked: _Asked) -> Workload:
    from paceline.model.reading.worker import run_worker  # tracing: only what is not on disk

    if not is_built_here(entry):
        raise InvalidInputError(
            f"`{entry}` is shipped as a graph, without the code that it was traced from",
            hint="load it; `python -m networks` of a checkout traces it again",
        )
    facts = zoo_facts().get(entry)
    chosen = asked.chosen(facts.optimizer if facts else _DEFAULT_OPTIMIZER)
    request = {"entry": facts.entry if facts else entry, **asked.request()}
    return _grown(
        lambda more: run_worker(request | more, python=asked.python),
        lambda report: workload_from_report(report, entry=entry, task=asked.task, optimizer=chosen),
    )


def _grown(
    report_of: Callable[[dict[str, bool]], dict[str, Any]],
    workload_of: Callable[[dict[str, Any]], Workload],
) -> Workload:
    """The workload at all lengths; at one where it grows with the third power of the length."""
    try:
        return workload_of(report_of({}))
    except GrowthError:
        return workload_of(report_of({"is_fixed": True}))


def _trace_object(model: object, asked: _Asked) -> Workload:
    """Trace a model that this process holds."""
    from paceline.model.reading.local_trace import report_of_object

    chosen, name = asked.chosen(_DEFAULT_OPTIMIZER), type(model).__name__
    return _grown(
        lambda more: report_of_object(model, asked.request() | more),
        lambda report: workload_from_report(report, entry=name, task=asked.task, optimizer=chosen),
    )


def workload_from_report(
    report: dict[str, Any], *, entry: str, task: Task, optimizer: str
) -> Workload:
    """The workload that a worker's report describes."""
    facts, kind = zoo_facts().get(entry), str(report["kind"])
    if kind not in _UNITS:
        raise UnknownNameError.from_name("kind of model", kind, _UNITS)
    traced = [_pass(one, entry, optimizer) for one in report["passes"]]
    graphs = with_resident_states([one.graph for one in traced])
    passes = tuple(replace(one, graph=g) for one, g in zip(traced, graphs, strict=True))
    default_seq = _default_seq(report, facts)
    has_own = _names_its_optimizer(report)
    return Workload(
        name=entry,
        title=facts.title if facts else _title(entry, str(report.get("taken") or "")),
        task=task,
        passes=passes,
        sample_unit=unit_of_item(
            _unit(facts, kind, generates=any(one.name == "decode" for one in passes)),
            str(report["input"]),
        ),
        default_seq=default_seq,
        sample_bytes=_sample_bytes(report, graphs[0], default_seq),
        num_parameters=int(report["num_parameters"]),
        optimizer=(first_optimizer(graphs) if has_own else optimizer) if task == "train" else None,
        input_description=_described(str(report["input"]), default_seq),
        max_global_batch=facts.max_global_batch if facts and task == "train" else None,
        reference_job=facts.jobs.get(task) if facts else None,
        shortest_seq=max(
            int(one.get("shortest") or 1)
            for one in ({"shortest": report.get("shortest_item")}, *report["passes"])
        ),
        longest_seq=facts.longest_seq if facts else None,
        released=tuple(str(report.get("released") or "").split()),
        length_name="length of the text" if _hears_or_sees(report) else "sequence length",
        has_own_optimizer=has_own,
        source=facts.source if facts else f"traced from `{entry}` with {_tracer(report)}",
    )


def _unit(facts: ZooFacts | None, kind: str, *, generates: bool) -> SampleUnit:
    """What throughput counts: tokens of what answers token by token, however it is trained."""
    if generates:
        return "tokens"
    return facts.sample_unit if facts else _UNITS[kind]


def _tracer(report: dict[str, Any]) -> str:
    """What traced, with its version.

    >>> _tracer({"torch": "2.13"}), _tracer({"framework": "jax", "torch": "0.10"})
    ('torch 2.13', 'jax 0.10')
    """
    return f"{report.get('framework', 'torch')} {report['torch']}"


def _names_its_optimizer(report: dict[str, Any]) -> bool:
    names = {name for one in report["passes"] for name in one["topology"]["names"]}
    return any(name.startswith(f"{UPDATE}|") and name != f"{UPDATE}|" for name in names)


def _hears_or_sees(report: dict[str, Any]) -> bool:
    """Whether the main input is no text, so that a length can be that of a text beside it alone."""
    return report["input"] != "tokens" and report["input_shape"] is not None


def _described(reported: str, default_seq: int) -> str:
    """The input in words; inputs of the user's own that have no length are no tokens."""
    return "" if reported == "tokens" and default_seq == 1 else reported


def _title(entry: str, taken: str) -> str:
    """The entry, with the sizes that it left out.

    >>> _title("transformer:layers=1", "hidden=768, heads=12")
    'transformer:layers=1 (assumed: hidden=768, heads=12)'
    """
    return f"{entry} (assumed: {taken})" if taken else entry


def _pass(reported: dict[str, Any], entry: str, optimizer: str) -> Pass:
    from paceline.model.graph.raw import parse_pass
    from paceline.model.reading.build import build_graph

    name = f"{entry}/{reported['name']}"
    return Pass(
        name=str(reported["name"]),
        graph=build_graph(parse_pass(reported), name=name, optimizer=optimizer),
        repeats=float(reported["repeats"]),
        runs_on="host" if reported["runs_on"] == "host" else "device",
    )


def _default_seq(report: dict[str, Any], facts: ZooFacts | None) -> int:
    """The one length that a pass was traced at, else the recipe's, else a usual one.

    It is 1 where the model knows no length.
    """
    lengths = [int(one["length"]) for one in report["passes"] if one.get("length")]
    if lengths:
        return lengths[0]
    if not any(one["variables"][1] for one in report["passes"]):
        return 1
    return facts.default_seq if facts else int(report.get("usual_length") or _DEFAULT_SEQ)


def _sample_bytes(report: dict[str, Any], graph: Graph, seq: int) -> float:
    """Host-to-device bytes of one item: FP32 images and a label, or all inputs of the first pass.

    The past of a decode graph is no input.
    """
    shape = report["input_shape"]
    if shape is not None:
        return _FP32_BYTES * float(math.prod(shape)) + _LABEL_BYTES
    return input_bytes(graph, seq)


def _at_length(workload: Workload, seq: int) -> Workload:
    if workload.default_seq in (1, seq):
        return workload
    workload.check_length(seq)
    scale, job = seq / workload.default_seq, workload.reference_job
    if job is not None and workload.task == "train":
        said = f"{job.description}, here in sequences of {seq:,} tokens"
        job = replace(job, description=said)
    return replace(
        workload,
        default_seq=seq,
        sample_bytes=workload.sample_bytes * scale,
        reference_job=job,
    )


def _meant(typed: str, workload: Workload) -> Workload:
    """The workload with what was typed before its title, where the two are not one name."""
    if reads_only(typed) and workload.generates and not workload.encodes:
        workload = workload.read_whole()
    room, _, name = workload.name.rpartition(":")
    is_same = name_key(typed) == name_key(name)
    shown = workload.title
    if room.startswith(_OWN_ROOMS) or is_same:
        shown = shown.removeprefix(f"{room}:")
    if is_same:
        return replace(workload, title=typed + shown.removeprefix(name) if name in shown else shown)
    reading = told_reading(typed)
    if origin_of(workload.name) == "numbers":
        reading = reading or f"`{typed}` is `{workload.name}`"
        return replace(workload, title=typed + shown.removeprefix(workload.name), reading=reading)
    return replace(workload, title=f"{typed} (as {shown})", reading=reading)


def _check_side(workload: Workload, entry: str, image_size: int | None) -> None:
    """Refuse what a file cannot do: its pictures are those that were traced."""
    described = workload.input_description
    if image_size is None or f"{image_size}×{image_size}" in described:
        return
    if entry.endswith(".npz"):
        raise InvalidInputError(
            f"`{entry}` was traced on {described or 'inputs of its own'}",
            hint=f"trace the model again with `--image-size {image_size}`",
        )
    takes = "no pictures" if described in ("", "tokens") else described
    length = "; the length of its text is given with --seq" if workload.default_seq > 1 else ""
    raise InvalidInputError(
        f"`{entry}`: it takes {takes}: no side can be asked for",
        hint="leave --image-size out" + length,
    )


def _check_sizes(seq: int | None, image_size: int | None) -> None:
    for what, value in (("sequence length", seq), ("image size", image_size)):
        if value is not None and value < 1:
            raise InvalidInputError(
                f"the {what} of {value} is not above zero", hint="give 1 or more"
            )
