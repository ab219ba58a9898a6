"""AlphaFold 2: parameters of its release, and operations as its widths and crops say."""

import pytest

torch = pytest.importorskip("torch")

from traced import trace_here, worker  # noqa: E402

RESIDUES, ROWS = 256, 128


def _count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.fixture(scope="module")
def model():
    with torch.device("meta"):
        return worker("published_folding")._MODELS["alphafold2_256"]().model


def test_it_has_the_parameters_of_its_release(model):
    """params_model_1 of AlphaFold 2: 93,229,082 (recalled 2026-11-22)."""
    assert _count(model) == 93_229_082


def test_a_block_does_a_product_of_every_weight_with_every_pair_or_residue(model):
    """Products of attention and triangles come on top, and further sequences."""
    block = model.blocks[0]
    pairs = _count(block.pairs) * RESIDUES**2
    rows = _count(block.rows, block.columns, block.transition) * RESIDUES * ROWS
    products = 2 * 2 * len(model.blocks) * (pairs + rows)
    workload = trace_here("published_folding:alphafold2_256", task="infer")
    flop = workload.passes[0].graph.ops.flop.sum()
    assert products < flop < 3 * products


def test_what_goes_in_again_has_no_gradient():
    trained, run = (
        trace_here("published_folding:alphafold2_256", task=task).passes[0].graph.ops.flop.sum()
        for task in ("train", "infer")
    )
    assert trained == pytest.approx(2 * run, rel=0.05)
    assert "goes in again once" in worker("published_folding").AlphaFold.taken
