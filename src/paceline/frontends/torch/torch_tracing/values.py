"""Values that a trace knows: whole numbers and masks that follow from sizes and not from weights.

Standard library and torch only. Beside a tensor on meta lies its value, where that is small and was
made of nothing but numbers of the program: lengths of sequences, edges of graphs, masks of padding.
A number that code reads is then the true one. What depends on weights or on data stays unknown.
Random whole numbers are spread evenly over their range, so that they are the same in each trace.
"""

import torch
from torch.utils.weak import WeakIdKeyDictionary
from torch_tracing.structures import mapped, tensors_in

#: Most elements that are followed; larger ones decide nothing that a program reads.
_LARGEST = 1 << 17
_RANDOM = frozenset(("aten::randint", "aten::randperm"))
_UNFILLED = ("aten::empty", "aten::new_empty")


class Values:
    """Values of tensors on meta, by the tensor."""

    def __init__(self):
        self._known = WeakIdKeyDictionary()
        self._spoilt = {}

    def of(self, tensor):
        """The value of a tensor, or None."""
        if not tensor.is_meta:
            return tensor if tensor.numel() <= _LARGEST else None
        value = self._known.get(tensor)
        if value is None or value.untyped_storage()._cdata in self._spoilt:
            return None
        return value

    def follow(self, func, args, kwargs, result, is_input=False):
        """Do with the values what an operator did with their tensors.

        Uninitialised numbers are zero until code writes others there; as an input they are data.
        """
        outputs = tensors_in(result)
        if not any(one.is_meta for one in outputs) and func._schema.name not in _RANDOM:
            return
        if not self._are_small(outputs):
            self._spoil(func, args)
            return
        try:
            if is_input and func._schema.name.startswith(_UNFILLED):
                raise _Unknown
            values = self._computed(func, args, kwargs)
        except _Unknown:
            self._spoil(func, args)
            return
        for output, value in zip(outputs, tensors_in(values)):
            if output.is_meta and output.shape == value.shape:
                self._known[output] = value
            elif func._schema.name in _RANDOM:
                output.copy_(value)

    def shaped(self, func, args, kwargs):
        """What an operator that knows no meta returns, as its CPU kernel shapes it."""
        made = func(*self._stood_in(args), **{k: self._stood_in(v) for k, v in kwargs.items()})
        return mapped(lambda one: torch.empty_like(one, device="meta"), made)

    def _stood_in(self, value):
        """Values, and zeros for what is unknown."""
        return mapped(self._real, value)

    def _real(self, tensor):
        known = self.of(tensor)
        return (
            torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu") if known is None else known
        )

    def _are_small(self, outputs):
        return bool(outputs) and all(one.numel() <= _LARGEST for one in outputs)

    def _computed(self, func, args, kwargs):
        name = func._schema.name
        if name in _RANDOM:
            return _spread(name, args)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise _Unknown
        given, named = self._replaced(args), {k: self._replaced(v) for k, v in kwargs.items()}
        if "device" in named:
            named["device"] = torch.device("cpu")
        try:
            made = func(*given, **named)
        except Exception as error:  # A kernel may refuse in any way: then its result is not known.
            raise _Unknown from error
        return made.zero_() if name.startswith(_UNFILLED) else made

    def _replaced(self, value):
        if isinstance(value, torch.Tensor):
            known = self.of(value)
            if known is None:
                raise _Unknown
            return known
        if isinstance(value, (list, tuple)):
            return type(value)([self._replaced(one) for one in value])
        return value

    def _spoil(self, func, args):
        """What was overwritten with unknown values is no longer known, nor are views of it."""
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in tensors_in(value):
                known = self._known.get(tensor)
                if known is not None:
                    storage = known.untyped_storage()
                    self._spoilt[storage._cdata] = storage


class _Unknown(Exception):
    """A value that follows from something unknown."""


def _spread(name, args):
    """Random whole numbers: evenly over their range, the middle one where there is but one."""
    numbers = [one for one in args if isinstance(one, int)]
    if name == "aten::randperm":
        return torch.arange(numbers[0])
    low, high = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
    shape = next(one for one in args if isinstance(one, (list, tuple)))
    made = torch.empty(tuple(shape), dtype=torch.int64)
    if made.numel() == 1:
        return made.fill_((low + high - 1) // 2)
    spread = torch.arange(made.numel()) * (high - 1 - low) // max(made.numel() - 1, 1)
    return (spread + low).view(made.shape)
