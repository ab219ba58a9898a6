"""The shipped graphs: published parameter counts and published arithmetic."""

import dataclasses

import numpy as np
import pytest
from tests.sampled import zoo_names

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase, monomials
from paceline.model.lowering import lower
from paceline.model.names.shipped_graphs import is_built_here
from paceline.model.names.zoo_facts import zoo_facts
from paceline.model.reading.load import load_workload, trace_workload

FORWARD_BACKWARD = (Phase.FORWARD, Phase.LOSS, Phase.BACKWARD)


def flop_at(graph, batch, seq, *phases):
    rows = np.isin(graph.ops.phase, phases) if phases else slice(None)
    return float((graph.ops.flop[rows] @ monomials(batch, seq).T).sum())


@pytest.mark.parametrize("name", zoo_names())
def test_parameters_are_the_published_ones(name):
    facts = zoo_facts()[name]
    for task in facts.jobs:
        assert load_workload(name, task=task).num_parameters == facts.parameters


@pytest.mark.parametrize("name", zoo_names())
def test_every_parameter_has_a_storage_and_in_a_step_a_gradient_of_its_size(name):
    passes = load_workload(name).passes
    for one in passes:
        storages = one.graph.storages
        is_parameter, is_gradient = (storages.owner == owner for owner in OWNED)
        assert storages.elements[is_parameter].sum() == zoo_facts()[name].parameters
        num_trained = storages.elements[is_parameter & storages.is_trainable].sum()
        assert storages.elements[is_gradient].sum() == num_trained or len(passes) > 1


OWNED = (Owner.PARAMETER, Owner.GRADIENT)


@pytest.mark.parametrize("name", zoo_names())
def test_only_what_reads_sequences_is_said_to_read_tokens(name):
    workload = load_workload(name)
    assert workload.default_seq > 1 or workload.input_description != "tokens"


def test_a_gan_updates_each_of_its_networks_once():
    """3,576,704 parameters of the generator, 2,765,568 of the discriminator (PyTorch tutorial)."""
    passes = {one.name: lower(one.graph, Configuration()) for one in load_workload("dcgan").passes}
    updated = {
        name: one.costs.dims[one.costs.kind == OpKind.OPTIMIZER][0, 0, 0]
        for name, one in passes.items()
    }
    assert updated == {"discriminator": 2_765_568, "generator": 3_576_704}


def same(left, right):
    names = [field.name for field in dataclasses.fields(left)]
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in names)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in ("mnist-cnn", "lstm") else pytest.mark.slow)
        for n in zoo_names()
        if is_built_here(n)
    ],
)
def test_tracing_again_gives_the_shipped_graph(name):
    shipped = load_workload(name)
    traced = trace_workload(name)
    for old, new in zip(shipped.passes, traced.passes, strict=True):
        assert same(old.graph.ops, new.graph.ops)
        assert same(old.graph.tensors, new.graph.tensors)
        assert same(old.graph.storages, new.graph.storages)


@pytest.mark.parametrize(
    ("name", "gmac"),
    # torchvision 0.28, `_ops` of the weights' metadata, billions of multiply-adds
    [
        ("resnet50", 4.089),
        ("vgg16", 15.47),
        ("alexnet", 0.714),
        ("googlenet", 1.498),
        ("r3d_18", 40.697),
    ],
)
def test_forward_arithmetic_is_torchvisions(name, gmac):
    graph = load_workload(name, task="infer").passes[0].graph
    assert flop_at(graph, 1, 1) / 2e9 == pytest.approx(gmac, rel=0.01)


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "llama-3-70b", "llama-3.1-405b"])
def test_a_training_token_costs_six_flop_per_parameter_and_the_attention_term(name):
    """Kaplan et al. 2020; PaLM appendix B: 6 N D + 12 L H Q T per token.

    N counts the parameters that multiply: not the positions, and the vocabulary once. Flash
    attention computes the scores again in the backward pass: 14 in the place of 12.
    """
    graph = load_workload(name).passes[0].graph
    seq = 1024
    shape = {"gpt2": (12, 768, 50257, 1024), "llama-3-8b": (32, 4096, 128256, 0),
             "llama-3-70b": (80, 8192, 128256, 0),
             "llama-3.1-405b": (126, 16384, 128256, 0)}[name]  # fmt: skip
    layers, hidden, vocabulary, positions = shape
    unused = positions * hidden if name == "gpt2" else vocabulary * hidden
    matmul_parameters = zoo_facts()[name].parameters - unused
    expected = 6 * matmul_parameters + 14 * layers * hidden * seq
    assert flop_at(graph, 1, seq, *FORWARD_BACKWARD) / seq == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b"])
def test_decoding_reads_every_weight_once_and_prefill_of_one_token_costs_the_same(name):
    prefill, decode = (p.graph for p in load_workload(name, task="infer").passes)
    assert flop_at(prefill, 4, 1) == pytest.approx(flop_at(decode, 4, 1), rel=1e-9)
    assert decode.variables == ("batch", "past")


def test_the_key_value_cache_of_llama_3_8b():
    """2 × 32 layers × 8 heads × 128 per token."""
    decode = load_workload("llama-3-8b", task="infer").passes[1].graph
    cache = decode.storages.elements[decode.storages.owner == Owner.KV_CACHE]
    assert (cache @ monomials(3, 100).T).sum() == 3 * 100 * 2 * 32 * 8 * 128


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [("resnet50", 4 * 3 * 224**2 + 8), ("unet", 4 * 512**2), ("dlrm", 4 * 13 + 8 * 26),
     ("gnmt", 8 * 2 * 32), ("r3d_18", 4 * 3 * 16 * 112**2 + 8)],
)  # fmt: skip
def test_a_sample_has_the_bytes_of_all_its_inputs(name, num_bytes):
    assert load_workload(name).sample_bytes == num_bytes


@pytest.mark.parametrize("name", ["resnet50", "vgg16", "bert-base", "gpt2"])
def test_backward_is_two_forwards_less_the_first_layers_input_gradient(name):
    graph = load_workload(name).passes[0].graph
    ratio = flop_at(graph, 2, 64, Phase.BACKWARD) / flop_at(graph, 2, 64, Phase.FORWARD)
    assert 1.9 < ratio <= 2.1


@pytest.mark.parametrize("name", zoo_names())
def test_reference_jobs_say_where_they_come_from(name):
    for task, job in zoo_facts()[name].jobs.items():
        assert job.source
        assert load_workload(name, task=task).reference_job == job


@pytest.mark.parametrize(
    ("name", "width"),
    [("bert-base", 768), ("bert-large", 1024), ("gpt2", 768), ("gpt2-xl", 1600),
     ("whisper-small", 768), ("clip-vit-b-32", 512)],
)  # fmt: skip
def test_a_length_ends_where_the_table_of_positions_does(name, width):
    """Widths as published; the table is one of the parameters."""
    for task in zoo_facts()[name].jobs:
        workload = load_workload(name, task=task)
        storages = workload.passes[0].graph.storages
        tables = storages.elements[storages.owner == Owner.PARAMETER]
        assert width * workload.longest_seq in tables
        workload.check_length(workload.longest_seq)
        with pytest.raises(InvalidInputError, match="positions"):
            workload.check_length(workload.longest_seq + 1)
