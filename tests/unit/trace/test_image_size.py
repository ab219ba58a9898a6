"""A shipped model at another image size is traced again, not read from its file."""

import numpy as np
import pytest

from paceline.errors import PacelineError
from paceline.trace import Workload, load_workload
from paceline.trace.graph import monomials


def flop(workload: Workload) -> float:
    graph = workload.passes[0].graph
    return float((monomials([8.0]) @ graph.ops.flop.T).sum())


def test_a_larger_image_costs_more_by_its_area() -> None:
    usual, larger = (load_workload("resnet50", task="infer", image_size=s) for s in (None, 448))
    assert np.isclose(flop(larger) / flop(usual), 4.0, rtol=0.01)
    assert larger.input_description == "448×448"
    assert larger.num_parameters == usual.num_parameters


def test_a_model_without_images_says_so() -> None:
    with pytest.raises(PacelineError, match="takes no images"):
        load_workload("gpt2", image_size=112)
