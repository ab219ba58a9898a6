"""Models of other frameworks as paceline rebuilds them, beside their framework's own counts.

``python benchmarks/frontends.py`` rebuilds and traces every model of ``keras.applications`` that
ships, and writes the table of ``frontends.md``.
"""

import csv
import json
import lzma
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit" / "frontends")]

import numpy as np  # noqa: E402
from keras_here import module, num_weights, subject_of, workload_of  # noqa: E402

from paceline.model.graph.graph import monomials  # noqa: E402
from paceline.model.names.front_ends import FRONT_ENDS  # noqa: E402

COUNTS = ROOT / "tests" / "unit" / "model" / "data" / "keras_applications.csv"
PAGE = HERE / "frontends.md"
MARKS = "<!-- keras.applications -->", "<!-- end -->"


def line(settings, row):
    started = time.process_time()
    subject, _ = subject_of(settings)
    workload = workload_of(subject)
    seconds = time.process_time() - started
    parameters, _ = num_weights(subject)
    flop = int(np.sum(workload.passes[0].graph.ops.flop @ monomials(1, 1)[0]))
    keras = int(row["forward_flop"] or 0)
    told = f"{keras / 1e9:.4f} | {flop / 1e9:.4f}" if keras else f"– | {flop / 1e9:.4f}"
    is_equal = parameters == int(row["parameters"]) and flop == (keras or flop)
    equal = "yes" if is_equal and keras else "parameters" if is_equal else "no"
    return (
        f"| {row['name']} | {row['side']} | {int(row['parameters']):,} | {parameters:,} | {told} "
        f"| {equal} | {seconds:.1f} |"
    )


def main():
    module("keras_graph")
    text = lzma.decompress((FRONT_ENDS / "keras" / "applications.json.xz").read_bytes())
    settings = json.loads(text)["models"]
    with COUNTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = [
        "| model | side | count_params() | rebuilt | GFLOP by Keras | rebuilt | equal | CPU s |",
        "|---|--:|--:|--:|--:|--:|---|--:|",
        *(line(settings[row["name"]], row) for row in rows),
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(
        before + MARKS[0] + "\n" + "\n".join(table) + "\n" + MARKS[1] + after, encoding="utf-8"
    )


if __name__ == "__main__":
    main()
