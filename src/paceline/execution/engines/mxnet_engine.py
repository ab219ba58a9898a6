"""Measure a Gluon model in MXNet: its own zoo, and the two small models defined here.

Standard library and mxnet (1.9.1 with NumPy 1.23.5) only.
"""

import time

from engine import (
    RequestError,
    about_cell,
    described,
    imported,
    main,
    sample_inputs,
    time_steps,
    unsupported,
)

#: Names of the zoo, as torchvision has them and as Gluon does. Gluon's ``v1b`` networks have their
#: stride in the 3×3 convolution, like torchvision's.
_GLUON_NAMES = {
    "alexnet": "alexnet",
    "vgg16": "vgg16",
    "resnet18": "resnet18_v1",
    "resnet34": "resnet34_v1",
    "resnet50": "resnet50_v1",
    "resnet101": "resnet101_v1",
    "squeezenet1_1": "squeezenet1.1",
    "densenet121": "densenet121",
    "mobilenet_v2": "mobilenetv2_1.0",
    "inception_v3": "inceptionv3",
}
COMPILERS = ("eager", "compiled")


def serve(request, progress):
    """Build, time, and describe one cell."""
    mxnet = imported("mxnet")
    if request["action"] == "hello":
        return describe(mxnet)
    places = ("cpu", "cuda") if mxnet.context.num_gpus() else ("cpu",)
    unsupported(request, precision=("fp32",), compiler=COMPILERS, num_devices=(1,), device=places)
    return measure(mxnet, request, progress)


def describe(mxnet):
    """What this Python can run on."""
    num_gpus = mxnet.context.num_gpus()
    names = ["GPU %d" % i for i in range(num_gpus)]
    return described("mxnet", mxnet.__version__, "cuda" if num_gpus else "cpu", names)


def measure(mxnet, request, progress):
    """Time one cell."""
    import numpy

    progress(stage="building")
    mxnet.random.seed(0)
    context = mxnet.gpu() if request["device"] == "cuda" else mxnet.cpu()
    model, kind, shape = make_model(mxnet, request)
    model.initialize(ctx=context)
    buffer, full = sample_inputs(kind, shape, request["batch"], request["seq"], 1000)
    dtype = numpy.int64 if kind == "text" else numpy.float32
    inputs = mxnet.nd.array(numpy.frombuffer(buffer, dtype=dtype).reshape(full), ctx=context)
    started = time.perf_counter()
    if request["compiler"] == "compiled":
        progress(stage="compiling")
        model.hybridize(static_alloc=True, static_shape=True)
    model(inputs).wait_to_read()
    compile_s = time.perf_counter() - started
    step = make_step(mxnet, model, inputs, request, context)
    answer = dict(describe(mxnet))
    answer.update(time_steps(step, mxnet.nd.waitall, request["timing"], progress))
    parameters = model.collect_params().values()
    answer["compile_s"] = compile_s if request["compiler"] == "compiled" else None
    answer["num_parameters"] = sum(
        int(numpy.prod(p.shape)) for p in parameters if p.grad_req != "null"
    )
    answer.update(about_cell(request, kind))
    return answer


def make_model(mxnet, request):
    """Model, what one item of it is, and the shape of an item."""
    name = request["entry"].partition(":")[2] or request["entry"]
    if name == "mnist-cnn":
        return mnist_cnn(mxnet), "image", (1, 28, 28)
    if name in ("lstm", "gru", "rnn"):
        return recurrent(mxnet, name), "text", None
    if name not in _GLUON_NAMES:
        known = ", ".join(sorted([*_GLUON_NAMES, "mnist-cnn", "lstm", "gru", "rnn"]))
        raise RequestError(
            "unsupported", "no Gluon definition of `%s`; there are %s" % (name, known)
        )
    size = 299 if name == "inception_v3" else 224
    zoo = mxnet.gluon.model_zoo.vision
    return zoo.get_model(_GLUON_NAMES[name]), "image", (3, size, size)


def mnist_cnn(mxnet):
    """The 28×28×1 CNN of the Keras examples."""
    nn = mxnet.gluon.nn
    model = nn.HybridSequential()
    model.add(
        nn.Conv2D(32, 3, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(64, 3, activation="relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Dense(10),
    )
    return model


def recurrent(mxnet, cell):
    """Embedding, one recurrent layer, one dense layer: text classification."""
    gluon = mxnet.gluon
    kinds = {"lstm": gluon.rnn.LSTM, "gru": gluon.rnn.GRU, "rnn": gluon.rnn.RNN}

    class Classifier(gluon.HybridBlock):
        def __init__(self):
            super(Classifier, self).__init__()
            with self.name_scope():
                self.embedding = gluon.nn.Embedding(20000, 128)
                self.recurrent = kinds[cell](128, layout="NTC", input_size=128)
                self.dense = gluon.nn.Dense(2)

        def hybrid_forward(self, F, tokens):
            states = self.recurrent(self.embedding(tokens))
            return self.dense(F.slice_axis(states, axis=1, begin=-1, end=None))

    return Classifier()


def make_step(mxnet, model, inputs, request, context):
    """The callable that is timed."""
    batch = request["batch"]
    targets = mxnet.nd.zeros((batch,), ctx=context)
    loss_of = mxnet.gluon.loss.SoftmaxCrossEntropyLoss()
    name = request.get("optimizer") or "sgd"
    settings = {"learning_rate": 0.0}
    if name == "sgd":
        settings["momentum"] = 0.9
    trainer = mxnet.gluon.Trainer(model.collect_params(), name, settings)

    def forward():
        model(inputs)

    def both():
        """Forward and backward."""
        with mxnet.autograd.record():
            loss = loss_of(model(inputs), targets)
        loss.backward()

    def step():
        both()
        trainer.step(batch)

    return {"forward": forward, "forward-backward": both, "step": step}[request["mode"]]


if __name__ == "__main__":
    main(serve)
