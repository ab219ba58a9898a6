"""Networks of one shape: the graphs that are shipped are theirs, with the parameters of papers.

WaveGlow with 256 channels: 87.7 million in its release. DLRM: tables and perceptrons counted by
hand.
"""

import dataclasses

import numpy as np
import pytest

from paceline.trace import load_workload
from paceline.trace.registry import known_models, names_of
from paceline.trace.shipped_graphs import is_built_here
from paceline.trace.zoo_facts import zoo_facts

torch = pytest.importorskip("torch")

import networks  # noqa: E402

ENTRIES = networks.all_builders()
from networks.builders import folding, recurrent, speech, tables  # noqa: E402

#: Traced again in every run; the others where there is time.
QUICK = ("vae", "dqn", "published:ncf", "published_tables:dlrm_small")


def same(left, right):
    names = [field.name for field in dataclasses.fields(left)]
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in names)


def tasks_of(entry):
    return zoo_facts()[entry].jobs if entry in zoo_facts() else ("train", "infer")


@pytest.mark.parametrize(
    "entry", [pytest.param(e, marks=() if e in QUICK else pytest.mark.slow) for e in ENTRIES]
)
def test_tracing_again_gives_the_shipped_graph(entry):
    for task in tasks_of(entry):
        shipped, traced = load_workload(entry, task=task), networks.traced(entry, task)
        assert shipped.num_parameters == traced.num_parameters
        for old, new in zip(shipped.passes, traced.passes, strict=True):
            for table in ("ops", "tensors", "storages"):
                assert same(getattr(old.graph, table), getattr(new.graph, table))


def test_what_is_shipped_without_a_builder_is_what_is_built_here():
    known = {*zoo_facts(), *names_of("published").entries}
    assert {entry for entry in known if not is_built_here(entry)} == set(ENTRIES)
    for entry in ENTRIES:
        for task in tasks_of(entry):
            assert networks.path_of(entry, task).exists()


def test_the_list_has_the_parameters_of_the_shipped_graphs():
    listed = {one.name: one for one in known_models()}
    for entry in ENTRIES:
        assert listed[entry].needs == "nothing"
        assert listed[entry].parameters == load_workload(entry).num_parameters


def built(module, name):
    with torch.device("meta"):
        return module.MODELS[name]()


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_the_recommender_of_the_terabyte_is_its_tables_and_perceptrons():
    values = sum(tables._CRITEO_15)
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    top = 481 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    model = built(tables, "dlrm_small")
    assert num_parameters(model) == values * 128 + bottom + top
    with torch.device("meta"):
        assert model(*model.inputs(3)).shape == (3, 1)


def test_the_recommender_with_crossings_is_its_tables_crossings_and_perceptrons():
    """204,184,588 rows of 128 columns; 27 vectors joined are 3456 wide."""
    bottom = 14 * 512 + 513 * 256 + 257 * 128
    crossings = 3 * (3456 * 512 + 512 * 3456 + 3456)
    top = 3457 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257
    model = built(tables, "dlrm_dcnv2")
    assert num_parameters(model) == 204_184_588 * 128 + bottom + crossings + top
    assert model.num_values == 214
    with torch.device("meta"):
        assert model(*model.inputs(3)).shape == (3, 1)


def test_a_fusion_transformer_foretells_three_quantiles_of_a_day():
    model = built(tables, "tft_electricity")
    with torch.device("meta"):
        assert model(*model.inputs(5)).shape == (5, 24, 3)
    recurrent = sum(p.numel() for p in model.past_layer.parameters())
    assert recurrent == 4 * 128 * (128 + 128 + 2)


def test_text_that_is_spoken_has_256_samples_a_frame():
    for name in ("fastpitch_hifigan", "fastspeech_waveglow", "fastpitch_waveglow"):
        model = built(speech, name)
        with torch.device("meta"):
            text = model.inputs(2)
            frames = model.text(text)[0].shape[1]
            assert model(text).numel() == 2 * 256 * frames, name


def test_vocoders_have_the_parameters_of_their_releases():
    wave = built(speech, "fastspeech_waveglow").vocoder
    assert num_parameters(wave) == pytest.approx(87.7e6, rel=0.01)
    hifigan = built(speech, "hifigan")
    assert num_parameters(hifigan) == pytest.approx(13.92e6, rel=0.01)


def test_blocks_with_two_heads_have_twice_the_attention_of_those_with_one():
    one, two = (speech._SpeechBlock(heads=heads) for heads in (1, 2))
    assert two.qkv.weight.numel() == 2 * one.qkv.weight.numel()
    x = torch.randn(2, 7, 384)
    assert one.eval()(x).shape == two.eval()(x).shape == x.shape


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("rwkv7_0b1", 191_034_624), ("rwkv7_0b4", 450_767_872), ("rwkv7_1b5", 1_527_404_544),
     ("rwkv7_2b9", 2_947_735_040)],
)  # fmt: skip
def test_a_recurrence_of_states_has_the_parameters_of_its_paper(name, parameters):
    """arXiv:2503.14456, sizes of RWKV-7 World."""
    assert num_parameters(built(recurrent, name)) == parameters


RESIDUES, ROWS = 256, 128


def _count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.fixture(scope="module")
def alphafold():
    with torch.device("meta"):
        return folding.MODELS["alphafold2_256"]().model


def test_alphafold_has_the_parameters_of_its_release(alphafold):
    """params_model_1 of AlphaFold 2: 93,229,082 (recalled 2026-11-22)."""
    assert _count(alphafold) == 93_229_082


def test_a_block_does_a_product_of_every_weight_with_every_pair_or_residue(alphafold):
    """Products of attention and triangles come on top, and further sequences."""
    block = alphafold.blocks[0]
    pairs = _count(block.pairs) * RESIDUES**2
    rows = _count(block.rows, block.columns, block.transition) * RESIDUES * ROWS
    products = 2 * 2 * len(alphafold.blocks) * (pairs + rows)
    workload = load_workload("published_folding:alphafold2_256", task="infer")
    flop = workload.passes[0].graph.ops.flop.sum()
    assert products < flop < 3 * products


def test_what_goes_in_again_has_no_gradient():
    trained, run = (
        load_workload("published_folding:alphafold2_256", task=task).passes[0].graph.ops.flop.sum()
        for task in ("train", "infer")
    )
    assert trained == pytest.approx(2 * run, rel=0.05)
    assert "goes in again once" in folding.AlphaFold.taken
