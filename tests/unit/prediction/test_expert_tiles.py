from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.expert_tiles import (
    ExpertConstants,
    expert_constants,
    expert_product_s,
)
from paceline.prediction.kernels.product_tiles import Engine

WIDTHS = builtin_calibration().constants["expert_tiles"]

#: H100 SXM5, BF16.
ENGINE = Engine(
    num_sms=np.float32(132), clock_hz=np.float32(1.98e9), peak_flop_per_s=np.float32(989.4e12),
    memory_bytes_per_s=np.float32(3.352e12), element_bytes=np.float32(2), has_matrix_units=True,
)  # fmt: skip
OUTPUTS, INPUTS = 1536.0, 4096.0


def seconds(
    reached: float,
    each: float,
    weight_bytes: float = 2.0,
    constants: ExpertConstants | None = None,
) -> float:
    product = tuple(np.array([v], dtype=np.float32) for v in (reached, each, OUTPUTS, INPUTS))
    moved = reached * (OUTPUTS * INPUTS * weight_bytes + 2 * each * (OUTPUTS + INPUTS))
    constants = constants or expert_constants(weight_bytes, WIDTHS)
    return float(expert_product_s(product, np.float32(moved), ENGINE, constants)[0])


@pytest.mark.parametrize("weight_bytes", [0.5, 1.0, 2.0])
def test_weights_of_reached_experts_are_read_once(weight_bytes) -> None:
    bound_s = 128 * OUTPUTS * INPUTS * weight_bytes / 3.352e12
    assert bound_s < seconds(128, 1, weight_bytes) < 3 * bound_s


def test_experts_that_no_token_reaches_cost_nothing() -> None:
    fixed_s = seconds(1, 1)
    assert seconds(128, 1) - fixed_s > 5 * (seconds(16, 1) - fixed_s)


def test_both_products_of_a_layer_share_its_fixed_time_and_what_its_tokens_move() -> None:
    fitted = expert_constants(2.0, WIDTHS)
    bare = replace(fitted, layer_s=0.0, token_bytes=0.0)

    def added_s(reached: float, **constants: float) -> float:
        more, less = (
            seconds(reached, 16, constants=one) for one in (replace(bare, **constants), bare)
        )
        return more - less

    assert 2 * added_s(8, layer_s=1.0) == pytest.approx(1.0, rel=1e-3)
    moved_bytes = 8 * 16 * (OUTPUTS + INPUTS) * 1e6
    assert added_s(8, token_bytes=1e6) == pytest.approx(moved_bytes / 3.352e12, rel=1e-3)


def test_more_tokens_are_never_faster() -> None:
    times = [seconds(128, each) for each in (1, 4, 16, 64, 256, 1024)]
    assert all(np.diff(times) >= 0)


def test_rows_of_an_expert_are_padded_to_whole_tiles() -> None:
    """The same tokens over many experts fill tiles badly, and read more weights."""
    assert seconds(128, 8) > 2 * seconds(8, 128)


def test_many_tokens_are_bound_by_arithmetic() -> None:
    flop = 2 * 128 * 4096 * OUTPUTS * INPUTS
    assert flop / 989.4e12 < seconds(128, 4096) < 6 * flop / 989.4e12
