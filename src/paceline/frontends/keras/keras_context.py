"""What the translation of one Keras layer is given: its settings, its weights, the program.

Standard library and torch only.
"""

import torch
from rebuilt_operators import batch_norm
from rebuilt_program import Training
from torch_entries.request_errors import RequestError


def refused(message):
    """A model that is not read, in one sentence."""
    return RequestError("bad-keras", message)


class Layer:
    """One layer of a model, however often it is called.

    Attributes:
        kind: Its class.
        config: Its settings.
        path: Of its module in the rebuilt model.
        is_trained: Whether its weights are.
        building: What all layers of a model share.
    """

    def __init__(self, building, kind, config, path, is_trained=True):
        self.building, self.kind, self.config, self.path = building, kind, config, path
        self.name = str(config.get("name") or kind)
        self.is_trained = is_trained and config.get("trainable", True) is not False
        self._weights = {}

    def get(self, key, default=None):
        """A setting."""
        return self.config.get(key, default)

    def whole(self, key, default=None):
        """A setting that is a whole number above zero."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**40:
            raise refused("layer `%s` (%s) has `%s` of %s" % (self.name, self.kind, key, value))
        return value

    def wholes(self, key, count, default=1):
        """A setting of ``count`` whole numbers above zero; one number stands for all."""
        value = self.config.get(key, default)
        value = [value] * count if isinstance(value, int) else value
        good = isinstance(value, (list, tuple)) and len(value) == count
        if not good or not all(isinstance(n, int) and 0 < n < 2**31 for n in value):
            raise refused("layer `%s` (%s) has `%s` of %s" % (self.name, self.kind, key, value))
        return tuple(value)

    def weight(self, name, shape):
        """A weight that is trained, made at the first call."""
        return self._made(name, shape, self.is_trained)

    def constant(self, name, shape):
        """A weight that no gradient reaches (a running mean)."""
        return self._made(name, shape, None)

    def _made(self, name, shape, is_trained):
        shape = tuple(int(n) for n in shape)
        if name not in self._weights:
            program = self.building.program
            if is_trained is None:
                self._weights[name] = program.buffer(self.path, name, shape)
            else:
                self._weights[name] = program.parameter(self.path, name, shape, is_trained)
        if tuple(self._weights[name].shape) != shape:
            raise refused("layer `%s` is called on items of two widths" % self.name)
        return self._weights[name]

    def run(self, function, *inputs, **attributes):
        """One operator of this layer."""
        return self.building.program.run(function, *inputs, path=self.path, **attributes)

    def inner(self, serialized, name):
        """A layer within this one (of a wrapper)."""
        kind, config = self.building.checked(serialized)
        config = {**config, "name": name}
        return self.once(
            name,
            lambda: Layer(self.building, kind, config, self.path + "." + name, self.is_trained),
        )

    def once(self, name, make):
        """What ``make`` gives at the first call."""
        if name not in self._weights:
            self._weights[name] = make()
        return self._weights[name]


def normed_batch(layer, x, axis=-1):
    """Batch normalisation; a frozen one uses its running numbers, as Keras does."""
    width = x.shape[axis]
    scale = layer.weight("gamma", (width,)) if layer.get("scale", True) else None
    offset = layer.weight("beta", (width,)) if layer.get("center", True) else None
    running = (layer.constant("moving_mean", (width,)), layer.constant("moving_variance", (width,)))
    training = Training if layer.is_trained else False
    axis = axis % len(x.shape)
    return layer.run(batch_norm, x, *running, scale, offset, training=training, dim=axis)


def activated(layer, x, given):
    """An activation by its name or its settings; none where none is given."""
    if isinstance(given, dict):
        return _of_settings(layer, x, given)
    if given in (None, "linear"):
        return x
    function = ACTIVATIONS.get(given)
    if function is None:
        raise refused("layer `%s` has the activation `%s`, which is unknown" % (layer.name, given))
    return layer.run(function, x)


def _of_settings(layer, x, given):
    if given.get("class_name") == "function":
        name = given.get("config")
        if given.get("module") in ("builtins", "keras.activations", None) and name in ACTIVATIONS:
            return activated(layer, x, name)
        said = "layer `%s` has an activation of code of its own: `%s`" % (layer.name, name)
        raise refused(said)
    inner = layer.inner(given, "activation")
    return layer.building.called(inner, [x], {})


def softmax(x):
    """Over the last dim."""
    return torch.softmax(x, dim=-1)


_F = torch.nn.functional
ACTIVATIONS = {
    "relu": _F.relu, "relu6": _F.relu6, "leaky_relu": _F.leaky_relu, "elu": _F.elu, "selu": _F.selu,
    "celu": _F.celu, "gelu": _F.gelu, "softplus": _F.softplus, "softsign": _F.softsign,
    "silu": _F.silu, "swish": _F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "hard_sigmoid": _F.hardsigmoid, "hard_silu": _F.hardswish, "hard_swish": _F.hardswish,
    "exponential": torch.exp, "mish": _F.mish, "hard_tanh": _F.hardtanh, "softmax": softmax,
    "log_softmax": lambda x: torch.log_softmax(x, dim=-1), "log_sigmoid": _F.logsigmoid,
    "tanh_shrink": _F.tanhshrink, "hard_shrink": _F.hardshrink, "soft_shrink": _F.softshrink,
    "glu": lambda x: _F.glu(x, dim=-1), "squareplus": lambda x: (x + torch.sqrt(x * x + 4)) / 2,
}  # fmt: skip
