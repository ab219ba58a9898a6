"""Models on meta tensors: built there, or copied there when they are built already.

Standard library and torch only.
"""

import contextlib
import copy
import functools
import types

import torch
from torch.overrides import TorchFunctionMode
from torch_tracing.recorder import optimizer_name


def as_workload(made):
    """A tuple or a dictionary that holds a model, as a workload."""
    if isinstance(made, dict) and "model" in made:
        return types.SimpleNamespace(**made)
    if isinstance(made, (list, tuple)):
        models = [one for one in made if isinstance(one, torch.nn.Module)]
        optimizers = [one for one in made if isinstance(one, torch.optim.Optimizer)]
        names = [optimizer_name(one) for one in optimizers]
        if models:
            found = types.SimpleNamespace(model=models[0], optimizer=names[0] if names else None)
            examples = [one for one in made if _is_batch(one)]
            if examples:
                found.inputs = functools.partial(_batch_like, examples[0])
            return found
    return made


def _is_batch(value):
    """Whether a value is an example batch: a tensor, or a tuple or dictionary of tensors."""
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, torch.Tensor):
        return value.ndim > 0
    is_group = isinstance(value, (dict, list, tuple)) and len(value) > 0
    return is_group and all(isinstance(one, torch.Tensor) and one.ndim > 0 for one in parts)


def _batch_like(example, batch):
    """An example batch with so many items; tensors as long as the first have as many items.

    An example that holds the edges of a graph is one item, and a batch of it so many graphs beside
    each other, as PyTorch Geometric's are.
    """
    if isinstance(example, torch.Tensor):
        return _resized(example, {example.shape[0]: batch})
    names, parts = zip(*example.items()) if isinstance(example, dict) else (None, example)
    num_items, num_edges = parts[0].shape[0], _num_edges(parts)
    sizes = {num_items: batch}
    if num_edges:
        sizes = {size: size * batch for size in (num_items, num_edges)}
    resized = tuple(_resized(one, sizes) for one in parts)
    return dict(zip(names, resized)) if names else resized


def _num_edges(parts):
    """Edges of a graph between the rows of the first tensor; 0 where there is none.

    They are two rows of numbers, or two vectors of them, of a length of their own.
    """
    nodes, whole = parts[0], [one for one in parts[1:] if not one.is_floating_point()]
    if nodes.ndim != 2 or not nodes.is_floating_point():
        return 0
    pairs = [one.shape[1] for one in whole if one.ndim == 2 and one.shape[0] == 2]
    vectors = [one.shape[0] for one in whole if one.ndim == 1 and one.shape[0] != nodes.shape[0]]
    found = pairs or [size for size in vectors if vectors.count(size) > 1]
    return found[0] if found and nodes.shape[0] > 2 else 0


def _resized(tensor, sizes):
    """Zeros with another first size; of two rows of edges, with another second one."""
    shape = list(tensor.shape)
    side = int(shape[0] not in sizes and len(shape) == 2 and shape[0] == 2)
    shape[side] = sizes.get(shape[side], shape[side])
    return torch.zeros(shape, dtype=tensor.dtype)


def build(function):
    """Call ``function`` on meta; else with each parameter moved to meta as it is registered.

    The second way serves models that read small tensors back while they are built.
    """
    try:
        with torch.device("meta"):
            made = as_workload(function())
    except Exception:  # noqa: BLE001  Code of a model's own raises anything where it reads meta.
        try:
            with _parameters_on_meta():
                made = as_workload(function())
        except Exception as second:  # The first is about meta, of which the user knows nothing.
            raise second from None
    model = made if isinstance(made, torch.nn.Module) else getattr(made, "model", None)
    is_module = isinstance(model, torch.nn.Module)
    if is_module and not all(t.is_meta for t in _tensors_of(model)):
        return on_meta_twin(made)
    return made


def _tensors_of(model):
    return list(model.parameters()) + list(model.buffers())


def on_meta_twin(made):
    """A copy of a model, or of an object that holds one, with its parameters on meta.

    Code of the object that closes over the original still calls the original's optimizers: they
    and the twin of each parameter stand in the copy's ``originals``.
    """
    model = made if isinstance(made, torch.nn.Module) else getattr(made, "model", None)
    if not isinstance(model, torch.nn.Module):
        return made
    twins = _twins(model)
    if made is model:
        return copy.deepcopy(model, dict(twins))
    twin = _copied(made, twins)
    with contextlib.suppress(AttributeError):
        object.__setattr__(twin, "originals", (optimizers_of(made), twins))
    return twin


def _twins(model):
    """Meta tensors in the place of parameters and buffers, by the identity of the original."""
    twins = {}
    for parameter in model.parameters():
        on_meta = parameter.detach().to("meta")
        twins[id(parameter)] = torch.nn.Parameter(on_meta, parameter.requires_grad)
    for buffer in model.buffers():
        twins[id(buffer)] = buffer.detach().to("meta")
    return twins


def _copied(made, twins):
    """A copy with twins throughout; only its model's where it holds what cannot be copied."""
    try:
        with _SharedTensors():
            twin = copy.deepcopy(made, dict(twins))
    except Exception:  # noqa: BLE001  What a user's object holds refuses a copy in its own way.
        twin = copy.copy(made)
    if twin.model is made.model:
        twin.model = copy.deepcopy(made.model, dict(twins))
    return twin


class _SharedTensors(TorchFunctionMode):
    """Inside, a copy of anything shares its tensors: data of a workload is not doubled."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__deepcopy__:
            return args[0]
        return func(*args, **(kwargs or {}))


def optimizers_of(workload):
    """The optimizers of PyTorch that a workload holds."""
    given = getattr(workload, "optimizer", None)
    many = getattr(workload, "optimizers", None) or ()
    found = list(many.values()) if isinstance(many, dict) else list(many)
    return found if given is None or isinstance(given, str) else [*found, given]


@contextlib.contextmanager
def _parameters_on_meta():
    register = torch.nn.Module.register_parameter

    def moved(self, name, parameter):
        """Register a parameter, on the meta device."""
        register(self, name, parameter)
        if type(parameter) is torch.nn.Parameter and not parameter.is_meta:
            self._parameters[name] = torch.nn.Parameter(
                parameter.detach().to("meta"), parameter.requires_grad
            )

    torch.nn.Module.register_parameter = moved
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register
