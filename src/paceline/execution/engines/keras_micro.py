"""The machine's own ceilings through a backend of Keras: what its compiled kernels reach.

Standard library, keras and its backend only. Of PyTorch as a backend only what Keras adds is
measured: the kernels are those of ``torch_micro.py``.
"""

from functools import partial

import numpy
from engine import main, time_steps
from keras_engine import describe, open_backend
from keras_jobs import Job


def serve(request, progress):
    """Run every micro-benchmark of this backend."""
    keras, backend = open_backend(request)
    compiled = {"jax": _Jax, "tensorflow": _TensorFlow}.get(backend.name)
    timing = dict(request["timing"], processors=request["threads"])
    results = []
    for name, note, shape, step, wait in models(keras, backend):
        results.append(_timed(name, note, shape, time_steps(step, wait, timing, progress)))
    for name, note, shape, run in kernels(keras.ops, compiled()) if compiled else ():
        results.append(_timed(name, note, shape, time_steps(run, run.wait, timing, progress)))
    return dict(describe(backend), results=results)


def _timed(name, note, shape, timing):
    return dict(timing, name=name, dtype="fp32", shape=shape, note=note)


class _Run(object):
    """A compiled function with its inputs, to be called again and again."""

    def __init__(self, function, inputs, wait, donates=False):
        self.function, self.inputs, self.held, self.donates = function, inputs, None, donates
        self.waits = wait

    def __call__(self):
        self.held = self.function(*self.inputs)
        if self.donates:
            self.inputs = (self.held, *self.inputs[1:])

    def wait(self):
        """Return when everything has run."""
        self.waits(self.held)


class _Jax(object):
    """Functions through XLA."""

    #: Read and written by a scaled addition in place.
    streams = 3

    def run(self, function, *inputs):
        """``function`` compiled, with its inputs in memory."""
        import jax

        arrays = tuple(jax.numpy.asarray(one) for one in inputs)
        return _Run(jax.jit(function), arrays, jax.block_until_ready)

    def gradient(self, function, at, result):
        """Gradient of ``function`` at an input, for a gradient of its result."""
        import jax

        def backward(at, result):
            return jax.vjp(function, at)[1](result)[0]

        return self.run(backward, at, result)

    def in_place(self, function, changed, other):
        """``function`` with the memory of its first input for its result."""
        import jax

        arrays = jax.numpy.asarray(changed), jax.numpy.asarray(other)
        return _Run(jax.jit(function, donate_argnums=0), arrays, jax.block_until_ready, True)


class _TensorFlow(object):
    """Functions as graphs, which have run when the call returns."""

    #: Read and written by a scaled addition in place, of which each op is one by itself.
    streams = 5

    def run(self, function, *inputs):
        """``function`` as a graph, with its inputs in memory."""
        import tensorflow

        arrays = tuple(tensorflow.constant(one) for one in inputs)
        return _Run(tensorflow.function(function, autograph=False), arrays, lambda held: None)

    def gradient(self, function, at, result):
        """Gradient of ``function`` at an input, for a gradient of its result."""
        import tensorflow

        def backward(at, result):
            """Gradient of the function at a point, weighted by a result."""
            with tensorflow.GradientTape() as tape:
                tape.watch(at)
                value = function(at)
            return tape.gradient(value, at, output_gradients=result)

        return self.run(backward, at, result)

    def in_place(self, function, changed, other):
        """``function`` of a variable, assigned to it."""
        import tensorflow

        variable = tensorflow.Variable(changed)
        return self.run(lambda other: variable.assign_add(1e-9 * other), other)


def kernels(ops, backend):
    """Kinds of work that models are made of, in FP32 on a CPU, at sizes that models have.

    Yields:
        Name, note, shape numbers and what is timed.
    """
    for rows, inner, columns, note in (
        (1024, 1024, 1024, ""), (16, 4096, 4096, "few rows"), (1, 4096, 4096, "one row"),
    ):  # fmt: skip
        run = backend.run(ops.matmul, _random(rows, inner), _random(inner, columns))
        yield "MATMUL", note, [1, rows, inner, columns], run
    for kernel in _convolutions(ops, backend):
        yield kernel
    heads = _random(4, 128, 12, 64)
    run = backend.run(ops.nn.dot_product_attention, heads, heads, heads)
    yield "ATTENTION", "", [4, 12, 12, 128, 128, 64, 0], run
    image, pool = _random(16, 32, 32, 64), partial(ops.max_pool, pool_size=2, strides=2)
    windows = [16 * 16 * 16 * 64, 1, 1]
    yield "POOL", "", windows, backend.run(pool, image)
    yield "POOL_BACKWARD", "", windows, backend.gradient(pool, image, _random(16, 16, 16, 64))
    for kernel in _memory(ops, backend):
        yield kernel


