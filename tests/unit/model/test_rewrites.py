"""Rewrites against what they claim, and against models that were built that way."""

from functools import cache

import pytest
import torch
from torch import nn
from traced import trace_here, worker

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload, workload_from_report
from paceline.model.rewrite.freezing import matches


def graph_of(name, which=0, task="train"):
    return load_workload(name, task=task).passes[which].graph


def at_point(one, batch=2, seq=64):
    """(FLOP, peak bytes by owner) at one point."""
    at = monomials(batch, seq)[0]
    by_owner = one.memory.by_owner @ at
    flop = float(one.costs.count @ (one.costs.flop @ at))
    return flop, by_owner[by_owner.sum(axis=1).argmax()]


def dense(num_layers=4, width=256):
    hidden = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(num_layers)]
    return nn.Sequential(*hidden, nn.Linear(width, 10))


class Job:
    def __init__(self, model):
        self.model = model

    def inputs(self, batch):
        return torch.empty(batch, 256)


def test_freezing_is_what_tracing_a_frozen_model_gives():
    model = dense()
    rewritten = lower(
        load_workload(Job(model)).passes[0].graph,
        Configuration(precision="fp32", frozen=("0", "1")),
    )
    for layer in (model[0], model[1]):
        layer.requires_grad_(False)
    traced = lower(load_workload(Job(model)).passes[0].graph, Configuration(precision="fp32"))
    assert rewritten.num_trainable_parameters == traced.num_trainable_parameters
    assert rewritten.gradient_bytes == traced.gradient_bytes
    assert rewritten.optimizer_state_bytes == traced.optimizer_state_bytes
    ours, theirs = at_point(rewritten), at_point(traced)
    assert ours[0] == theirs[0]
    assert ours[1].sum() == pytest.approx(theirs[1].sum(), rel=0.01)


@cache
def traced(entry):
    return trace_here(entry)


def traced_with_frozen(entry, patterns):
    """The graph of a model whose modules a user froze by ``requires_grad_(False)``."""
    subject = worker("torch_entries.subjects").build_subject({"entry": entry})
    for path, module in subject.model.named_modules():
        if matches(path, patterns):
            module.requires_grad_(False)
    report = worker("torch_worker").report(subject, "train")
    return workload_from_report(report, entry=entry, task="train", optimizer="adamw")


def totals(one, batch=16, seq=64):
    """What a lowered pass computes, moves, launches, holds at most, and keeps between steps."""
    costs, at = one.costs, monomials(batch, seq)
    return {
        "flop": float(costs.count @ (costs.flop @ at[0])),
        "moved": float(costs.moved_bytes(at)[0] @ costs.count),
        "kernels": float(costs.count @ costs.num_kernels),
        "peak": float((one.memory.by_owner.sum(axis=1) @ at[0]).max()),
        "trainable": one.num_trainable_parameters,
        "gradients": one.gradient_bytes,
        "state": one.optimizer_state_bytes,
    }


