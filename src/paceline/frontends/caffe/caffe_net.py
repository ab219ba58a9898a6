"""A net of Caffe from its text: inputs, layers of one phase, losses, and the solver's update.

Standard library and torch only.
"""

import os

import torch
import torch.nn.functional as F
from caffe_layers import LAYERS, Call, one
from caffe_text import bad, read_message
from rebuilt_program import FREE_BATCH, Program
from torch_tracing.structures import tensors_in

_DATA = ("Data", "ImageData", "HDF5Data", "MemoryData", "DummyData", "WindowData")
_SOLVERS = {
    "SGD": "sgd", "Nesterov": "sgd-momentum", "AdaGrad": "adagrad", "RMSProp": "rmsprop",
    "AdaDelta": "adadelta", "Adam": "adam",
}  # fmt: skip
_LOSSES = {
    "SoftmaxWithLoss": lambda x: F.cross_entropy(x.flatten(2) if x.dim() > 2 else x, _labels(x)),
    "EuclideanLoss": lambda x: F.mse_loss(x, torch.empty_like(x)) / 2,
    "SigmoidCrossEntropyLoss": lambda x: F.binary_cross_entropy_with_logits(x, torch.empty_like(x)),
    "HingeLoss": lambda x: F.relu(1 - x).mean(),
}  # fmt: skip
_OLD = {"SOFTMAX_LOSS": "SoftmaxWithLoss", "EUCLIDEAN_LOSS": "EuclideanLoss"}
_NAMES = {name.upper(): name for name in (*LAYERS, *_DATA, *_LOSSES, "Accuracy")}
_NAMES.update({"INNER_PRODUCT": "InnerProduct", "IMAGE_DATA": "ImageData", **_OLD})
_MOST_LAYERS = 20_000


def _labels(x):
    shape = (x.shape[0],) if x.dim() == 2 else (x.shape[0], x.flatten(2).shape[2])
    return torch.empty(shape, dtype=torch.int64, device=x.device)


def read_net(path):
    """(net, optimizer) of a file: of a solver, the net that it names, in the same folder."""
    message = read_message(path)
    named = one(message, "net") or one(message, "train_net")
    if "layer" in message or "layers" in message or not isinstance(named, str):
        return message, ""
    kind = str(one(message, "type", one(message, "solver_type", "SGD")))
    known = {name.upper(): name for name in _SOLVERS}
    if kind.upper() not in known:
        raise bad("its solver is `%s`; known are %s" % (kind, ", ".join(_SOLVERS)))
    optimizer = _SOLVERS[known[kind.upper()]]
    if optimizer == "sgd" and one(message, "momentum", 0):
        optimizer = "sgd-momentum"
    beside = os.path.join(os.path.dirname(path), os.path.basename(named))
    return read_message(beside), optimizer