def _convolutions(ops, backend):
    """Convolutions and their gradients, images channels last."""
    for note, items, side, channels, filters, window in (
        ("", 4, 28, 128, 128, 3), ("pointwise", 4, 14, 256, 1024, 1),
        ("few pixels", 1, 7, 512, 512, 3),
    ):  # fmt: skip
        shape = [items, channels, side, side, filters, window, window, side, side, 1]
        image, weight = _random(items, side, side, channels), _random(*_weight(shape))
        convolve = partial(ops.conv, strides=1, padding="same")
        yield "CONV", note, shape, backend.run(convolve, image, weight)
        if note:
            continue
        result = _random(items, side, side, filters)
        of_images = partial(_convolved, convolve, weight)
        yield "CONV_BACKWARD_INPUT", "", shape, backend.gradient(of_images, image, result)
        of_weights = partial(convolve, image)
        yield "CONV_BACKWARD_WEIGHT", "", shape, backend.gradient(of_weights, weight, result)
    image, weight = _random(4, 56, 56, 128), _random(3, 3, 128, 1)
    convolve = partial(ops.depthwise_conv, strides=1, padding="same")
    shape = [4, 128, 56, 56, 128, 3, 3, 56, 56, 128]
    yield "CONV", "depthwise", shape, backend.run(convolve, image, weight)


def _convolved(convolve, weight, image):
    return convolve(image, weight)


def _weight(shape):
    _, channels, _, _, filters, rows, columns = shape[:7]
    return rows, columns, channels, filters


def _memory(ops, backend):
    """Streams over memory, of what caches do not hold and of what they hold."""
    count = 1 << 24
    for note in ("", "in place"):  # A result of its own would be fresh memory.
        run = backend.in_place(lambda a, b: a + 1e-9 * b, _random(count), _random(count))
        yield "ELEMENTWISE", note, [count, 1, backend.streams], run
    run = backend.run(lambda value: ops.full((count,), value), numpy.float32(1.0))
    yield "ELEMENTWISE", "fresh", [count, 1, 1], run
    image = _random(56, 56, 256)
    yield "ELEMENTWISE", "cached", [image.size, 1, 3], backend.run(ops.maximum, image, image + 1)


def models(keras, backend):
    """Whole models that have next to nothing to compute, as the engine runs them."""
    layers, count = keras.layers, 16
    blocks = []
    for _ in range(count):
        blocks += [layers.Conv2D(16, 3, padding="same", use_bias=False)]
        blocks += [layers.BatchNormalization(), layers.ReLU()]
    small = keras.Sequential([keras.Input((4, 4, 16)), *blocks])
    num_ops = count * (2 if backend.name == "jax" else 3)  # XLA makes one op of norm and ReLU.
    yield _model(keras, backend, "small layers", [num_ops, 1, 2], small, (4, 4, 16), "forward")
    one = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    yield _model(keras, backend, "call", [1, 1, 2], one, (4,), "step")
    steps = 64
    cells = keras.Sequential([keras.Input((None, 4)), layers.LSTM(4)])
    yield _model(keras, backend, "loop", [steps, 1, 2], cells, (steps, 4), "forward-backward")


def _model(keras, backend, note, shape, model, item, mode):
    """Name, note, shape numbers, what is timed and what waits for it."""
    compiler = backend.compilers[0]
    request = {"num_devices": 1, "mode": mode, "device": "cpu", "compiler": compiler, "batch": 1}
    inputs = _random(1, *item)
    targets = numpy.zeros(model(inputs).shape, dtype=numpy.float32)
    loss = keras.losses.MeanSquaredError(reduction=None)
    optimizer = keras.optimizers.Adam(0.0)
    step, wait = backend.step(
        keras, Job(model, "features", inputs, targets, loss, optimizer), request
    )
    return "ELEMENTWISE", note, shape, step, wait


def _random(*shape):
    return numpy.random.default_rng(7).random(shape, dtype=numpy.float32)


if __name__ == "__main__":
    main(serve)
