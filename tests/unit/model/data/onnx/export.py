"""Export one model of ``exports.csv`` to ONNX, its graph alone: ``python export.py NAME FOLDER``.

Run in a Python with torch, torchvision, transformers and onnxscript; weights are a new model's.
"""

import csv
import os
import sys
from pathlib import Path

import torch
from torch.export import Dim

sys.path.append(str(Path(__file__).parents[5] / "src" / "paceline" / "frontends" / "torch"))
from torch_networks.zoo import import_torchvision


def rows():
    """The models, by name."""
    with (Path(__file__).parent / "exports.csv").open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def of_transformers(row):
    """A model of transformers, with the configuration that the row gives it."""
    import_torchvision()  # transformers imports it, too
    import transformers

    pairs = (one.partition("=") for one in filter(None, row["settings"].split("|")))
    settings = {key: None if text == "None" else int(text) for key, _, text in pairs}
    config = getattr(transformers, row["configuration"])(**settings)
    config.use_cache = False
    return getattr(transformers, row["model"])(config).eval()


def example(row, model):
    """(positional inputs, named inputs, which extents are free)."""
    if row["library"] == "torchvision":
        side = 299 if row["name"] == "inception_v3" else 224
        return (torch.randn(2, 3, side, side),), None, ({0: Dim("batch")},)
    config = model.config
    if not hasattr(config, "vocab_size"):
        side = config.image_size
        images = {"pixel_values": torch.randn(2, 3, side, side)}
        return (), images, {"pixel_values": {0: Dim("batch")}}
    free = {0: Dim("batch"), 1: Dim("sequence", min=4, max=500)}
    return (), {"input_ids": torch.randint(0, 100, (2, 16))}, {"input_ids": free}


def main(name, folder):
    """Write ``NAME.onnx``."""
    row, path = rows()[name], os.path.join(folder, name + ".onnx")
    if row["library"] == "torchvision":
        model = getattr(import_torchvision().models, name)(weights=None).eval()
    else:
        model = of_transformers(row)
    given, named, shapes = example(row, model)
    program = torch.onnx.export(
        model, given, kwargs=named, dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    program.save(path, external_data=True)
    os.remove(path + ".data")


if __name__ == "__main__":
    main(*sys.argv[1:])
