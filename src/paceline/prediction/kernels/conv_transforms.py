"""Ways around the operations of a convolution: Winograd's minimal filters, and Fourier transforms.

A transform needs a filter that moves by one pixel: a square one, or a line for Fourier's. Filters
of three dimensions, which stand here with two of them folded into one, and strides have none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import among
from paceline.model.ops.registry import kinds_where
from paceline.prediction.features import Array

_CONVOLUTIONS = kinds_where(lambda facts: facts.efficiency == "convolution")
#: Outputs per side that one Winograd tile of a filter of three makes, in libraries.
_WINOGRAD_OUTPUTS, _WINOGRAD_FILTER = 4.0, 3.0
#: Side of the tiles that are transformed by Fourier, of squares and of lines: cuDNN's tiled and its
#: whole transform (NVIDIA, cuDNN API reference, CUDNN_CONVOLUTION_FWD_ALGO_FFT and _FFT_TILING).
_FOURIER_TILE, _FOURIER_LINE = 32.0, 256.0
#: Input over output pixels from which a filter moves by more than one pixel.
_STRIDED = 2.25


def operations_frac(kind: npt.NDArray[np.int16], dims: Array) -> Array:
    """Least share of the counted operations that any library must run, (num_points, num_rows).

    One for all that is no convolution. Winograd's ``F(m×m, r×r)`` takes ``(m + r - 1)²``
    multiplications for ``m² r²``. A Fourier tile of side ``t`` takes four real ones for each of its
    ``t (t/2 + 1)`` numbers, for ``(t - r + 1)² r²``.

    Args:
        kind: ``OpKind``, (num_rows,).
        dims: Shape numbers, (num_points, num_rows, NUM_DIMS).

    Source:
        Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308;
        Vasilache et al., "Fast Convolutional Nets With fbfft", arXiv 1412.7580.
    """
    frac = np.ones(dims.shape[:2], dtype=np.float32)
    rows = np.flatnonzero(among(kind, _CONVOLUTIONS))
    if rows.size:
        frac[:, rows] = _least_frac(dims[:, rows])
    return frac


def has_rare_filter(kind: npt.NDArray[np.int16], dims: Array) -> npt.NDArray[np.bool_]:
    """Whether a convolution's filter is neither square nor a line, (num_rows,).

    So are those of three dimensions. No table has such kernels, so nothing was learned of them.
    """
    filters = dims[0, :, 5:7]
    is_conv = among(kind, _CONVOLUTIONS)
    is_rare = is_conv & (filters.min(axis=1) > 1)
    return np.asarray(is_rare & (filters[:, 0] != filters[:, 1]), dtype=np.bool_)


def _least_frac(dims: Array) -> Array:
    _, c, h, w, _, r, s, out_h, out_w, groups = np.moveaxis(dims, -1, 0)
    is_moved_by_one = h * w < _STRIDED * out_h * out_w
    is_line = (np.minimum(r, s) == 1) & (np.maximum(r, s) > 1)
    is_open = is_moved_by_one & (c > groups)
    tile = _WINOGRAD_OUTPUTS + _WINOGRAD_FILTER - 1.0
    winograd = np.where(
        r == _WINOGRAD_FILTER, (tile / (_WINOGRAD_OUTPUTS * _WINOGRAD_FILTER)) ** 2, 1.0
    )
    square = np.minimum(winograd, _fourier_frac(r, _FOURIER_TILE, num_dims=2))
    line = _fourier_frac(np.maximum(r, s), _FOURIER_LINE, num_dims=1)
    least = np.where(is_line, line, np.where((r == s) & (r > 1), square, 1.0))
    return np.where(is_open, np.minimum(least, 1.0), 1.0).astype(np.float32)


def _fourier_frac(side: Array, tile: float, *, num_dims: int) -> Array:
    """Real multiplications of a transformed tile over those that its outputs take."""
    outputs = np.maximum(tile - side + 1.0, 1.0)
    numbers = 4.0 * tile ** (num_dims - 1) * (tile / 2.0 + 1.0)
    frac: Array = numbers / np.maximum(outputs * side, 1.0) ** num_dims
    return frac
