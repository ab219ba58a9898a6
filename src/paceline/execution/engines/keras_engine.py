"""Measure a Keras 3 model on TensorFlow, JAX or PyTorch, whichever KERAS_BACKEND names.

Standard library, keras and its backend only.
"""

import importlib
import os
import time

from engine import RequestError, about_cell, described, main, time_steps, unsupported
from keras_jobs import make_job


def serve(request, progress):
    """Build, time, and describe one cell."""
    keras, backend = open_backend(request)
    if request["action"] == "hello":
        return describe(backend)
    places = ("cpu", "cuda") if backend.devices() else ("cpu",)
    unsupported(
        request, precision=("fp32", "bf16", "fp16"), compiler=backend.compilers, device=places
    )
    if request["precision"] != "fp32":
        dtype = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}[request["precision"]]
        keras.mixed_precision.set_global_policy(dtype)
    return measure(keras, backend, request, progress)


def open_backend(request):
    """Keras, and the backend that the environment names, with as many threads as are asked."""
    name = os.environ.get("KERAS_BACKEND", "tensorflow")
    prepare = {"tensorflow": _prepare_tensorflow, "jax": _prepare_jax, "torch": _prepare_torch}
    if request.get("device") == "cpu":
        _hide_gpus()
    try:
        prepare[name](request)
        import keras
    except ImportError as error:
        raise RequestError("no-framework", "this Python lacks %s: %s" % (name, error)) from None
    kinds = {"tensorflow": _TensorFlowBackend, "jax": _JaxBackend, "torch": _TorchBackend}
    return keras, kinds[name]()


def describe(backend):
    """What this Python can run on."""
    import keras

    return described(
        backend.name, backend.version(), backend.platform(), backend.devices(),
        note="keras %s" % keras.__version__,
    )  # fmt: skip


def measure(keras, backend, request, progress):
    """Time one cell."""
    import numpy

    progress(stage="building")
    keras.utils.set_random_seed(0)
    job = make_job(keras, request)
    progress(stage="compiling")
    started = time.perf_counter()
    step, synchronize = backend.step(keras, job, request)
    step()
    synchronize()
    compile_s = time.perf_counter() - started
    answer = dict(describe(backend), **time_steps(step, synchronize, request["timing"], progress))
    answer["compile_s"] = None if request["compiler"] == "eager" else compile_s
    weights = job.model.trainable_weights
    answer["num_parameters"] = sum(int(numpy.prod(w.shape)) for w in weights)
    if job.optimizer is not None:
        answer["optimizer"] = type(job.optimizer).__name__.lower()
    answer.update(about_cell(request, job.kind))
    return answer


def _hide_gpus():
    """Keep the backend off the GPUs: each of them takes one without being asked."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["JAX_PLATFORMS"] = "cpu"


def _prepare_tensorflow(request):
    threads = request.get("threads")
    if threads:
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
        os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    import tensorflow

    if threads:
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    if request.get("num_devices", 1) > 1 and request.get("device") == "cpu":
        cpus = tensorflow.config.list_physical_devices("CPU")
        logical = [tensorflow.config.LogicalDeviceConfiguration()] * request["num_devices"]
        tensorflow.config.set_logical_device_configuration(cpus[0], logical)


def _prepare_jax(request):
    if request.get("threads") and request.get("device") == "cpu":
        _keep_to(request["threads"])
    import jax

    if request.get("num_devices", 1) > 1 and request.get("device") == "cpu":
        jax.config.update("jax_num_cpu_devices", request["num_devices"])


def _prepare_torch(request):
    import torch

    if request.get("threads"):
        torch.set_num_threads(request["threads"])


def _keep_to(count):
    """Leave this process so many processors: XLA sizes its threads by them, and by no setting."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


class _Backend(object):
    """What Keras computes with.

    Attributes:
        name: As records have it.
        library: As it is imported.
        compilers: What it can be asked for.
    """

    def version(self):
        """Exact release."""
        return importlib.import_module(self.library).__version__

    def platform(self):
        """What it runs on."""
        return "cuda" if self.devices() else "cpu"


