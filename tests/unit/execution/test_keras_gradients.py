"""FLOP of a training step as each backend of Keras counts its own gradients.

Backends differ in what they count beside products: XLA counts every element and no tap of a kernel
that lies in the padding, TensorFlow's estimate takes strides by the input and has the gradient of
the first input, which is never run. So each is asked about networks that it counts as they run.
"""

import os
import subprocess

import pytest

from paceline.model.graph.graph import monomials
from paceline.model.reading.load import load_workload

BATCH = 8
NETWORKS = """
import keras
from keras import layers


def _compiled(*middle):
    model = keras.Sequential([keras.Input((32, 32, 3)), *middle, layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def strided():
    return _compiled(
        layers.Conv2D(64, 3, activation="relu"), layers.Conv2D(128, 3, 2, activation="relu"),
        layers.Flatten(), layers.Dense(256, activation="relu"))


def pointwise():
    return _compiled(
        layers.Conv2D(8, 3, activation="relu"), layers.Conv2D(128, 1, activation="relu"),
        layers.MaxPooling2D(), layers.Conv2D(256, 1, activation="relu"),
        layers.Flatten(), layers.Dense(64, activation="relu"))
"""
INPUTS = f"""
import sys
import keras, networks, numpy as np
model = getattr(networks, sys.argv[1])()
x, y = np.zeros(({BATCH}, 32, 32, 3), "float32"), np.zeros(({BATCH},), "int32")
loss = model.loss
"""
OWN = {
    "torch": """
import torch
from torch.utils.flop_counter import FlopCounterMode
device = next(model.parameters()).device
x, y = torch.tensor(x, device=device), torch.tensor(y, device=device).long()
with FlopCounterMode(display=False) as counter:
    loss(y, model(x, training=True)).backward()
print(counter.get_total_flops())
""",
    "jax": """
import jax
weights, others = ([v.value for v in part] for part in
                   (model.trainable_variables, model.non_trainable_variables))
def step(weights, x, y):
    return loss(y, model.stateless_call(weights, others, x, training=True)[0])
found = jax.jit(jax.value_and_grad(step)).lower(weights, x, y).compile().cost_analysis()
print((found[0] if isinstance(found, list) else found)["flops"])
""",
    "tensorflow": """
import tensorflow as tf
from tensorflow.python.profiler.model_analyzer import profile
from tensorflow.python.profiler.option_builder import ProfileOptionBuilder
def step(x, y):
    with tf.GradientTape() as tape:
        value = loss(y, model(x, training=True))
    return tape.gradient(value, model.trainable_variables)
specs = (tf.TensorSpec(x.shape, tf.float32), tf.TensorSpec(y.shape, tf.int32))
graph = tf.function(step).get_concrete_function(*specs).graph
options = ProfileOptionBuilder(ProfileOptionBuilder.float_operation()).with_empty_output().build()
print(profile(graph, options=options).total_float_ops)
""",
}


def python_of(backend):
    named = os.environ.get(f"PACELINE_KERAS_{backend.upper()}")
    if not named:
        pytest.skip(f"PACELINE_KERAS_{backend.upper()} names no Python with Keras on {backend}")
    return named


def counted_by(backend, name, folder):
    """FLOP of a forward and a backward pass, by the backend's own counter."""
    ended = subprocess.run(
        [python_of(backend), "-c", INPUTS + OWN[backend], name],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(folder)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(ended.stdout.split()[-1])


@pytest.mark.stacks
@pytest.mark.parametrize(
    ("backend", "name"),
    [("torch", "strided"), ("torch", "pointwise"), ("jax", "strided"), ("tensorflow", "pointwise")],
)
def test_a_backends_own_gradients_take_the_flop_that_are_told(backend, name, tmp_path, monkeypatch):
    (tmp_path / "networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    graph = load_workload(f"networks:{name}", python=python_of(backend)).passes[0].graph
    told = (graph.ops.flop @ monomials(BATCH, 1)[0]).sum()
    assert told == pytest.approx(counted_by(backend, name, tmp_path), rel=0.02)