class Net:
    """A net that is being translated.

    Attributes:
        program: What it is translated into.
        outputs: What the model gives: what its losses read, else what no layer reads.
        taken: Extents that the net leaves open, in words.
    """

    def __init__(self, message, *, is_trained=True, side=None):
        self.program, self.taken, self._side = Program(), "", side
        self.is_resized = False
        self._phase = "TRAIN" if is_trained else "TEST"
        self._blobs, self._losses, self._unread = {}, [], {}
        self._open_inputs(message)
        layers = [*message.get("layers", []), *message.get("layer", [])]
        if not layers or len(layers) > _MOST_LAYERS:
            raise bad("it has %d layers" % len(layers))
        for layer in layers:
            if not isinstance(layer, dict):
                raise bad("a layer of it is no message")
            if self._is_of_phase(layer):
                self._add(layer)
        read = [value for _, value, _ in self._losses]
        self.outputs = read or list(self._unread.values())
        if not self.program.inputs or not self.outputs:
            raise bad("it has no input, or no layer that reads it")

    @property
    def loss(self):
        """Function of outputs and batch; None where the net has no loss."""
        if not self._losses:
            return None
        terms = [(_LOSSES[kind], weight) for kind, _, weight in self._losses]

        def total(outputs, _batch):
            found = [f(x) * w for (f, w), x in zip(terms, tensors_in(outputs))]
            return sum(found[1:], found[0])

        return total

    def _open_inputs(self, message):
        names, flat = message.get("input", []), message.get("input_dim", [])
        shapes = [one_shape.get("dim", []) for one_shape in message.get("input_shape", [])
                  if isinstance(one_shape, dict)]  # fmt: skip
        shapes = shapes or [flat[n : n + 4] for n in range(0, len(flat), 4)]
        for name, shape in zip(names, shapes):
            self._open(name, shape)

    def _open(self, name, shape):
        if not shape or not all(isinstance(n, int) and 0 < n < 2**31 for n in shape):
            raise bad("its input `%s` has the shape %s" % (name, shape))
        item = list(shape[1:])
        if self._side and len(item) == 3 and item[1] == item[2]:
            item[1:], self.is_resized = [self._side] * 2, True
        self._blobs[name] = self._unread[name] = self.program.input((FREE_BATCH, *item))

    def _is_of_phase(self, layer):
        phases = [one(rule, "phase") for rule in layer.get("include", []) if isinstance(rule, dict)]
        less = [one(rule, "phase") for rule in layer.get("exclude", []) if isinstance(rule, dict)]
        phases = [phase for phase in phases if phase is not None]
        return (not phases or self._phase in phases) and self._phase not in less

    def _add(self, layer):
        kind = str(one(layer, "type", ""))
        kind = _NAMES.get(kind, kind)
        bottoms, tops = layer.get("bottom", []), layer.get("top", [])
        if kind == "Input":
            self._open_layer(layer, tops)
        elif kind in _DATA:
            self._open_data(layer, tops)
        elif kind in ("Accuracy", "Silence", "ArgMax"):
            return
        elif kind in _LOSSES:
            weight = one(layer, "loss_weight", 1.0)
            self._losses.append((kind, self._read(bottoms[:1], layer)[0], float(weight)))
        else:
            self._call(layer, kind, bottoms, tops)

    def _open_layer(self, layer, tops):
        shapes = (one(layer, "input_param") or {}).get("shape", [])
        shapes = shapes * len(tops) if len(shapes) == 1 else shapes
        for name, shape in zip(tops, shapes):
            self._open(name, shape.get("dim", []) if isinstance(shape, dict) else [])

    def _open_data(self, layer, tops):
        """Pictures as they are cropped; labels are made by the loss."""
        crop = one(one(layer, "transform_param") or {}, "crop_size")
        data = one(layer, "data_param") or one(layer, "image_data_param") or {}
        crop = crop or one(data, "crop_size") or one(data, "new_height") or self._side
        if not tops or not isinstance(crop, int):
            name = one(layer, "name")
            raise bad("its data `%s` do not say their size (`crop_size`)" % name)
        gray = one(one(layer, "transform_param") or {}, "force_gray")
        self._open(tops[0], [1, 1 if gray else 3, crop, crop])

    def _read(self, names, layer):
        missing = [name for name in names if name not in self._blobs]
        if missing or not names:
            told = (one(layer, "name"), missing[0] if missing else "nothing")
            raise bad("layer `%s` reads `%s`, which no layer before it gives" % told)
        for name in names:
            self._unread.pop(name, None)
        return [self._blobs[name] for name in names]

    def _call(self, layer, kind, bottoms, tops):
        settings = next(
            (values[-1] for key, values in layer.items()
             if key.endswith("_param") and key not in ("transform_param", "include")
             and isinstance(values[-1], dict)), {},
        )  # fmt: skip
        call = Call(self.program, {**layer, "type": [kind]}, settings)
        function = LAYERS.get(kind)
        if function is None:
            raise bad("layer `%s` is a `%s`, which is not read" % (call.name, kind))
        inputs = self._read(bottoms, layer)
        try:
            made = function(call, *inputs)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, OverflowError,
                KeyError, ZeroDivisionError, NotImplementedError) as error:  # fmt: skip
            shapes = ", ".join("×".join(map(str, x.shape[1:])) for x in inputs)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            told = (call.name, kind, shapes, reason)
            raise bad("layer `%s` (%s) cannot take items of %s: %s" % told) from error
        made = made if isinstance(made, tuple) else (made,)
        for name, value in zip(tops, made):
            self._blobs[name] = self._unread[name] = value
