"""Exports of 30 models of torchvision and 15 of transformers against traces of the originals.

They are exported in a Python with torch, torchvision, transformers and onnxscript, which
``PACELINE_ONNX_PYTHON`` names. The figures stand in ``benchmarks/frontends.md``.
"""

import importlib.util
import os
import subprocess

import pytest
import torch
from test_front_ends import DATA

from paceline.model.graph.graph import monomials
from paceline.model.reading.load import load_workload

pytestmark = pytest.mark.stacks
PYTHON = os.environ.get("PACELINE_ONNX_PYTHON", "")
LENGTH = 128
EXPORTER = DATA / "onnx" / "export.py"


def imported(path):
    """A script beside its data."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


export = imported(EXPORTER)


def original(row):
    """The model that a file was exported from, traced."""
    if row["library"] == "torchvision":
        side = 299 if row["name"] == "inception_v3" else 224
        return load_workload(f"torchvision:{row['name']}", task="infer", image_size=side)
    with torch.device("meta"):
        model = export.of_transformers(row)
    if hasattr(model.config, "vocab_size"):
        model.inputs = lambda batch, seq: {"input_ids": torch.zeros(batch, seq).long()}
    else:
        side = model.config.image_size
        model.inputs = lambda batch: {"pixel_values": torch.zeros(batch, 3, side, side)}
    return load_workload(model, task="infer", seq=LENGTH)


def flop(workload):
    seq = LENGTH if workload.default_seq > 1 else 1
    return (workload.passes[0].graph.ops.flop @ monomials(1, seq)[0]).sum()


@pytest.mark.parametrize("name", export.rows())
def test_an_export_multiplies_what_its_original_does(name, tmp_path):
    if not PYTHON:
        pytest.skip("no Python with onnxscript is named in PACELINE_ONNX_PYTHON")
    command = [PYTHON, EXPORTER, name, tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    found = load_workload(str(tmp_path / f"{name}.onnx"), task="infer", seq=LENGTH)
    assert flop(found) == pytest.approx(flop(original(export.rows()[name])), rel=0.005)
