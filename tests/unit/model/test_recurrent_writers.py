"""Language models that go on from a state, and have no cache of keys, write token by token too."""

import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


@pytest.mark.parametrize("name", ["hf:rwkv-4-169m", "hf:mamba-130m"])
def test_a_token_costs_one_pass_over_the_weights(name: str) -> None:
    workload = load_workload(name, task="infer")
    assert workload.generates
    decode = next(one for one in workload.passes if one.name == "decode")
    lowered = lower(decode.graph, Configuration(is_served=True, compiler="compiled"))
    costs = lowered.costs
    flop = [float(monomials(1, past)[0] @ (costs.count @ costs.flop)) for past in (64, 4096)]
    assert flop[1] == pytest.approx(flop[0], rel=1e-6)
    assert 1.0 < flop[0] / workload.num_parameters < 2.2