class _TensorFlowBackend(_Backend):
    """Eager, as a graph, or through XLA; several devices by MirroredStrategy."""

    name = library = "tensorflow"
    compilers = ("compiled", "xla", "eager")

    def devices(self):
        """Names of the GPUs."""
        import tensorflow

        gpus = tensorflow.config.list_physical_devices("GPU")
        details = tensorflow.config.experimental.get_device_details
        return [details(gpu).get("device_name", gpu.name) for gpu in gpus]

    def step(self, keras, job, request):
        """The callable that is timed, and one that waits for it."""
        import tensorflow as tf

        if request["num_devices"] > 1:
            return self._mirrored(keras, job, request)
        run = self._function(keras, job, request)
        x, y = (keras.tree.map_structure(tf.constant, one) for one in (job.inputs, job.targets))
        return self._driven(lambda: run(x, y))

    def _mirrored(self, keras, job, request):
        import tensorflow as tf

        if request["compiler"] == "eager":
            raise RequestError("unsupported", "MirroredStrategy needs a graph")
        kind = "GPU" if request["device"] == "cuda" else "CPU"
        names = ["%s:%d" % (kind, i) for i in range(request["num_devices"])]
        strategy = tf.distribute.MirroredStrategy(names)
        with strategy.scope():
            run = self._function(keras, make_job(keras, request), dict(request, compiler="none"))
        count = request["batch"]
        shares = [slice(i * count, (i + 1) * count) for i in range(request["num_devices"])]

        def share(array):
            """An array with the share of each replica on it."""

            def value(context):
                return tf.constant(array[shares[context.replica_id_in_sync_group]])

            return strategy.experimental_distribute_values_from_function(value)

        x, y = (keras.tree.map_structure(share, one) for one in (job.inputs, job.targets))
        together = tf.function(lambda: strategy.run(run, args=(x, y)), autograph=False)
        return self._driven(lambda: strategy.experimental_local_results(together())[0])

    def _driven(self, call):
        held = [None]

        def step():
            held[0] = call()

        def synchronize():
            if held[0] is not None:
                held[0].numpy()

        return step, synchronize

    def _function(self, keras, job, request):
        import tensorflow as tf

        mode, model = request["mode"], job.model
        optimizer = make_optimizer(keras, request, job)
        if mode == "step":
            optimizer.build(model.trainable_variables)

        def forward(x, y):
            return tf.reduce_sum(tf.cast(model(x, training=False), tf.float32))

        def losses(y, outputs):
            """Of each item, by the job or by its classes."""
            if job.loss is not None:
                return job.loss(y, outputs)
            return tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs)

        def train(x, y):
            """One step, or the gradients alone; returns a scalar that waits for all of it."""
            with tf.GradientTape() as tape:
                outputs = tf.cast(model(x, training=True), tf.float32)
                loss = tf.reduce_mean(losses(y, outputs))
            gradients = tape.gradient(loss, model.trainable_variables)
            if mode == "step":
                optimizer.apply(gradients, model.trainable_variables)
                return loss
            # Every gradient has to reach the result, or the graph would prune its computation.
            return loss + tf.add_n(
                [0.0 * tf.reduce_sum(tf.convert_to_tensor(g)) for g in gradients]
            )

        function = forward if mode == "forward" else train
        if request["compiler"] in ("eager", "none"):
            return function
        return tf.function(function, jit_compile=request["compiler"] == "xla", autograph=False)


