"""Every layer of Keras that is read gives Keras's own shape and parameters."""

import pytest
from keras_here import cases, module, num_weights, subject_of, workload_of

from paceline.model.graph.graph import OpKind, Phase

RECURRENT = ("simplernn", "lstm", "gru")
#: What Keras 3.15 compiled each model of a tutorial with, by the names of ours.
OPTIMIZERS = {
    "mnist": "adam", "simplernn": "rmsprop", "lstm": "adam", "gru": "nadam",
    "vgg16-head": "sgd-momentum", "encoder": "adamw",
}  # fmt: skip


@pytest.mark.parametrize("name", cases())
def test_shape_and_parameters_are_those_of_keras(name):
    case = cases()[name]
    subject, output = subject_of(case["settings"])
    rebuilt = module("rebuilt_program")
    free = (rebuilt.BATCH, rebuilt.LENGTH)
    pairs = list(zip(output.shape, case["output"], strict=True))
    assert [(mine, theirs) for mine, theirs in pairs if theirs not in (None, mine)] == []
    assert all(mine in free for mine, theirs in pairs if theirs is None)
    assert num_weights(subject) == (case["parameters"], case["trained"])


def test_more_than_forty_five_classes_are_read():
    assert len(module("keras_graph").LAYERS) > 45


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_a_model_was_compiled_with_is_its_step(name):
    subject, _ = subject_of(cases()[name]["settings"])
    workload = workload_of(subject, "train")
    assert workload.optimizer == OPTIMIZERS[name]
    assert workload.has_own_optimizer
    assert (workload.passes[0].graph.ops.phase == Phase.LOSS).any()


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_layer_stays_one_op_each_way(name):
    subject, _ = subject_of(cases()[name]["settings"])
    kinds = list(workload_of(subject, "train").passes[0].graph.ops.kind)
    assert kinds.count(OpKind.RECURRENT) == kinds.count(OpKind.RECURRENT_BACKWARD) == 1


def test_a_model_of_any_length_is_known_at_any_length():
    workload = workload_of(subject_of(cases()["lstm"]["settings"])[0], "train")
    assert workload.passes[0].graph.variables == ("batch", "seq")


def test_nothing_of_a_frozen_base_is_trained():
    subject, _ = subject_of(cases()["vgg16-head"]["settings"])
    graph = workload_of(subject, "train").passes[0].graph
    kinds = graph.ops.kind[graph.ops.phase == Phase.BACKWARD]
    convolutions = (OpKind.CONV_BACKWARD_INPUT, OpKind.CONV_BACKWARD_WEIGHT)
    assert not [kind for kind in kinds if kind in convolutions]
