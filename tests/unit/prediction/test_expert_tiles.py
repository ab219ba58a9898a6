from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import find_precision
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable, operand_bytes
from paceline.prediction.kernels.experts.expert_tiles import (
    ExpertConstants,
    expert_constants,
    expert_product_s,
)
from paceline.prediction.kernels.product_tiles import Engine
from paceline.prediction.step.breakdown import break_down
from paceline.simulation.job import Job
from paceline.simulation.rank import RankPasses

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
    constants = constants or expert_constants(weight_bytes, weight_bytes, WIDTHS)
    return float(expert_product_s(product, np.float32(moved), ENGINE, constants)[0])


@pytest.mark.parametrize("weight_bytes", [0.5, 1.0, 2.0])
def test_weights_of_reached_experts_are_read_once(weight_bytes) -> None:
    bound_s = 128 * OUTPUTS * INPUTS * weight_bytes / 3.352e12
    assert bound_s < seconds(128, 1, weight_bytes) < 3 * bound_s


def test_experts_that_no_token_reaches_cost_nothing() -> None:
    fixed_s = seconds(1, 1)
    assert seconds(128, 1) - fixed_s > 5 * (seconds(16, 1) - fixed_s)


def test_both_products_of_a_layer_share_its_fixed_time_and_what_its_tokens_move() -> None:
    fitted = expert_constants(2.0, 2.0, WIDTHS)
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


def shared_s(device: str, tokens: int, profile: str = "vllm") -> tuple[float, float]:
    """What products of shared experts take in a step, and their physical bound."""
    workload = load_workload("hf:deepseek-v2-lite", task="infer")
    job = Job(
        workload=workload, configuration=Configuration(precision="bf16"), profile=profile,
        strategy=Strategy.parse("dp1"), batch=tokens, prompt_tokens=500, output_tokens=100,
    )  # fmt: skip
    found = DeviceTable.from_devices([find_device(load_catalog(), device)])
    step = RankPasses.of(job).lowered["decode"]
    told = break_down(step, found, batch=tokens, seq=500, num_ops=500)
    ops = [op for op in told.ops if "shared_experts" in op.module and op.kind == "matmul"]
    assert ops
    return sum(op.device_s for op in ops), sum(op.device_s * op.bound_frac for op in ops)


def test_few_tokens_pass_shared_experts_beside_the_others() -> None:
    """What is left is what they read; more tokens, or other makers' devices, take them in turn."""
    took_s, bound_s = shared_s("H100 SXM5 80GB", 16)
    assert took_s == pytest.approx(bound_s)
    for device, tokens in (("H100 SXM5 80GB", 512), ("Instinct MI300X", 16)):
        took_s, bound_s = shared_s(device, tokens)
        assert took_s > 1.3 * bound_s


def test_weights_that_are_widened_have_kernels_of_their_own() -> None:
    """Hopper has no units for four bits; its constants are those of weights alone in four bits."""
    devices = DeviceTable.from_devices(
        [find_device(load_catalog(), name) for name in ("H100 SXM5 80GB", "B200 SXM")]
    )
    assert operand_bytes(devices, find_precision("nvfp4")).tolist() == [2.0, 0.5]
    assert operand_bytes(devices, find_precision("int4")).tolist() == [2.0, 2.0]
    assert operand_bytes(devices, find_precision("mxfp4")).tolist() == [2.0, 2.0]
    assert expert_constants(0.5, 2.0, WIDTHS) != expert_constants(0.5, 0.5, WIDTHS)
    assert expert_constants(0.5, 0.5, WIDTHS) == expert_constants(0.53, 0.56, WIDTHS)
