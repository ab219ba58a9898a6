"""SavedModels: counts by hand, what is refused, and what damaged files do."""

import base64
import json
import os
import random
import shutil

import pytest
from test_front_ends import DATA
from test_onnx import damaged, flop, kinds, outcome
from traced import reader

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind
from paceline.model.reading.load import load_workload

#: A convolution, a pool and a dense layer, as `tf.saved_model.save` wrote them; no variables.
SMALL = DATA / "tensorflow" / "small"


@pytest.fixture
def read(monkeypatch):
    """Trace a folder in this process."""
    return reader(monkeypatch, "tensorflow", ("torch", "onnx", "rebuilt", "tensorflow"))


def test_a_saved_model_is_counted_without_its_variables(read):
    found = read(SMALL)
    assert found.num_parameters == 9 * 32 + 32 + 13 * 13 * 32 * 10
    assert flop(found, 5) == 5 * 2 * (26 * 26 * 32 * 9 + 13 * 13 * 32 * 10)


def test_a_described_function_is_the_graph_that_was_saved(tmp_path, read):
    described = tmp_path / "description.json"
    content = base64.b64encode((SMALL / "saved_model.pb").read_bytes()).decode("ascii")
    described.write_text(json.dumps({"saved_model": content}))
    found = read("serving:classify", described=str(described))
    assert flop(found, 5) == flop(read(SMALL), 5)


FUNCTIONS = """
import tensorflow as tf

weights = tf.Variable(tf.random.normal([784, 10]))


@tf.function(input_signature=[tf.TensorSpec([None, 784])])
def classify(x):
    return tf.nn.softmax(x @ weights)


@tf.function
def anything(x):
    return x @ weights


def concrete():
    return anything.get_concrete_function(tf.TensorSpec([None, 784]))
"""


@pytest.mark.stacks
def test_a_tf_function_is_read_from_its_graph(tmp_path, monkeypatch):
    python = os.environ.get("PACELINE_KERAS_TENSORFLOW")
    if not python:
        pytest.skip("PACELINE_KERAS_TENSORFLOW names no Python with TensorFlow")
    (tmp_path / "serving.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    for name in ("classify", "concrete"):
        found = load_workload(f"serving:{name}", task="infer", python=python)
        assert (found.num_parameters, flop(found, 3)) == (7840, 3 * 2 * 7840)
    with pytest.raises(InvalidInputError, match="shapes of its inputs"):
        load_workload("serving:anything", task="infer", python=python)


def test_its_training_step_is_derived(read):
    found = read(SMALL, "train")
    assert {OpKind.CONV_BACKWARD_WEIGHT, OpKind.OPTIMIZER} <= set(kinds(found))
    assert "training step of the inference graph" in found.title


@pytest.fixture
def changed(tmp_path):
    """A copy of the model whose bytes a function changes."""

    def change(function):
        folder = tmp_path / "changed"
        shutil.copytree(SMALL, folder, dirs_exist_ok=True)
        file = folder / "saved_model.pb"
        file.write_bytes(function((SMALL / "saved_model.pb").read_bytes()))
        return folder

    return change


@pytest.mark.parametrize(("old", "new", "said"), [
    (b"MaxPool", b"MadPool", "`tf::MadPool` is not known"),
    (b"serving_default", b"serving_defaulT", "no signature"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(old, new, said, changed, read):
    with pytest.raises(InvalidInputError, match=said) as error:
        read(changed(lambda data: data.replace(old, new)))
    assert error.value.hint


def test_damaged_files_give_one_message(changed, read):
    rng = random.Random(3)
    found = {outcome(read, changed(lambda data: damaged(data, rng))) for _ in range(30)}
    assert (InvalidInputError, True) in found <= {None, (InvalidInputError, True)}
