"""Arithmetic against the dispatcher's own counter on a real forward and backward pass."""

import warnings

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from traced import trace_here, worker

from paceline.model.graph.graph import OpKind, Phase, monomials

IMAGE = {"resnet18": 64, "mobilenet_v3_small": 64}
SLOW_IMAGE = {"alexnet": 96, "vgg11": 64, "googlenet": 96, "densenet121": 64, "swin_t": 64,
              "efficientnet_b0": 64, "convnext_tiny": 64, "shufflenet_v2_x0_5": 64}  # fmt: skip
SMALL_LM = "transformer:layers=2,hidden=64,heads=4,kv_heads=2,vocab=211,gated=1,norm=rms"


def counted_flop(model, inputs, loss):
    """FLOP of (forward, backward) of a real run."""
    model.train()
    with FlopCounterMode(display=False) as forward:
        value = loss(model(inputs))
    with FlopCounterMode(display=False) as backward:
        value.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def traced_flop(graph, batch, seq=1):
    """FLOP of (forward, backward) as the counter takes them.

    The counter of torch 2.13 takes the weight product of a grouped convolution for one of all
    channels with all (`conv_backward_flop` passes the shapes of the whole tensors to
    `conv_flop_count`): ``groups`` times too many, which is undone here op by op.
    """
    flop = graph.ops.flop @ monomials(batch, seq)[0]
    groups = np.where(graph.ops.kind == OpKind.CONV_BACKWARD_WEIGHT, graph.ops.dims[:, 9, 0], 1)
    is_backward = graph.ops.phase == Phase.BACKWARD
    return flop[~is_backward].sum(), (flop * groups)[is_backward].sum()


def sum_of(output):
    tensors = output if isinstance(output, tuple) else (output,)
    return sum(t.sum() for t in tensors if t is not None)


@pytest.mark.parametrize(
    ("name", "size"),
    [*IMAGE.items(), *(pytest.param(*i, marks=pytest.mark.slow) for i in SLOW_IMAGE.items())],
)
def test_a_real_step_of_torchvision_counts_the_same(name, size):
    models = worker("torch_networks.zoo").import_torchvision().models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(models, name)(weights=None)
        graph = trace_here(f"torchvision:{name}", image_size=size).passes[0].graph
    images = torch.randn(2, 3, size, size)
    assert traced_flop(graph, 2) == counted_flop(model, images, sum_of)


def test_a_real_step_of_a_language_model_counts_the_same_but_for_attention():
    """A CPU's attention stores no scores and counts no backward; so attention is left out."""
    fields = dict(f.split("=") for f in SMALL_LM.partition(":")[2].split(","))
    given = {k: int(v) if v.isdigit() else v for k, v in fields.items()}
    model = worker("torch_networks.zoo").transformer(**given)
    graph = trace_here(SMALL_LM).passes[0].graph
    is_attention = graph.ops.dims[:, 6, :].any(axis=1) & (graph.ops.flop.sum(axis=1) > 0)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(0, 211, (2, 16))).sum().backward()
    by_op = counter.get_flop_counts()["Global"]
    products = sum(v for k, v in by_op.items() if "dot_product" not in str(k))
    at = monomials(2, 16)[0]
    assert float((graph.ops.flop[~is_attention] @ at).sum()) == products
