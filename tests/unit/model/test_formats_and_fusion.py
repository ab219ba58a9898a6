"""Laws of precisions, layouts and compilers as rewrites of one graph."""

import dataclasses

import numpy as np
import pytest

from paceline.dtypes import DType, find_precision
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, monomials
from paceline.model.lowering import lower, rewritten
from paceline.model.ops.optable import variants
from paceline.model.reading.load import load_workload

MODELS = ["resnet50", "gpt2", "lstm"]
POINT = monomials(8, 64)[0]


def costs_of(name, **settings):
    return lower(load_workload(name).passes[0].graph, Configuration(**settings)).costs


def totals(costs):
    """(FLOP, bytes, kernels) of a pass."""
    moved = costs.read_bytes + costs.write_bytes
    flop, num_bytes = (costs.count @ (table @ POINT) for table in (costs.flop, moved))
    return float(flop), float(num_bytes), float(costs.count @ costs.num_kernels)


def assert_same_but(left, right, *names):
    for field in dataclasses.fields(left):
        if field.name not in names:
            assert np.array_equal(getattr(left, field.name), getattr(right, field.name))


@pytest.mark.parametrize("name", MODELS)
def test_both_formats_of_sixteen_bits_cost_the_same(name):
    fp16, bf16 = (costs_of(name, precision=p) for p in ("fp16", "bf16"))
    assert totals(fp16) == totals(bf16)
    assert DType.FP16 in fp16.matmul_dtype
    assert DType.BF16 in bf16.matmul_dtype


@pytest.mark.parametrize("name", MODELS)
def test_tf32_changes_the_rate_of_products_and_no_byte(name):
    tf32, fp32 = (costs_of(name, precision=p) for p in ("tf32", "fp32"))
    assert_same_but(tf32, fp32)
    assert find_precision("tf32").peak_key != find_precision("fp32").peak_key


@pytest.mark.parametrize("name", MODELS)
def test_eight_bits_are_for_products_and_the_rest_stays_in_sixteen(name):
    fp8, bf16 = (costs_of(name, precision=p) for p in ("fp8", "bf16"))
    assert totals(fp8)[0] == totals(bf16)[0]
    assert DType.FP8 in fp8.matmul_dtype


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b"])
def test_the_three_products_of_the_logits_stay_in_sixteen_bits(name):
    """Those of training; engines decide for themselves."""
    costs = costs_of(name, precision="fp8")
    is_wide = (costs.kind == OpKind.MATMUL) & (costs.matmul_dtype == DType.BF16)
    assert costs.count[is_wide].sum() == 3
    vocabulary = {"gpt2": 50_257, "llama-3-8b": 128_256}[name]
    assert (costs.dims[is_wide, 1:4, 0] == vocabulary).any(axis=1).all()
    served = lower(
        load_workload(name, task="infer").passes[0].graph, Configuration(precision="fp8")
    )
    is_product = served.costs.kind == OpKind.MATMUL
    assert (served.costs.matmul_dtype[is_product] == DType.FP8).all()


@pytest.mark.parametrize("name", MODELS)
def test_the_layout_of_images_changes_no_op_and_no_byte(name):
    """What it changes is how fast convolutions run, which is the predictor's business."""
    first, last = (costs_of(name, channels_last=c) for c in (False, True))
    assert_same_but(first, last)


@pytest.mark.parametrize("name", MODELS)
def test_a_compiler_that_takes_chains_into_products_saves_more(name):
    """Eager ≥ chains fused (Inductor) ≥ chains fused into products too (XLA, TensorRT)."""
    eager, chains, products = (
        totals(costs_of(name, compiler=c)) for c in ("eager", "compiled", "tensorrt")
    )
    assert eager[0] == pytest.approx(chains[0]) == pytest.approx(products[0])
    for saved in (1, 2):
        assert eager[saved] > chains[saved] >= products[saved]


BY_HAND = {"compiler": "compiled", "convolutions": "tuned"}


def test_convolutions_written_by_hand_take_the_chain_behind_them():
    """As XLA and TensorRT have it; without a compiler nothing is merged."""
    ours, theirs = (costs_of("resnet50", **way) for way in (BY_HAND, {"compiler": "xla"}))
    assert totals(ours) == totals(theirs)
    library, tuned = (totals(costs_of("resnet50", convolutions=c)) for c in ("library", "tuned"))
    assert library == tuned


def test_scales_of_frozen_norms_are_no_obstacle_to_kernels_written_by_hand():
    """A compiler works them out at the head of the chain that would join the convolution."""
    ours, theirs = (costs_of("retinanet", **way) for way in (BY_HAND, {"compiler": "xla"}))
    assert len(ours.order) < len(theirs.order)
    assert totals(ours)[0] == pytest.approx(totals(theirs)[0])
    assert totals(ours)[1] < totals(theirs)[1]


def test_each_merged_op_is_a_launch_less():
    """As many launches less as ops were merged into others, or more."""
    eager, fused = (costs_of("gpt2", compiler=c) for c in ("eager", "compiled"))
    fewer = totals(eager)[2] - totals(fused)[2]
    merged = len(eager.order) - len(fused.order)
    assert fewer >= merged > 0


@pytest.mark.parametrize("platform", ["cuda", "rocm", "cpu", "xla"])
@pytest.mark.parametrize("name", MODELS)
def test_every_platform_does_the_same_products(platform, name):
    ours, cuda = (costs_of(name, precision="fp32", platform=p, attention="math")
                  for p in (platform, "cuda"))  # fmt: skip
    assert totals(ours)[0] == pytest.approx(totals(cuda)[0])
    assert (ours.kind == OpKind.OPTIMIZER).sum() == 1


