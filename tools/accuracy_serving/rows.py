"""Published serving runs as the predictor takes them: what runs, where, and why not."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from paceline.model.names.registry import released_precisions

#: Precisions by the words of the table.
PRECISIONS = {
    "bf16": ("bf16",),
    "fp8": ("fp8",),
    "fp4": ("nvfp4",),
    "int4": ("int4",),
    "mxfp4": ("mxfp4",),
}
#: Devices of one board.
BOARD = 8
#: Runs that gave the ways of requests (`stack/data/engines.toml`).
_PATH_DEVICES = ("h100_sxm", "h200_sxm")
_PATH_TOKENS = 1024
_PATH_REQUESTS = 8

_HERE = Path(__file__).parent


@cache
def table(name: str) -> tuple[Mapping[str, str], ...]:
    """The lines of a table of this folder."""
    with (_HERE / name).open(encoding="utf-8") as lines:
        return tuple(csv.DictReader(lines))


def read_runs(path: Path) -> pd.DataFrame:
    """All runs, with what is asked of the predictor and the reason where it is not asked.

    Args:
        path: ``aic_silicon_serving.csv.xz`` of the published operator tables.
    """
    runs = pd.read_csv(path, dtype={"precision": str, "gemm_quant_mode": str})
    models = [_found("models.csv", name) for name in runs.model_path]
    sources = [_found("sources.csv", name) or {} for name in runs.silicon_data_source]
    devices = {row["system"]: row["device"] for row in table("systems.csv")}
    length = np.array([float(row["length_frac"]) for row in sources])
    runs = _of_writers(runs).assign(entry=[row["entry"] if row else "" for row in models])
    runs = runs.assign(
        model_class=[row["model_class"] if row else "unknown" for row in models],
        device=runs.system.map(devices),
        format=_formats(runs),
        ranks=_ranks(runs),
        replicas=_replicas(runs),
        concurrency=runs.batch_size * _told_replicas(runs),
        input_tokens=runs.isl * length,
        output_tokens=runs.osl * length,
        rounds=np.array([float(row["rounds"] or "nan") for row in sources]),
    )
    runs = runs.assign(
        poll_steps=_poll_steps(runs), kernel=_kernels(runs), balance_steps=_balance_steps(runs)
    )
    runs.loc[runs["mode"] == "disagg", "rounds"] = np.nan
    return runs.assign(reason=_reasons(runs), gave_path=_gave_path(runs))


def _poll_steps(runs: pd.DataFrame) -> pd.Series:
    """Steps between two looks at new requests, which the benchmark told some engines."""
    steps = pd.Series(0.0, index=runs.index)
    for row in table("polls.csv"):
        polls = (runs.backend == row["backend"]) & runs.system.str.fullmatch(row["systems"])
        polls &= runs.model_path.str.fullmatch(row["models"])
        polls &= runs.concurrency >= float(row["least_requests"])
        steps = steps.mask(polls, float(row["steps"]))
    return steps


def _balance_steps(runs: pd.DataFrame) -> pd.Series:
    """Steps that a prompt waits at most until ranks with requests of their own read theirs too.

    What the benchmark told some engines; none where prompts are read as they come.
    """
    steps = pd.Series(0.0, index=runs.index)
    for row in table("balance.csv"):
        waits = (runs.backend == row["backend"]) & (runs.replicas > 1)
        steps = steps.mask(waits, float(row["steps"]))
    return steps


def _kernels(runs: pd.DataFrame) -> pd.Series:
    """Kernels of experts that the benchmark told some engines to run; empty where it told none."""
    kernels = pd.Series("", index=runs.index)
    for row in table("kernels.csv"):
        told = (runs.backend == row["backend"]) & runs.system.str.fullmatch(row["systems"])
        told &= runs.model_path.str.fullmatch(row["models"])
        told &= runs.backend_version.astype(str).str.fullmatch(row["releases"])
        kernels = kernels.mask(told & (runs.format == "mxfp4"), row["kernel"])
    return kernels


def _gave_path(runs: pd.DataFrame) -> pd.Series:
    """Runs that the way of a request was measured on: their first tokens are judged nowhere."""
    is_short = (runs.isl == _PATH_TOKENS) & (runs.concurrency <= _PATH_REQUESTS)
    is_short &= runs.replicas == 1
    return is_short & runs.system.isin(_PATH_DEVICES) & runs.rounds.notna()


def _of_writers(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs with prompts on devices of their own, as those that write tokens see them.

    These read no prompts. What their first token waits for is not told.
    """
    is_apart = runs["mode"] == "disagg"
    stated = {
        "batch_size": "decode_batch_size", "tp_size": "decode_tp_size",
        "pp_size": "decode_pp_size", "attention_dp_size": "decode_attention_dp_size",
        "moe_tp_size": "decode_moe_tp_size", "moe_ep_size": "decode_moe_ep_size",
    }  # fmt: skip
    return runs.assign(**{to: runs[to].mask(is_apart, runs[of]) for to, of in stated.items()})


