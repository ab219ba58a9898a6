"""Remember what operators return on meta tensors.

Standard library and torch only. Most of a trace is spent in PyTorch's Python code for the shapes
of results, again and again for layers that are the same. An operator that neither writes into its
arguments nor returns a view of them returns, for the same shapes and settings, the same shapes.
"""

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SETTINGS = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout,
             torch.memory_format)  # fmt: skip


class NotKnowable(Exception):
    """An argument does not tell the result."""


class Results:
    """Results of one traced execution, by operator and arguments."""

    def __init__(self):
        self._known = {}
        self._is_functional = {}

    def call(self, func, args, kwargs):
        """What ``func`` returns: made again if it is known, else asked for."""
        functional = self._is_functional.get(func)
        if functional is None:
            functional = self._is_functional[func] = is_functional(func)
        if not functional:
            return func(*args, **kwargs)
        try:
            key = (func, _key(args), _key(kwargs.items()) if kwargs else ())
        except NotKnowable:
            return func(*args, **kwargs)
        recipe = self._known.get(key)
        if recipe is not None:
            return _made(recipe)
        result = func(*args, **kwargs)
        recipe = _recipe(result, _storages(args))
        if recipe is not None:
            self._known[key] = recipe
        return result


def is_functional(func):
    """Whether an operator only makes new tensors."""
    schema = func._schema
    values = list(schema.arguments) + list(schema.returns)
    returns = [str(r.type) for r in schema.returns]
    return (
        bool(returns)
        and all(value.alias_info is None for value in values)
        and all(kind in ("Tensor", "List[Tensor]") for kind in returns)
    )


def _key(values):
    return tuple([_part(value) for value in values])


def _part(value):
    kind = type(value)
    if kind in _PLAIN:
        if not value.is_meta or value.is_complex() or value.layout is not torch.strided:
            raise NotKnowable
        return (value.shape, value.stride(), value.dtype)
    if kind in (tuple, list, torch.Size):
        return _key(value)
    if kind not in _SETTINGS:
        raise NotKnowable
    return (kind, value)


def _storages(values):
    """Identities of the storages of all tensors among nested arguments."""
    found = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            found.add(value.untyped_storage()._cdata)
        elif isinstance(value, (list, tuple)):
            found |= _storages(value)
    return found


def _recipe(result, taken):
    """(type of the result, what each tensor is made of); None where tensors share or hide bytes."""
    is_one = isinstance(result, torch.Tensor)
    tensors = [result] if is_one else list(result)
    if not all(t is None or _is_plain(t) for t in tensors):
        return None
    parts = [None if t is None else (t.shape, t.stride(), t.dtype) for t in tensors]
    storages = {t.untyped_storage()._cdata for t in tensors if t is not None}
    given = [t for t in tensors if t is not None]
    is_whole = all(t.is_meta and t.untyped_storage().nbytes() == _num_bytes(t) for t in given)
    if not is_whole or len(storages) != len(given) or storages & taken:
        return None
    return type(result), parts


def _is_plain(tensor):
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided


def _num_bytes(tensor):
    """Bytes from the first to the last element."""
    if tensor.storage_offset():
        return -1
    if not tensor.numel():
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def _made(recipe):
    kind, parts = recipe
    made = [None if part is None else _empty(*part) for part in parts]
    return made[0] if issubclass(kind, torch.Tensor) else kind(made)


def _empty(shape, strides, dtype):
    return torch.ops.aten.empty_strided.default(shape, strides, dtype=dtype, device="meta")
