"""Convolutions as implicit products keep their arithmetic."""

import numpy as np
import pytest

from paceline.model.graph.graph import OpKind
from paceline.prediction.kernels.groups import product_dims, sequential_launches, stream_dims

#: n, c, h, w, k, r, s, out_h, out_w, groups
CONV = np.array([8, 64, 56, 56, 128, 3, 3, 28, 28, 4], dtype=np.float32)
CONV_FLOP = 2 * 8 * 28 * 28 * 128 * (64 / 4) * 9


@pytest.mark.parametrize("kind", [OpKind.CONV, OpKind.CONV_BACKWARD_WEIGHT])
def test_a_convolution_has_the_arithmetic_of_its_product(kind):
    batch, m, n, k = product_dims(np.array([kind], np.int16), CONV[None, None])
    assert float(2 * batch[0, 0] * m[0, 0] * n[0, 0] * k[0, 0]) == CONV_FLOP


def test_a_product_keeps_its_numbers():
    dims = np.arange(1, 11, dtype=np.float32)[None, None]
    assert [float(d[0, 0]) for d in product_dims(np.array([OpKind.MATMUL]), dims)] == [1, 2, 3, 4]


def test_cells_follow_one_another_and_nothing_else_does():
    dims = np.array([[[32, 100, 64, 64, 2, 1, 4, 0, 0, 0]]], dtype=float)
    kinds = np.array([OpKind.RECURRENT]), np.array([OpKind.NORM])
    assert sequential_launches(kinds[0], dims)[0, 0] == 200
    assert sequential_launches(kinds[1], dims)[0, 0] == 1


def test_an_optimizer_update_reads_and_writes_states_and_parameters():
    dims = np.array([[[1000, 4, 2, 0, 0, 0, 0, 0, 0, 0]]], dtype=np.float32)
    rows, columns, operands = stream_dims(np.array([OpKind.OPTIMIZER]), dims)
    assert (rows[0, 0], columns[0, 0], operands[0, 0]) == (1, 1024, 4)
