"""A Keras model that a user's function returns, as its settings: run in the Python that has Keras.

Standard library and the model's own Keras only.
"""

import json

from torch_entries.request_errors import RequestError


def describe(made, request):
    """The settings of a model, compiled or bare, as a ``.keras`` file has them."""
    model = getattr(made, "model", made)
    if not hasattr(model, "to_json"):
        raise RequestError("no-model", "it gives %s, not a model" % type(made).__name__)
    try:
        settings = json.loads(model.to_json())
    except NotImplementedError:
        said = "`%s` is a class of its own: only its code says what it does" % type(model).__name__
        raise RequestError("bad-keras", said) from None
    if getattr(model, "optimizer", None) is not None and not settings.get("compile_config"):
        settings["compile_config"] = _compiled(model)
    return {"settings": settings, "shape": _shape(model)}


def _compiled(model):
    optimizer = model.optimizer
    config = {key: _plain(value) for key, value in optimizer.get_config().items()}
    loss = getattr(model, "loss", None)
    loss = loss if isinstance(loss, (str, list, dict)) else getattr(loss, "__name__", None)
    settings = {"class_name": type(optimizer).__name__, "config": config}
    return {"optimizer": settings, "loss": loss}


def _plain(value):
    """A setting as JSON holds it; a schedule by its name."""
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return value if is_plain else str(type(value).__name__)


def _shape(model):
    """What a built model takes, where its settings do not say."""
    shape = getattr(model, "input_shape", None) if getattr(model, "built", False) else None
    is_one = isinstance(shape, (list, tuple)) and all(
        n is None or isinstance(n, int) for n in shape
    )
    return list(shape) if is_one else None
