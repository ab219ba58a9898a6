"""A Keras training that may be killed; the losses of its steps, as JSON lines of the first worker.

Usage: keras_run.py BACKEND STRATEGY OUT SAVES OPTIONS, the last a JSON mapping.
"""

import json
import os
import sys

backend, strategy, out, saves, options = sys.argv[1:6]
options = json.loads(options)
os.environ["KERAS_BACKEND"] = backend

import keras  # noqa: E402
import numpy as np  # noqa: E402

from paceline.loop.keras import LoopError, parallelize, resume  # noqa: E402

COUNT, BATCH, EPOCHS = 100, 16, 4


def make():
    """A small network, with dropout if asked for, and a metric beside its loss."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input((20,)), keras.layers.Dense(32, activation="tanh")]
    if options.get("drops"):
        layers.append(keras.layers.Dropout(0.5))
    model = keras.Sequential([*layers, keras.layers.Dense(options.get("classes", 4))])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(0.01), loss, metrics=["accuracy"])
    return model


class Losses(keras.callbacks.Callback):
    """Writes what Keras tells of each step, and kills this worker once where it is told to."""

    def __init__(self, path):
        super().__init__()
        self.rank, self.num_steps = int(os.environ.get("RANK", 0)), 0
        self.file = open(path if self.rank == 0 else os.devnull, "a", buffering=1)  # noqa: SIM115
        self.mark = path + ".killed"

    def on_epoch_end(self, epoch, logs=None):
        if epoch == options.get("stops_after"):
            self.model.stop_training = True

    def on_train_batch_end(self, batch, logs=None):
        self.file.write(json.dumps([float(logs["loss"]), float(logs["accuracy"])]) + "\n")
        self.num_steps += 1
        is_due = self.num_steps == options.get("ends_at") and self.rank == options.get("rank", 0)
        if is_due and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), options.get("signal", 9))


def main():
    rng = np.random.RandomState(3)
    x, y = rng.randn(COUNT, 20).astype("float32"), rng.randint(0, 4, COUNT)
    try:
        model = parallelize(make, strategy)
        resume(
            model, x, y, batch_size=options.get("batch", BATCH), epochs=EPOCHS, folder=saves,
            every_steps=3, callbacks=[Losses(out)], verbose=0,
        )  # fmt: skip
        if options.get("sum"):
            print("SUM", sum(float(np.abs(one).sum()) for one in model.get_weights()))
    except LoopError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
