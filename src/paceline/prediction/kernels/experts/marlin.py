"""The two products of a layer of experts whose weights of four bits Marlin's kernel widens.

The rows of each expert are padded to whole blocks, whose height the engine chooses by the rows that
an expert gets on average. Each block unpacks all weights of its expert and multiplies them by
instructions of Ampere, which do no more in newer multiprocessors than they did in Ampere's; what is
unpacked and what is multiplied takes turns. All blocks are dealt out evenly, so that no wave is cut
short. The weights of an expert are read from memory once; later blocks find them in the cache.

Sources:
    Frantar et al., "MARLIN", PPoPP 2025 (4-bit weights widened on the way, work dealt out evenly);
    vLLM, ``fused_moe/fused_marlin_moe.py`` (heights of blocks and how they are chosen, read
    2026-11-28). Constants are fitted to measured layers (``tools/fit/marlin_experts.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.prediction.features import Array
from paceline.prediction.kernels.product_tiles import Engine
from paceline.values import dataclass

#: Heights of a block.
_HEIGHTS = np.array([8, 16, 32, 48, 64], dtype=np.float32)
#: Of the first height that the rows of an expert fill by less than this.
_FULL_FRAC = 0.9
#: Columns of a block.
_COLUMNS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class MarlinConstants:
    """What is the same on every device, for one format of weights.

    Attributes:
        weights_per_cycle: Most that one multiprocessor unpacks.
        unpack_cycles: Cycles of one weight of a block beside its arithmetic.
        flop_per_cycle: Most that instructions of Ampere do on one multiprocessor.
        compute_frac: Share of that rate, or of a lower one of the device, that is reached.
        tile_cycles: Fixed cycles of 128 columns of a block.
        memory_frac: Share of the bandwidth that long reads reach.
        resident_bytes_per_cycle: What one multiprocessor reads from the last-level cache.
        launch_s: Fixed seconds of a product.
        layer_s: Fixed seconds of a layer.
        token_bytes: As of `ExpertConstants`.
    """

    weights_per_cycle: float
    unpack_cycles: float
    flop_per_cycle: float
    compute_frac: float
    tile_cycles: float
    memory_frac: float
    resident_bytes_per_cycle: float
    launch_s: float
    layer_s: float
    token_bytes: float


def marlin_constants(weights: str, rows: Sequence[Mapping[str, str]]) -> MarlinConstants:
    """Fitted constants for a format of weights.

    Args:
        weights: The format.
        rows: Constants by format, as ``data/expert_marlin.csv`` has them.
    """
    row = next(one for one in rows if weights in one["weights"].split())
    return MarlinConstants(**{name: float(row[name]) for name in MarlinConstants.__slots__})


def block_height(rows: Array) -> Array:
    """Rows of a block where experts get so many on average.

    >>> block_height(np.array([1.0, 7.3, 28.0, 50.0, 1000.0])).tolist()
    [8.0, 16.0, 32.0, 64.0, 64.0]
    """
    number = np.searchsorted(_FULL_FRAC * _HEIGHTS, rows, side="right")
    height: Array = _HEIGHTS[np.minimum(number, len(_HEIGHTS) - 1)]
    return height


def blocks_of_expert(rows: Array, height: Array) -> Array:
    """Blocks of an expert with tokens, on average.

    A height is chosen that holds the average rows, unless all are too low; then the last block of
    an expert is half full.

    >>> blocks_of_expert(np.array([5.0, 640.0]), np.array([8.0, 64.0])).tolist()
    [1.0, 10.5]
    """
    half = np.where(height == _HEIGHTS[-1], 0.5, 0.0)
    blocks: Array = np.maximum(rows / height + half, 1.0)
    return blocks


def marlin_product_s(
    product: tuple[Array, ...], blocks: tuple[Array, Array], moved_bytes: Array, engine: Engine,
    constants: MarlinConstants, *, sorted_rows: Array, sorts: Array | float = 1.0,
) -> Array:  # fmt: skip
    """Seconds of one of the two products of a layer.

    Args:
        product: Experts that tokens reach, rows of each on average, outputs, inputs.
        blocks: How many there are of all experts, and rows of each.
        moved_bytes: Weights of those experts, and what goes in and out.
        engine: The device.
        constants: Fitted constants.
        sorted_rows: Rows that are sorted, gathered and summed around the products; of experts on
            other ranks too, where these pass all the same.
        sorts: As of `expert_product_s`.
    """
    _, _, outputs, inputs = product
    num_blocks, height = blocks
    rate = engine.peak_flop_per_s / (engine.num_sms * engine.clock_hz)
    rate = constants.compute_frac * np.minimum(rate, constants.flop_per_cycle)
    weight_cycles = np.maximum(
        1.0 / constants.weights_per_cycle, constants.unpack_cycles + 2.0 * height / rate
    )
    column_cycles = inputs * weight_cycles + constants.tile_cycles / _COLUMNS
    busy_s = num_blocks * outputs * column_cycles / (engine.num_sms * engine.clock_hz)
    products_s = np.maximum(busy_s, moved_bytes * engine.s_per_byte(constants))
    beside = constants.token_bytes * sorted_rows * (outputs + inputs)
    layer_s = constants.layer_s / 2.0 + beside / engine.memory_bytes_per_s
    total: Array = (products_s + constants.launch_s + sorts * layer_s).astype(np.float32)
    return total
