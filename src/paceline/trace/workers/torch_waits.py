"""Where a step makes the host wait for the device, recorded as ops; and what a trace answers there.

Standard library and torch only. A number that the host reads does not exist in a trace: a floating
one is answered as not-a-number, so that a loss may be printed; others cannot be answered.

Sources: PyTorch, aten/src/ATen/native/cuda/Copy.cu (a copy that is not `non_blocking` ends with
`cudaStreamSynchronize`), cuda/Nonzero.cu (the number of hits is read back), TensorAdvancedIndexing
(a mask is an index by its hits, unless one value fills it).
"""

import contextlib
import importlib

import torch

_NAN = float("nan")


def _read_number(recorder, func, args, kwargs):
    """``.item()``, ``float(tensor)``."""
    (tensor,) = args
    if not (tensor.is_meta and tensor.is_floating_point()):
        return NotImplemented
    recorder.record("aten::_local_scalar_dense|", [tensor], [], [])
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
    if not tensor.is_floating_point():
        return NotImplemented
    recorder.record("paceline::to_host|", [tensor], [], [])
    dtype = kwargs.get("dtype") or tensor.dtype
    return torch.full(tensor.shape, _NAN, dtype=dtype, device=target)


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
