"""Where a step makes the host wait for the device, recorded as ops; and what a trace answers there.

Standard library and torch only. A number that the host reads does not exist in a trace, unless it
follows from sizes alone (`values`). A floating one is answered as not-a-number, so that a
loss may be printed. In code of a user's own a truth value is a choice (`choices`), and a
whole number is not-a-number too, which is no size; elsewhere these are refused.

Sources: PyTorch, aten/src/ATen/native/cuda/Copy.cu (a copy that is not `non_blocking` ends with
`cudaStreamSynchronize`), cuda/Nonzero.cu (the number of hits is read back), TensorAdvancedIndexing
(a mask is an index by its hits, unless one value fills it).
"""

import contextlib
import importlib

import torch

_NAN = float("nan")


def _read_number(recorder, func, args, kwargs):
    """``.item()``, ``float(tensor)``, ``if tensor:``."""
    (tensor,) = args
    known = None if recorder.values is None else recorder.values.of(tensor)
    can_answer = known is not None or tensor.is_floating_point() or recorder.choices is not None
    if not (tensor.is_meta and can_answer):
        return NotImplemented
    recorder.record("aten::_local_scalar_dense|", [tensor], [], [])
    if known is not None:
        return known.item()
    if recorder.choices is not None:
        if tensor.dtype == torch.bool:
            return recorder.choices.truth()
        recorder.choices.counted()
    return _NAN


def _copied(recorder, func, args, kwargs):
    """``.cpu()``, ``.tolist()``, and ``.to(device)`` of what lies in host memory."""
    tensor, target = args[0], kwargs.get("device")
    if target is None or (target.type == "meta") == tensor.is_meta or kwargs.get("non_blocking"):
        return NotImplemented
    if not tensor.numel():
        return NotImplemented
    if not tensor.is_meta:
        result = func(*args, **kwargs)
        recorder.record("paceline::to_device|", [], [result], [])
        return result
    return _on_host(recorder, tensor, kwargs.get("dtype") or tensor.dtype)


def _on_host(recorder, tensor, dtype):
    """The copy of a tensor in host memory: its value where that is known."""
    known = None if recorder.values is None else recorder.values.of(tensor)
    if known is None and not tensor.is_floating_point() and recorder.choices is None:
        return NotImplemented
    recorder.record("paceline::to_host|", [tensor], [], [])
    if known is not None:
        return known.to(dtype, copy=True)
    is_list = recorder.choices is not None and tensor.numel() > 1
    if tensor.is_floating_point() and not is_list:
        return torch.full(tensor.shape, _NAN, dtype=dtype, device="cpu")
    # Libraries of the host refuse not-a-number where they match boxes or count hits.
    recorder.choices.numbers_are_zero()
    return torch.zeros(tensor.shape, dtype=dtype, device="cpu")


#: Operators that wait instead of running as they are: called with what they are asked.
HANDLERS = {"aten::_local_scalar_dense": _read_number, "aten::_to_copy": _copied}


def masks_read_back(name, args):
    """Tensors whose hits an operator counts on the host before it goes on."""
    if name == "aten::nonzero":
        return [args[0]]
    if name not in ("aten::index", "aten::index_put", "aten::index_put_"):
        return []
    if name != "aten::index" and args[2].numel() == 1:
        return []
    return [one for one in args[1] if one is not None and one.dtype in (torch.bool, torch.uint8)]


def _listed(make):
    """``torch.tensor`` and its like: Python numbers become a tensor of the device."""

    def stand_in(recorder, *args, **kwargs):
        """Record a copy from the host where numbers become a tensor on the traced device."""
        data = args[-1]
        target = args[0].device if len(args) > 1 else None
        target = kwargs.get("device") or target
        if isinstance(data, torch.Tensor) or target is None or torch.device(target).type != "meta":
            return NotImplemented
        result = make(*args, **kwargs)
        if result.numel():
            recorder.record("paceline::listed_to_device|", [], [result], [])
        return result

    return stand_in


STAND_INS = {
    make: _listed(make) for make in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)
}


@contextlib.contextmanager
def full_masks(are_full=True):
    """Inside, a mask on meta counts as true everywhere, in releases of PyTorch that know how."""
    config = importlib.import_module("torch.fx.experimental._config")
    name = "meta_nonzero_assume_all_nonzero"
    before = getattr(config, name, None)
    if before is None:
        yield
        return
    setattr(config, name, are_full or before)
    try:
        yield
    finally:
        setattr(config, name, before)
