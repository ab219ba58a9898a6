"""What published rows leave to their sources, filled into the columns that `score` reads.

A table seldom says which optimizer its script takes, which words of its remarks are inputs, or what
its own harness adds to the network. What is known of that stands in ``data/``, a line per source;
here it becomes the columns of anybody's rows. Nothing measured is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline.model.names.denoisers import denoiser_of
from paceline.scoring.naming.models import UnresolvedRowError, resolve_model
from paceline.scoring.naming.training_words import remarks_of, stated_training
from paceline.scoring.rows import Row, parse_row, read_rows
from paceline.scoring.tables import read_table

_NOTE = "what it does not state is as its benchmark's submissions run it"

#: A flag that begins so; ``no XLA`` does not.
_XLA = re.compile(r"(^|;)\s*xla\b", re.IGNORECASE)

#: Cells of a row by column.
Cells = dict[str, str]


def completed(cells: Mapping[str, object]) -> Cells:
    """A published row with what its source is known to leave out; what it states stays.

    >>> row = {"model": "resnet", "gpu": "A100", "input_data": "real (MLPerf)", "task": "train"}
    >>> completed(row)["precision"], completed(row)["compiler_flags"]
    ('fp16-true', 'channels_last; compiled; tuned convolutions')
    """
    row = {name: str(value).strip() for name, value in cells.items()}
    for reader in (
        _remarked,
        _pictured,
        _patched,
        _trained,
        _as_submitted,
        _unequal,
        _as_served,
        _requested,
        _scripted,
        _evaluated,
        _contended,
    ):
        row |= reader(row)
    return row


def read_published(path: Path) -> tuple[Row, ...]:
    """Rows of a table as people and sources write them, with what they leave out.

    Raises:
        InvalidInputError: The table cannot be read.
    """
    return read_rows(path, complete=completed)


def _remarked(row: Cells) -> Cells:
    """Inputs among the remarks ``key=value`` of the column ``extra``, and beside the unit.

    >>> _remarked({"extra": "model=base; throughput=12; beam size=5"})
    {'variant': 'base', 'compiler_flags': 'beam=5'}
    >>> _remarked({"unit": "images/s (1024 x 1024, 20 steps)"})
    {'num_steps': '20'}
    """
    found: Cells = {}
    pairs = [pair.partition("=")[::2] for pair in row.get("extra", "").split(";")]
    for key, value in [("unit", row.get("unit", "")), *pairs]:
        key, value = key.strip(), value.strip()
        for known in read_table("extra_inputs.csv"):
            match = re.fullmatch(known["value"], value, re.IGNORECASE)
            if match and known["key"] == key.lower():
                means = match.expand(known["means"])
                words = found.get("item", "") if known["column"] == "item" else ""
                found[known["column"]] = f"{words} {means}".strip()
    if "compiler_flags" in found:
        found["compiler_flags"] = _joined(row.get("compiler_flags"), found["compiler_flags"])
    if row.get("img_size"):
        found.pop("img_size", None)
    return found


def _pictured(row: Cells) -> Cells:
    """Latent patches of the pictures or films that a denoiser is trained on.

    >>> row = {"model": "PixArt-Sigma", "task": "train", "img_size": "512", "gpu": "L40S"}
    >>> _pictured(row), _pictured(row | {"extra": "resolution=1024x768"})["seq_len"]
    ({'seq_len': '1024', 'img_size': ''}, '3072')
    """
    family = denoiser_of(row.get("model", "")) if _trains(row) and not row.get("seq_len") else None
    if family is None:
        return {}
    remarks = remarks_of(row.get("extra", ""))
    stated = remarks.get("resolution") or row.get("img_size") or ""
    sides = [int(side) for side in re.findall(r"\d+", stated)[:2]]
    width, height = (sides[0], sides[-1]) if sides else (0, 0)
    frames = re.match(r"\d+", remarks.get("frames", ""))
    if not sides and not frames:
        return {}
    num_patches = family.num_patches(width, height, int(frames[0]) if frames else 0)
    return {"seq_len": str(num_patches), "img_size": ""}


def _patched(row: Cells) -> Cells:
    """Side of the picture that a vision transformer reads in so many tokens.

    >>> _patched({"model": "vit_giant_patch14_dinov2", "gpu": "A100", "seq_len": "257"})
    {'img_size': '224'}
    >>> _patched({"model": "vit_giant_patch14_dinov2", "gpu": "A100", "seq_len": "257.0"})
    {'img_size': '224'}
    """
    patch = re.search(r"patch(\d+)", _entry(row))
    tokens = re.fullmatch(r"(\d+)(?:\.0*)?", row.get("seq_len", ""))
    if patch is None or row.get("img_size") or tokens is None:
        return {}
    return {"img_size": str(int(patch[1]) * math.isqrt(int(tokens[1])))}


def _trained(row: Cells) -> Cells:
    """How a training ran and which model, as the remarks and the cell of its precision say."""
    return stated_training(row) if _trains(row) else {}


def _as_submitted(row: Cells) -> Cells:
    """What a benchmark's rules and its submissions' scripts say where its tables say nothing."""
    origin = "; ".join(row.get(name, "") for name in ("source", "input_data", "framework"))
    asked = {"origin": origin, "model": row.get("model", ""), "gpu": row.get("gpu", "")}
    fact = next(_fitting("benchmark_facts.csv", asked), None)
    if fact is None or not _trains(row):
        return {}
    return {
        "framework": fact["framework"] or row.get("framework", ""),
        "precision": row.get("precision") or fact["precision"],
        "compiler_flags": _joined(fact["flags"], row.get("compiler_flags")),
        "seq_len": fact["seq_len"] or row.get("seq_len", ""),
        "parallelism": row.get("parallelism") or fact["parallelism"],
        "note": _NOTE,
    }


def _as_served(row: Cells) -> Cells:
    """What the rules of a serving benchmark and its submissions' scripts say of a row.

    >>> row = {"framework": "MLPerf Inference v3.0; TensorRT 8.6.0", "model": "bert-99",
    ...        "gpu": "NVIDIA A30", "precision": "int8", "task": "infer", "scenario": "offline"}
    >>> _as_served(row)
    {'seq_len': '180'}
    """
    if not row.get("scenario") or _trains(row):
        return {}
    asked = {
        "origin": "; ".join(row.get(name, "") for name in ("source", "framework")),
        "model": row.get("model", ""),
        "gpu": row.get("gpu", ""),
        "stated": row.get("precision", ""),
    }
    fact = next(_fitting("serving_facts.csv", asked), {})
    found = {name: fact.get(name, "") for name in ("precision", "seq_len", "isl", "osl")}
    if fact.get("flags"):
        found["compiler_flags"] = _joined(row.get("compiler_flags"), fact["flags"])
    if fact.get("parallelism") and row.get("n_gpus", "1") not in ("", "1"):
        found["parallelism"] = fact["parallelism"].format_map(row)
    stays = {name for name in ("seq_len", "isl", "osl", "parallelism") if row.get(name)}
    return {name: text for name, text in found.items() if text and name not in stays}


def _requested(row: Cells) -> Cells:
    """Lengths of the requests that a named workload of serving has."""
    flags = row.get("compiler_flags", "")
    for known in read_table("serving_workloads.csv"):
        if not _trains(row) and re.search(known["pattern"], flags, re.IGNORECASE):
            lengths = f"ISL={known['input_tokens']}; OSL={known['output_tokens']}"
            return {"compiler_flags": _joined(flags, lengths)}
    return {}


def _scripted(row: Cells) -> Cells:
    """The optimizer, the format, the casts and the exchange of the script that a row ran.

    >>> said = {"framework": "PyTorch", "precision": "AMP", "gpu": "A100", "task": "infer"}
    >>> _scripted(said | {"model": "TFT"})
    {'precision': 'tf32'}
    >>> _scripted(said | {"model": "GNMT", "compiler_flags": "beam=5"})
    {'rewrite': 'inference_format=pure'}
    """
    asked = {
        "entry": _entry(row),
        "framework": row.get("framework", ""),
        "stated": row.get("precision", ""),
        "origin": row.get("source", ""),
    }
    what = "script_updates.csv" if _trains(row) else "script_casts.csv"
    found = dict(next(_fitting(what, asked), {}))
    found.pop("source", None)
    written = {name: text for name, text in found.items() if text and name not in asked}
    is_apart = _trains(row) and next(_fitting("script_replicas.csv", asked), None)
    return written | ({"parallelism": "independent"} if is_apart else {})


def _evaluated(row: Cells) -> Cells:
    """What a published evaluation does on the host beside the network."""
    asked = {"entry": _entry(row), "framework": row.get("framework", "")}
    known = None if _trains(row) else next(_fitting("evaluation_hosts.csv", asked), None)
    return {name: known[name] for name in ("added_item_s", "added_step_s")} if known else {}


def _contended(row: Cells) -> Cells:
    """By how many times a step takes longer whose kernels get in the way of its exchange.

    A ring of N ranks exchanges ``(N - 1) / N`` of what many do.
    """
    asked = {name: row.get(name, "") for name in ("framework", "precision", "model")}
    known = next(_fitting("contending_kernels.csv", asked), None)
    num_ranks = parse_row(row).num_gpus or 1.0
    is_compiled = _XLA.search(row.get("compiler_flags", ""))
    if known is None or num_ranks <= 1 or is_compiled or not _trains(row):
        return {}
    factor = 1.0 + float(known["added_frac"]) * (num_ranks - 1.0) / num_ranks
    return {"time_factor": repr(factor)}


def _unequal(row: Cells) -> Cells:
    """How much longer the item takes whose time is stated than the usual one.

    The time of a single stream that 90 of 100 items keep is that of a long one, where items of a
    benchmark are texts, recordings or volumes of unlike sizes.

    >>> row = {"model": "rnnt", "framework": "MLPerf Inference v3.0; TensorRT", "gpu": "NVIDIA T4",
    ...        "task": "infer", "scenario": "SingleStream", "unit": "ms (p90 single stream)"}
    >>> [_unequal(row | {"model": name}) for name in ("rnnt", "bert-99", "resnet50")]
    [{'time_factor': '1.26'}, {'seq_len': '250'}, {}]
    """
    is_single = "single" in row.get("scenario", "").lower()
    is_late = is_single and "p90 single stream" in row.get("unit", "")
    asked = {"origin": row.get("framework", ""), "model": row.get("model", "")}
    known = next(_fitting("unequal_items.csv", asked), None) if is_late else None
    if known is None:
        return {}
    late = {"seq_len": row.get("seq_len") or known["seq_len"], "time_factor": known["time_factor"]}
    return {name: text for name, text in late.items() if text}


def _trains(row: Cells) -> bool:
    return parse_row(row).task == "train"


def _entry(row: Cells) -> str:
    try:
        return resolve_model(parse_row(row)).entry
    except UnresolvedRowError:
        return ""


def _joined(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)


def _fitting(name: str, asked: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Lines of a table whose patterns fit as a whole; an empty one fits everything."""
    return (
        line
        for line in read_table(name)
        if all(
            re.fullmatch(line[column] or ".*", text, re.IGNORECASE)
            for column, text in asked.items()
            if column in line
        )
    )
