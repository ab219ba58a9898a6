"""Segmentation, video and optical flow of torchvision, against its figures and a real step."""

import warnings

import numpy as np
import pytest
import torch
from test_flop_counter import counted_flop, traced_flop
from tests.sampled import sampled
from traced import trace_here, worker

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.graph.workload import unit_of_item
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

#: Its published counts are of clips of 16 frames, whatever the weights are judged on.
COUNTED_FRAMES = 16


def built(name, **given):
    models = worker("torch_networks.zoo").import_torchvision().models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return models.get_model_builder(name)(weights=None, **given)


def published(name):
    models = worker("torch_networks.zoo").import_torchvision().models
    return next(iter(models.get_model_weights(name))).meta


@pytest.mark.parametrize(
    "name",
    sampled(
        [
            "lraspp_mobilenet_v3_large", "fcn_resnet50", "mc3_18", "fcn_resnet101",
            "deeplabv3_resnet50", "deeplabv3_resnet101", "deeplabv3_mobilenet_v3_large", "r3d_18",
            "r2plus1d_18", "s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t", "swin3d_s", "swin3d_b",
        ],
        "lraspp_mobilenet_v3_large", "mc3_18",
    ),
)  # fmt: skip
def test_parameters_and_arithmetic_are_the_published_ones(name):
    video = worker("torch_networks.zoo").import_torchvision().models.video
    is_video = hasattr(video, name)
    entry = f"torchvision:{name}" + (f",frames={COUNTED_FRAMES}" if is_video else "")
    workload = trace_here(entry, task="infer")
    flop = float((workload.passes[0].graph.ops.flop @ monomials(1, 1)[0]).sum())
    assert workload.num_parameters == published(name)["num_params"]
    assert flop / 2e9 == pytest.approx(published(name)["_ops"], abs=0.0006)


def segmentation_loss(output):
    return output["out"].sum() + (output["aux"].sum() if "aux" in output else 0.0)


@pytest.mark.parametrize(
    ("name", "given", "shape", "settings", "loss"),
    sampled([
        ("r3d_18", {}, (2, 3, 4, 32, 32), {"frames": 4}, torch.sum),
        (
            "fcn_resnet50", {"weights_backbone": None, "aux_loss": True}, (2, 3, 65, 65), {},
            segmentation_loss,
        ),
        (
            "lraspp_mobilenet_v3_large", {"weights_backbone": None}, (2, 3, 64, 64), {},
            segmentation_loss,
        ),
    ], "r3d_18"),
)  # fmt: skip
def test_a_real_step_counts_the_same(name, given, shape, settings, loss):
    """Every product, three-dimensional convolutions included, in both directions."""
    entry = ",".join([f"torchvision:{name}", *(f"{k}={v}" for k, v in settings.items())])
    graph = trace_here(entry, image_size=shape[-1]).passes[0].graph
    assert traced_flop(graph, 2) == counted_flop(built(name, **given), torch.randn(shape), loss)


class TwoUpdates(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = built("raft_small")

    def forward(self, pictures):
        return sum(flow.sum() for flow in self.inner(*pictures, num_flow_updates=2))


@pytest.mark.slow
def test_a_real_step_of_optical_flow_counts_the_same():
    pictures = torch.rand(2, 1, 3, 128, 128)
    graph = trace_here("torchvision:raft_small,updates=2", image_size=128).passes[0].graph
    assert traced_flop(graph, 1) == counted_flop(TwoUpdates(), pictures, torch.sum)


def flat_kernels(depth):
    """The same 3 × 3 convolution of ``depth`` pictures an item, as a volume and as a batch."""
    nn = torch.nn

    class Volume(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv3d(8, 16, (1, 3, 3), padding=(0, 1, 1), bias=False)

        def inputs(self, batch):
            return torch.empty(batch, 8, depth, 12, 12)

        def loss(self, output, _inputs):
            return output.sum()

        def forward(self, x):
            return self.layer(x)

    class Pictures(Volume):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(8, 16, 3, padding=1, bias=False)

        def inputs(self, batch):
            return torch.empty(batch * depth, 8, 12, 12)

    return Volume(), Pictures()


def test_a_kernel_of_depth_one_costs_what_it_costs_in_two_dimensions():
    convolutions = (OpKind.CONV, OpKind.CONV_BACKWARD_WEIGHT)
    totals = []
    for model in flat_kernels(depth=5):
        costs = lower(load_workload(model).passes[0].graph, Configuration(precision="fp32")).costs
        count = np.where(np.isin(costs.kind, convolutions), costs.count, 0.0)
        columns = (costs.flop, costs.read_bytes, costs.write_bytes)
        totals.append([float(count @ (column @ monomials(4, 1)[0])) for column in columns])
    assert totals[0] == totals[1]
    assert all(total > 0 for total in totals[0])


def test_inputs_are_said_and_can_be_chosen():
    said = [
        trace_here(entry, task="infer").input_description
        for entry in ("torchvision:r3d_18", "torchvision:r3d_18,frames=8")
    ]
    assert said == ["16×112×112", "8×112×112"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("torchvision:r3d_18,boxes=3", "no setting `boxes`; known: `frames`"),
        ("torchvision:r3d_18,frames=some", "no setting with a number"),
        ("torchvision:quantized_resnet50", "trace `torchvision:resnet50`"),
        ("torchvision:raft_small,height=100", "multiple of eight"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_a_reason(entry, says):
    with pytest.raises(worker("torch_entries.subjects").RequestError, match=says):
        trace_here(entry, task="infer")


def test_several_pictures_of_one_size_are_one_sample():
    words = worker("torch_entries.guesses").extents_words
    picture, mask = torch.zeros(2, 3, 64, 64), torch.zeros(2, 1, 64, 64)
    assert words([picture, mask]) == "pictures of 64×64"
    assert words([picture, picture, picture]) == "3 pictures of 64×64"
    assert unit_of_item("samples", words([picture, picture])) == "samples"
