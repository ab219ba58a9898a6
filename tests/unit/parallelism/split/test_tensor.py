from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, OpKind, Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.collectives.links import COLLECTIVES
from paceline.parallelism.split import SplitShape, split
from paceline.parallelism.split.roles import Role, find_roles, view_ops, word_tables
from paceline.parallelism.split.words import ends_in_words

TRANSFORMERS = ("bert-base", "gpt2", "llama-3-8b")


@cache
def graph_of(name: str) -> Graph:
    return load_workload(name).passes[0].graph


def roles_by_module(name: str) -> dict[str, Role]:
    graph = graph_of(name)
    views = view_ops(graph)
    roles = find_roles(views, 2)
    named: dict[str, Role] = {}
    for op in views:
        for storage, _ in op.parameters:
            if storage in roles and op.phase == 0:
                named.setdefault(graph.modules[op.module], roles[storage])
    return named


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_split_as_megatron_does(name) -> None:
    roles = roles_by_module(name)
    columns = {"attention.q", "attention.k", "attention.v", "ffn.up", "ffn.gate"}
    for module, role in roles.items():
        if module.startswith("layers."):
            expected = Role.COLUMN if module.split(".", 2)[2] in columns else Role.ROW
            assert role == expected, module


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_loop_whose_loss_is_the_users_leaves_words_whole(name) -> None:
    graph = graph_of(name)
    views, tables = view_ops(graph), word_tables(view_ops(graph))
    usual, whole = (find_roles(views, 2, splits_words=way) for way in (True, False))
    assert set(tables) & set(usual)
    assert not set(tables) & set(whole)
    assert whole.items() <= usual.items()
    assert {Role.COLUMN, Role.ROW} == set(whole.values())


def test_alexnet_dense_layers_are_a_pair() -> None:
    roles = roles_by_module("alexnet")
    assert roles["classifier.4"] == Role.COLUMN
    assert roles["classifier.6"] == Role.ROW


def test_residual_streams_stay_whole() -> None:
    roles = roles_by_module("resnet50")
    assert roles["layer1.1.conv1"] == Role.COLUMN
    assert roles["layer1.1.conv2"] == Role.ROW
    assert "layer1.1.conv3" not in roles


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("degree", [2, 4])
def test_ranks_share_the_work_of_a_transformer_evenly(name, degree) -> None:
    point = monomials(4, 128)[0]
    how = with_weight_format(graph_of(name), Configuration())
    whole = lower(graph_of(name), how)
    part = lower(split(graph_of(name), SplitShape(tensor=degree)).graph, how)
    flop = [(low.costs.count @ low.costs.flop) @ point for low in (whole, part)]
    assert flop[1] * degree == pytest.approx(flop[0], rel=2e-3)
    assert part.gradient_bytes / whole.gradient_bytes == pytest.approx(1 / degree, rel=0.03)
    assert part.optimizer_state_bytes / whole.optimizer_state_bytes == pytest.approx(
        part.gradient_bytes / whole.gradient_bytes
    )


@pytest.mark.parametrize("degree", [2, 4])
def test_a_rank_updates_what_it_keeps(degree) -> None:
    point = monomials(1, 1)[0]

    def num_updated(graph: Graph) -> float:
        return float((graph.ops.dims[graph.ops.kind == OpKind.OPTIMIZER, 0] @ point).sum())

    def num_parameters(graph: Graph) -> float:
        return float(graph.storages.elements[graph.storages.owner == Owner.PARAMETER, 0].sum())

    whole = graph_of("gpt2")
    part = split(whole, SplitShape(tensor=degree)).graph
    kept_frac = num_parameters(part) / num_parameters(whole)
    assert num_updated(part) / num_updated(whole) == pytest.approx(kept_frac)
    assert 1 / degree < kept_frac < 1.1 / degree


def test_llama_reduces_twice_forward_and_twice_backward_per_layer() -> None:
    """Shoeybi et al. 2019, section 3: two all-reduces in each direction; table and loss once."""
    part = split(graph_of("llama-3-8b"), SplitShape(tensor=8))
    calls = part.calls
    layers, embedding, head, loss = 32 * 4, 1, 1, 3
    assert len(calls.op) == layers + embedding + head + loss
    message = calls.elements[np.isnan(calls.element_bytes)] @ monomials(2, 1024)[0]
    assert set(message) == {2 * 1024 * 4096.0}


