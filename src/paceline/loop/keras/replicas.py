"""Where a Keras model is trained: JAX data parallel, TensorFlow's mirrors, or several workers.

The order is the point: Keras places variables where the model is made, so that devices are chosen
first. One that is made earlier trains on one device without a word.
"""

import contextlib
import json
import os
from collections import namedtuple

import keras

from paceline.loop.errors import LoopError
from paceline.loop.parallel.choice import planned
from paceline.loop.parallel.notation import KERAS_POLICIES, keras_refusals, parse, size

#: ``replicas`` of the model over all devices; this process is ``rank`` of ``workers``.
Place = namedtuple("Place", ["replicas", "rank", "workers"])


def parallelize(make_model, strategy=None):
    """Make a model where Keras will train it on all devices of a strategy.

    Args:
        make_model: Gives the compiled model.
        strategy: Such as ``dp4``; what `paceline run PLAN` says without, else all GPUs or TPUs
            that this process sees, or one CPU. Where ``TF_CONFIG`` names several workers, all of
            them.

    Raises:
        LoopError: Keras does not run the strategy, or there are not as many devices.
    """
    choice = planned()
    count = _chosen(strategy or choice.get("strategy"), choice.get("precision"))
    with _SCOPES[keras.backend.backend()](count):
        model = make_model()
    if not getattr(model, "compiled", False):
        raise LoopError(
            "`%s` was made without `compile`" % getattr(model, "name", type(model).__name__),
            "compile it where it is made: its optimizer must lie where its weights do",
        )
    return model


def place_of(model):
    """Where a model is trained, whoever has chosen it."""
    backend = keras.backend.backend()
    if backend == "jax":
        chosen = keras.distribution.distribution()
        return Place(1 if chosen is None else chosen.num_model_replicas, 0, 1)
    if backend != "tensorflow":
        return Place(1, 0, 1)
    import tensorflow as tf

    strategy = model.distribute_strategy
    spreads = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    rank, workers = worker() if spreads else (0, 1)
    return Place(strategy.num_replicas_in_sync, rank, workers)


def worker():
    """Number of this worker and how many there are, as ``TF_CONFIG`` has it."""
    text = os.environ.get("TF_CONFIG")
    try:
        found = json.loads(text) if text else {}
        workers = len(found.get("cluster", {}).get("worker", ())) or 1
        return int(found.get("task", {}).get("index", 0)), workers
    except (ValueError, AttributeError, TypeError):
        raise LoopError(
            "TF_CONFIG is `%s`" % text[:80], "TensorFlow's guide to several workers has its form"
        ) from None


def _chosen(text, precision):
    """How many replicas a strategy has, None where nobody said; sets the precision.

    Raises:
        LoopError: Keras does not run it.
    """
    read = parse(text or "dp1")
    reasons = keras_refusals(read, precision)
    if reasons:
        raise LoopError(
            "`%s` is not run here: %s" % (read.text, "; ".join(reasons)),
            "ask the plan for others with `--strategies dp`, or give a model of PyTorch",
        )
    policy = KERAS_POLICIES.get(precision)
    if policy is not None:
        keras.mixed_precision.set_global_policy(policy)
    return size(read, "dp") if text else None


def _on_jax(count):
    import jax

    if count is not None:
        with contextlib.suppress(RuntimeError):  # Devices that were looked at stay as they are.
            jax.config.update("jax_num_cpu_devices", count)
    devices = keras.distribution.list_devices()
    count = count or (1 if devices[0].startswith("cpu") else len(devices))
    _check(count, len(devices), "XLA_FLAGS=--xla_force_host_platform_device_count=%d" % count)
    if count > 1:
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=devices[:count], auto_shard_dataset=False)
        )
    return contextlib.nullcontext()


def _on_tensorflow(count):
    import tensorflow as tf

    _, workers = worker()
    gpus = tf.config.list_physical_devices("GPU")
    if workers > 1:
        _check(count or workers, workers, "a TF_CONFIG with so many workers")
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if strategy.num_replicas_in_sync != workers:
            raise LoopError(
                "%d workers have %d devices" % (workers, strategy.num_replicas_in_sync),
                "start one worker for each device (CUDA_VISIBLE_DEVICES)",
            )
        return strategy.scope()
    count = count or max(1, len(gpus))
    if not gpus and count > 1:
        with contextlib.suppress(RuntimeError):  # As above.
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0],
                [tf.config.LogicalDeviceConfiguration()] * count,
            )
    kind = "GPU" if gpus else "CPU"
    _check(count, len(tf.config.list_logical_devices(kind)), "another machine")
    if count == 1:
        return contextlib.nullcontext()
    return tf.distribute.MirroredStrategy(["%s:%d" % (kind, k) for k in range(count)]).scope()


def _on_torch(count):
    if count not in (None, 1):
        raise LoopError(
            "Keras on PyTorch trains on one device here",
            "KERAS_BACKEND=jax or tensorflow, or a model of PyTorch in `paceline.loop`",
        )
    return contextlib.nullcontext()


_SCOPES = {"jax": _on_jax, "tensorflow": _on_tensorflow, "torch": _on_torch}


def _check(wanted, found, remedy):
    if wanted > found:
        raise LoopError("%d devices are asked for, and %d are there" % (wanted, found), remedy)
