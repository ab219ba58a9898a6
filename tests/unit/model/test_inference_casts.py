"""Inference under autocast: FP32 weights that are cast on every pass."""

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Phase, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

MODELS = ["resnet50", "bert-base", "gpt2"]


def lowered(name, task="infer", **settings):
    graph = load_workload(name, task=task).passes[0].graph
    return lower(graph, Configuration(precision="bf16", **settings))


def moved_bytes(one, batch=8):
    forward = one.costs.phase == Phase.FORWARD
    moved = one.costs.moved_bytes(monomials(batch, 64))[0] * one.costs.count
    return float(moved[forward].sum())


@pytest.mark.parametrize("name", MODELS)
def test_weights_stay_wide_and_arithmetic_narrow(name):
    narrow, cast = lowered(name), lowered(name, inference_format="autocast")
    assert cast.parameter_bytes == pytest.approx(2 * narrow.parameter_bytes, rel=1e-3)
    assert np.array_equal(np.unique(cast.costs.matmul_dtype), np.unique(narrow.costs.matmul_dtype))
    flop = [float(one.costs.count @ one.costs.flop @ monomials(8, 64)[0]) for one in (narrow, cast)]
    assert flop[0] == pytest.approx(flop[1], rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_of_a_product_is_cast_once_more(name):
    narrow, cast = lowered(name), lowered(name, inference_format="autocast")
    assert moved_bytes(cast) > moved_bytes(narrow) + cast.parameter_bytes
    assert (cast.costs.kind == OpKind.CAST).sum() > (narrow.costs.kind == OpKind.CAST).sum()


def test_training_is_as_it_was():
    one, other = (lowered("resnet50", "train", inference_format=f) for f in ("pure", "autocast"))
    assert np.array_equal(one.costs.read_bytes, other.costs.read_bytes)
