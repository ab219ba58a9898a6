"""Products of portable kernels: published rates, and where they are as fast as tuned ones."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.portable_products import Products, with_portable

#: Weights of Llama 3 8B in 16 bits that a token reads: all but the table of words.
WEIGHTS_BYTES = 15.0e9
#: Tokens per second of llama.cpp, one stream, 16 bits (XiongjieDai/GPU-Benchmarks-on-LLM-Inference,
#: aa72e0e, of May 2024).
PUBLISHED = {"A100 PCIe 80GB": 53.18, "H100 PCIe 80GB": 67.79, "Apple M1 Max": 18.43}


def least_s(
    name: str, *, num_rows: float = 1.0, tuned_s: float = 0.0, flop: float = 0.0,
    are_widened: bool = False,
) -> float:  # fmt: skip
    devices = DeviceTable.from_devices([find_device(load_catalog(), name)])
    busy_s = np.full((1, 1, 2), tuned_s, dtype=np.float32)
    products = Products(
        rows=np.array([1]),
        num_rows=np.array([[num_rows]]),
        moved_bytes=np.full((1, 2), WEIGHTS_BYTES, dtype=np.float32),
        flop=np.full((1, 2), flop, dtype=np.float32),
        are_widened=are_widened,
    )
    found = with_portable(busy_s, products, devices, builtin_calibration())
    assert found[0, 0, 0] == np.float32(tuned_s), "what is no product stays as it is"
    return float(found[0, 0, 1])


@pytest.mark.parametrize("name", PUBLISHED)
def test_one_stream_reads_as_fast_as_published(name: str) -> None:
    assert 1.0 / least_s(name) == pytest.approx(PUBLISHED[name], rel=0.15)


def test_a_card_whose_memory_is_the_limit_is_not_held_back() -> None:
    card = find_device(load_catalog(), "GeForce RTX 4090")
    assert card.memory_bytes_per_s is not None
    assert least_s(card.name) < WEIGHTS_BYTES / card.memory_bytes_per_s


def test_a_slower_kernel_stays_as_slow() -> None:
    assert least_s("H100 PCIe 80GB", tuned_s=1.0) == 1.0


#: Tokens per second of prompts of 1,024 tokens, in 16 bits and in Q4_K_M (the same source).
PROMPTS = {
    "A100 PCIe 80GB": (7504, 5800), "A40": (4043, 3241), "RTX A6000": (4315, 3622),
    "GeForce RTX 3090": (4240, 3865), "GeForce RTX 4090": (9056, 6899),
    "H100 PCIe 80GB": (10342, 7760),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_are_read_no_faster_than_published(name: str) -> None:
    flop = 1024 * WEIGHTS_BYTES
    for are_widened, published in zip((False, True), PROMPTS[name], strict=True):
        read = 1024 / least_s(name, num_rows=1024, flop=flop, are_widened=are_widened)
        assert 0.95 * published < read < 1.45 * published, "attention comes besides"


def test_products_of_many_rows_of_other_makers_run_in_the_vendors_kernels() -> None:
    assert least_s("Instinct MI250X", num_rows=64.0, flop=1e12) == 0.0


@pytest.mark.parametrize("name", ["Radeon RX 7900 XTX", "Apple M2", "Apple M4"])
def test_where_no_kernel_of_the_maker_was_fitted_copies_say_what_memory_gives(name: str) -> None:
    card = find_device(load_catalog(), name)
    assert card.memory_bytes_per_s is not None
    reached = WEIGHTS_BYTES / least_s(name, tuned_s=1.0) / card.memory_bytes_per_s
    assert 0.65 < reached <= 0.9


def test_waves_of_64_lanes_stay_behind_those_of_32() -> None:
    def per_clock(name: str) -> float:
        card = find_device(load_catalog(), name)
        assert card.num_sms is not None
        assert card.boost_clock_hz is not None
        return WEIGHTS_BYTES / least_s(name) / card.num_sms / card.boost_clock_hz

    assert per_clock("Instinct MI300X") < 0.7 * per_clock("Radeon RX 6900 XT")
