"""CPU time from a ResNet-50 to its traced training step, in each framework.

    python benchmarks/frontends_speed.py jax=PYTHON keras=PYTHON onnx=FILE tensorflow=FOLDER

Each front end reads a small model first, so that imports are behind it, and then ResNet-50, as its
worker does; of Keras, what turns a built model into its settings is added. PyTorch, Caffe and the
applications of Keras need nothing. The table stands in ``frontends.md``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
DATA = ROOT / "tests" / "unit" / "model" / "data"
NETS = ROOT / "tests" / "unit" / "frontends" / "data"
FRONT_ENDS = ROOT / "src" / "paceline" / "frontends"
PAGE = HERE / "frontends.md"
START, END = "<!-- seconds -->", "<!-- end of seconds -->"
NUM_RUNS, LIMIT_S = 3, 2.0
TIMED = """
import importlib, json, sys, time
folders, module, function, entries, directory = json.loads(sys.argv[1])
sys.path[:0] = folders
build = getattr(importlib.import_module(module), function)
if module != "jax_worker":
    import torch_worker
    serve = lambda request: torch_worker.serve(request, lambda _: None, build)
else:
    serve = lambda request: build(request, lambda _: None)
for entry in entries:
    started = time.process_time()
    found = serve({"entry": entry, "task": "train", "directory": directory})
spent = time.process_time() - started
print(json.dumps([spent, found["num_parameters"]]))
"""
DESCRIBED = """
import json, sys, time
sys.path[:0] = json.loads(sys.argv[1])[0]
import keras, keras_description
for build in (keras.applications.MobileNet, keras.applications.ResNet50):
    made = build(weights=None)
    made.compile("adam", "categorical_crossentropy")
    started = time.process_time()
    keras_description.describe(made, {})
    spent = time.process_time() - started
print(json.dumps([spent, made.count_params()]))
"""


def roads(given: dict[str, str]) -> list[tuple]:
    """(name, Python, folders, module, function, entries, directory) of each road asked for."""
    here = sys.executable
    found = [
        ("PyTorch, torchvision", here, ("torch",), "torch_entries.subjects", "build_subject",
         ("torchvision:resnet18", "torchvision:resnet50")),
        ("Keras, `keras:ResNet50`", here, ("keras", "rebuilt", "torch"), "keras_worker", "subject",
         ("keras:MobileNet", "keras:ResNet50")),
        ("Caffe, prototxt", here, ("caffe", "rebuilt", "torch"), "caffe_worker", "subject",
         (f"{NETS}/alexnet.prototxt", f"{NETS}/resnet50.prototxt")),
    ]  # fmt: skip
    if "onnx" in given:
        found.append(("ONNX file", here, ("onnx", "torch"), "onnx_subject", "build_subject",
                      (f"{DATA}/onnx/resnet18.onnx", given["onnx"])))  # fmt: skip
    if "tensorflow" in given:
        found.append(("TensorFlow, SavedModel", here, ("tensorflow", "onnx", "rebuilt", "torch"),
                      "tensorflow_subject", "build_subject",
                      (f"{DATA}/tensorflow/small", given["tensorflow"])))  # fmt: skip
    if "jax" in given:
        found.append(("JAX, Flax linen", given["jax"], ("jax", "torch"), "jax_worker", "serve",
                      ("jax:jax_zoo:LinenResNet", "jax:jax_zoo:LinenResNet50")))  # fmt: skip
    return found


def run(python: str, code: str, *request: object) -> tuple[float, int]:
    """(median CPU seconds, parameters) of a few processes."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax",
                   "PYTHONWARNINGS": "ignore"}  # fmt: skip
    told = [json.loads(subprocess.run(
        [python, "-c", code, json.dumps(request)], env=environment, text=True, check=True,
        stdout=subprocess.PIPE,
    ).stdout.splitlines()[-1]) for _ in range(NUM_RUNS)]  # fmt: skip
    return statistics.median(one[0] for one in told), told[0][1]


def main(arguments: list[str]) -> int:
    """Time every road, and write the table; 1 where one is too slow."""
    given = dict(argument.split("=", 1) for argument in arguments)
    rows = []
    for name, python, folders, *request in roads(given):
        paths = [str(FRONT_ENDS / folder) for folder in folders]
        rows.append((name, *run(python, TIMED, paths, *request, str(DATA / "jax"))))
    if "keras" in given:
        paths = [str(FRONT_ENDS / folder) for folder in ("keras", "torch")]
        seconds, _ = run(given["keras"], DESCRIBED, paths)
        _, traced_s, parameters = rows[1]
        rows.append(("Keras, a built model of a function", seconds + traced_s, parameters))
    lines = ["| ResNet-50 of | parameters traced | CPU s | ≤ 2 s |", "|---|--:|--:|---|"]
    for name, seconds, parameters in rows:
        is_kept = "yes" if seconds <= LIMIT_S else "no"
        lines.append(f"| {name} | {parameters:,} | {seconds:.2f} | {is_kept} |")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{START}", *lines, END]) + after, encoding="utf-8")
    print("\n".join(lines))
    return int(any(seconds > LIMIT_S for _, seconds, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
