"""What ops of published model graphs move, and what autograd leaves out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pandas")
from accuracy.model_graphs import COLUMNS, _node_calls

MOVED = COLUMNS.index("moved_bytes")


def calls_of(op_class, shapes, forward="[]", backward="[]", mode="train", name="node"):
    node = SimpleNamespace(
        op_class=op_class, name=name, input_shapes=str(shapes), fw_ops=forward, bw_ops=backward,
        acc_ops=None, mode=mode,
    )  # fmt: skip
    return list(_node_calls(node))


def test_the_gradient_of_a_sum_moves_nothing():
    text = "[['VECadd', (8, 1024)]]"
    forward = calls_of("VECadd", [(8, 1024), (8, 1024)], text, mode="inf")
    assert calls_of("VECadd", [(8, 1024), (8, 1024)], text, text) == forward


def test_a_scalar_is_no_second_operand():
    text = "[['VECdiv', (8, 1024)]]"
    (by_tensor,) = calls_of("VECdiv", [(8, 1024), (8, 1024)], text, mode="inf")
    (by_scalar,) = calls_of("VECdiv", [(8, 1024), (1,)], text, mode="inf")
    assert by_tensor[MOVED] == 3 * 4 * 8 * 1024
    assert by_scalar[MOVED] == 2 * 4 * 8 * 1024


def test_dropout_moves_its_mask_too():
    (forward,) = calls_of("dropout", [(1024, 1024)], mode="inf")
    assert forward[MOVED] == 9 * 1024**2


def test_products_keep_the_contracted_dimension():
    (product,) = calls_of("Linear", [(8, 64)], "[['Linear', (8, 64, 32)]]", mode="inf")
    assert dict(zip(COLUMNS, product, strict=True))["k"] == 64
    assert dict(zip(COLUMNS, product, strict=True))["flop"] == 2 * 8 * 64 * 32
