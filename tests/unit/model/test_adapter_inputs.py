"""What adapters in FP32 keep of their inputs, counted by hand."""

import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


def test_adapters_in_fp32_keep_a_copy_of_what_each_layer_reads():
    """Four bytes instead of two that a frozen layer then does not keep, and with dropout a mask."""
    graph = load_workload("gpt2").passes[0].graph
    point = monomials(4, 1024)[0]

    def peak(inputs):
        how = Configuration(
            lora_rank=8, lora_modules=("*.q",), training_format="pure", adapter_inputs=inputs
        )
        return (lower(graph, how).memory.by_owner.sum(axis=1) @ point).max()

    shared, cast, dropped = map(peak, ("shared", "cast", "dropped"))
    elements = 12 * 4 * 1024 * 768
    assert cast - shared == pytest.approx((4 - 2) * elements, rel=0.01)
    assert dropped - cast == pytest.approx(elements, rel=0.01)
