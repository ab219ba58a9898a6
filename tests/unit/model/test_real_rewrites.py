"""Rewrites against what they stand for: real training on this CPU, run that way, within 2 %."""

import warnings
from functools import cache

import pytest
import torch
from gpu.workers import memory_models, profiled_memory
from gpu.workers.memory_models import (
    Adapted,
    Job,
    cross_entropy,
    gpt2,
    images,
    mlp,
    tokens,
)
from gpu.workers.profiled_memory import peak_bytes
from tests.sampled import sampled
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.optimization import Adafactor

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

BATCH = 4
AdamW = torch.optim.AdamW


def rows(batch):
    return torch.zeros(batch, 256)


def wide_rows(batch):
    return torch.zeros(batch, 512)


def real_bytes(build, inputs, make_optimizer=AdamW, batch=BATCH, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peak_bytes(build, lambda: inputs(batch), cross_entropy, make_optimizer, **settings)


@cache
def graph_of(build, inputs, optimizer):
    job = Job(build(), inputs)
    job.optimizer = optimizer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_workload(job).passes[0].graph


def predicted_bytes(build, inputs, optimizer="adamw", batch=BATCH, **settings):
    graph = graph_of(build, inputs, optimizer)
    configuration = Configuration(
        precision="fp32", platform="cpu", optimizer_kernel="plain", **settings
    )
    table = lower(graph, configuration).memory.by_owner.sum(axis=1)
    return float((table @ monomials(batch, 1)[0]).max())


class Recomputed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *given):
        return checkpoint(self.block, *given, use_reentrant=False)


class Pair(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, *given):
        return self.second(self.first(x, *given), *given)


def checkpointed_gpt2(repeated=1, of=1):
    model = gpt2()
    for number, block in enumerate(model.layers):
        if number % of < repeated:
            model.layers[number] = Recomputed(block)
    return model


def gpt2_in_segments():
    model = gpt2()
    pairs = zip(model.layers[::2], model.layers[1::2], strict=True)
    model.layers = nn.ModuleList([Recomputed(Pair(*pair)) for pair in pairs])
    return model


@pytest.mark.parametrize("batch", [4, 32])
def test_checkpointing_per_block(batch):
    real = real_bytes(checkpointed_gpt2, tokens, batch=batch)
    predicted = predicted_bytes(gpt2, tokens, batch=batch, checkpointing="block")
    assert predicted == pytest.approx(real, rel=0.02)


def test_checkpointing_of_some_blocks():
    real = real_bytes(lambda: checkpointed_gpt2(1, 2), tokens, batch=32)
    share = {"checkpointing": "block", "checkpoint_blocks": "1/2"}
    assert predicted_bytes(gpt2, tokens, batch=32, **share) == pytest.approx(real, rel=0.02)


def test_checkpointing_in_segments_of_blocks():
    real = real_bytes(gpt2_in_segments, tokens, batch=32)
    segments = {"checkpointing": "block", "checkpoint_blocks": "2"}
    assert predicted_bytes(gpt2, tokens, batch=32, **segments) == pytest.approx(real, rel=0.02)


