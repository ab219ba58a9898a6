"""Marks of a Keras fit, by one callback that stands behind the script's own; and its job.

Standard library and Keras only; runs in the user's Python. Any backend: the callback notes that
batches have ended, and Keras's own loss, which is the mean of the epoch so far. Where callbacks
run in threads (JAX), they still do: the callback comes in after Keras has decided that.
"""

import _thread
import json
import os
import sys
import zipfile

import _paceline_observer as observer

rows = observer.load("rows")
clock = observer.clock
#: The model as Keras describes it, without weights, in the run folder.
MODEL_FILE = "captured.keras"
#: Set where the script is run for its job alone.
ONLY_VARIABLE = "PACELINE_CAPTURE_ONLY"


def install(log):
    """Put the callback behind those of every fit."""
    import keras

    kind = _callback(keras, log)
    whole = keras.callbacks.CallbackList
    plain = whole.__init__

    def __init__(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        one = observer.quietly(kind)
        if one is not None:
            self.callbacks.append(one)
            observer.quietly(one.set_params, self.params)
            observer.quietly(one.set_model, getattr(self, "_model", None))

    whole.__init__ = __init__
    log.at_off.append(lambda: setattr(whole, "__init__", plain))


def _callback(keras, log):
    """The class of the callback."""
    steps = _Steps(log, keras)

    class Watch(keras.callbacks.Callback):
        """Tells what is going on; raises nothing."""

        def on_train_begin(self, logs=None):
            if not log.is_off:
                observer.quietly(steps.fit_begins, self.model, self.params)

        def on_epoch_begin(self, epoch, logs=None):
            steps.last_batch = -1

        def on_train_batch_end(self, batch, logs=None):
            if not log.is_off:
                observer.quietly(steps.batch_ends, batch, logs)

    return Watch


class _Steps:
    """From ends of batches to steps of the optimizer."""

    def __init__(self, log, keras):
        self.log, self.keras = log, keras
        self.put = log.marks.append
        self.backend = keras.backend.backend()
        self.last_batch = -1
        self.last_ns = 0
        self.every = 1
        self.num_batches = 0
        self.has_job = False
        self._lock = _thread.allocate_lock()

    def fit_begins(self, model, params):
        """A fit begins, its model built and its data known."""
        if not self.log.is_started:
            self.log.start()
        self.last_ns, self.last_batch = clock(), -1
        optimizer = getattr(model, "optimizer", None)
        self.every = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        if not self.has_job:
            self.has_job = True
            self.log.event("device", **observer.quietly(self._device) or {"kind": "unknown"})
            self._keep(observer.quietly(self._job, model, optimizer, params), model)

    def batch_ends(self, batch, logs):
        """All batches up to one have ended; several, where a call of the backend has several."""
        with self._lock:
            num, now, began = batch - self.last_batch, clock(), self.last_ns
            if num <= 0:
                return
            self.last_batch, self.last_ns = batch, now
        loss = (logs or {}).get("loss")
        loss = float(loss) if self.backend != "torch" and loss is not None else None
        for number in range(1, num + 1):
            at = began + (now - began) * number // num
            if self.backend != "torch":
                self.put((rows.BACKWARD, at, loss if number == num else None))
            self.num_batches += 1
            if self.num_batches % self.every == 0:
                self.put((rows.UPDATE, at, None))
                self.put((rows.UPDATED, at, 0))

    def _device(self):
        name, kind = "", "cpu"
        if self.backend == "jax":
            first = sys.modules["jax"].devices()[0]
            kind, name = first.platform, first.device_kind
        elif self.backend == "tensorflow":
            config = sys.modules["tensorflow"].config
            found = config.list_physical_devices("GPU")
            if found:
                kind = "gpu"
                name = config.experimental.get_device_details(found[0]).get("device_name", "")
        elif sys.modules["torch"].cuda.is_available():
            kind, name = "cuda", sys.modules["torch"].cuda.get_device_name(0)
        return {
            "kind": "cuda" if kind == "gpu" else kind,
            "name": name if kind != "cpu" else "",
            "memory_bytes": None,
            "num_threads": len(os.sched_getaffinity(0)),
            "framework": "keras %s on %s" % (self.keras.__version__, self.backend),
        }

    def _replicas(self, model):
        """On how many devices Keras trains the model, each with its share of a batch."""
        if self.backend == "tensorflow":
            return model.distribute_strategy.num_replicas_in_sync
        chosen = self.keras.distribution.distribution() if self.backend == "jax" else None
        return 1 if chosen is None else chosen.num_model_replicas

    def _batch(self, params):
        """Samples of a step over all devices; None where nobody says."""
        frame = sys._getframe(1)
        while frame is not None and "epoch_iterator" not in frame.f_locals:
            frame = frame.f_back
        if frame is None:
            return (params or {}).get("batch_size")
        adapter = frame.f_locals["epoch_iterator"].data_adapter
        return adapter.batch_size or getattr(
            getattr(adapter, "py_dataset", None), "batch_size", None
        )

    def _job(self, model, optimizer, params):
        """What is trained, and how."""
        replicas, seq = observer.quietly(self._replicas, model) or 1, None
        policy = model.dtype_policy
        first = model.inputs[0] if getattr(model, "inputs", None) else None
        if first is not None and len(first.shape) == 2 and "int" in str(first.dtype):
            seq = first.shape[1]
        is_compiled = getattr(model, "jit_compile", False) or self.backend == "jax"
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        autocast = policy.compute_dtype if policy.compute_dtype != policy.variable_dtype else None
        return {
            "model": type(model).__name__ if type(model).__module__[:5] != "keras" else model.name,
            "num_parameters": model.count_params(),
            "num_models": 1,
            "batch": int(self._batch(params)) // replicas,
            "seq": seq,
            "optimizer": [
                {"name": type(inner).__name__, "momentum": getattr(inner, "momentum", 0) or 0}
            ],
            "precision": {"weights": policy.variable_dtype, "autocast": autocast},
            "compiler": "compiled" if is_compiled and not model.run_eagerly else "eager",
            "microbatches": self.every,
            "world_size": replicas,
            "wrappers": [],
            "loader": None,
            "described": MODEL_FILE,
        }

    def _keep(self, facts, model):
        """Write the job, as `torch_capture` does; and the model as Keras describes it."""
        error = None
        try:
            described = json.dumps(self.keras.saving.serialize_keras_object(model))
            with zipfile.ZipFile(os.path.join(self.log.folder, MODEL_FILE), "w") as file:
                file.writestr("config.json", described)
                version = {"keras_version": self.keras.__version__}
                file.writestr("metadata.json", json.dumps(version))
        except Exception as raised:  # noqa: BLE001  A layer's own code raises anything.
            error = "%s: %s" % (type(raised).__name__, raised)
        found = {"facts": facts, "report": None, "error": error}
        path = os.path.join(self.log.folder, "capture.json")
        observer.write_whole(path, found)
        if os.environ.get(ONLY_VARIABLE):
            self.log.close()
            os._exit(0)
