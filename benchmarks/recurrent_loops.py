"""What a step of a recurrent layer's loop takes on a backend of Keras, for ``recurrent_loops.csv``.

    python benchmarks/recurrent_loops.py times PYTHON BACKEND > FILE   # jax or tensorflow
    python benchmarks/recurrent_loops.py fit FILE
    python benchmarks/recurrent_loops.py pages PYTHON

``times`` runs layers of several widths and batches beside the ceilings that they are told by, in
processor time on one thread; ``fit`` finds the ops, the passes over the weights and the passes over
the state at which the ceilings tell those times, by non-negative least squares of the relative
errors, and prints these errors. Products have the rate of their ceiling. ``pages`` runs layers on
PyTorch, each in a process of its own, and prints which share of the tensors of all steps, one a
step, lies in pages that the system handed out anew: a count, which other programs do not change.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

ENGINES = Path(__file__).parents[1] / "src" / "paceline" / "execution" / "engines"
GATES = {"SimpleRNN": 1, "LSTM": 4, "GRU": 3}
FEATURES, STEPS = 16, 64
#: (units, items): wide and narrow, small and large batches.
SIZES = ((48, 8), (48, 48), (96, 8), (96, 32), (128, 8), (128, 32), (160, 16))
#: Likewise of layers whose pages are counted, and steps before and while they are.
PAGED = ((48, 48), (48, 96), (96, 32), (96, 48), (128, 32), (160, 16), (160, 48))
NUM_BEFORE, NUM_COUNTED = 10, 40
#: Launches of a forward pass and of a gradient outside the loop, as a traced model has them.
LAUNCHES = (2, 9)
#: Bytes an op on the state touches for each of its elements: two read, one written.
STATE_BYTES, WEIGHT_BYTES = 3 * 4, 4
#: Share of the shortest samples that is left out, and time that is sampled.
LOWEST_FRAC, SAMPLED_S, SAMPLE_S = 0.05, 0.25, 0.012


def best_s(step, wait, scale=1.0) -> float:
    """Processor time of a step that others disturbed least."""
    for _ in range(4):
        step(), wait()
    samples, started = [], time.process_time()
    while time.process_time() - started < scale * SAMPLED_S or len(samples) < 5:
        begun, count = time.process_time(), 0
        while count == 0 or time.process_time() - begun < SAMPLE_S:
            step(), wait()
            count += 1
        samples.append((time.process_time() - begun) / count)
    return sorted(samples)[int(LOWEST_FRAC * len(samples))]


def tell(**facts: object) -> None:
    """A line of what was measured."""
    print(json.dumps(facts), flush=True)


def times(backend_name: str) -> None:
    """Measure ceilings and layers in this Python, which has the backend."""
    os.environ["KERAS_BACKEND"] = backend_name
    sys.path.insert(0, str(ENGINES))
    import keras_engine
    import keras_micro

    request = {"device": "cpu", "threads": 1, "num_devices": 1, "action": "micro"}
    keras, backend = keras_engine.open_backend(request)
    for name, run, wait, amount in kernels(keras, keras_micro, backend_name):
        tell(ceiling=name, amount=amount, seconds=best_s(run, wait, 2.0))
    for note, shape, step, wait in models(keras, keras_micro, backend):
        tell(ceiling=note, amount=shape[0], seconds=best_s(step, wait, 2.0))
    for cell in GATES:
        for units, items in SIZES:
            layer, told = getattr(keras.layers, cell)(units), {}
            model = keras.Sequential([keras.Input((None, FEATURES)), layer, keras.layers.Dense(1)])
            for mode in ("forward", "forward-backward"):
                step, wait = stepped(keras, backend, model, items, mode, request)
                told[mode] = best_s(step, wait)
            tell(cell=cell, units=units, items=items, **told)


def pages(python: str) -> None:
    """Print the share of each layer, and the mean of each cell."""
    for cell in ("LSTM", "GRU"):
        shares = []
        for units, items in PAGED:
            words = [python, __file__, "paged", cell, str(units), str(items)]
            told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            shares.append(json.loads(told.splitlines()[-1])["share"])
        print(cell, [round(share, 3) for share in shares], round(float(np.mean(shares)), 3))


def paged(cell: str, units: int, items: int) -> None:
    """Count the pages of a layer's steps in this Python."""
    os.environ["KERAS_BACKEND"] = "torch"
    sys.path.insert(0, str(ENGINES))
    import engine
    import keras_engine

    request = {"device": "cpu", "threads": 1, "num_devices": 1}
    keras, backend = keras_engine.open_backend(request)
    layer = getattr(keras.layers, cell)(units)
    model = keras.Sequential([keras.Input((None, FEATURES)), layer, keras.layers.Dense(1)])
    step, _ = stepped(keras, backend, model, items, "step", request)
    for _ in range(NUM_BEFORE):
        step()
    gc.disable()
    before = engine._handed_out_bytes()
    for _ in range(NUM_COUNTED):
        step()
    taken = (engine._handed_out_bytes() - before) / NUM_COUNTED
    tell(share=taken / (STEPS**2 * items * units * GATES[cell] * WEIGHT_BYTES))


