"""Remember what operators return on meta tensors.

Standard library and torch only. Most of a trace is spent in PyTorch's Python code for the shapes
of results, again and again for layers that are the same. An operator that neither writes into its
arguments nor returns a view of them returns, for the same shapes and settings, the same shapes. One
that works element by element (so PyTorch marks it) on tensors that lie alike returns such a tensor,
of whatever shape they are; so does a norm of channels, with figures of each channel beside it.
"""

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SETTINGS = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout,
             torch.memory_format)  # fmt: skip


#: Results like the first argument, with figures that only follow the number of channels.
_NORMS = (
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten.native_batch_norm_backward.default,
)
#: In place of a shape and steps: those of the first argument.
_FIRST = (None, None)


class NotKnowable(Exception):
    """An argument does not tell the result."""


class Results:
    """Results of one traced execution, by operator and arguments."""

    def __init__(self):
        self._known = {}
        self._keys = {}

    def call(self, func, args, kwargs):
        """What ``func`` returns: made again if it is known, else asked for."""
        keys = self._keys.get(func)
        if keys is None:
            keys = self._keys[func] = _keys_of(func)
        for of_arguments in keys:
            try:
                key = (func, of_arguments(args), _key(kwargs.items()) if kwargs else ())
            except NotKnowable:
                continue
            recipe = self._known.get(key)
            if recipe is not None:
                return _made(recipe, args)
            result = func(*args, **kwargs)
            recipe = _recipe(result, _storages(args))
            if recipe is not None and of_arguments is not _key:
                recipe = _like_first(recipe, args[0], all_are=of_arguments is _key_of_elements)
            if recipe is not None:
                self._known[key] = recipe
            return result
        return func(*args, **kwargs)


def _keys_of(func):
    """How arguments are told apart, the coarsest first; none where results are not remembered."""
    if not is_functional(func):
        return ()
    if func in _NORMS:
        return (_key_of_channels, _key)
    return (_key_of_elements, _key) if torch.Tag.pointwise in func.tags else (_key,)


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


def _key_of_elements(args):
    """Types and settings, where all tensors have the shape and the steps of the first."""
    first = _packed(args)
    return tuple([_alike(first, value, None) for value in args])


def _key_of_channels(args):
    """The same, and the shapes of the other tensors, which have an element a channel."""
    first = _packed(args)
    return (first.shape[1:2], *[_alike(first, value, _part) for value in args])


def _packed(args):
    """The first argument, a tensor whose elements lie without gaps in the order of its extents."""
    first = args[0] if args else None
    if type(first) not in _PLAIN or not first.numel():
        raise NotKnowable
    expected = 1
    for extent, step in zip(reversed(first.shape), reversed(first.stride())):
        if step != expected:
            raise NotKnowable
        expected *= extent
    return first


def _alike(first, value, otherwise):
    """What tells a value from others, of a tensor like the first its type alone."""
    if type(value) not in _PLAIN:
        return _part(value)
    shape, steps, dtype = _part(value)
    if shape == first.shape and steps == first.stride():
        return dtype
    if otherwise is None:
        raise NotKnowable
    return otherwise(value)


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


def _like_first(recipe, first, *, all_are):
    """The recipe for first arguments of all shapes; None if results are not like the first."""
    kind, parts = recipe
    like = (first.shape, first.stride())
    told = [part if part is None or part[:2] != like else (*_FIRST, part[2]) for part in parts]
    asked = told if all_are else told[:1]
    return (kind, told) if all(one and one[:2] == _FIRST for one in asked) else None


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


def _made(recipe, args):
    kind, parts = recipe
    made = [None if part is None else _empty(*part, args) for part in parts]
    return made[0] if issubclass(kind, torch.Tensor) else kind(made)


def _empty(shape, strides, dtype, args):
    if shape is None:
        shape, strides = args[0].shape, args[0].stride()
    return torch.ops.aten.empty_strided.default(shape, strides, dtype=dtype, device="meta")