@pytest.mark.parametrize(
    ("entry", "patterns"),
    [
        # A head on a frozen base, whose feature maps live while callers hold them; a copy that an
        # activation in place makes for the backward pass alone.
        ("torchvision:resnet18", ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")),
        pytest.param("torchvision:mobilenet_v3_small", ("features",), marks=pytest.mark.slow),
        pytest.param("timm:convnext_atto", ("stem", "stages"), marks=pytest.mark.slow),
        ("hf:bert-tiny", ("embeddings", "encoder.layer.0")),
        # Layers before trained ones: a norm and a recurrence whose input needs no gradient.
        ("timm:convnext_atto", ("stem",)),
        ("lstm", ("embedding",)),
        # Layers after trained ones: gradients pass, their own are not made.
        ("torchvision:resnet18", ("layer3",)),
        ("hf:bert-tiny", ("encoder.layer.1",)),
        ("lstm", ("recurrent",)),
    ],
)
def test_a_frozen_part_costs_what_tracing_it_frozen_gives(entry, patterns):
    whole, given = traced(entry), traced_with_frozen(entry, patterns)
    for precision in ("fp32", "bf16"):
        ours = lower(whole.passes[0].graph, Configuration(precision=precision, frozen=patterns))
        theirs = lower(given.passes[0].graph, Configuration(precision=precision))
        assert totals(ours) == pytest.approx(totals(theirs), rel=1e-3), precision


def test_what_stays_trained_can_be_named_instead():
    graph = graph_of("resnet50")
    head = lower(graph, Configuration(frozen=("except:fc",)))
    others = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
    assert head.num_trainable_parameters == 2048 * 1000 + 1000
    assert totals(head) == totals(lower(graph, Configuration(frozen=others)))
    last = lower(graph, Configuration(frozen=("layer4", "except:layer4.2")))
    kept = 25_557_032 - last.num_trainable_parameters
    # torchvision: layer4 has 14,964,736 parameters, its last block 4,462,592.
    assert kept == 14_964_736 - 4_462_592


def test_a_network_of_several_is_frozen_with_its_optimizer():
    """A generator trained against a fixed discriminator: no update, no backward pass of its own."""
    passes = load_workload("dcgan").passes
    lowered = {one.name: lower(one.graph, Configuration(frozen=("d",))) for one in passes}
    kinds = {name: set(one.costs.kind.tolist()) for name, one in lowered.items()}
    assert OpKind.OPTIMIZER not in kinds["discriminator"]
    assert not (lowered["discriminator"].costs.phase == Phase.BACKWARD).any()
    assert OpKind.OPTIMIZER in kinds["generator"]
    assert {one.num_trainable_parameters for one in lowered.values()} == {3_576_704}


def test_a_pattern_that_matches_nothing_is_named():
    for patterns in (("nowhere",), ("except:nowhere",)):
        with pytest.raises(InvalidInputError, match="`nowhere`") as caught:
            lower(graph_of("vgg16"), Configuration(frozen=patterns))
        assert "`features`, `avgpool`, `classifier`" in caught.value.hint


def test_freezing_everything_leaves_nothing_to_train():
    with pytest.raises(InvalidInputError, match="nothing is left"):
        lower(graph_of("vgg16"), Configuration(frozen=("features", "classifier")))


@pytest.mark.parametrize(
    ("modules", "num_trainable"),
    # Published by users of PEFT for Llama 3 8B at rank 8: all linear layers; queries and values.
    [((), 20_971_520), (("*.q", "*.v"), 3_407_872)],
)
def test_adapters_of_llama_3_8b_have_the_published_size(modules, num_trainable):
    how = Configuration(lora_rank=8, lora_modules=modules, training_format="autocast")
    one = lower(graph_of("llama-3-8b"), how)
    assert one.num_trainable_parameters == num_trainable
    assert one.gradient_bytes == 4 * num_trainable
    assert one.optimizer_state_bytes == 8 * num_trainable
    assert one.num_parameters == 8_030_261_248 + num_trainable


@pytest.mark.parametrize(
    ("name", "shape", "num_trainable"),
    # Published by users of PEFT for gpt-oss-20b at rank 8; four layers of 2,048 a block by hand.
    # Routers are plain layers here.
    [
        ("gpt-oss-20b", (24, 32, 2880, 2880), 3_981_312),
        ("olmoe-1b-7b", (16, 64, 2048, 1024), 16 * 4 * 8 * 4096),
    ],
)
def test_experts_take_adapters_only_where_they_are_named(name, shape, num_trainable):
    layers, experts, width, inner = shape
    graph = graph_of(name)
    plain = lower(graph, Configuration(lora_rank=8))
    assert plain.num_trainable_parameters == num_trainable + layers * 8 * (width + experts)
    named = lower(graph, Configuration(lora_rank=8, lora_modules=("*experts*",)))
    both = (width + 2 * inner) + (inner + width)
    assert named.num_trainable_parameters == layers * experts * 8 * both


class Adapted(nn.Module):
    """A dense layer with a low-rank adapter beside it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, device="meta")
        self.up = nn.Linear(rank, base.out_features, bias=False, device="meta")

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def traced_with_adapters(entry, patterns, rank):
    """The graph of a model whose dense layers a user wrapped, all else frozen."""
    subject = worker("torch_entries.subjects").build_subject({"entry": entry})
    subject.model.requires_grad_(False)
    for path, module in list(subject.model.named_modules()):
        if isinstance(module, nn.Linear) and matches(path, patterns):
            parent, _, name = path.rpartition(".")
            setattr(subject.model.get_submodule(parent), name, Adapted(module, rank))
    report = worker("torch_worker").report(subject, "train")
    return workload_from_report(report, entry=entry, task="train", optimizer="adamw")


@pytest.mark.parametrize(
    ("entry", "patterns"),
    [
        ("hf:bert-tiny", ("*.query", "*.value")),
        ("timm:vit_tiny_patch16_224", ("*.qkv",)),
        pytest.param("timm:vit_tiny_patch16_224", ("blocks.*",), marks=pytest.mark.slow),
        pytest.param("hf:smollm2-135m", ("*.q_proj", "*.v_proj"), marks=pytest.mark.slow),
    ],
)
def test_adapters_cost_what_tracing_them_gives(entry, patterns):
    whole, given = traced(entry), traced_with_adapters(entry, patterns, rank=8)
    settings = {"lora_rank": 8, "lora_modules": patterns}
    ours = lower(whole.passes[0].graph, Configuration(precision="fp32", **settings))
    theirs = lower(given.passes[0].graph, Configuration(precision="fp32"))
    ours, theirs = totals(ours), totals(theirs)
    # As against real runs: the frame of an adapter may hold one activation for one op more.
    assert ours.pop("peak") == pytest.approx(theirs.pop("peak"), rel=0.02)
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_adapters_save_the_products_of_weight_gradients():
    graph = graph_of("llama-3-8b")
    full, adapted = (at_point(lower(graph, Configuration(lora_rank=r)))[0] for r in (0, 8))
    assert 0.66 < adapted / full < 0.72


def test_adapters_need_dense_layers():
    with pytest.raises(InvalidInputError, match="adapter"):
        lower(graph_of("resnet50"), Configuration(lora_rank=8, lora_modules=("layer1",)))


@pytest.mark.parametrize(("precision", "bytes_per_weight"), [("int8", 1.03), ("int4", 0.516)])
def test_weight_only_quantisation_shrinks_dense_weights_alone(precision, bytes_per_weight):
    one = lower(graph_of("llama-3-8b", 1, "infer"), Configuration(precision=precision))
    kept = 2 * 128256 * 4096 + 65 * 4096
    expected = 2 * kept + bytes_per_weight * (8_030_261_248 - kept)
    assert one.parameter_bytes == pytest.approx(expected, rel=0.002)


def test_eager_kernels_widen_weights_and_fused_ones_do_not():
    graph = graph_of("llama-3-8b", 1, "infer")
    eager, fused = (
        lower(graph, Configuration(precision="int8", compiler=c)) for c in ("eager", "compiled")
    )
    inside = lower(graph, Configuration(precision="int8", widens_in_kernels=True))
    assert (eager.costs.kind == OpKind.DEQUANTIZE).any()
    assert not (fused.costs.kind == OpKind.DEQUANTIZE).any()
    assert not (inside.costs.kind == OpKind.DEQUANTIZE).any()


def test_quantised_layers_once_kept_their_inputs():
    """Beside adapters on queries alone: what enters feed-forward and the products that end it."""
    settings = {
        "lora_rank": 8, "lora_modules": ("*.q",), "frozen_weights": "int4",
        "training_format": "pure",
    }  # fmt: skip
    graph = load_workload("llama-3-8b").passes[0].graph
    peaks = [
        (lower(graph, Configuration(**settings, libraries=keeps)).memory.by_owner
         .sum(axis=1) @ monomials(4, 2048)[0]).max()
        for keeps in ((), ("bitsandbytes==0.41",))
    ]  # fmt: skip
    layer = 2 * (4096 + 4096 + 14336)  # what enters feed-forward and each output product
    kept = 4 * 2048 * 32 * layer
    assert 0.6 * kept < peaks[1] - peaks[0] < 1.5 * kept


def test_a_quantised_base_halves_the_memory_of_adapters():
    graph = graph_of("llama-3-8b")
    plain, quantised = (
        lower(graph, Configuration(lora_rank=8, frozen_weights=w, training_format="autocast"))
        for w in ("same", "int4")
    )
    assert quantised.parameter_bytes < 0.3 * plain.parameter_bytes
    assert quantised.num_trainable_parameters == plain.num_trainable_parameters


def test_offloading_the_optimizer_leaves_no_state_on_the_device():
    one = lower(graph_of("gpt2"), Configuration(offload="optimizer"))
    assert one.optimizer_state_bytes == 0
    assert (one.costs.kind == OpKind.HOST_COPY).sum() == 1


def test_offloading_activations_trades_them_for_copies():
    graph = graph_of("bert-base")
    kept, moved = (lower(graph, Configuration(offload=o)) for o in ("none", "activations"))
    flop_kept, owners_kept = at_point(kept, 32, 512)
    flop_moved, owners_moved = at_point(moved, 32, 512)
    assert flop_kept == flop_moved
    assert owners_moved[Owner.ACTIVATION] < 0.5 * owners_kept[Owner.ACTIVATION]


def test_pure_narrow_training_halves_weights_gradients_and_state():
    graph = graph_of("gpt2")
    mixed, pure = (lower(graph, Configuration(training_format=f)) for f in ("autocast", "pure"))
    for name in ("parameter_bytes", "gradient_bytes", "optimizer_state_bytes"):
        assert getattr(pure, name) == getattr(mixed, name) / 2
    assert not (pure.costs.kind == OpKind.CAST).any()


def test_narrow_weights_under_autocast_are_kept_narrow_and_norms_are_not():
    graph = graph_of("gpt2")
    formats = ("autocast", "narrow-autocast", "pure")
    mixed, narrow, pure = (lower(graph, Configuration(training_format=f)) for f in formats)
    for name in ("parameter_bytes", "gradient_bytes", "optimizer_state_bytes"):
        assert getattr(narrow, name) == getattr(mixed, name) / 2
    kept = [at_point(one, 8, 512)[1][Owner.ACTIVATION] for one in (pure, narrow, mixed)]
    assert kept[0] < kept[1] < kept[2]


def test_attention_without_a_fused_kernel_keeps_the_square():
    """Probabilities and their dropped copy in FP32, and a byte of mask, per head and layer."""
    graph = graph_of("gpt2")
    flash, math = (
        lower(graph, Configuration(precision="fp32", attention=a)) for a in ("flash", "math")
    )
    grown = [at_point(m, 1, 2048)[1][Owner.ACTIVATION] for m in (flash, math)]
    square = 12 * 12 * 2048 * 2048
    assert grown[1] - grown[0] == pytest.approx(9 * square, rel=0.1)


def test_attention_without_a_fused_kernel_does_not_compute_scores_twice():
    graph = graph_of("gpt2")
    flash, math = (
        lower(graph, Configuration(precision="fp32", attention=a)) for a in ("flash", "math")
    )
    attention = 2 * 12 * 12 * 2 * 1024 * 1024 * 64
    assert at_point(flash, 2, 1024)[0] - at_point(math, 2, 1024)[0] == attention


def test_accumulation_keeps_gradients_through_the_forward_pass():
    graph = graph_of("gpt2")
    once, many = (
        lower(graph, Configuration(accumulates=a, checkpointing="full")) for a in (False, True)
    )
    assert at_point(many, 8, 1024)[1].sum() > at_point(once, 8, 1024)[1].sum()


def test_recomputed_ops_are_marked():
    one = lower(graph_of("resnet50"), Configuration(checkpointing="full"))
    assert (one.costs.phase == Phase.RECOMPUTE).any()


def test_a_phase_that_updates_one_network_keeps_the_state_of_the_other():
    workload = load_workload("dcgan")
    states = [
        one.graph.storages.elements[one.graph.storages.owner == Owner.OPTIMIZER_STATE].sum()
        for one in workload.passes
    ]
    assert states == [2 * workload.num_parameters] * 2
