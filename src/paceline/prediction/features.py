"""What an efficiency depends on: numbers relative to the device, never the device itself.

Every function broadcasts: shape numbers are (points, rows) and device facts (devices, 1, 1) when
predicting, and both are (samples,) when fitting. Features stand on the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paceline.values import dataclass

Array: TypeAlias = npt.NDArray[np.float32]

#: Output tiles that matrix-product libraries cut their work into.
_TILES = ((64, 64), (128, 128), (256, 128))

PRODUCT_FEATURES: tuple[str, ...] = (
    "log_bound_us", "log_intensity_over_ridge", "log_bytes_over_l2", "log_batch", "log_m", "log_n",
    "log_k", "tile_fill_64", "tile_fill_128", "odd_n", "odd_k", "log_waves_64", "log_waves_128",
    "wave_fill_64", "wave_fill_128", "wave_fill_256", "log_tiled_over_bound",
)  # fmt: skip
ATTENTION_FEATURES: tuple[str, ...] = (
    "log_bound_us", "log_intensity_over_ridge", "log_bytes_over_l2", "log_q_len", "log_kv_len",
    "log_group", "log_head_size", "log_waves", "wave_fill", "causal", "log_tiled_over_bound",
)  # fmt: skip
_SETTING_FEATURES: tuple[str, ...] = (
    "is_compiled", "is_channels_last", "chooses_by_graph",
)  # fmt: skip
CONV_FEATURES: tuple[str, ...] = (
    *PRODUCT_FEATURES, "log_kernel_area", "log_stride", "log_channels_per_group",
    "log_gathered_over_moved", "is_depthwise", "is_line", "is_backward_input",
    "is_backward_weight",
    *_SETTING_FEATURES,
)  # fmt: skip
STREAM_FLAGS: tuple[str, ...] = (
    "is_norm", "is_softmax", "is_backward", "is_pool", "is_copy", "is_indexed", "is_optimizer",
    "is_reduction",
)  # fmt: skip
STREAM_FEATURES: tuple[str, ...] = (
    "log_bound_us", "log_bytes_over_l2", "log_rows_per_sm", "log_columns", "operands",
    *STREAM_FLAGS, *_SETTING_FEATURES,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Physical lower bounds of one launch, and the bytes behind them.

    Attributes:
        compute_s: FLOP over the dense peak.
        memory_s: Device-memory bytes over the bandwidth.
        bytes_over_l2: Bytes moved over the last-level cache.
    """

    compute_s: Array
    memory_s: Array
    bytes_over_l2: Array

    @property
    def roofline_s(self) -> Array:
        """The larger of both."""
        return np.maximum(self.compute_s, self.memory_s)

    @property
    def compute_frac(self) -> Array:
        """Share of arithmetic in the sum of both."""
        share: Array = self.compute_s / np.maximum(self.compute_s + self.memory_s, 1e-15)
        return share

    @property
    def uncached_s(self) -> Array:
        """Time to move what the last-level cache cannot hold: no kernel is faster."""
        cached_s = self.memory_s / np.maximum(self.bytes_over_l2, 1)
        uncached: Array = np.subtract(self.memory_s, cached_s, dtype=np.float32)
        return uncached

    def rows(self, rows: npt.NDArray[np.intp]) -> Bounds:
        """The bounds of some rows of the last axis."""
        return Bounds(
            compute_s=self.compute_s[..., rows],
            memory_s=self.memory_s[..., rows],
            bytes_over_l2=self.bytes_over_l2[..., rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a framework runs a graph, as 0 or 1 each (or arrays of them when fitting).

    Attributes:
        is_compiled: Fused by a compiler.
        is_channels_last: Images stored channels last.
        chooses_by_graph: Layouts, fusion and kernels chosen for whole graphs, not op by op.
    """

    is_compiled: Array
    is_channels_last: Array
    chooses_by_graph: Array

    def flags(self) -> tuple[Array, ...]:
        """In the order of ``_SETTING_FEATURES``."""
        return self.is_compiled, self.is_channels_last, self.chooses_by_graph

    @classmethod
    def of(cls, *, compiler: str, is_channels_last: bool, chooses_by_graph: bool) -> Settings:
        """Settings of one job."""

        def flag(condition: bool) -> Array:
            return np.asarray(condition, dtype=np.float32)

        return cls(
            is_compiled=flag(compiler != "eager"),
            is_channels_last=flag(is_channels_last),
            chooses_by_graph=flag(chooses_by_graph),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """What a convolution's implicit product does not show.

    Attributes:
        kernel_area: Height times width of the filter.
        stride: Input over output side.
        channels_per_group: Input channels that one output channel sees.
        gathered_over_moved: Bytes of the implicit product over bytes really moved.
        is_line: 0 or 1: one dimension, for which libraries have few of their fast kernels.
        is_backward_input: 0 or 1.
        is_backward_weight: 0 or 1.
    """

    kernel_area: Array
    stride: Array
    channels_per_group: Array
    gathered_over_moved: Array
    is_line: Array
    is_backward_input: Array
    is_backward_weight: Array


def product_features(
    bounds: Bounds, dims: tuple[Array, ...], num_sms: Array, tiled_s: Array
) -> Array:
    """Features of ``batch`` products of (m × k) by (k × n).

    Args:
        bounds: Bounds of the launch.
        dims: batch, m, n, k.
        num_sms: Multiprocessors of the device.
        tiled_s: Time of the tile model.
    """
    batch, m, n, k = dims
    tiles = [batch * np.ceil(m / tm) * np.ceil(n / tn) for tm, tn in _TILES]
    waves = [tile / num_sms for tile in tiles]
    fills = [
        m * n * batch / (tile * (tm * tn)) for tile, (tm, tn) in zip(tiles, _TILES, strict=True)
    ]
    return _stack(
        (
            *_bound_features(bounds),
            _log(batch), _log(m), _log(n), _log(k), fills[0], fills[1],
            (np.mod(n, 8) != 0).astype(np.float32), (np.mod(k, 8) != 0).astype(np.float32),
            _log(waves[0]), _log(waves[1]), *(w / np.ceil(w) for w in waves),
            _log(tiled_s / np.maximum(bounds.roofline_s, 1e-12)),
        )
    )  # fmt: skip


def attention_features(
    bounds: Bounds, dims: tuple[Array, ...], num_sms: Array, tiled_s: Array
) -> Array:
    """Features of fused attention.

    Args:
        bounds: Bounds of the launch.
        dims: batch, q_heads, kv_heads, q_len, kv_len, head_size, is_causal.
        num_sms: Multiprocessors of the device.
        tiled_s: Time of the tile model.
    """
    batch, q_heads, kv_heads, q_len, kv_len, head_size, causal = dims
    waves = batch * q_heads * np.ceil(q_len / 128) / num_sms
    return _stack(
        (
            *_bound_features(bounds),
            _log(q_len), _log(kv_len), _log(q_heads / np.maximum(kv_heads, 1)), _log(head_size),
            _log(waves), waves / np.ceil(waves), causal,
            _log(tiled_s / np.maximum(bounds.roofline_s, 1e-12)),
        )
    )  # fmt: skip


def conv_features(
    bounds: Bounds, conv: ConvShape, product: tuple[Array, ...], num_sms: Array, tiled_s: Array,
    settings: Settings,
) -> Array:  # fmt: skip
    """Features of convolutions as implicit matrix products.

    Args:
        bounds: Bounds of the launch.
        conv: What the product does not show.
        product: batch, m, n, k of the product.
        num_sms: Multiprocessors of the device.
        tiled_s: Time of the tile model for that product.
        settings: How the framework runs it.
    """
    as_product = product_features(bounds, product, num_sms, tiled_s)
    extra = _stack(
        (
            _log(conv.kernel_area), _log(conv.stride), _log(conv.channels_per_group),
            _log(conv.gathered_over_moved),
            (conv.channels_per_group <= 1).astype(np.float32), conv.is_line,
            conv.is_backward_input, conv.is_backward_weight, *settings.flags(),
        )
    )  # fmt: skip
    shape = np.broadcast_shapes(as_product.shape[:-1], extra.shape[:-1])
    width = as_product.shape[-1]
    joined = np.empty((*shape, width + extra.shape[-1]), dtype=np.float32)
    joined[..., :width] = as_product
    joined[..., width:] = extra
    return joined


def stream_features(
    bounds: Bounds, dims: tuple[Array, ...], flags: tuple[Array, ...], num_sms: Array,
    settings: Settings,
) -> Array:  # fmt: skip
    """Features of ops that stream through memory.

    Args:
        bounds: Bounds of the launch.
        dims: rows, columns, operands.
        flags: 0 or 1 in the order of ``STREAM_FLAGS``.
        num_sms: Multiprocessors of the device.
        settings: How the framework runs it.
    """
    rows, columns, operands = dims
    log_bound, _, log_l2 = _bound_features(bounds)
    return _stack(
        (
            log_bound, log_l2, _log(rows / num_sms), _log(columns), operands, *flags,
            *settings.flags(),
        )
    )  # fmt: skip


def _bound_features(bounds: Bounds) -> tuple[Array, Array, Array]:
    ratio = np.maximum(bounds.compute_s, 1e-12) / np.maximum(bounds.memory_s, 1e-12)
    return _log(bounds.roofline_s * 1e6), _log(ratio), _log(bounds.bytes_over_l2)


def _log(x: npt.NDArray[np.floating[Any]]) -> Array:
    log: Array = np.log10(np.maximum(x, 1e-6), dtype=np.float32)
    return log


def _stack(columns: Sequence[Array]) -> Array:
    shape = np.broadcast_shapes(*(np.shape(c) for c in columns))
    stacked = np.empty((*shape, len(columns)), dtype=np.float32)
    for index, column in enumerate(columns):
        stacked[..., index] = column
    return stacked
