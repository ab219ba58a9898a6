"""What a request of the Keras engine measures: a model, one batch of inputs, targets and a loss.

Standard library, NumPy and keras only. A model is one of the zoo's, of ``keras.applications``
(``keras:NAME``, without weights), of a function of the user's own (``module:function``), or the
settings of a ``.keras`` file: of that, no weights are read and no code is run.
"""

import json
import zipfile

from engine import SEQUENCES, RequestError, sample_inputs, user_function

#: Side of pictures, and the vocabulary, where a model leaves them open.
_SIDE, _VOCABULARY = 224, 1000
_MOST_BYTES = 64000000


class Job(object):
    """A model with what one step of it needs.

    Attributes:
        model: Of Keras, built.
        kind: What one item is: ``image``, ``text``, ``features``.
        inputs: An array, or a list of them.
        targets: Of the loss; zeros.
        loss: Function of (targets, outputs); None for cross-entropy on logits.
        optimizer: That the model was compiled with, at a rate that changes nothing; or None.
    """

    def __init__(self, model, kind, inputs, targets, loss=None, optimizer=None):
        self.model, self.kind, self.inputs, self.targets = model, kind, inputs, targets
        self.loss, self.optimizer = loss, optimizer


def make_job(keras, request):
    """The job of a request, for all devices together."""
    made = _own_model(keras, request)
    return _zoo_job(request) if made is None else _own_job(keras, made, request)


def _zoo_job(request):
    import keras_models
    import numpy

    name = request["entry"].partition(":")[2] or request["entry"]
    if name not in keras_models.ZOO:
        text = "no Keras definition of `%s`; there are %s, keras:NAME, files and module:function"
        known = ", ".join(sorted(keras_models.ZOO))
        raise RequestError("unsupported", text % (name, known))
    builder, kind, shape = keras_models.ZOO[name]
    batch = request["batch"] * request["num_devices"]
    buffer, full = sample_inputs(kind, shape, batch, request["seq"], _VOCABULARY)
    dtype = numpy.int64 if kind in SEQUENCES else numpy.float32
    inputs = numpy.frombuffer(buffer, dtype=dtype).reshape(full)
    inputs = inputs.astype(numpy.int32) if kind in SEQUENCES else inputs
    return Job(builder(), kind, inputs, numpy.zeros((batch,), dtype=numpy.int32))


def _own_model(keras, request):
    """A model of an application, a file or a function; None for a name of the zoo."""
    entry = request["entry"]
    scheme, colon, rest = entry.partition(":")
    if entry.lower().endswith(".keras"):
        return _of_file(keras, rest if colon and scheme == "keras" else entry)
    if not colon or scheme in ("torchvision", "timm", "hf"):
        return None
    return _application(keras, rest, request) if scheme == "keras" else _of_function(entry, request)


def _application(keras, name, request):
    plain = name.lower().replace("_", "").replace("-", "")
    made = (one for one in vars(keras.applications).items() if callable(one[1]))
    build = {key.lower(): value for key, value in made}.get(plain)
    if build is None:
        raise RequestError("unknown-model", "keras.applications has no `%s`" % name)
    side = request.get("image_size")
    return build(weights=None, **({"input_shape": (side, side, 3)} if side else {}))


def _of_file(keras, path):
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("config.json").file_size > _MOST_BYTES:
                raise RequestError("bad-keras", "its settings are longer than 64 MB")
            settings = json.loads(archive.read("config.json").decode("utf-8"))
        model = keras.saving.deserialize_keras_object(settings, safe_mode=True)
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RequestError("bad-keras", "Keras cannot build it: %s" % lines[0]) from None
    return model


def _of_function(entry, request):
    found = user_function(entry, request)
    return found if hasattr(found, "trainable_variables") else found()


def _own_job(keras, model, request):
    if not isinstance(model, keras.Model):
        text = "`%s` returned %s, not a model of Keras"
        raise RequestError("no-model", text % (request["entry"], type(model).__name__))
    specs = getattr(model, "inputs", None) if model.built else None
    if not specs:
        text = "its inputs are not known before it is called: begin it with keras.Input(shape)"
        raise RequestError("no-inputs", text)
    batch = request["batch"] * request["num_devices"]
    inputs = [_array(model, spec, batch, request) for spec in specs]
    targets, loss = _supervised(keras, model, inputs)
    kind = _kind(specs)
    own = getattr(model, "optimizer", None)
    if own is not None:
        own = type(own).from_config(dict(own.get_config(), learning_rate=0.0))
    return Job(model, kind, inputs[0] if len(inputs) == 1 else inputs, targets, loss, own)


def _kind(specs):
    shape = specs[0].shape
    if len(shape) == 4:
        return "image"
    return "text" if None in shape[1:] else "features"


def _array(model, spec, batch, request):
    """Values for one input; what its shape leaves open is the length, or the side of pictures."""
    import numpy

    side = request.get("image_size") or _SIDE
    free = side if len(spec.shape) >= 4 else request["seq"]
    shape = [batch] + [free if extent is None else extent for extent in spec.shape[1:]]
    if "int" in str(spec.dtype):
        tables = [one.input_dim for one in model._flatten_layers() if hasattr(one, "input_dim")]
        most = min([_VOCABULARY, *tables])
        return numpy.random.RandomState(7).randint(0, most, shape).astype(numpy.int32)
    buffer, _ = sample_inputs("features", shape[1:], batch, None, _VOCABULARY)
    return numpy.frombuffer(buffer, dtype=numpy.float32).reshape(shape)


def _supervised(keras, model, inputs):
    """(targets, loss): those of ``compile``, else cross-entropy of logits at the last axis."""
    import numpy

    if len(model.outputs) != 1:
        text = "it has %d outputs; models of one are measured"
        raise RequestError("unsupported", text % len(model.outputs))
    shapes = [one.shape for one in inputs]
    shape = tuple(model.compute_output_shape(shapes[0] if len(shapes) == 1 else shapes))
    given = getattr(model, "loss", None)
    given = next(iter(given.values())) if isinstance(given, dict) else given
    given = given[0] if isinstance(given, (list, tuple)) else given
    if given is None:
        if len(shape) == 2:
            return numpy.zeros(shape[:1], dtype=numpy.int32), None
        given = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = keras.losses.get(given)
    name = str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))
    if name.startswith("sparse_"):
        return numpy.zeros(shape[:-1], dtype=numpy.int32), loss
    return numpy.zeros(shape, dtype=numpy.float32), loss
