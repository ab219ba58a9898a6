"""Where a pass stands under the roofline, and two ways to run it side by side."""

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.comparison import compare_passes
from paceline.prediction.devices import DeviceTable
from paceline.prediction.step.breakdown import break_down
from paceline.prediction.step.roofline_position import roofline_position

from .passes import lowered, matmul, stream


def whole(name, batch, **settings):
    one = lower(load_workload(name).passes[0].graph, Configuration(**settings))
    table = DeviceTable.from_devices((find_device(load_catalog(), "a100-80gb-sxm"),))
    return break_down(one, table, batch=batch, seq=512, num_ops=10**6)


def position(name, batch, **settings):
    return roofline_position(
        whole(name, batch, **settings), peak_flop_per_s=312e12, memory_bytes_per_s=2.039e12
    )


def test_no_pass_is_above_the_roofline_and_shares_are_whole():
    for name, batch in (("resnet50", 64), ("llama-3-8b", 4), ("lstm", 32)):
        place = position(name, batch)
        assert place.reached_flop_per_s < 312e12
        assert place.reached_bytes_per_s < 2.039e12
        assert sum(place.time_frac_by_limit.values()) == pytest.approx(1.0, rel=1e-4)
        assert place.ridge_flop_per_byte == pytest.approx(153, rel=0.01)


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        (matmul(8192, 8192, 8192), "compute"),
        (stream(2**28), "bandwidth"),
        (matmul(16, 64, 64), "overhead"),
    ],
)
def test_an_op_is_held_back_by_the_bound_that_it_is_near(row, limit):
    table = DeviceTable.from_devices([find_device(load_catalog(), "A100 SXM4 80GB")])
    (op,) = break_down(lowered(row), table, batch=1, seq=1).ops
    assert op.limit == limit
    assert 0 < op.bound_frac < (1 / 3 if limit == "overhead" else 1.1)


def test_a_large_decoder_is_on_the_compute_side_and_a_small_batch_of_images_is_not():
    decoder = position("llama-3-8b", 4, optimizer_kernel="fused")
    assert decoder.flop_per_byte > 153 > position("resnet50", 4).flop_per_byte


def compared(name, **settings):
    found = compare_passes(whole(name, 8), whole(name, 8, **settings))
    return {figure.name: (figure.base, figure.other) for figure in found.figures}


def test_the_same_run_twice_differs_in_nothing():
    assert all(base == other for base, other in compared("gpt2").values())


def test_checkpointing_trades_flop_for_memory():
    figures = compared("gpt2", checkpointing="block")
    assert figures["FLOP, recompute"][0] == 0 < figures["FLOP, recompute"][1]
    assert figures["FLOP"][1] > figures["FLOP"][0]
    assert figures["peak memory"][1] < figures["peak memory"][0]


def test_parts_add_up_to_their_whole():
    figures = compared("gpt2", lora_rank=8)
    for whole_name, prefix in (("FLOP", "FLOP, "), ("peak memory", "at the peak, ")):
        for side in (0, 1):
            parts = sum(pair[side] for name, pair in figures.items() if name.startswith(prefix))
            assert parts == pytest.approx(figures[whole_name][side])