class _JaxBackend(_Backend):
    """Through XLA; several devices by sharding the batch."""

    name = library = "jax"
    compilers = ("xla",)

    def platform(self):
        """What it runs on."""
        import jax

        return {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())

    def devices(self):
        """Names of the accelerators."""
        import jax

        return [d.device_kind for d in jax.devices() if d.platform != "cpu"]

    def step(self, keras, job, request):
        """The callable that is timed, and one that waits for it."""
        import jax

        model, optimizer = job.model, make_optimizer(keras, request, job)
        optimizer.build(model.trainable_variables)
        state = tuple(
            [v.value for v in group]
            for group in (
                model.trainable_variables,
                model.non_trainable_variables,
                optimizer.variables,
            )
        )
        state, batch = self._placed(state, (job.inputs, job.targets), request["num_devices"])
        donated = 0 if request["mode"] == "step" else ()  # As `fit` of Keras does.
        run = jax.jit(self._function(job, optimizer, request["mode"]), donate_argnums=donated)
        held = [state, None]

        def step():
            held[0], held[1] = run(held[0], batch)

        def synchronize():
            jax.block_until_ready(held)

        return step, synchronize

    def _placed(self, state, batch, num_devices):
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        if num_devices > len(jax.devices()):
            raise RequestError("unsupported", "fewer than %d devices are visible" % num_devices)
        mesh = Mesh(jax.devices()[:num_devices], ("data",))
        whole = NamedSharding(mesh, PartitionSpec())
        split = NamedSharding(mesh, PartitionSpec("data"))
        return jax.device_put(state, whole), jax.device_put(batch, split)

    def _function(self, job, optimizer, mode):
        import jax
        import jax.numpy as jnp

        model = job.model

        def loss(trainable, other, x, y):
            """The mean loss, and what the pass changed beside weights."""
            outputs, other = model.stateless_call(trainable, other, x, training=True)
            outputs = outputs.astype(jnp.float32)
            if job.loss is not None:
                return job.loss(y, outputs).mean(), other
            chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), y[:, None], axis=1)
            return -chosen.mean(), other

        def forward(state, batch):
            logits, _ = model.stateless_call(state[0], state[1], batch[0], training=False)
            return state, logits

        graded = jax.value_and_grad(loss, has_aux=True)

        def both(state, batch):
            (value, _), gradients = graded(state[0], state[1], *batch)
            return state, (value, gradients)

        def step(state, batch):
            (value, other), gradients = graded(state[0], state[1], *batch)
            trainable, slots = optimizer.stateless_apply(state[2], gradients, state[0])
            return (trainable, other, slots), value

        return {"forward": forward, "forward-backward": both, "step": step}[mode]


class _TorchBackend(_Backend):
    """Eager, or through torch.compile."""

    name, library = "keras-torch", "torch"
    compilers = ("eager", "compiled")

    def devices(self):
        """Names of the GPUs."""
        import torch

        return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]

    def step(self, keras, job, request):
        """The callable that is timed, and one that waits for it."""
        import torch

        if request["num_devices"] > 1:
            raise RequestError("unsupported", "measure several devices with the torch stack")
        device, model = request["device"], job.model
        x, y = (
            keras.tree.map_structure(lambda array: torch.tensor(array, device=device), one)
            for one in (job.inputs, job.targets)
        )
        run = torch.compile(model) if request["compiler"] == "compiled" else model
        optimizer = make_optimizer(keras, request, job)
        optimizer.build(model.trainable_variables)

        def forward():
            with torch.no_grad():
                return run(x, training=False)

        def both():
            model.zero_grad()
            outputs = run(x, training=True).float()
            if job.loss is None:
                torch.nn.functional.cross_entropy(outputs, y.long()).backward()
            else:
                job.loss(y, outputs).mean().backward()

        def step():
            both()
            gradients = [v.value.grad for v in model.trainable_variables]
            with torch.no_grad():
                optimizer.apply(gradients, model.trainable_variables)

        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        return {"forward": forward, "forward-backward": both, "step": step}[request["mode"]], wait


def make_optimizer(keras, request, job):
    """That of a compiled model, else of the request, at the learning rate that changes nothing."""
    if job.optimizer is not None:
        return job.optimizer
    kinds = {
        "sgd": lambda: keras.optimizers.SGD(0.0, momentum=0.9),
        "adam": lambda: keras.optimizers.Adam(0.0),
        "adamw": lambda: keras.optimizers.AdamW(0.0),
    }
    return kinds[request.get("optimizer") or "sgd"]()


if __name__ == "__main__":
    main(serve)
