"""Where frameworks define a network of one name otherwise, to the last parameter."""

from functools import cache

import pytest
import torch
from keras_here import DATA, cases, module, num_weights, subject_of
from test_keras_applications import settings
from tests.sampled import sampled

INCEPTIONS = ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")


@cache
def keras_shapes(name):
    """Shapes of the trained weights of an application, by the class of their layer."""
    model = subject_of(settings()[name])[0].model
    return {path: tuple(weight.shape) for path, weight in model.named_parameters()}


def count(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes)


@cache
def theirs(name, **settings):
    torchvision = module("torch_networks.zoo").import_torchvision()
    with torch.device("meta"):
        return getattr(torchvision.models, name)(**settings)


@pytest.mark.parametrize(
    ("keras", "torchvision_name"),
    sampled(
        [("ResNet50", "resnet50"), ("ResNet101", "resnet101"), ("ResNet152", "resnet152")],
        "ResNet50",
    ),
)
def test_residual_networks_of_keras_have_biases_that_torchvision_has_not(keras, torchvision_name):
    shapes = keras_shapes(keras)
    biases = [shape for path, shape in shapes.items() if path.endswith("_conv.bias")]
    other = sum(p.numel() for p in theirs(torchvision_name).parameters())
    assert count(shapes.values()) - count(biases) == other
    assert count(biases) > 0


def test_vgg_is_the_same_network():
    shapes = keras_shapes("VGG16").values()
    model = theirs("vgg16")
    assert sorted(shapes) == sorted(tuple(p.shape) for p in model.parameters())


@pytest.mark.parametrize(("name", "other"), [("DenseNet121", "densenet121")])
def test_dense_networks_are_the_same_network(name, other):
    assert count(keras_shapes(name).values()) == sum(p.numel() for p in theirs(other).parameters())


def test_mobile_networks_are_the_same_network():
    other = sum(p.numel() for p in theirs("mobilenet_v2").parameters())
    assert count(keras_shapes("MobileNetV2").values()) == other


def test_inception_of_keras_has_no_scales_and_no_auxiliary_head():
    model = theirs("inception_v3", init_weights=False)
    auxiliary = {id(p) for p in model.AuxLogits.parameters()}
    scales = [
        m.weight
        for m in model.modules()
        if isinstance(m, torch.nn.BatchNorm2d) and id(m.weight) not in auxiliary
    ]
    kept = [p for p in model.parameters() if id(p) not in auxiliary]
    expected = sum(p.numel() for p in kept) - sum(p.numel() for p in scales)
    assert count(keras_shapes("InceptionV3").values()) == expected


@pytest.mark.parametrize(("name", "gates"), [("lstm", 4), ("simplernn", 1)])
def test_torch_has_a_second_bias_in_each_recurrent_layer(name, gates):
    trained = num_weights(subject_of(cases()[name]["settings"])[0])[1]
    kind = {"lstm": torch.nn.LSTM, "simplernn": torch.nn.RNN}[name]
    other = torch.nn.ModuleList([kind(10, 32), torch.nn.Linear(32, 1)])
    assert sum(p.numel() for p in other.parameters()) - trained == gates * 32


def caffe_net(name):
    message, _ = module("caffe_net").read_net(str(DATA / f"{name}.prototxt"))
    return module("caffe_net").Net(message)


def test_residual_network_of_caffe_has_a_bias_in_its_first_convolution():
    other = sum(p.numel() for p in theirs("resnet50").parameters())
    assert count(p.shape for p in caffe_net("resnet50").program.root.parameters()) - other == 64


def test_google_net_of_caffe_has_biases_for_norms_and_wide_filters_where_torchvision_has_thin():
    shapes = [tuple(p.shape) for p in caffe_net("googlenet").program.root.parameters()]
    model = theirs("googlenet", init_weights=False)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    # Of each norm a factor and an offset, against one bias of the convolution before it.
    less = sum(m.weight.numel() for m in norms)
    # torchvision's third branch has 3×3 filters where the paper has 5×5.
    thin = [getattr(model, f"inception{n}").branch3[1].conv.weight for n in INCEPTIONS]
    wider = sum(w.numel() // 9 * 16 for w in thin)
    assert count(shapes) == sum(p.numel() for p in model.parameters()) - less + wider


def test_a_gru_of_keras_has_both_biases_of_torch():
    trained = num_weights(subject_of(cases()["gru"]["settings"])[0])[1]
    other = torch.nn.ModuleList([torch.nn.GRU(10, 32), torch.nn.Linear(32, 1)])
    assert sum(p.numel() for p in other.parameters()) == trained
