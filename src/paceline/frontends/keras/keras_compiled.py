"""The optimizer and the loss that a Keras model was compiled with.

Standard library and torch only. Losses after keras.io/api/losses, read 2026-11-23.
"""

import torch
import torch.nn.functional as F
from keras_context import refused
from torch_tracing.structures import tensors_in

#: Optimizers of Keras, by the names of ``optimizers.csv``.
_OPTIMIZERS = {
    "sgd": "sgd", "adam": "adam", "adamw": "adamw", "rmsprop": "rmsprop", "adagrad": "adagrad",
    "adadelta": "adadelta", "adamax": "adamax", "nadam": "nadam", "lion": "lion", "lamb": "lamb",
    "adafactor": "adafactor",
}  # fmt: skip


def optimizer_of(compiled):
    """Its name; empty where the model was not compiled."""
    given = compiled.get("optimizer") if isinstance(compiled, dict) else None
    if not given:
        return ""
    name = given.get("class_name") if isinstance(given, dict) else given
    config = given.get("config") if isinstance(given, dict) else {}
    config = config if isinstance(config, dict) else {}
    if name == "LossScaleOptimizer":
        return optimizer_of({"optimizer": config.get("inner_optimizer")})
    found = _OPTIMIZERS.get(str(name).rpartition(">")[2].lower())
    if found is None:
        known = ", ".join(sorted(_OPTIMIZERS))
        raise refused("it is compiled with the optimizer `%s`; known are %s" % (name, known))
    return "sgd-momentum" if found == "sgd" and config.get("momentum") else found


def loss_of(compiled):
    """(function of outputs and batch, what was taken); (None, "") where nothing is compiled."""
    given = compiled.get("loss") if isinstance(compiled, dict) else None
    if not given:
        return None, ""
    if isinstance(given, dict) and "class_name" not in given:
        given = list(given.values())
    losses = given if isinstance(given, list) else [given]
    found = [_loss(one) for one in losses]
    unknown = [name for name, function in found if function is None]
    if unknown:
        return None, "the usual loss in place of `%s`" % unknown[0]

    def total(outputs, _batch):
        """The sum of a loss of each output."""
        tensors = tensors_in(outputs)
        functions = [function for _, function in found]
        functions = functions * len(tensors) if len(functions) == 1 else functions
        terms = [function(one) for function, one in zip(functions, tensors)]
        return sum(terms[1:], terms[0])

    return total, ""


def _loss(given):
    """(name, function of one output); the function is None where it is code of a user's own."""
    config = given.get("config") if isinstance(given, dict) else {}
    name = given.get("class_name") if isinstance(given, dict) else given
    if name == "function" and isinstance(config, str):
        name, config = config, {}
    config = config if isinstance(config, dict) else {}
    key = _ALIASES.get(str(name), _snake(str(name)))
    function = _LOSSES.get(key)
    is_logits = bool(config.get("from_logits"))
    return name, function and (lambda output: function(output, is_logits))


def _snake(name):
    """``SparseCategoricalCrossentropy`` as ``sparse_categorical_crossentropy``.

    >>> _snake("MeanSquaredError"), _snake("mse")
    ('mean_squared_error', 'mse')
    """
    parts = ["_" + c.lower() if c.isupper() else c for c in name]
    return "".join(parts).lstrip("_")


def _like(output):
    return torch.empty_like(output, requires_grad=False)


def _logs(output, is_logits):
    return torch.log_softmax(output, -1) if is_logits else torch.log(output.clamp(1e-7, 1 - 1e-7))


def _sparse(output, is_logits):
    logs = _logs(output, is_logits).reshape(-1, output.shape[-1])
    labels = torch.empty(logs.shape[:1], dtype=torch.int64, device=output.device)
    return F.nll_loss(logs, labels)


def _categorical(output, is_logits):
    return -(_like(output) * _logs(output, is_logits)).sum(-1).mean()


def _binary(output, is_logits):
    function = F.binary_cross_entropy_with_logits if is_logits else F.binary_cross_entropy
    return function(output, _like(output))


def _plain(function):
    return lambda output, _is_logits: function(output, _like(output))


_LOSSES = {
    "sparse_categorical_crossentropy": _sparse, "categorical_crossentropy": _categorical,
    "categorical_focal_crossentropy": _categorical, "binary_crossentropy": _binary,
    "binary_focal_crossentropy": _binary,
    "mean_squared_error": _plain(F.mse_loss), "mean_absolute_error": _plain(F.l1_loss),
    "mean_squared_logarithmic_error": _plain(
        lambda a, b: F.mse_loss(torch.log1p(a), torch.log1p(b))
    ),
    "mean_absolute_percentage_error": _plain(lambda a, b: ((a - b) / b).abs().mean()),
    "huber": _plain(F.huber_loss), "log_cosh": _plain(lambda a, b: torch.cosh(a - b).log().mean()),
    "hinge": _plain(lambda a, b: F.relu(1 - a * b).mean()),
    "squared_hinge": _plain(lambda a, b: F.relu(1 - a * b).square().mean()),
    "categorical_hinge": _plain(lambda a, b: F.relu(1 - (a * b).sum(-1)).mean()),
    "kl_divergence": _plain(lambda a, b: (b * torch.log(b / a)).sum(-1).mean()),
    "poisson": _plain(lambda a, b: (a - b * torch.log(a)).mean()),
    "cosine_similarity": _plain(lambda a, b: -F.cosine_similarity(a, b, dim=-1).mean()),
    "dice": _plain(lambda a, b: 1 - 2 * (a * b).sum() / (a + b).sum()),
}  # fmt: skip
_ALIASES = {
    "mse": "mean_squared_error", "MSE": "mean_squared_error", "mae": "mean_absolute_error",
    "MAE": "mean_absolute_error", "msle": "mean_squared_logarithmic_error",
    "mape": "mean_absolute_percentage_error", "MAPE": "mean_absolute_percentage_error",
    "logcosh": "log_cosh", "bce": "binary_crossentropy", "BCE": "binary_crossentropy",
    "kld": "kl_divergence", "KLD": "kl_divergence", "KLDivergence": "kl_divergence",
}  # fmt: skip
