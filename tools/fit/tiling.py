"""Constants of the tile model and of the clock under the power limit, from FP32 products.

One set for all devices: what tells devices apart are the facts of the catalogue alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from paceline.predict.power import ClockConstants, clock_frac
from paceline.predict.tiles import Engine, TileConstants, tiled_s

_NAMES = tuple(TileConstants.__slots__)
_START = {
    "launch_cycles": 5000.0, "prologue_cycles": 200.0, "step_cycles": 100.0,
    "cache_bytes_per_cycle": 80.0, "compute_frac": 0.95, "half_tile": 2500.0,
    "memory_frac": 0.75, "fill_frac": 0.9,
}  # fmt: skip
_CLOCK_START = {"j_per_flop": 14e-12, "idle_frac": 0.15}
#: Dynamic power is clock times voltage squared; between a voltage that falls with the clock (a
#: third) and one that does not (one). Four boards cannot tell, so it is set and not fitted.
_CLOCK_EXPONENT = 0.5


def seconds(rows: pd.DataFrame, tiles: TileConstants, clock: ClockConstants | None) -> np.ndarray:
    """Tile-model time of product rows; without a clock law the listed clock holds."""
    frac = 1.0 if clock is None else clock_frac(rows.tdp_w, rows.peak_fp32, clock)
    engine = Engine(
        num_sms=rows.num_sms.to_numpy(float),
        clock_hz=rows.clock_hz.to_numpy(float) * frac,
        peak_flop_per_s=(rows.peak / rows.clock_frac).to_numpy(float) * frac,
        memory_bytes_per_s=rows.memory_bytes_per_s.to_numpy(float),
        element_bytes=rows.element_bytes.to_numpy(float),
        has_matrix_units=clock is None,
    )
    product = tuple(rows[name].to_numpy(float) for name in ("batch", "m", "n", "k"))
    return tiled_s(product, rows.moved_bytes.to_numpy(float), engine, tiles)


def fit_tiles(
    rows: pd.DataFrame, *, with_clock: bool, num_rows: int = 5000, rounds: int = 500
) -> tuple[TileConstants, ClockConstants | None]:
    """Least mean absolute log error over a balanced draw of rows, by Nelder-Mead.

    Args:
        rows: Product rows with device facts.
        with_clock: Whether the law of the sustained clock is fitted too (FP32 only).
        num_rows: Rows drawn, the same number per device.
        rounds: Iterations.
    """
    each = max(1, num_rows // rows.device.nunique())
    drawn = pd.concat(
        [g.sample(min(each, len(g)), random_state=0) for _, g in rows.groupby("device")]
    )
    measured = np.log(drawn.time_s.to_numpy())
    start = list(_START.values()) + (list(_CLOCK_START.values()) if with_clock else [])

    def parts(logs: np.ndarray) -> tuple[TileConstants, ClockConstants | None]:
        values = np.exp(logs)
        tiles = TileConstants(**dict(zip(_NAMES, _clipped(values), strict=False)))
        if not with_clock:
            return tiles, None
        j_per_flop, idle = values[len(_NAMES) :]
        return tiles, ClockConstants(
            j_per_flop=j_per_flop, idle_frac=min(idle, 0.5), exponent=_CLOCK_EXPONENT
        )

    def loss(logs: np.ndarray) -> float:
        return float(np.abs(np.log(seconds(drawn, *parts(logs))) - measured).mean())

    found = minimize(loss, np.log(start), method="Nelder-Mead", options={"maxiter": rounds})
    return parts(found.x)


def _clipped(values: np.ndarray) -> np.ndarray:
    """Shares stay shares."""
    clipped = values[: len(_NAMES)].copy()
    for name in ("compute_frac", "memory_frac"):
        index = _NAMES.index(name)
        clipped[index] = min(clipped[index], 1.2)
    return clipped