class OnHost(nn.Module):
    """What the backward pass waits for lies on the host, as arrays that PyTorch does not count."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *given):
        def down(x):
            is_kept = isinstance(x, nn.Parameter) or not x.is_floating_point()
            return x if is_kept else x.detach().numpy().copy()

        def up(x):
            return x if torch.is_tensor(x) else torch.from_numpy(x).clone()

        with torch.autograd.graph.saved_tensors_hooks(down, up):
            return self.model(*given)


def test_checkpoints_whose_inputs_wait_on_the_host():
    real = real_bytes(lambda: OnHost(checkpointed_gpt2()), tokens, batch=32)
    host = {"checkpointing": "block", "offload": "activations"}
    assert predicted_bytes(gpt2, tokens, batch=32, **host) == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize(("build", "inputs"), [(gpt2, tokens), (mlp, rows)])
def test_gradients_accumulate_over_microbatches(build, inputs):
    real = real_bytes(build, inputs, batch=32, num_microbatches=3)
    predicted = predicted_bytes(build, inputs, batch=32, accumulates=True)
    assert predicted == pytest.approx(real, rel=0.02)


def frozen_mlp():
    model = mlp()
    model[:3].requires_grad_(False)
    return model


def test_frozen_modules():
    real = real_bytes(frozen_mlp, rows, batch=64)
    predicted = predicted_bytes(mlp, rows, batch=64, frozen=("0*", "1*", "2*"))
    assert predicted == pytest.approx(real, rel=0.02)


def dense():
    hidden = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*hidden)


def adapted():
    hidden = [nn.Sequential(Adapted(512, 8), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*hidden)


@pytest.mark.parametrize("batch", [4, 256])
def test_adapters_of_low_rank(batch):
    real = real_bytes(adapted, wide_rows, batch=batch)
    predicted = predicted_bytes(dense, wide_rows, batch=batch, lora_rank=8, lora_modules=("*",))
    assert predicted == pytest.approx(real, rel=0.02)


def with_adapters_on(*layers):
    def build():
        model = dense()
        for number, layer in enumerate(model):
            if number in layers:
                layer[0] = Adapted(512, 8)
        return _only_adapters(model)

    return build


def _only_adapters(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = ".down." in name or ".up." in name
    return model


@pytest.mark.parametrize("layers", [(0,), (1, 3), (0, 2)])
def test_adapters_on_some_layers(layers):
    """What enters a frozen layer without adapter is not kept."""
    real = real_bytes(with_adapters_on(*layers), wide_rows, batch=512)
    patterns = tuple(f"{number}.0" for number in layers)
    predicted = predicted_bytes(dense, wide_rows, batch=512, lora_rank=8, lora_modules=patterns)
    assert predicted == pytest.approx(real, rel=0.02)


def test_frozen_layers_after_trained_ones():
    def build():
        model = dense()
        model[1:3].requires_grad_(False)
        return model

    real = real_bytes(build, wide_rows, batch=512)
    predicted = predicted_bytes(dense, wide_rows, batch=512, frozen=("1", "2"))
    assert predicted == pytest.approx(real, rel=0.02)


def small_densenet():
    """Two blocks of a DenseNet, of 6 and of 12 layers that join those before them."""
    network = memory_models.models().import_torchvision().models.DenseNet
    return network(block_config=(6, 12), num_init_features=64)


def frozen_densenet():
    model = small_densenet()
    model.features.requires_grad_(False)
    return model


@pytest.mark.parametrize("batch", sampled([4, 32], 4))
def test_a_trained_head_on_dense_blocks(batch, monkeypatch):
    """What a layer joins of those before it is alive until the layer is done with it."""
    scratch = (*profiled_memory._KERNELS["cpu"], "aten::mkldnn_convolution")
    monkeypatch.setitem(profiled_memory._KERNELS, "cpu", scratch)
    pictures = images(64)
    real = real_bytes(frozen_densenet, pictures, batch=batch)
    predicted = predicted_bytes(small_densenet, pictures, batch=batch, frozen=("features",))
    assert predicted == pytest.approx(real, rel=0.02)
    assert predicted == pytest.approx(predicted_bytes(frozen_densenet, pictures, batch=batch))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adafactor": Adafactor,
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_optimizers(name):
    real = real_bytes(mlp, rows, OPTIMIZERS[name])
    assert predicted_bytes(mlp, rows, name) == pytest.approx(real, rel=0.02)


def wide_head():
    return nn.Sequential(nn.Linear(256, 64), nn.Linear(64, 8192))


def test_results_that_a_trainer_lets_go_of():
    """Logits are named in a plain loop, and gone before backward where only the loss is."""
    held = predicted_bytes(wide_head, rows, batch=512)
    dropped = predicted_bytes(wide_head, rows, batch=512, results="dropped")
    real = real_bytes(wide_head, rows, batch=512, holds_results=False)
    assert held - dropped == pytest.approx(512 * 8192 * 4, rel=1e-4)
    assert dropped == pytest.approx(real, rel=0.02)


class Biased(nn.Module):
    """Attention with a bias on its scores, one for all items, as T5 has it."""

    heads, tokens, width = 4, 64, 32

    def __init__(self, is_trained):
        super().__init__()
        size = (self.heads, self.tokens, self.tokens)
        self.inward = nn.Linear(self.width, 3 * self.width)
        self.bias = nn.Parameter(torch.zeros(size), requires_grad=is_trained)

    def forward(self, x):
        shape = (len(x), self.tokens, 3, self.heads, -1)
        query, key, value = self.inward(x).reshape(shape).permute(2, 0, 3, 1, 4)
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.bias[None]
        )
        return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("is_trained", [False, True])
def test_attention_whose_bias_is_trained_writes_its_scores(is_trained):
    """No fused kernel has a gradient of the bias; with a constant one nothing is kept of scores."""

    def build():
        layers = (Biased(is_trained) for _ in range(3))
        return nn.Sequential(*layers, nn.Flatten(1), nn.Linear(2048, 10))

    def inputs(batch):
        return torch.zeros(batch, Biased.tokens, Biased.width)

    real = real_bytes(build, inputs, batch=16)
    assert predicted_bytes(build, inputs, batch=16) == pytest.approx(real, rel=0.02)
