"""The two products of a fused layer of experts: a tile model of grouped products.

Tokens reach some of the experts; the weights of those are read once, and each has its own tiles, so
that the rows of an expert are padded to whole ones. A layer also sorts its tokens, gathers them and
sums what comes back: time per token and width, and some that is fixed. Both products of a layer
carry half of that.

Sources:
    Gale et al., "MegaBlocks", MLSys 2023, section 5 (tiles of grouped products); vLLM,
    ``fused_moe`` (sorting, two products, summing). Constants are fitted to measured layers
    (``tools/fit/experts.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.prediction.features import Array
from paceline.prediction.kernels.product_tiles import Engine, TileConstants, tiled_s
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConstants:
    """What is the same on every device, for one width of weights.

    Attributes:
        tiles: Of the products.
        layer_s: Fixed seconds of a layer.
        token_bytes: Bytes that each row of a product moves besides, for each number that it takes
            in or gives out.
    """

    tiles: TileConstants
    layer_s: float
    token_bytes: float


def expert_constants(weight_bytes: float, rows: Sequence[Mapping[str, str]]) -> ExpertConstants:
    """Fitted constants for weights of so many bytes; those of the nearest width.

    Args:
        weight_bytes: Of one weight.
        rows: Constants by width, as ``data/expert_tiles.csv`` has them.
    """
    row = min(rows, key=lambda one: abs(float(one["weight_bytes"]) - weight_bytes))
    values = {name: float(row[name]) for name in TileConstants.__slots__}
    return ExpertConstants(
        tiles=TileConstants(**values),
        layer_s=float(row["layer_s"]),
        token_bytes=float(row["token_bytes"]),
    )


def expert_product_s(
    product: tuple[Array, ...], moved_bytes: Array, engine: Engine, constants: ExpertConstants
) -> Array:
    """Seconds of one of the two products of a layer.

    Args:
        product: Experts that tokens reach, rows of each on average, outputs, inputs.
        moved_bytes: Weights of those experts, and what goes in and out.
        engine: The device.
        constants: Fitted constants.
    """
    reached, rows, outputs, inputs = product
    beside = constants.token_bytes * reached * rows * (outputs + inputs)
    whole_rows = (reached, np.maximum(rows, 1.0), outputs, inputs)
    products_s = tiled_s(whole_rows, moved_bytes, engine, constants.tiles)
    total = products_s + constants.layer_s / 2.0 + beside / engine.memory_bytes_per_s
    return total.astype(np.float32)