def _saved_bytes(compiler: str, num_tokens: int) -> float:
    """Activations of Llama 3 8B that are there when backward begins."""
    graph = load_workload("llama-3-8b").passes[0].graph
    program = rewritten(graph, Configuration(precision="bf16", compiler=compiler))
    start, stores = program.first_backward(), program.stores
    is_saved = (stores.owner == Owner.ACTIVATION) & (program.position_of(stores.birth) < start)
    is_saved &= program.position_of(stores.death) >= start
    return float(stores.num_bytes()[is_saved].sum(axis=0) @ monomials(1, num_tokens)[0])


def test_a_compiler_makes_again_what_products_do_not_read_in_backward():
    """Of each block the SiLU of the gate and both normed inputs before their scale; log-softmax."""
    tokens, width, hidden, blocks, vocabulary = 2048, 4096, 14_336, 32, 128_256
    by_hand = 2 * tokens * (blocks * (hidden + 2 * width) + width + vocabulary)
    assert _saved_bytes("eager", tokens) - _saved_bytes("compiled", tokens) == by_hand


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("model", ["gpt2", "torchvision:convnext_tiny", "torchvision:swin_t"])
def test_nothing_waits_for_a_backward_pass_that_does_not_read_it(model, precision):
    """A layer that reads a narrow copy saves that copy, not what it was cast from."""
    how = Configuration(precision=precision, training_format="autocast", results="dropped")
    program = rewritten(load_workload(model).passes[0].graph, how)
    stores, first = program.stores, program.first_backward()
    waits = (stores.owner == Owner.ACTIVATION) & (stores.birth >= 0)
    waits &= program.position_of(stores.birth) < first
    waits &= program.position_of(stores.death) >= first
    late = program.ops.position >= first
    for accesses in (program.reads, program.writes):
        waits[accesses.storage[late[accesses.op]]] = False
    assert not waits.any()


#: Kinds that read whole rows, or several results for one of theirs: no product does that.
_APART = (OpKind.REDUCE, OpKind.SOFTMAX, OpKind.INTERPOLATE, OpKind.INDEX)


@pytest.mark.parametrize("name", ["yolov8n", "timm:efficientnet_b4", "resnet50", "yolov3"])
def test_tensorrt_runs_each_gate_behind_a_convolution_as_a_kernel_of_its_own(name):
    """Rectifiers join the convolution: without gates hardly a kernel differs from XLA's."""
    graph = load_workload(name, task="infer").passes[0].graph
    into, apart = (
        totals(lower(graph, Configuration(precision="fp16", compiler=c)).costs)
        for c in ("xla", "tensorrt")
    )
    is_gate = graph.ops.variant == variants()["ELEMENTWISE", "gate"]
    gates = int(((graph.ops.kind == OpKind.ELEMENTWISE) & is_gate).sum())
    others = int(np.isin(graph.ops.kind, _APART).sum())
    assert (gates > 0) == (name not in ("resnet50", "yolov3"))
    assert apart[0] == into[0]
    # Those within a squeeze are joined by no compiler.
    assert 0.6 * gates <= apart[2] - into[2] <= gates + others


@pytest.mark.parametrize("name", ["yolov8n", "timm:efficientnet_b4"])
def test_engines_of_processors_take_gates_into_convolutions(name):
    graph = load_workload(name, task="infer").passes[0].graph
    inside, apart = (
        totals(lower(graph, Configuration(compiler="tensorrt", platform=p)).costs)[1]
        for p in ("cpu", "cuda")
    )
    assert inside < apart


@pytest.mark.parametrize("name", ["bert-base", "vit_b_16"])
def test_norms_of_layers_join_no_product_of_an_engine(name):
    """They need whole rows: as many kernels more as there are norms behind products, at most."""
    graph = load_workload(name, task="infer").passes[0].graph
    into, apart = (
        totals(lower(graph, Configuration(precision="fp16", compiler=c)).costs)
        for c in ("xla", "tensorrt")
    )
    norms = int((graph.ops.kind == OpKind.NORM).sum())
    assert apart[1] > into[1]
    assert 0 < apart[2] - into[2] <= norms


@pytest.mark.parametrize("loss", ["plain", "wide"])
@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b"])
def test_a_compiler_writes_nothing_as_large_as_logits_in_fp32(model, loss):
    """Logits and their gradient in 16 bits are all (PyTorch, torch/_functorch/partitioners.py)."""
    graph = load_workload(model).passes[0].graph
    wide = {}
    for compiler in ("eager", "compiled"):
        how = Configuration(compiler=compiler, training_format="autocast", loss=loss)
        program = rewritten(graph, how)
        stores = program.stores
        large = stores.num_bytes() @ monomials(16, 1024)[0] > 16 * 1024 * 30_000 * 4
        is_written = np.isin(np.arange(len(stores)), program.writes.storage)
        wide[compiler] = int((large & is_written & (stores.element_bytes == 4.0)).sum())
    assert wide == {"eager": wide["eager"], "compiled": 0}
    assert wide["eager"] > 0


@pytest.mark.parametrize("loss", ["fused", "fused-wide"])
def test_a_compiler_sees_into_no_loss_with_a_backward_of_its_own(loss):
    """What such a kernel keeps for its backward pass is kept (an autograd function is opaque)."""
    graph = load_workload("gpt2").passes[0].graph
    kept = []
    for compiler in ("eager", "compiled"):
        how = Configuration(compiler=compiler, training_format="pure", loss=loss, results="dropped")
        program = rewritten(graph, how)
        stores = program.stores
        large = stores.num_bytes() @ monomials(16, 1024)[0] > 16 * 1000 * 50_000 * 2
        late = program.position_of(stores.death) >= program.first_backward()
        kept.append(sorted(stores.element_bytes[large & late & (stores.birth >= 0)]))
    assert kept[0] == kept[1]
