"""Models that nothing was fitted to: live bytes of a real training step on this CPU, within 2 %."""

import warnings

import pytest
import torch
from gpu.workers.memory_models import Job, cross_entropy, images, models, torchvision
from gpu.workers.profiled_memory import peak_bytes
from tests.sampled import sampled
from torch import nn

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

models().import_torchvision()
transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 500,
    "intermediate_size": 256, "max_position_embeddings": 128, "bos_token_id": 0,
    "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
CAUSAL = {
    "Llama": {"num_key_value_heads": 2}, "Mistral": {"num_key_value_heads": 2},
    "Qwen2": {"num_key_value_heads": 2}, "Gemma": {"num_key_value_heads": 2, "head_dim": 32},
    "Phi": {}, "GPTNeoX": {}, "GPT2": {}, "Bloom": {},
}  # fmt: skip
MASKED = ("Bert", "Roberta", "Electra", "Albert", "DebertaV2")
#: Side of the image and items.
VISION = {
    "alexnet": (64, 8), "squeezenet1_1": (64, 8), "densenet121": (64, 4), "vgg11_bn": (64, 2),
    "efficientnet_b0": (64, 8), "convnext_tiny": (64, 8), "vit_b_16": (224, 2),
    "swin_t": (224, 2), "shufflenet_v2_x1_0": (64, 8), "regnet_y_400mf": (64, 8),
    "mnasnet1_0": (64, 8), "maxvit_t": (224, 1), "resnext50_32x4d": (64, 4),
    "mobilenet_v2": (64, 8),
}  # fmt: skip


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits


def language_model(name, head, **settings):
    def build():
        config = getattr(transformers, f"{name}Config")(**{**SIZES, **settings}, use_cache=False)
        return Logits(getattr(transformers, f"AutoModelFor{head}").from_config(config))

    return build


def tokens(batch):
    return torch.zeros(batch, 64, dtype=torch.int64)


def off_frac(build, inputs, batch):
    """Predicted over real peak, less one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = peak_bytes(build, lambda: inputs(batch), cross_entropy, torch.optim.AdamW)
        graph = load_workload(Job(build(), inputs)).passes[0].graph
    settings = Configuration(precision="fp32", platform="cpu", optimizer_kernel="plain")
    table = lower(graph, settings).memory.by_owner.sum(axis=1)
    return float((table @ monomials(batch, 1)[0]).max()) / real - 1.0


@pytest.mark.parametrize("name", sampled(CAUSAL, "Llama", "Gemma", "GPT2", "Bloom"))
def test_causal_language_models(name):
    assert abs(off_frac(language_model(name, "CausalLM", **CAUSAL[name]), tokens, 16)) < 0.02


@pytest.mark.parametrize("name", sampled(MASKED, "Bert", "DebertaV2"))
def test_masked_language_models(name):
    assert abs(off_frac(language_model(name, "MaskedLM"), tokens, 16)) < 0.02


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.layers(x))


class WithWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(128, 4, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=True)[0])


@pytest.mark.parametrize("build", [Encoder, WithWeights])
def test_attention_of_the_library(build):
    """Fused, unless its weights are asked for."""
    assert abs(off_frac(build, lambda batch: torch.zeros(batch, 64, 128), 32)) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", VISION)
def test_image_models(name):
    side, batch = VISION[name]
    assert abs(off_frac(torchvision(name), images(side), batch)) < 0.02
