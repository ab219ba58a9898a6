"""LitGPT's fine-tuning: what it trains, and where its code makes the host wait."""

import numpy as np
import pytest

from paceline.model.graph.graph import OpKind
from paceline.model.reading.load import load_workload

#: StableLM Alpha 3B: layers, width and rank of `litgpt_models.json` and of LitGPT's default.
LAYERS, HIDDEN, RANK = 16, 4096, 8


@pytest.fixture(scope="module")
def lora():
    return load_workload("published_litgpt:stablelm-alpha-3b-lora").passes[0].graph


def trained(graph):
    stores = graph.storages
    return stores.elements[stores.is_trainable, 0].sum()


def test_two_of_three_projections_get_low_rank_updates(lora):
    assert trained(lora) == LAYERS * (2 * RANK * HIDDEN + 2 * HIDDEN * RANK)


def test_a_list_of_columns_is_made_a_tensor_in_every_layer(lora):
    waits = np.flatnonzero(lora.ops.kind == OpKind.HOST_WAIT)
    assert len(waits) == LAYERS
    assert (lora.ops.dims[waits, :2, 0].prod(axis=1) == 2 * HIDDEN).all()


def test_prompts_wait_for_nothing():
    graph = load_workload("published_litgpt:stablelm-alpha-3b-adapter").passes[0].graph
    assert not (graph.ops.kind == OpKind.HOST_WAIT).any()
    adapted = LAYERS - 2
    assert trained(graph) == adapted * (10 * HIDDEN + 32)
