"""Constants of layers of experts that Marlin's kernel runs; and how well held-out devices do.

    PYTHONPATH=tools python -m fit.marlin_experts --truth ../shared/truth

One set for all devices and each format of weights. Blocks are counted from the tokens of each
expert, as the engine fills them. The folds of held-out families are printed, by tokens.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from fit.constants import DATA
from fit.experts import FAMILIES, SOURCE, drawn_layers, tokens_of_experts
from fit.residency import hit_frac
from paceline.model.rewrite.quantisation import bytes_per_element
from paceline.prediction.kernels.experts.marlin import (
    MarlinConstants,
    block_height,
    marlin_product_s,
)
from paceline.prediction.kernels.product_tiles import Engine

#: Formats of the tables, what we call them, and whose kernels unpack alike.
FORMATS = {"int4_wo": ("int4", "int4"), "w4a16_mxfp4": ("mxfp4", "mxfp4 nvfp4")}
BANDS = (0, 8, 64, 512, 2048, 16384)
START = {
    "weights_per_cycle": 25.0, "unpack_cycles": 0.018, "flop_per_cycle": 2048.0,
    "compute_frac": 0.7, "tile_cycles": 1000.0, "memory_frac": 0.85,
    "resident_bytes_per_cycle": 15.0, "launch_s": 3e-6, "layer_s": 2e-5, "token_bytes": 4.0,
}  # fmt: skip
_LIMITS = {"compute_frac": 1.0, "memory_frac": 1.0}
#: On the squared log of each constant over its start.
_PRIOR = 0.02
_ROUNDS = 2500
_ACTIVATION_BYTES = 2.0
_ROUTING = ["num_tokens", "topk", "experts", "moe_ep", "distribution"]


def measured_layers(truth: Path, num_rows: int = 40_000) -> pd.DataFrame:
    """Measured layers with device facts, and the blocks that their tokens fill."""
    rows = drawn_layers(truth, FORMATS, num_rows=num_rows, kernel="marlin")
    known = rows[_ROUTING].drop_duplicates()
    filled = [filled_blocks(*key) for key in known.itertuples(index=False)]
    names = ("reached", "expert_rows", "blocks", "height")
    known = known.assign(**dict(zip(names, map(list, zip(*filled, strict=True)), strict=True)))
    rows = rows.merge(known, on=_ROUTING)
    family = {system: name for name, systems in FAMILIES.items() for system in systems}
    return rows.assign(
        inner=rows.inter / rows.moe_tp,
        time_s=rows.latency_ms / 1e3,
        weight_bytes=rows.dtype.map(
            {one: bytes_per_element(us) for one, (us, _) in FORMATS.items()}
        ),
        family=rows.system.map(family),
        band=pd.cut(rows.num_tokens, BANDS, labels=[f"to {most:,}" for most in BANDS[1:]]),
    )


def filled_blocks(
    num_tokens: int, per_token: int, num_experts: int, num_ranks: int, distribution: str
) -> tuple[float, float, float, float]:
    """Experts of one rank that get tokens, how many on average, blocks of all, rows of a block.

    The engine chooses a height by all tokens and the experts of the rank.

    >>> filled_blocks(4096, 8, 384, 1, "balanced")
    (384.0, 85.33333333333333, 768.0, 64.0)
    """
    loads = tokens_of_experts(num_tokens, per_token, num_experts, num_ranks, distribution)
    height = float(block_height(np.array(num_tokens * per_token * num_ranks / num_experts)))
    blocks = float(np.ceil(loads / height - 1e-9).sum())
    return float(len(loads)), float(loads.mean()), blocks, height


def seconds(rows: pd.DataFrame, constants: MarlinConstants) -> np.ndarray:
    """Predicted time of layers: both products."""
    column = {name: rows[name].to_numpy(float) for name in rows.select_dtypes("number")}
    reached, each = column["reached"], column["expert_rows"]
    hidden, inner = column["hidden"], column["inner"]
    weights = 3 * reached * hidden * inner * column["weight_bytes"]
    engine = Engine(
        num_sms=column["num_sms"],
        clock_hz=column["clock_hz"],
        peak_flop_per_s=column["peak_bf16"],
        memory_bytes_per_s=column["memory_bytes_per_s"],
        element_bytes=np.array(_ACTIVATION_BYTES),
        has_matrix_units=True,
        hit_frac=hit_frac(rows.assign(moved_bytes=weights), 1.0),
    )
    total = np.zeros(len(rows))
    for outputs, inputs in ((2 * inner, hidden), (hidden, inner)):
        moved = reached * outputs * inputs * column["weight_bytes"]
        moved += reached * each * (inputs + outputs) * _ACTIVATION_BYTES
        total += marlin_product_s(
            (reached, each, outputs, inputs), (column["blocks"], column["height"]), moved, engine,
            constants, sorted_rows=column["num_tokens"] * column["topk"],
        )  # fmt: skip
    return total


def fitted(rows: pd.DataFrame) -> MarlinConstants:
    """Least mean absolute log error, families of devices alike, by Nelder-Mead."""
    measured, first = np.log(rows.time_s.to_numpy()), np.log(list(START.values()))
    share = 1.0 / rows.groupby("family").time_s.transform("size").to_numpy()

    def loss(logs: np.ndarray) -> float:
        told = np.log(seconds(rows, _constants(logs)))
        error = float(np.average(np.abs(told - measured), weights=share))
        return error + float(_PRIOR * ((logs - first) ** 2).mean())

    found = minimize(
        loss, first, method="Nelder-Mead", options={"maxiter": _ROUNDS, "adaptive": True}
    )
    return _constants(found.x)


def _constants(logs: np.ndarray) -> MarlinConstants:
    values = dict(zip(START, np.exp(logs).tolist(), strict=True))
    kept = {name: min(value, _LIMITS.get(name, np.inf)) for name, value in values.items()}
    return MarlinConstants(**kept)


def held_out(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Format, family, and its layers with ratios predicted over measured, each held out in turn."""
    for name, of_format in rows.groupby("dtype"):
        for family, mine in of_format.groupby("family"):
            others = of_format[of_format.family != family]
            yield name, family, mine.assign(ratio=seconds(mine, fitted(others)) / mine.time_s)


def write(rows: pd.DataFrame, path: Path) -> None:
    """Fit all rows of each format and write the constants."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("weights", *MarlinConstants.__slots__, "source"))
        for name, mine in rows.groupby("dtype"):
            found = fitted(mine)
            values = [f"{getattr(found, one):.4g}" for one in MarlinConstants.__slots__]
            writer.writerow((FORMATS[name][1], *values, f"{SOURCE}{name} by Marlin's kernel"))


def main() -> None:
    """Print the folds, then write the constants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=Path("../shared/truth"))
    parser.add_argument("--out", type=Path, default=DATA / "expert_marlin.csv")
    asked = parser.parse_args()
    rows = measured_layers(asked.truth)
    for name, family, mine in held_out(rows):
        medians = mine.groupby("band", observed=True).ratio.median().round(2).to_dict()
        error = (mine.ratio - 1.0).abs().mean()
        print(f"{name}, {family}: {len(mine):,} layers, error {error:.1%}, ratios {medians}")
    write(rows, asked.out)


if __name__ == "__main__":
    main()
