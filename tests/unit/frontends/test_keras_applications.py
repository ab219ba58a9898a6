"""Models of ``keras.applications`` have Keras's own parameters and forward arithmetic."""

import csv
import json
import lzma
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from keras_here import module, num_weights, subject_of, workload_of

from paceline.model.graph.graph import monomials
from paceline.model.names.front_ends import FRONT_ENDS

COUNTS = Path(__file__).parents[1] / "model" / "data" / "keras_applications.csv"
QUICK = ("ResNet50", "VGG16", "MobileNetV2", "ConvNeXtTiny")


@cache
def rows():
    with COUNTS.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


@cache
def settings():
    path = FRONT_ENDS / "keras" / "applications.json.xz"
    return json.loads(lzma.decompress(path.read_bytes()))["models"]


def forward_flop(workload):
    graph = workload.passes[0].graph
    return float(np.sum(graph.ops.flop @ monomials(1, 1)[0]))


def test_every_application_ships():
    assert settings().keys() == rows().keys()
    assert len(rows()) == 40


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in rows()]
)
def test_counts_equal_those_of_keras(name):
    subject, _ = subject_of(settings()[name])
    row = rows()[name]
    assert num_weights(subject) == (int(row["parameters"]), int(row["trained"]))
    if row["forward_flop"]:
        assert forward_flop(workload_of(subject)) == float(row["forward_flop"])


def test_another_side_is_as_keras_would_build_it():
    subject, _ = subject_of(settings()["ResNet50"], image_size=448)
    assert forward_flop(workload_of(subject)) == pytest.approx(
        4 * float(rows()["ResNet50"]["forward_flop"]), rel=1e-3
    )


def test_an_unknown_application_is_named_with_its_neighbours():
    keras_worker = module("keras_worker")
    with pytest.raises(
        module("torch_entries.request_errors").RequestError, match="ResNet50"
    ) as caught:
        keras_worker.subject({"entry": "keras:ResNet5", "task": "train"})
    assert caught.value.kind == "unknown-model"
    assert keras_worker.subject({"entry": "keras:resnet50", "task": "train"}).kind == "image"