def test_sequence_parallel_moves_the_same_bytes_and_one_gather_more() -> None:
    plain = split(graph_of("llama-3-8b"), SplitShape(tensor=8)).calls
    sequence = split(graph_of("llama-3-8b"), SplitShape(tensor=8, sequence_parallel=True)).calls
    num_reductions = int(np.isnan(plain.element_bytes).sum())
    counts = {COLLECTIVES[k]: int((sequence.name == k).sum()) for k in range(5)}
    assert counts["reduce_scatter"] == num_reductions
    assert counts["all_gather"] == num_reductions + 2 * 32 + 1


@pytest.mark.parametrize("name", ["bert-base", "llama-3-8b", "resnet50"])
def test_sequence_parallel_keeps_less_and_nothing_grows(name) -> None:
    point = monomials(64, 2048)[0]
    plain, sequence = (
        lower(
            split(graph_of(name), SplitShape(tensor=4, sequence_parallel=flag)).graph,
            Configuration(),
        )
        for flag in (False, True)
    )
    peaks = [(low.memory.by_owner @ point).sum(axis=1).max() for low in (plain, sequence)]
    assert peaks[1] < peaks[0]


def test_one_rank_is_the_graph_itself() -> None:
    part = split(graph_of("gpt2"), SplitShape(tensor=1))
    assert part.graph is graph_of("gpt2")
    assert len(part.calls.op) == 0


def test_degrees_that_do_not_divide_say_so() -> None:
    with pytest.raises(InvalidInputError, match="12 attention heads") as caught:
        split(graph_of("gpt2"), SplitShape(tensor=5))
    assert "divides" in caught.value.hint


def test_heads_of_a_cache_that_grows_by_copies_are_split_like_those_of_a_prompt() -> None:
    for one in load_workload("mixtral-8x7b", task="infer").passes:
        part = split(one.graph, SplitShape(tensor=4))
        caches = one.graph.storages.owner == Owner.KV_CACHE
        assert len(part.calls.op) == 2 * 32 + 1
        kept = part.graph.storages.elements[caches]
        assert np.allclose(4.0 * kept, one.graph.storages.elements[caches])


@pytest.mark.parametrize(
    ("name", "task", "rows"),
    [("gpt2", "train", {50257.0}), ("bert-base", "train", {30522.0}),
     ("mixtral-8x7b", "infer", {32000.0}), ("t5-base", "train", {32128.0}),
     ("resnet50", "train", set())],
)  # fmt: skip
def test_words_are_looked_up_by_ids_and_positions_are_counted(name, task, rows) -> None:
    for one in load_workload(name, task=task).passes:
        assert set(word_tables(view_ops(one.graph)).values()) == rows


@pytest.mark.parametrize(
    ("name", "is_so"), [("llama-3-8b", True), ("resnet50", False), ("bert-base", False)]
)
def test_logits_are_as_many_as_a_table_of_words_has_rows(name, is_so) -> None:
    for one in load_workload(name, task="infer").passes:
        assert ends_in_words(one.graph) == is_so


@pytest.mark.parametrize(("name", "layers"), [("olmo-2-7b", 32), ("olmoe-1b-7b", 16)])
def test_a_norm_of_all_heads_lets_them_be_shared_and_its_sums_go_round(name, layers) -> None:
    """Weights, work and cache of one of four ranks, where all was whole but MLPs and experts."""
    step, decode = graph_of(name), load_workload(name, task="infer").passes[-1].graph
    mine, written = (split(graph, SplitShape(tensor=4)) for graph in (step, decode))
    assert mine.split_parameter_frac > 0.99
    assert mine.graph.ops.flop.sum() == pytest.approx(step.ops.flop.sum() / 4, rel=0.01)
    cache = decode.storages.owner == Owner.KV_CACHE
    kept, whole = (one.storages.elements[cache].sum() for one in (written.graph, decode))
    assert kept == pytest.approx(whole / 4)
    is_sum = mine.calls.element_bytes == 4.0
    rows = mine.calls.elements[is_sum] @ monomials(2, 64)[0]
    assert (rows == 2 * 64).sum() == 2 * layers + 3


def test_a_norm_that_no_attention_follows_leaves_its_columns_whole() -> None:
    """BERT's head over words: a dense layer, a norm, and the table of words by columns."""
    roles = roles_by_module("hf:bert-base")
    assert roles["cls.predictions.decoder"] == Role.COLUMN
    assert "cls.predictions.transform.dense" not in roles
