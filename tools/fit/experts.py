"""Constants of fused layers of experts, from published layers; and how well held-out devices do.

    PYTHONPATH=tools python -m fit.experts --truth ../shared/truth

One set for all devices and each width of weights and of what they meet: weights that are widened
for arithmetic in 16 bits have kernels of their own. Of several kernels for a layer the fastest
counts, which engines choose. Kernels that one format has on some devices are fitted besides, to
layers whose experts lie on one rank. The folds of held-out families, and devices, are printed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from fit.constants import DATA
from fit.residency import hit_frac
from fit.truth import device_facts
from paceline.catalog.load import load_catalog
from paceline.prediction.kernels.experts.expert_tiles import ExpertConstants, expert_product_s
from paceline.prediction.kernels.product_tiles import Engine, TileConstants

#: Format: width of weights and of what they meet, peak that applies, bytes of both. Formats of four
#: bits have scales for each 16 or 32 weights. What Marlin's kernel runs has a law of its own
#: (``fit.marlin_experts``); FP8 with one scale for a tensor runs other kernels on every generation,
#: five to ten times slower than their neighbours on Hopper.
FORMATS = {
    "bfloat16": (2.0, 2.0, "bf16", 2.0, 2.0),
    "fp8_block": (1.0, 1.0, "fp8", 1.0, 1.0),
    "w4a16_mxfp4": (0.5, 2.0, "bf16", 0.53, 2.0),
    "nvfp4": (0.5, 0.5, "fp4", 0.56, 0.56),
}
_WIDTHS = ["width", "operand_width"]
_LAYER = [
    "system", "dtype", "num_tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep",
    "distribution",
]  # fmt: skip
#: Kernels of MXFP4, how the tables call them, and the format that they are fitted to.
OWN_KERNELS = {
    "triton": ("oaitriton", "w4a16_mxfp4"), "trtllm": ("mxfp4_bf16", "w4a16_mxfp4"),
    "trtllm-mxfp8": ("mxfp4_mxfp8", "w4a8_mxfp4_mxfp8"),
}  # fmt: skip
#: Formats that such kernels alone run.
_OWN_FORMATS = {"w4a8_mxfp4_mxfp8": (0.5, 1.0, "fp8", 0.53, 1.0)}
FAMILIES = {
    "A100": ("a100_sxm",), "L40S": ("l40s",), "Hopper": ("h100_sxm", "h200_sxm"),
    "Blackwell": ("b200_sxm", "b300_sxm", "gb200", "gb300"),
    "RTX PRO 6000": ("rtx_pro_6000_server",),
}  # fmt: skip
MOST_TOKENS = 16384
START = {
    "launch_cycles": 2000.0, "prologue_cycles": 200.0, "step_cycles": 14.0,
    "cache_bytes_per_cycle": 50.0, "compute_frac": 0.8, "half_tile": 7000.0, "memory_frac": 0.9,
    "fill_frac": 0.8, "launch_s": 3e-6, "resident_bytes_per_cycle": 25.0, "split_cycles": 100.0,
    "chain_cycles": 20.0, "layer_s": 8e-6, "token_bytes": 3.0,
}  # fmt: skip
_LIMITS = {"compute_frac": 1.2, "memory_frac": 1.05}
#: On the squared log of each constant over its start.
_PRIOR = 0.02
_ROUNDS = 900
_NUM_ROWS = 8000
_OUT_BYTES = 2.0
SOURCE = "fitted to ai-dynamo/aiconfigurator moe tables 095f58a51 (Apache-2.0): "


def measured_layers(
    truth: Path, num_rows: int = 20_000, kernel: str = "", formats: Collection[str] = tuple(FORMATS)
) -> pd.DataFrame:
    """A balanced draw of measured layers with device facts and how their tokens are routed.

    Of unbalanced routers whose experts lie on several ranks, the rank that was timed had the most
    tokens, and by how much is drawn: these rows are left out.
    """
    drawn = drawn_layers(truth, formats, num_rows=num_rows, kernel=kernel)
    return _with_formats(_with_routing(drawn))


def drawn_layers(
    truth: Path, formats: Collection[str], *, num_rows: int, kernel: str = ""
) -> pd.DataFrame:
    """Layers of some formats with device facts, by kernels whose names hold a word."""
    rows = pd.read_csv(truth / "ops" / "aic_moe.csv.xz")
    facts = device_facts(load_catalog().devices)
    keep = rows.dtype.isin(formats) & rows.system.isin(facts.index) & (rows.latency_ms > 0)
    keep &= (rows.moe_ep == 1) | (rows.distribution == "balanced")
    keep &= (rows.num_tokens <= MOST_TOKENS) & rows.kernel.str.contains(kernel)
    rows = rows[keep].groupby(_LAYER, as_index=False).latency_ms.min()
    kinds = rows.groupby(["system", "dtype"])
    each = num_rows // kinds.ngroups
    drawn = pd.concat([g.sample(min(each, len(g)), random_state=0) for _, g in kinds])
    return drawn.reset_index(drop=True).join(facts, on="system")


def _with_formats(rows: pd.DataFrame) -> pd.DataFrame:
    columns = (*_WIDTHS, "peak_key", "weight_bytes", "element_bytes")
    known = FORMATS | _OWN_FORMATS
    for name, values in zip(columns, zip(*known.values(), strict=True), strict=True):
        rows[name] = rows.dtype.map(dict(zip(known, values, strict=True)))
    peak = [rows[f"peak_{key}"][row] for row, key in rows.peak_key.items()]
    rows = rows.assign(peak=peak, inner=rows.inter / rows.moe_tp, time_s=rows.latency_ms / 1e3)
    return rows[rows.peak > 0]


def _with_routing(rows: pd.DataFrame) -> pd.DataFrame:
    """With experts that tokens reach, and rows of each of them on average."""
    keys = ["num_tokens", "topk", "experts", "moe_ep", "distribution"]
    known = rows[keys].drop_duplicates()
    found = [routed(*key) for key in known.itertuples(index=False)]
    known = known.assign(reached=[r for r, _ in found], expert_rows=[n for _, n in found])
    return rows.merge(known, on=keys)


def routed(
    num_tokens: int, per_token: int, num_experts: int, num_ranks: int, distribution: str
) -> tuple[float, float]:
    """Experts of one rank that get tokens, and how many each gets on average.

    A power law gives experts the loads of its quantiles, between one token and four fifths of all
    of them, or between 0.01 and 2 where there are fewer tokens than experts (aiconfigurator,
    ``power_law_logits``).

    >>> routed(64, 8, 128, 1, "balanced"), routed(2, 8, 128, 1, "power_law_1.2")
    ((128.0, 4.0), (16.0, 1.0))
    """
    sent = num_tokens * per_token
    if distribution == "balanced":
        mine = sent / num_ranks
        reached = max(min(num_experts / num_ranks, mine), 1.0)
        return reached, mine / reached
    loads = tokens_of_experts(num_tokens, per_token, num_experts, num_ranks, distribution)
    return float(len(loads)), float(loads.mean())


def tokens_of_experts(
    num_tokens: int, per_token: int, num_experts: int, num_ranks: int, distribution: str
) -> np.ndarray:
    """Tokens of each expert of one rank that gets any: see `routed`."""
    sent = num_tokens * per_token
    if distribution == "balanced":
        num_reached = max(round(min(num_experts, sent) / num_ranks), 1)
        return np.full(num_reached, sent / num_ranks / num_reached)
    exponent = 1.0 - float(distribution.rpartition("_")[2])
    low, high = (1.0, max(num_tokens * 0.8, 1.01)) if sent > num_experts else (0.01, 2.0)
    quantile = (np.arange(num_experts) + 0.5) / num_experts
    load = (low**exponent + (high**exponent - low**exponent) * quantile) ** (1.0 / exponent)
    load = np.round(load / load.sum() * sent)
    if (load > 0).sum() < per_token:
        num_reached = min(sent, num_experts)
        return np.full(num_reached, sent / num_reached)
    return load[load > 0] * (sent / load.sum())


def seconds(rows: pd.DataFrame, constants: ExpertConstants) -> np.ndarray:
    """Predicted time of layers: both products."""
    column = {name: rows[name].to_numpy(float) for name in rows.select_dtypes("number")}
    reached, each = column["reached"], column["expert_rows"]
    weights = 3 * reached * column["hidden"] * column["inner"] * column["weight_bytes"]
    engine = Engine(
        num_sms=column["num_sms"],
        clock_hz=column["clock_hz"],
        peak_flop_per_s=column["peak"],
        memory_bytes_per_s=column["memory_bytes_per_s"],
        element_bytes=column["element_bytes"],
        has_matrix_units=True,
        hit_frac=hit_frac(rows.assign(moved_bytes=weights), 1.0),
    )
    total = np.zeros(len(rows))
    for outputs, inputs in (
        (2 * column["inner"], column["hidden"]), (column["hidden"], column["inner"])
    ):  # fmt: skip
        moved = reached * outputs * inputs * column["weight_bytes"]
        moved += reached * each * (inputs * column["element_bytes"] + outputs * _OUT_BYTES)
        total += expert_product_s((reached, each, outputs, inputs), moved, engine, constants)
    return total


def fitted(rows: pd.DataFrame) -> ExpertConstants:
    """Least mean absolute log error, by Nelder-Mead."""
    rows = rows.sample(min(_NUM_ROWS, len(rows)), random_state=1)
    measured, first = np.log(rows.time_s.to_numpy()), np.log(list(START.values()))

    def loss(logs: np.ndarray) -> float:
        told = np.log(seconds(rows, _constants(dict(zip(START, np.exp(logs), strict=True)))))
        return float(np.abs(told - measured).mean() + _PRIOR * ((logs - first) ** 2).mean())

    found = minimize(
        loss, first, method="Nelder-Mead", options={"maxiter": _ROUNDS, "adaptive": True}
    )
    return _constants(dict(zip(START, np.exp(found.x), strict=True)))


def _constants(values: Mapping[str, float]) -> ExpertConstants:
    kept = {name: min(float(v), _LIMITS.get(name, np.inf)) for name, v in values.items()}
    tiles = TileConstants(**{name: kept[name] for name in TileConstants.__slots__})
    return ExpertConstants(
        tiles=tiles, layer_s=kept["layer_s"], token_bytes=kept["token_bytes"], operand_bytes=np.nan
    )


def held_out(rows: pd.DataFrame) -> Iterator[tuple[str, str, int, float, float]]:
    """Family, widths, layers, median ratio and mean error of families held out in turn.

    A ratio is predicted over measured.
    """
    for family, systems in FAMILIES.items():
        is_out = rows.system.isin(systems)
        for widths, mine in rows[is_out].groupby(_WIDTHS):
            others = rows[~is_out & (rows[_WIDTHS] == list(widths)).all(axis=1)]
            if others.empty:
                continue
            ratio = seconds(mine, fitted(others)) / mine.time_s.to_numpy()
            error = float(np.abs(ratio - 1.0).mean())
            names = " x ".join(f"{width:g}" for width in widths)
            yield family, names, len(mine), float(np.median(ratio)), error


def of_kernels(truth: Path) -> dict[str, pd.DataFrame]:
    """Layers by kernel: the first are those of any."""
    found = {"": measured_layers(truth)}
    for kernel, (word, of_format) in OWN_KERNELS.items():
        rows = measured_layers(truth, kernel=word, formats=(of_format,))
        found[kernel] = rows[rows.moe_ep == 1].reset_index(drop=True)
    return found


def devices_out(rows: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Each device in turn, and ratios of its layers from the constants of the others."""
    for system, mine in rows.groupby("system"):
        constants = fitted(rows[rows.system != system])
        yield str(system), seconds(mine, constants) / mine.time_s