def kernels(keras, micro, backend_name):
    """Products and what caches hold: name, run, wait and FLOP or bytes."""
    image, side = micro._random(56, 56, 256), 1024
    square, cached = micro._random(side, side), 12 * image.size
    compiled = {"jax": micro._Jax, "tensorflow": micro._TensorFlow}[backend_name]()
    for name, run, amount in (
        ("product", compiled.run(keras.ops.matmul, square, square), 2 * side**3),
        ("cached", compiled.run(keras.ops.maximum, image, image + 1), cached),
    ):
        yield name, run, run.wait, amount


def models(keras, micro, backend):
    """Models that have next to nothing to compute."""
    for _, note, shape, step, wait in micro.models(keras, backend):
        yield note, shape, step, wait


def stepped(keras, backend, model, items, mode, request):
    """Step and wait of a model as the engine runs it."""
    from keras_jobs import Job

    x = np.random.default_rng(7).random((items, STEPS, FEATURES), dtype=np.float32)
    loss, update = keras.losses.MeanSquaredError(reduction=None), keras.optimizers.Adam(0.0)
    job = Job(model, "features", x, np.zeros((items, 1), dtype=np.float32), loss, update)
    asked = dict(request, mode=mode, compiler=backend.compilers[0], batch=items)
    return backend.step(keras, job, asked)


def fit(rows: list[dict]) -> None:
    """Print each cell's ops, passes over weights and over state, both ways, with its errors."""
    ceilings = {row["ceiling"]: row for row in rows if "ceiling" in row}
    rates = {name: row["amount"] / row["seconds"] for name, row in ceilings.items()}
    call_s, launch_s, loop_s = hosts(ceilings)
    print({name: f"{rate:.3g}" for name, rate in rates.items()}, call_s, launch_s, loop_s)
    for cell, gates in GATES.items():
        layers = [row for row in rows if row.get("cell") == cell]
        for phase, launches in enumerate(LAUNCHES):
            known, asked, seen = [], [], []
            for row in layers:
                units, items = row["units"], row["items"]
                flop = (1 + phase) * STEPS * 2 * items * gates * units * (units + FEATURES)
                fixed_s = launches * launch_s + (0 if phase else call_s)
                state = STEPS * items * units / rates["cached"]
                weights = STEPS * WEIGHT_BYTES * gates * units**2 / rates["cached"]
                known.append(fixed_s + flop / rates["product"])
                asked.append([STEPS * loop_s, weights, STATE_BYTES * state])
                seen.append(row["forward-backward"] - row["forward"] if phase else row["forward"])
            amounts = least_squares(np.array(asked), np.array(seen), np.array(known))
            told = np.array(asked) @ amounts + known
            errors = " ".join(f"{error:+.0%}" for error in told / seen - 1)
            print(cell, ("forward", "backward")[phase], amounts.round(2).tolist(), errors)


def hosts(ceilings: dict[str, dict]) -> tuple[float, float, float]:
    """Seconds of a call, of a launch, and of a step of a loop with nothing to compute."""
    layers, call, loop = (ceilings[name] for name in ("small layers", "call", "loop"))
    call_s = min(call["seconds"], layers["seconds"] / 2)
    launch_s = (layers["seconds"] - call_s) / layers["amount"]
    return call_s, launch_s, (loop["seconds"] - call_s) / loop["amount"]


def least_squares(asked, seen, known):
    """Amounts, none below zero, that bring the relative errors nearest to zero.

    >>> least_squares(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 1.5]), np.zeros(2))
    array([1.68, 0.  ])
    """
    best, least = np.zeros(asked.shape[1]), np.inf
    for chosen in product((False, True), repeat=asked.shape[1]):
        columns = (asked * np.array(chosen)) / seen[:, None]
        amounts = np.linalg.lstsq(columns, (seen - known) / seen, rcond=None)[0]
        error = float(np.sum((columns @ amounts - (seen - known) / seen) ** 2))
        if amounts.min() >= 0 and error < least:
            best, least = amounts, error
    return best


if __name__ == "__main__":
    if sys.argv[1] == "fit":
        fit([json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()])
    elif sys.argv[1] == "pages":
        pages(sys.argv[2])
    elif sys.argv[1] == "paged":
        paged(sys.argv[2], *map(int, sys.argv[3:]))
    elif sys.argv[1] == "here":
        times(sys.argv[2])
    else:
        subprocess.run([sys.argv[2], __file__, "here", sys.argv[3]], check=True)
