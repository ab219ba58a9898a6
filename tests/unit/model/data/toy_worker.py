"""A front end as small as one can be: it traces one dense layer of a framework without tensors.

Entry ``toy:INPUTSxOUTPUTS``. Standard library only.
"""

import json
import sys

PROTOCOL = 1
FORWARD, LOSS, BACKWARD = 0, 1, 2
PARAMETER, GRADIENT, ACTIVATION, INPUT = 0, 1, 3, 4
POINTS = ((3, 1), (5, 1), (7, 1))
NAMES = ("aten::mm|", "aten::sum|reduction", "paceline::optimizer|")
#: Name, birth, death, owner, whether it is trained; the extents of each follow from the batch.
STORAGES = (
    ("weight", -1, 5, PARAMETER, 1),
    ("images", -1, 5, INPUT, 0),
    ("scores", 0, 2, ACTIVATION, 0),
    ("loss", 1, 3, ACTIVATION, 0),
    ("upstream", 2, 3, ACTIVATION, 0),
    ("gradient", 3, 5, GRADIENT, 0),
)
#: Operator, phase, storages read, storages written.
OPS = (
    (0, FORWARD, ("images", "weight"), ("scores",)),
    (1, LOSS, ("scores",), ("loss",)),
    (1, BACKWARD, ("scores", "loss"), ("upstream",)),
    (0, BACKWARD, ("images^T", "upstream"), ("gradient",)),
    (2, 3, ("weight", "gradient"), ("weight",)),
)


def main():
    """Serve one request."""
    request = json.loads(sys.stdin.readline())
    inputs, _, outputs = request["entry"].partition(":")[2].partition("x")
    if not (inputs.isdigit() and outputs.isdigit()):
        message = "`{}` is no INPUTSxOUTPUTS".format(request["entry"])
        print(json.dumps({"event": "error", "kind": "bad-request", "message": message}))
        return
    with open(request["output"], "w") as file:
        json.dump(report(int(inputs), int(outputs), request["task"]), file)
    print(json.dumps({"event": "done", "protocol": PROTOCOL}))


def report(inputs, outputs, task):
    """What the parent reads."""
    ops = OPS if task == "train" else OPS[:1]
    return {
        "protocol": PROTOCOL, "torch": "none", "num_parameters": inputs * outputs,
        "kind": "features", "input": str(inputs), "input_shape": [inputs],
        "passes": [traced(inputs, outputs, ops, "step" if task == "train" else "forward")],
    }  # fmt: skip


def traced(inputs, outputs, ops, name):
    """One pass: what does not change with the batch, and what does."""
    touched = {s.rstrip("^T") for _, _, read, wrote in ops for s in read + wrote}
    kept = [row for row in STORAGES if row[0] in touched]
    index = {row[0]: number for number, row in enumerate(kept)}
    tensors, rows = [], []
    for op, phase, read, wrote in ops:
        sides = []
        for names in (read, wrote):
            sides.append(list(range(len(tensors), len(tensors) + len(names))))
            tensors += names
        rows.append([op, phase, 0, *sides, []])
    return {
        "name": name, "repeats": 1, "runs_on": "device", "variables": ["batch", ""],
        "points": POINTS, "modules": ["", "dense"],
        "topology": {
            "names": NAMES, "dtypes": ["float32"], "element_bytes": [4], "ops": rows,
            "tensor_storage": [index[t.rstrip("^T")] for t in tensors],
            "tensor_dtype": [0] * len(tensors),
            "tensor_ndim": [2] * len(tensors),
            "birth": [row[1] for row in kept],
            "death": [min(row[2], len(ops)) for row in kept],
            "owner": [row[3] for row in kept], "trainable": [row[4] for row in kept],
            "storage_dtype": [0] * len(kept),
        },
        "numbers": [
            {
                "dims": [n for t in tensors for n in extents(t, batch, inputs, outputs)],
                "bytes": [4 * product(extents(row[0], batch, inputs, outputs)) for row in kept],
            }
            for batch, _ in POINTS
        ],
    }  # fmt: skip


def extents(name, batch, inputs, outputs):
    """Rows and columns of a tensor; ``^T`` is transposed."""
    sizes = {"weight": (inputs, outputs), "gradient": (inputs, outputs),
             "images": (batch, inputs), "loss": (1, 1)}  # fmt: skip
    rows, columns = sizes.get(name.rstrip("^T"), (batch, outputs))
    return (columns, rows) if name.endswith("^T") else (rows, columns)


def product(sizes):
    """Elements of a tensor."""
    return sizes[0] * sizes[1]


if __name__ == "__main__":
    main()