def write(layers: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Fit all rows of each kernel and pair of widths and write the constants."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        fields = (*TileConstants.__slots__, "layer_s", "token_bytes")
        writer.writerow(("kernel", "weight_bytes", "operand_bytes", *fields, "source"))
        for kernel, rows in layers.items():
            for widths, mine in rows.groupby(_WIDTHS):
                writer.writerow((kernel, *(f"{one:g}" for one in widths), *_written(mine, kernel)))


def _written(rows: pd.DataFrame, kernel: str) -> Iterator[str]:
    found = fitted(rows)
    tiles = [getattr(found.tiles, name) for name in TileConstants.__slots__]
    yield from (f"{value:.4g}" for value in (*tiles, found.layer_s, found.token_bytes))
    names = ", ".join(sorted(set(rows.dtype)))
    own = f" by kernels named {OWN_KERNELS[kernel][0]}, experts on one rank" if kernel else ""
    yield SOURCE + names + own


def main() -> None:
    """Print the folds, then write the constants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=Path("../shared/truth"))
    parser.add_argument("--out", type=Path, default=DATA / "expert_tiles.csv")
    asked = parser.parse_args()
    layers = of_kernels(asked.truth)
    for family, widths, count, ratio, error in held_out(layers[""]):
        print(f"{family}, {widths} bytes: {count:,} layers, ratio {ratio:.2f}, error {error:.1%}")
    for kernel in OWN_KERNELS:
        for system, ratio in devices_out(layers[kernel]):
            error = (ratio - 1.0).abs().mean()
            print(f"{kernel}, {system}: ratio {ratio.median():.2f}, error {error:.1%}")
    write(layers, asked.out)


if __name__ == "__main__":
    main()
