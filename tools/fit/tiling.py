"""Constants of the tile model, of the clock under the power limit and of repeated calls.

One set for all devices: what tells devices apart are the facts of the catalogue alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from fit.residency import hit_frac
from paceline.catalog.architectures import Generation, generation_of, shipped_generations
from paceline.prediction.kernels.power import ClockConstants, clock_frac
from paceline.prediction.kernels.product_tiles import Engine, TileConstants, batched_tiles, tiled_s

_START = {
    "launch_cycles": 5000.0, "prologue_cycles": 200.0, "step_cycles": 100.0,
    "cache_bytes_per_cycle": 80.0, "compute_frac": 0.95, "half_tile": 2500.0,
    "memory_frac": 0.75, "fill_frac": 0.9,
}  # fmt: skip
#: Fitted for matrix units alone, whose benchmark takes several copies of the operands in turn.
_MATRIX_START = {
    "launch_cycles": 1500.0, "step_cycles": 15.0, "half_tile": 5000.0, "memory_frac": 0.85,
    "launch_s": 1e-6, "resident_bytes_per_cycle": 25.0, "split_cycles": 100.0, "chain_cycles": 20.0,
}  # fmt: skip
_NUM_COPIES_START = 7.0
#: On the squared log of each constant over its start, which is of the size that hardware has:
#: several sets describe the same times, and only some of them a device.
_PRIOR = 0.1
#: FP32 products were timed call by call, so their fixed time is one of cycles.
_VECTOR_ALONE = {
    "launch_s": 0.0, "resident_bytes_per_cycle": 0.0, "split_cycles": 0.0, "chain_cycles": 0.0,
}  # fmt: skip
_DRAWN_BY = ["device", "op"]
_CLOCK_START = {"j_per_flop": 14e-12, "idle_frac": 0.15}
#: Dynamic power is clock times voltage squared; between a voltage that falls with the clock (a
#: third) and one that does not (one). Four boards cannot tell, so it is set and not fitted.
_CLOCK_EXPONENT = 0.5
#: Largest values of shares.
_LIMITS = {"compute_frac": 1.2, "memory_frac": 1.2, "idle_frac": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFit:
    """What a fit of products found.

    Attributes:
        tiles: Constants of the tile model.
        clock: Law of the sustained clock; None for matrix units.
        num_copies: Sets of operands that the benchmark took in turn; infinite where every call
            was charged to device memory.
    """

    tiles: TileConstants
    clock: ClockConstants | None
    num_copies: float


def seconds(rows: pd.DataFrame, fitted: TileFit) -> np.ndarray:
    """Tile-model time of product rows; without a clock law the listed clock holds."""
    clock = fitted.clock
    frac = 1.0 if clock is None else clock_frac(rows.tdp_w, rows.peak_fp32, clock)
    engine = Engine(
        num_sms=rows.num_sms.to_numpy(float),
        clock_hz=rows.clock_hz.to_numpy(float) * frac,
        peak_flop_per_s=(rows.peak / rows.clock_frac).to_numpy(float) * frac,
        memory_bytes_per_s=rows.memory_bytes_per_s.to_numpy(float),
        element_bytes=rows.element_bytes.to_numpy(float),
        has_matrix_units=clock is None,
        hit_frac=hit_frac(rows, fitted.num_copies),
        batched_tile=None if clock is None else batched_tiles(_generations(rows)),
    )
    product = tuple(rows[name].to_numpy(float) for name in ("batch", "m", "n", "k"))
    return tiled_s(product, rows.moved_bytes.to_numpy(float), engine, fitted.tiles)


def _generations(rows: pd.DataFrame) -> list[Generation]:
    known = shipped_generations()
    return [generation_of(known, "", code) for code in rows.compute_capability]


def fit_tiles(
    rows: pd.DataFrame, *, with_clock: bool, num_rows: int = 5000, rounds: int = 500
) -> TileFit:
    """Least mean absolute log error over a balanced draw of rows, by Nelder-Mead.

    Args:
        rows: Product rows with device facts.
        with_clock: Whether the law of the sustained clock is fitted too (FP32 only).
        num_rows: Rows drawn, the same number per device and op.
        rounds: Iterations.
    """
    each = max(1, num_rows // rows.groupby(_DRAWN_BY).ngroups)
    drawn = pd.concat(
        [g.sample(min(each, len(g)), random_state=0) for _, g in rows.groupby(_DRAWN_BY)]
    )
    measured = np.log(drawn.time_s.to_numpy())
    start = _START | _CLOCK_START if with_clock else {
        **_START, **_MATRIX_START, "num_copies": _NUM_COPIES_START
    }  # fmt: skip

    first = np.log(list(start.values()))

    def loss(logs: np.ndarray) -> float:
        fitted = _fit_of(dict(zip(start, np.exp(logs), strict=True)))
        away = _PRIOR * ((logs - first) ** 2).mean()
        return float(np.abs(np.log(seconds(drawn, fitted)) - measured).mean() + away)

    found = minimize(
        loss, first, method="Nelder-Mead",
        options={"maxiter": rounds, "adaptive": not with_clock},
    )  # fmt: skip
    return _fit_of(dict(zip(start, np.exp(found.x), strict=True)))


def _fit_of(values: dict[str, float]) -> TileFit:
    """Named numbers as constants; shares stay shares."""
    kept = {n: min(float(v), _LIMITS.get(n, np.inf)) for n, v in values.items()}
    has_clock = "idle_frac" in kept
    named = _VECTOR_ALONE | kept
    return TileFit(
        tiles=TileConstants(**{name: named[name] for name in TileConstants.__slots__}),
        clock=ClockConstants(
            j_per_flop=kept["j_per_flop"], idle_frac=kept["idle_frac"], exponent=_CLOCK_EXPONENT
        )
        if has_clock
        else None,
        num_copies=kept.get("num_copies", np.inf),
    )
