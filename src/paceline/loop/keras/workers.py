"""Training on several workers of TensorFlow: its own loop around the step of Keras.

Keras 3 has no `fit` under `MultiWorkerMirroredStrategy` (keras-team/keras#20585); its step and its
optimizer run under it, and the gradients are those of the mean over the samples of all workers.
"""

import contextlib

import keras

from paceline.loop.errors import LoopError


def scope_of(model):
    """Where variables of a model are made."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    return model.distribute_strategy.scope()


def fit(run, callbacks, first, last, options):
    """Epochs from one to another; each worker reads its share of each batch.

    Raises:
        LoopError: An option that only `fit` has.
    """
    import tensorflow as tf

    model, batches = run.model, run.batches
    unknown = sorted(set(options) - {"verbose"})
    if unknown:
        raise LoopError(
            "`%s` is not known on several workers" % unknown[0],
            "leave it out, or train with MirroredStrategy on one machine",
        )
    listed = keras.callbacks.CallbackList(
        callbacks, add_history=True, model=model, epochs=last, steps=len(batches),
        batch_size=batches.batch_size, verbose=0,
    )  # fmt: skip
    step, logs = _step(model), {}
    model.stop_training = False
    listed.on_train_begin()
    for epoch in range(first, last):
        model.reset_metrics()
        listed.on_epoch_begin(epoch)
        for index in range(len(batches)):
            listed.on_train_batch_begin(index)
            logs = step(keras.tree.map_structure(tf.constant, batches[index]))
            listed.on_train_batch_end(index, logs)
            if model.stop_training:
                break
        listed.on_epoch_end(epoch, logs)
        batches.start = 0
        if model.stop_training:
            break
    listed.on_train_end(logs)
    return model.history


def _step(model):
    """The step of Keras on all workers; what it tells is the mean over them."""
    import tensorflow as tf

    strategy = model.distribute_strategy

    @tf.function
    def step(batch):
        told = strategy.run(model.train_step, args=(batch,))
        return {name: strategy.reduce("MEAN", one, axis=None) for name, one in told.items()}

    return step


def agreement(model):
    """A function from the wishes of this worker, 0 or 1 each, to those that any worker has."""
    import tensorflow as tf

    strategy = model.distribute_strategy

    @tf.function
    def total(wishes):
        return strategy.reduce("SUM", strategy.run(tf.identity, args=(wishes,)), axis=None)

    return lambda wishes: [int(one > 0) for one in total(tf.constant(wishes)).numpy()]
