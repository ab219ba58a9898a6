"""Layers of experts whose weights of four bits are widened by instructions of Ampere."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable, matrix_peaks
from paceline.prediction.kernels.experts.marlin import (
    block_height,
    blocks_of_expert,
    marlin_constants,
    marlin_product_s,
)
from paceline.prediction.kernels.experts.times import expert_kernels, experts_s
from paceline.prediction.kernels.product_tiles import Engine
from paceline.prediction.step.breakdown import break_down
from paceline.simulation.job import Job
from paceline.simulation.rank import RankPasses

TABLES = builtin_calibration().constants
INT4 = marlin_constants("int4", TABLES["expert_marlin"])
NAMES = ("H100 SXM5 80GB", "B200 SXM", "GeForce RTX 4090", "L40S", "A100 SXM4 80GB")
DEVICES = DeviceTable.from_devices([find_device(load_catalog(), name) for name in NAMES])
EXPERTS, OUTPUTS, INPUTS = 128.0, 1536.0, 4096.0
WEIGHT_BYTES = 0.515625


def engine(devices: DeviceTable = DEVICES) -> Engine:
    def of_device(values):
        return values[:, None].astype(np.float32)

    return Engine(
        num_sms=of_device(devices.num_sms),
        clock_hz=of_device(devices.boost_clock_hz),
        peak_flop_per_s=of_device(devices.peaks[:, 3]),
        memory_bytes_per_s=of_device(devices.memory_bytes_per_s),
        element_bytes=np.array(2.0, dtype=np.float32),
        has_matrix_units=True,
    )


def moved_bytes(rows):
    return EXPERTS * (OUTPUTS * INPUTS * WEIGHT_BYTES + 2.0 * rows * (OUTPUTS + INPUTS))


def seconds(rows) -> np.ndarray:
    """Of each device and number of rows of an expert, (D, rows)."""
    rows = np.asarray(rows, dtype=np.float32)
    height = block_height(rows)
    blocks = EXPERTS * blocks_of_expert(rows, height), height
    return marlin_product_s(
        (EXPERTS, rows, OUTPUTS, INPUTS), blocks, moved_bytes(rows), engine(), INT4,
        sorted_rows=EXPERTS * rows,
    )  # fmt: skip


def test_more_tokens_are_never_faster() -> None:
    assert np.all(np.diff(seconds(np.arange(1, 2000)), axis=1) >= 0)


def test_nothing_is_faster_than_its_bytes_and_its_arithmetic() -> None:
    rows = np.array([1.0, 8.0, 100.0, 3000.0])
    took_s = seconds(rows)
    assert np.all(took_s > moved_bytes(rows) / DEVICES.memory_bytes_per_s[:, None])
    peak = DEVICES.peaks[:, 3][:, None]
    assert np.all(took_s > 2 * EXPERTS * rows * OUTPUTS * INPUTS / peak)


def test_many_rows_take_as_many_cycles_on_data_centre_chips_since_ampere() -> None:
    """Newer matrix units do more by other instructions; cards for consumers do less by all."""
    more_s = seconds([64_000.0])[:, 0] - seconds([32_000.0])[:, 0]
    moved = INT4.token_bytes * EXPERTS * 32_000 * (OUTPUTS + INPUTS)
    cycles = (more_s - moved / DEVICES.memory_bytes_per_s) * DEVICES.num_sms
    cycles *= DEVICES.boost_clock_hz
    h100, b200, consumer, _, a100 = cycles
    assert (h100, b200) == (pytest.approx(a100, rel=0.01), pytest.approx(a100, rel=0.01))
    assert consumer > 1.5 * a100
    flop_per_s = 2 * EXPERTS * 32_000 * OUTPUTS * INPUTS / more_s
    assert flop_per_s[1] < 0.25 * DEVICES.peaks[1, 3]


def test_rows_are_padded_to_blocks() -> None:
    """Up to what a block holds, a row more costs what it moves; the next block unpacks anew."""
    took_s = seconds([1.0, 7.0, 64.0, 640.0])
    assert np.all(took_s[:, 1] < 1.15 * took_s[:, 0])
    assert np.all(took_s[:, 3] > 5 * took_s[:, 2])


def test_the_height_of_a_block_is_that_of_the_engine() -> None:
    """vLLM takes the first of five that the average rows fill by less than nine tenths."""
    tried = (8, 16, 32, 48, 64)
    for rows in np.arange(0.1, 100.0, 0.7):
        chosen = next((height for height in tried if rows / height < 0.9), 64)
        assert block_height(np.array(rows)) == chosen


@pytest.mark.parametrize(
    ("precision", "kernels"),
    [
        ("int4", ("marlin", "marlin", "marlin", "")),
        ("mxfp4", ("triton", "trtllm", "marlin", "")),
        ("nvfp4", ("marlin", "", "", "")),
        ("fp8", ("", "", "", "")),
    ],
)
def test_each_format_has_the_kernel_of_its_device(precision, kernels) -> None:
    names = ("H100 SXM5 80GB", "B200 SXM", "GeForce RTX 5090", "Instinct MI300X")
    devices = DeviceTable.from_devices([find_device(load_catalog(), name) for name in names])
    asked = Configuration(precision=precision, is_served=True)
    assert expert_kernels(devices, asked, TABLES["expert_kernels"]) == kernels
    portable = Configuration(precision=precision, is_served=True, engine_kernels="portable")
    assert set(expert_kernels(devices, portable, TABLES["expert_kernels"])) == {""}


def test_every_kernel_has_constants_and_every_fact_a_source() -> None:
    tiles = {row["kernel"] for row in TABLES["expert_tiles"]} - {""}
    for row in TABLES["expert_kernels"]:
        assert row["kernel"] in tiles | {"marlin"}
        assert row["source"]
        assert row["read_on"]
        if row["kernel"] == "marlin":
            assert marlin_constants(row["weights"], TABLES["expert_marlin"])


def test_devices_are_told_together_as_alone() -> None:
    rows = np.full((1, 1, 1), 40.0, dtype=np.float32)
    product = (EXPERTS + 0 * rows, rows, OUTPUTS + 0 * rows, INPUTS + 0 * rows, rows)

    def told(devices: DeviceTable) -> np.ndarray:
        own = engine(devices)
        wide = {
            name: getattr(own, name)[..., None]
            for name in ("num_sms", "clock_hz", "peak_flop_per_s", "memory_bytes_per_s")
        }
        known = Engine(element_bytes=own.element_bytes, has_matrix_units=True, **wide)
        asked = Configuration(precision="mxfp4", is_served=True)
        return experts_s(product, moved_bytes(rows), known, devices, asked, builtin_calibration())[
            :, 0, 0
        ]

    alone = [float(told(DEVICES.take(np.array([i])))[0]) for i in range(len(DEVICES))]
    assert told(DEVICES).tolist() == pytest.approx(alone)


def experts_of_a_step_s(device: str, precision: str, tokens: int) -> float:
    workload = load_workload("hf:qwen3-30b-a3b", task="infer")
    job = Job(
        workload=workload, configuration=Configuration(precision=precision), profile="vllm",
        strategy=Strategy.parse("dp1"), batch=tokens, prompt_tokens=500, output_tokens=100,
    )  # fmt: skip
    found = DeviceTable.from_devices([find_device(load_catalog(), device)])
    step = RankPasses.of(job).lowered["decode"]
    told = break_down(step, found, batch=tokens, seq=500, num_ops=500)
    return sum(op.device_s for op in told.ops if "experts" in op.module and op.kind == "matmul")


def test_integers_gain_less_than_their_width_on_newer_chips() -> None:
    """A quarter of the bytes; but what unpacks them is no faster on a B200."""
    gains = [
        experts_of_a_step_s(name, "bf16", 64) / experts_of_a_step_s(name, "int4", 64)
        for name in ("A100 SXM4 80GB", "B200 SXM")
    ]
    assert 1.0 < gains[1] < gains[0] < 4.0


def test_peaks_are_those_of_sixteen_bits() -> None:
    from paceline.dtypes import find_precision

    for precision in ("int4", "mxfp4"):
        found = matrix_peaks(DEVICES, find_precision(precision))
        assert found.tolist() == DEVICES.peaks[:, 3].tolist()
