"""Nets of Caffe: published counts, phases, solvers, and files that are refused in one sentence."""

import random

import numpy as np
import pytest
from keras_here import DATA, module, workload_of
from mutated import answers, damaged_bytes, peak_bytes

from paceline.model.graph.graph import OpKind, monomials

#: Weights by the shapes that the definitions state; multiply-adds of one forward pass.
#: AlexNet: Krizhevsky et al. 2012, in Caffe's variant; 60.97 million and 724 million are the usual
#: figures. GoogLeNet: Szegedy et al. 2014 with both auxiliary heads. ResNet-50: He et al. 2015,
#: whose first convolution has a bias in Caffe alone.
PUBLISHED = {"alexnet": 60_965_224, "googlenet": 13_378_280, "resnet50": 25_557_096}
#: By hand: (outputs of the map) × (inputs of one output), layer by layer.
ALEXNET_MACS = (
    55 * 55 * 96 * 363 + 27 * 27 * 256 * 1200 + 13 * 13 * 384 * 2304 + 13 * 13 * 384 * 1728
    + 13 * 13 * 256 * 1728 + 9216 * 4096 + 4096 * 4096 + 4096 * 1000
)  # fmt: skip


def read(text):
    return module("caffe_net").Net(module("caffe_text").parsed(text))


def subject_of(name, task="train", **settings):
    return module("caffe_worker").subject(
        {"entry": str(DATA / f"{name}.prototxt"), "task": task, **settings}
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_are_those_of_the_definitions(name):
    model = subject_of(name).model
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


def test_the_arithmetic_of_alexnet_is_that_of_a_count_by_hand():
    graph = workload_of(subject_of("alexnet", "infer")).passes[0].graph
    assert np.sum(graph.ops.flop @ monomials(1, 1)[0]) == 2 * ALEXNET_MACS


def test_a_solver_is_the_step_of_the_net_beside_it():
    workload = workload_of(subject_of("alexnet_solver"), "train")
    assert workload.optimizer == "sgd-momentum"
    assert workload.input_description == "3×227×227"


def test_auxiliary_losses_are_weighed_and_trained():
    subject = subject_of("googlenet")
    assert len(subject.model._outputs) == 3
    kinds = list(workload_of(subject, "train").passes[0].graph.ops.kind)
    assert kinds.count(OpKind.CONV_BACKWARD_WEIGHT) == 59


def test_another_side_is_traced_where_the_net_takes_it():
    subject = subject_of("googlenet", image_size=256)
    assert subject.side == 256


def test_a_rate_of_zero_freezes_a_weight():
    net = read(
        'input: "x" input_dim: 1 input_dim: 8 layer { name: "a" type: "InnerProduct" bottom: "x" '
        'top: "a" param { lr_mult: 0 } inner_product_param { num_output: 3 } }'
    )
    trained = {name: p.requires_grad for name, p in net.program.root.named_parameters()}
    assert trained == {"a.weight": False, "a.bias": True}


def test_names_of_the_first_release_are_read():
    net = read(
        "input: 'x' input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 9 layers { name: 'a' type: "
        "CONVOLUTION bottom: 'x' top: 'a' convolution_param { num_output: 4 kernel_size: 3 } } "
        "layers { name: 'l' type: SOFTMAX_LOSS bottom: 'a' bottom: 'y' }"
    )
    assert net.loss is not None
    assert net.outputs[0].shape[1:] == (4, 7, 7)


BAD = {
    "layer {": "ends within",
    "}": "a field was looked for",
    "name": "has no value",
    "a: [1, 2": "does not end",
    "layer { " * 100: "nested more than 50",
    'name: "empty"': "0 layers",
    'layer { name: "a" type: "Python" bottom: "x" top: "y" }': "is a `Python`, which is not read",
    'layer { name: "a" type: "ReLU" bottom: "x" top: "x" }': "reads `x`, which no layer",
    'input: "x" input_dim: -1 input_dim: 3 layer { name: "a" }': "the shape",
    'input: "x" input_dim: 1 input_dim: 3 layer { name: "a" type: "InnerProduct" bottom: "x" '
    'top: "a" }': "`num_output` of None",
    'input: "x" input_dim: 1 input_dim: 3 layer { name: "a" type: "InnerProduct" bottom: "x" '
    'top: "a" inner_product_param { num_output: -3 } }': "`num_output` of -3",
    'layer { name: "d" type: "Data" top: "d" }': "do not say their size",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20])
def test_what_is_not_read_is_refused_in_one_sentence(text):
    with pytest.raises(module("torch_entries.request_errors").RequestError, match=BAD[text]):
        read(text)


@pytest.mark.parametrize(
    "count", [60, pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_damaged_nets_end_in_one_sentence_or_a_model(count):
    chance, num_models = random.Random(7), 0
    texts = [(DATA / f"{name}.prototxt").read_bytes() for name in ("alexnet", "resnet50")]
    before = peak_bytes()
    for number in range(count):
        made = damaged_bytes(texts[number % 8 == 0], chance).decode("utf-8", "replace")
        num_models += answers(lambda made=made: read(made))
    assert 0 < num_models < count
    assert peak_bytes() - before < 1_000_000_000
