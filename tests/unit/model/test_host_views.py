"""Views of tensors, which launch nothing and cost the host."""

import dataclasses

import numpy as np
import pytest
from traced import worker

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Phase
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.step.host_dispatch import calls_of

EAGER = Configuration(precision="fp32", channels_last=False)
VIEW_FRAC = builtin_calibration().constants["host"]["view_frac"]["torch"]


def calls(name, task="infer", framework="torch", how=EAGER, phases=tuple(Phase)):
    """What a host dispatches for one pass, and the kernels of it."""
    one = lower(load_workload(name, task=task).passes[0].graph, how)
    count = one.costs.count * np.isin(one.costs.phase, phases)
    dispatched = calls_of(one, framework, builtin_calibration())
    return count @ dispatched, count @ one.costs.num_kernels


@pytest.mark.parametrize("name", ["resnet50", "googlenet", "vgg16"])
def test_networks_of_convolutions_that_answer_have_next_to_no_views(name):
    dispatched, kernels = calls(name)
    assert kernels < dispatched < 1.1 * kernels


@pytest.mark.parametrize("name", ["swin_t", "whisper-small", "bert-large"])
def test_networks_of_products_and_heads_have_many(name):
    dispatched, kernels = calls(name)
    assert 1.1 * kernels < dispatched < 2.0 * kernels


@pytest.mark.parametrize("name", ["swin_t", "gpt2"])
def test_only_a_framework_that_makes_them_one_by_one_pays(name):
    compiled = dataclasses.replace(EAGER, compiler="compiled")
    for change in ({"framework": "tensorflow"}, {"framework": "vllm"}, {"how": compiled}):
        dispatched, kernels = calls(name, "train", **change)
        assert dispatched == pytest.approx(kernels, rel=1e-12)


def counted_views(name):
    """Views that a network of torchvision asks for in a step, forward and backward.

    Attention is one kernel, as on a GPU; the meta device would spell it out.
    """
    torch = pytest.importorskip("torch")
    models = worker("torch_networks.zoo").import_torchvision().models
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        num_views = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            name = function._schema.name
            self.num_views += function.is_view or name in ("aten::detach", "aten::_unsafe_view")
            return made

    def fused(query, key, value, *_, **__):
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]

    with pytest.MonkeyPatch.context() as patch, torch.device("meta"), Counting() as seen:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", fused)
        network = models.get_model(name.partition(":")[2] or name, weights=None)
        seen.num_views = 0
        loss = network(torch.randn(2, 3, 224, 224)).sum()
        forward = seen.num_views
        loss.backward()
        return forward, seen.num_views - forward


@pytest.mark.parametrize("name", ["swin_t", "vit_b_16", "torchvision:convnext_tiny"])
def test_they_are_about_as_many_as_real_networks_ask_for(name):
    forward, backward = counted_views(name)
    for counted, phases in (
        (forward, (Phase.FORWARD, Phase.LOSS)), (backward, (Phase.BACKWARD,))
    ):  # fmt: skip
        dispatched, kernels = calls(name, "train", phases=phases)
        assert (dispatched - kernels) / VIEW_FRAC == pytest.approx(counted, rel=0.5)


def launches_beside(program, how):
    """What a token's host dispatches over its kernels and views, in launches."""
    one = lower(program, how)
    with_python = calls_of(one, "torch", builtin_calibration())
    plain = calls_of(
        dataclasses.replace(one, configuration=dataclasses.replace(how, widens_in_kernels=False)),
        "torch",
        builtin_calibration(),
    )
    return one.costs.count @ (with_python - plain)


def test_each_layer_whose_kernel_widens_its_weights_costs_the_host_the_same():
    passes = {one.name: one.graph for one in load_workload("llama-3-8b", task="infer").passes}
    in_4_bits = Configuration(precision="int4", widens_in_kernels=True)
    of_blocks = launches_beside(passes["decode"], in_4_bits)
    assert of_blocks == pytest.approx(2.0 * 7 * 32, rel=0.01)  # Seven products in 32 blocks.
    assert launches_beside(passes["decode"], dataclasses.replace(in_4_bits, precision="bf16")) == 0
    assert launches_beside(passes["decode"], dataclasses.replace(in_4_bits, precision="int8")) == 0
