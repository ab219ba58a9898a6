"""The two products of a fused layer of experts: a tile model of grouped products.

Tokens reach some of the experts; the weights of those are read once, and each has its own tiles, so
that the rows of an expert are padded to whole ones. A layer also sorts its tokens, gathers them and
sums what comes back: time per token and width, and some that is fixed. Both products of a layer
carry half of that.

Experts that all tokens pass need nothing of those, and engines run both at once on NVIDIA's devices
while tokens are few: what is left of them is what they read and compute.

Sources:
    Gale et al., "MegaBlocks", MLSys 2023, section 5 (tiles of grouped products); vLLM,
    ``fused_moe`` (sorting, two products, summing), and its pull requests 26440 (shared experts on a
    stream of their own: 1.26 ms less in a step of DeepSeek-R1 on eight B200), 28406 (up to 256
    tokens) and 30085 (not on other makers' devices). Constants are fitted to measured layers
    (``tools/fit/experts.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.model.graph.costs import CostTable
from paceline.model.graph.graph import OpKind
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array, Bounds
from paceline.prediction.kernels.product_tiles import Engine, TileConstants, tiled_s
from paceline.values import dataclass

#: Tokens up to which experts that all of them pass run beside the others.
_MOST_BESIDE = 256
_ROWS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConstants:
    """What is the same on every device, for one width of weights and operands.

    Attributes:
        tiles: Of the products.
        layer_s: Fixed seconds of a layer.
        token_bytes: Bytes that each row of a product moves besides, for each number that it takes
            in or gives out.
        operand_bytes: Of what is multiplied.
    """

    tiles: TileConstants
    layer_s: float
    token_bytes: float
    operand_bytes: float


def expert_constants(
    weight_bytes: float, operand_bytes: float, rows: Sequence[Mapping[str, str]], kernel: str = ""
) -> ExpertConstants:
    """Fitted constants for weights of so many bytes; those of the nearest widths.

    Args:
        weight_bytes: Of one weight.
        operand_bytes: Of one where it is multiplied: more, if it is widened on the way.
        rows: Constants by widths, as ``data/expert_tiles.csv`` has them.
        kernel: One that is known by name; else what is chosen by widths.
    """
    rows = [row for row in rows if row["kernel"] == kernel]
    asked = (("weight_bytes", weight_bytes), ("operand_bytes", operand_bytes))
    row = min(rows, key=lambda one: [abs(float(one[name]) - wanted) for name, wanted in asked])
    values = {name: float(row[name]) for name in TileConstants.__slots__}
    return ExpertConstants(
        tiles=TileConstants(**values),
        layer_s=float(row["layer_s"]),
        token_bytes=float(row["token_bytes"]),
        operand_bytes=float(row["operand_bytes"]),
    )


def expert_product_s(
    product: tuple[Array, ...], moved_bytes: Array, engine: Engine, constants: ExpertConstants, *,
    sorts: Array | float = 1.0,
) -> Array:  # fmt: skip
    """Seconds of one of the two products of a layer.

    Args:
        product: Experts that tokens reach, rows of each on average, outputs, inputs.
        moved_bytes: Weights of those experts, and what goes in and out.
        engine: The device.
        constants: Fitted constants.
        sorts: Whether a layer sorts, gathers and sums its rows around the products, 1 or 0 of each.
    """
    reached, rows, outputs, inputs = product
    beside = constants.token_bytes * reached * rows * (outputs + inputs)
    whole_rows = (reached, np.maximum(rows, 1.0), outputs, inputs)
    products_s = tiled_s(whole_rows, moved_bytes, engine, constants.tiles)
    layer_s = constants.layer_s / 2.0 + beside / engine.memory_bytes_per_s
    total = products_s + sorts * layer_s
    return total.astype(np.float32)


def beside_experts(
    device_s: Array, bounds: Bounds, costs: CostTable, dims: Array, devices: DeviceTable
) -> Array:
    """Seconds of each op where products of shared experts run at once with those of the others.

    Args:
        device_s: Seconds where all run one after another, (D, P, R).
        bounds: Their physical bounds.
        costs: The ops, R of them.
        dims: Their shape numbers, (P, R, NUM_DIMS).
        devices: Where they would run, D of them.
    """
    if not costs.expert_rows().size:
        return device_s
    is_shared = np.array(["shared_expert" in name for name in costs.modules])[costs.module]
    shared = np.bincount(costs.order[is_shared], minlength=len(costs.kind))
    alone = np.bincount(costs.order, minlength=len(costs.kind))
    rows = np.flatnonzero((shared == alone) & (costs.kind == OpKind.MATMUL))
    is_own = np.array([maker == "NVIDIA" for maker, _ in devices.kinds])
    hides = is_own[:, None, None] & (dims[:, rows, _ROWS] <= _MOST_BESIDE)
    found = device_s.copy()
    found[..., rows] = np.where(hides, bounds.rows(rows).roofline_s, device_s[..., rows])
    return found