def _found(name: str, text: str) -> Mapping[str, str] | None:
    return next((row for row in table(name) if re.fullmatch(row["pattern"], text)), None)


def _ranks(runs: pd.DataFrame) -> pd.Series:
    """Devices of all replicas that share experts; where two equal degrees are told, each is all.

    Tensors over 4 ranks that are replicas of attention too stand there as 4 and 4.
    """
    tensor, replicas = _over_all(runs, runs.tp_size), _replicas(runs)
    is_twice = (tensor == replicas) & (tensor > 1)
    return (tensor * replicas).mask(is_twice, tensor)


def _replicas(runs: pd.DataFrame) -> pd.Series:
    """Groups of ranks with attention to requests of their own."""
    return _over_all(runs, _told_replicas(runs))


def _told_replicas(runs: pd.DataFrame) -> pd.Series:
    return runs.attention_dp_size.fillna(1).clip(lower=1)


def _over_all(runs: pd.DataFrame, degree: pd.Series) -> pd.Series:
    """A degree; where it is the product of two equal ones of experts, each is all devices.

    Tensors over 8 ranks with experts over the same 8 stand there as 64, on boards of eight.
    """
    is_product = (runs.moe_tp_size == runs.moe_ep_size) & (degree > BOARD)
    is_product &= degree == runs.moe_tp_size * runs.moe_ep_size
    return degree.mask(is_product, runs.moe_tp_size)


def _formats(runs: pd.DataFrame) -> pd.Series:
    """As stated, else that of the weights, else BF16; FP4 is widened where no unit has it.

    Of models that are released in MXFP4, that is what FP4 means.
    """
    stated = runs.precision.fillna(
        runs.gemm_quant_mode.replace({"fp8_block": "fp8", "nvfp4": "fp4", "int4_wo": "int4"})
    )
    wide = [row["system"] for row in table("systems.csv") if row["multiplies_4_bits"] == "no"]
    is_widened = (stated == "fp4") & runs.system.isin(wide)
    released = runs.entry.map(released_precisions)
    is_own = (stated == "fp4") & np.array(["mxfp4" in names for names in released])
    return stated.fillna("bf16").mask(is_widened, "int4").mask(is_own, "mxfp4")


def _are_added(runs: pd.DataFrame) -> pd.Series:
    """Whether degrees are the devices of several servers: 12 to 72 parts of each expert.

    Most of these numbers divide neither the 128 heads of the model nor the width of an expert.
    """
    return (runs["mode"] == "agg") & (runs.moe_tp_size == runs.tp_size) & (runs.ranks > BOARD)


def _reasons(runs: pd.DataFrame) -> pd.Series:
    """Why a run is not predicted; empty where it is."""
    asked = {
        "prompts and tokens on devices of their own, batch not stated": (runs["mode"] == "disagg")
        & ~(runs.concurrency > 0),
        "the model is not known": runs.entry == "",
        "servers of prompts and of tokens are counted as ranks of one": _are_added(runs),
        "no number of requests in flight": ~(runs.concurrency > 0),
    }
    reasons = pd.Series("", index=runs.index)
    for reason, applies in asked.items():
        reasons = reasons.where((reasons != "") | ~applies, reason)
    return reasons
