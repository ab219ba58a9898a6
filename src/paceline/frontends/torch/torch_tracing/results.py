"""Remember what operators return on meta tensors.

Standard library and torch only. Most of a trace is spent in PyTorch's Python code for the shapes
of results, again and again for layers that are the same. An operator that neither writes into its
arguments nor returns a view of them returns, for the same shapes and settings, the same shapes. One
that works element by element (so PyTorch marks it) on tensors that lie alike returns such a tensor,
of whatever shape they are; so does a norm of channels, with vectors of channels beside it. All
traces of a process share what is remembered: a model is traced at several points.
"""

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SETTINGS = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout,
             torch.memory_format)  # fmt: skip


#: Of channels: results like the first argument, and vectors with an element a channel.
_NORMS = (
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten.native_batch_norm_backward.default,
)
#: In place of a shape and steps: those of the first argument, and of a vector of its channels.
_FIRST = (None, None)
_CHANNELS = (None, 1)


class NotKnowable(Exception):
    """An argument does not tell the result."""


#: As many recipes are remembered; then all are forgotten.
_MOST_KNOWN = 50_000


class Results:
    """Results of traced executions, by operator, arguments and the usual type of numbers."""

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
                named = _key(kwargs.items()) if kwargs else ()
                key = (func, torch.get_default_dtype(), of_arguments(args), named)
            except NotKnowable:
                continue
            recipe = self._known.get(key)
            if recipe is not None:
                return _made(recipe, args)
            result = func(*args, **kwargs)
            recipe = _recipe(result, _storages(args))
            if recipe is not None and of_arguments is not _key:
                recipe = _like_first(recipe, args[0], is_norm=of_arguments is _key_of_channels)
            if recipe is not None:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = recipe
            return result
        return func(*args, **kwargs)


#: Of this process.
RESULTS = Results()


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
    return _likeness(args, {(first.shape, first.stride()): _FIRST})


def _key_of_channels(args):
    """The same, where the other tensors are vectors of the first one's channels."""
    return _likeness(args, _as_channels(_packed(args)))


def _as_channels(first):
    vector = torch.Size(first.shape[1:2])
    return {(first.shape, first.stride()): _FIRST, (vector, (1,)): _CHANNELS}


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


def _likeness(values, known):
    """What tells settings, and of each tensor its type and what of the first it is like."""
    told = []
    for value in values:
        part = _part(value)
        if type(value) in _PLAIN:
            part = (known.get(part[:2]), part[2])
            if part[0] is None:
                raise NotKnowable
        told.append(part)
    return tuple(told)


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


def _like_first(recipe, first, *, is_norm):
    """The recipe for first arguments of all shapes; None if a result is not like the first."""
    kind, parts = recipe
    known = _as_channels(first) if is_norm else {(first.shape, first.stride()): _FIRST}
    told = [part and (known.get(part[:2]), part[2]) for part in parts]
    return (kind, told) if all(one is None or one[0] for one in told) else None


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


def _empty(*told):
    """Of a shape, steps and a type; or of what it is like, a type and the arguments."""
    *place, dtype, args = told
    if place[0] is _FIRST:
        place = (args[0].shape, args[0].stride())
    elif place[0] is _CHANNELS:
        place = (args[0].shape[1:2], (1,))
    return torch.ops.aten.empty_strided.default(*place, dtype=dtype, device="meta")
