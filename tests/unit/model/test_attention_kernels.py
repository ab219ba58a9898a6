"""Attention as flash, memory-efficient and math kernels compute it."""

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, monomials
from paceline.model.lowering import lifetimes, lower, rewritten
from paceline.model.reading.load import load_workload

FUSED = (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD)
BATCH, SEQ, LAYERS, WIDTH, HEADS = 2, 512, 12, 768, 12


def lowered(kernels, platform="cuda"):
    graph = load_workload("gpt2").passes[0].graph
    return lower(graph, Configuration(attention=kernels, platform=platform))


def workspaces(kernels, platform):
    graph = load_workload("gpt2").passes[0].graph
    one = lifetimes(graph, Configuration(
        attention=kernels, platform=platform, optimizer_kernel="fused"
    ))  # fmt: skip
    sizes = one.bytes_at(BATCH, SEQ)[one.owner == Owner.WORKSPACE]
    return sizes[sizes > 0]


@pytest.mark.parametrize("kernels", ["flash", "memory-efficient"])
def test_the_backward_pass_sums_the_query_gradient_in_fp32(kernels):
    """Per layer: a number per query element, and one per row of each head."""
    expected = 4 * BATCH * SEQ * (WIDTH + HEADS)
    assert workspaces(kernels, "cuda").tolist() == [expected] * LAYERS


@pytest.mark.parametrize(
    ("kernels", "platform"), [("math", "cuda"), ("flash", "xla"), ("flash", "cpu")]
)
def test_others_need_no_workspace(kernels, platform):
    assert not workspaces(kernels, platform).size


def test_memory_efficient_kernels_keep_and_compute_what_flash_does():
    flash, other = lowered("flash"), lowered("memory-efficient")
    at = monomials(BATCH, SEQ)[0]
    assert np.array_equal(flash.memory.by_owner, other.memory.by_owner)
    for name in ("flop", "read_bytes", "write_bytes"):
        ours, theirs = (one.costs.count @ (getattr(one.costs, name) @ at) for one in (flash, other))
        assert ours == theirs


def test_each_family_launches_its_own_kernels():
    counts = {
        kernels: sum(
            (costs.count * costs.num_kernels)[np.isin(costs.kind, FUSED)].sum() / LAYERS
            for costs in [lowered(kernels).costs]
        )
        for kernels in ("flash", "memory-efficient", "math")
    }
    assert counts == {"flash": 4, "memory-efficient": 3, "math": 0}


def saved_bytes(model, kernels, **how):
    """Activations that live from forward to backward, at BATCH × SEQ."""
    graph = load_workload(model).passes[0].graph
    program = rewritten(graph, Configuration(attention=kernels, results="dropped", **how))
    stores, first = program.stores, program.first_backward()
    crosses = (stores.birth >= 0) & (program.position_of(stores.birth) < first)
    crosses &= (program.position_of(stores.death) >= first) & (stores.owner == Owner.ACTIVATION)
    return (stores.num_bytes()[crosses] @ monomials(BATCH, SEQ)[0]).sum()


@pytest.mark.parametrize(
    ("model", "kept"),
    [("gpt2", 2), ("transformer:layers=12,hidden=768,heads=12,ffn=3072,vocab=512", 4)],
)
def test_eager_attention_keeps_fp32_probabilities_beside_narrow_ones(model, kept):
    """4 bytes for the softmax; the product reads a narrow copy, or dropout's narrow result."""
    narrow = {"precision": "bf16", "training_format": "pure"}
    more = saved_bytes(model, "eager", **narrow) - saved_bytes(model, "math", **narrow)
    assert more == kept * LAYERS * BATCH * HEADS * SEQ**2
    assert saved_bytes(model, "eager") == saved_bytes(model, "math")


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_layers_whose_bias_is_trained_are_written_out_and_the_others_are_not(platform):
    """T5's 24 layers of self-attention have one; 12 read the encoder, with a mask (H200, 2026)."""
    graph = load_workload("t5-base").passes[0].graph
    costs = lower(graph, Configuration(platform=platform)).costs
    fused = costs.count[costs.kind == OpKind.ATTENTION].sum()
    assert fused == 12
    written = costs.count[costs.kind == OpKind.SOFTMAX_BACKWARD].sum()
    assert written == 24 + 1, "one is that of the loss"


def test_a_bias_that_is_not_trained_leaves_attention_fused():
    """So in inference, and where adapters alone are trained."""
    served = load_workload("t5-base", task="infer").passes[0].graph
    assert (lower(served, Configuration()).costs.kind != OpKind.SOFTMAX).all()
    graph = load_workload("t5-base").passes[0].graph
    costs = lower(graph, Configuration(lora_rank=8, lora_modules=("*.q", "*.v"))).costs
    assert costs.count[costs.kind == OpKind.ATTENTION].sum() == 36


def test_libraries_of_vendors_have_the_gradient_of_a_bias():
    graph = load_workload("t5-base").passes[0].graph
    costs = lower(graph, Configuration(attention="vendor")).costs
    assert costs.count[costs.kind == OpKind.ATTENTION].sum() == 36


def test_memory_of_t5_is_what_an_h200_allocated():
    """T5-base in FP32 at 16 x 512: 30.95 GB allocated (benchmarks/gpu_asked.jsonl)."""
    graph = load_workload("t5-base").passes[0].graph
    table = lower(graph, Configuration(precision="fp32")).memory.by_owner.sum(axis=1)
    assert (table @ monomials(16, 512)[0]).max() == pytest.approx(30.95e9, rel=0.05)
