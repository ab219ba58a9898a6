"""Batches and results as people write them: nested sequences, mappings, dataclasses, plain objects.

Standard library and torch only.
"""

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Mapping, MutableMapping

import torch


def mapped(function, value):
    """The same structure with ``function`` of every tensor in the tensor's place."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict) and type(value) is dict:
        return {key: mapped(function, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [mapped(function, one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping):
        return _mapped_mapping(function, value)
    return _mapped_object(function, value) if _attributes(value) else value


def _mapped_mapping(function, value):
    """A copy of a mapping of another library, such as a tokenizer's encoding."""
    twin = copy.copy(value)
    for key, one in list(value.items()):
        twin[key] = mapped(function, one)
    return twin


def _mapped_object(function, value):
    twin = copy.copy(value)
    for name, one in _attributes(value).items():
        # Frozen dataclasses refuse the usual way.
        object.__setattr__(twin, name, mapped(function, one))
    return twin


def tensors_in(value):
    """Every tensor of a nested structure."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        value = list(_attributes(value).values())
    return [tensor for one in value for tensor in tensors_in(one)]


def _attributes(value):
    """What a dataclass, or an object that holds tensors itself, consists of."""
    if isinstance(value, (type, torch.nn.Module)):
        return {}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    held = getattr(value, "__dict__", {})
    return held if any(isinstance(one, torch.Tensor) for one in held.values()) else {}


def fitting(forward, batch):
    """(positional, named) arguments of a batch: what only its loss reads is no argument.

    A mapping is named arguments where ``forward`` knows their names, else one argument.
    """
    parameters = _parameters(forward)
    kinds = [one.kind for one in parameters]
    if type(batch) in (list, tuple):
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return tuple(batch), {}
        return tuple(batch[: len([kind for kind in kinds if kind in _POSITIONAL])]), {}
    whole, batch = batch, batch._asdict() if hasattr(batch, "_asdict") else batch
    if not isinstance(batch, Mapping):
        return (batch,), {}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return (), dict(batch)
    known = {one.name for one in parameters} & set(batch)
    return ((), {name: batch[name] for name in batch if name in known}) if known else ((whole,), {})


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function):
    """Parameters that a call can give; of what has no signature, whatever is given."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return list(inspect.signature(lambda *given, **named: None).parameters.values())


def completed(step, model, inputs):
    """Run a training step, and its backward pass where it only returns its loss.

    Returns whether there was a backward pass.
    """
    with _backward_noticed() as calls:
        returned = step(model, inputs)
        loss = None if returned is None else total_loss(returned)
        if not calls and isinstance(loss, torch.Tensor) and loss.requires_grad:
            loss.backward()
    return bool(calls)


@contextlib.contextmanager
def _backward_noticed():
    """Inside, every backward pass leaves an entry in the list that is yielded."""
    calls, plain = [], torch.autograd.backward

    def noticed(*given, **named):
        calls.append(True)
        return plain(*given, **named)

    torch.autograd.backward = noticed
    try:
        yield calls
    finally:
        torch.autograd.backward = plain


def total_loss(loss):
    """The number to differentiate of what a loss function returned.

    That is its ``loss`` where it names one, the first of a sequence, the sum of a mapping's.
    """
    if isinstance(loss, torch.Tensor):
        return loss
    named = loss.get("loss") if isinstance(loss, Mapping) else getattr(loss, "loss", None)
    if isinstance(named, torch.Tensor):
        return named
    if isinstance(loss, (list, tuple)):
        return total_loss(loss[0]) if loss else loss
    return sum(one for one in tensors_in(loss) if one.requires_grad)
