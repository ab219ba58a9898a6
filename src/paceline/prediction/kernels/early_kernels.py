"""Kernels of engines before they were tuned for the devices of makers other than NVIDIA.

Attention of one query row reads the keys and values of its head; where heads share them, each
query head of an early kernel reads them anew, and where the kernel is written for no device it
keeps so few bytes on their way, in each of the compute units that its heads and requests fill.
Products of few rows take a tile that was chosen for
other devices: they compute at a small share of the listed rate, so much per clock and compute unit
(``data/early_products.csv``, by architecture), and those of more than one row fill it up to a least
number. Products of more rows than such a tile has are those
of any engine, and never take less time than it. Products of experts have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paceline.model.graph.costs import CostTable
from paceline.model.graph.graph import OpKind
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array
from paceline.prediction.kernels.groups import folded_product, has_one_query, product_dims

#: Where the shape numbers of attention say for how many sequences it is, and how many heads there
#: are, of queries and of keys.
_BATCH, _Q_HEADS, _KV_HEADS = 0, 1, 2


def with_early(
    busy_s: Array, costs: CostTable, flop: Array, dims: Array, devices: DeviceTable,
    calibration: Calibration,
) -> Array:  # fmt: skip
    """Seconds of each op, (D, P, R), where engines run early kernels.

    Args:
        busy_s: Seconds of tuned kernels, (D, P, R).
        costs: The ops, R of them.
        flop: Of each op, (P, R).
        dims: Shape numbers of each op, (P, R, NUM_DIMS).
        devices: Where it would run, D of them.
        calibration: What such kernels reach.
    """
    attention = np.flatnonzero(costs.kind == OpKind.ATTENTION)
    attention = attention[has_one_query(costs, attention)]
    heads = dims[:, attention]
    shared = heads[..., _Q_HEADS] / np.maximum(heads[..., _KV_HEADS], 1.0)
    dense = np.setdiff1d(np.flatnonzero(costs.kind == OpKind.MATMUL), costs.expert_rows())
    num_rows = folded_product(product_dims(costs.kind[dense], dims[:, dense]))[1]
    known = {row["architecture"]: row for row in calibration.constants["early_products"]}
    found = busy_s.copy()
    for number, (maker, _) in enumerate(devices.kinds):
        if maker == "NVIDIA":
            continue
        found[number][:, attention] *= shared
        if row := known.get(devices.architectures[number]):
            num_units, clock_hz = devices.num_sms[number], devices.boost_clock_hz[number]
            in_tile = flop[:, dense] * _rows_in_tile(num_rows, row) / num_rows
            tile_s = in_tile / (float(row["flop_per_clock"]) * num_units * clock_hz)
            found[number][:, dense] = np.fmax(found[number][:, dense], tile_s)
            filled = np.minimum(heads[..., _BATCH] * heads[..., _Q_HEADS], num_units)
            per_clock = float(row["attention_flop_per_clock"] or "nan")
            read_s = flop[:, attention] / (per_clock * filled * clock_hz)
            found[number][:, attention] = np.fmax(found[number][:, attention], read_s)
    return found


def _rows_in_tile(num_rows: Array, row: Mapping[str, str]) -> Array:
    """Rows that a tile computes for so many."""
    filled = np.where(num_rows > 1, np.maximum(num_rows, float(row["least_rows"])), num_rows)
    return np.asarray(np.minimum(filled, float(row["most_rows"])), np.float32)
