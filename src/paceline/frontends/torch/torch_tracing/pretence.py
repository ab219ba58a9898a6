"""The GPU that a user's code believes in: tensors it puts there lie on meta.

Standard library and torch only. Code that asks for ``cuda`` (or looks whether there is one) runs as
on a machine that has it, whatever this machine and this build of PyTorch have.
"""

import contextlib
import importlib
import types

import torch
from torch.overrides import TorchFunctionMode

_ACCELERATORS = ("cuda", "mps", "xpu", "hpu", "npu")
_META = torch.device("meta")
#: The generation whose features code may ask for: as of an A100, which no library refuses.
_CAPABILITY = (8, 0)


class Accelerator(TorchFunctionMode):
    """Inside, an accelerator named to a function of torch is the meta device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in _TO_ACCELERATOR:
            return args[0].to(_META)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = _placed(kwargs["device"])
        if func in _MOVING:
            args = tuple(_placed(one) for one in args)
        return func(*args, **kwargs)


_TO_ACCELERATOR = tuple(
    getattr(torch.Tensor, name) for name in ("cuda", "xpu", "hpu") if hasattr(torch.Tensor, name)
)
#: Functions that take a device by position.
_MOVING = (torch.Tensor.to, torch.Tensor.type)


def _placed(value):
    """Meta for an accelerator, in the word or the number that names it; else what it was."""
    if isinstance(value, (str, torch.device)):
        kind = str(value).partition(":")[0]
        if kind in _ACCELERATORS:
            return _META
        if str(value).startswith("torch.cuda."):
            return str(value).replace("torch.cuda.", "torch.")
    return value


class _Nothing:
    """A stream, an event, a range: it can be entered, recorded and waited for."""

    def __init__(self, *given, **named):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _always(None)

    def elapsed_time(self, other):
        """Milliseconds that nobody has measured."""
        return float("nan")


def _always(value):
    """A function of its own each time: PyTorch's compiler knows functions by identity."""
    return lambda *given, **named: value


class _LegacyTensor:
    """``torch.cuda.FloatTensor`` and its like: sizes, or numbers in a list, on the device."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, *given):
        if len(given) == 1 and not isinstance(given[0], int):
            return torch.as_tensor(given[0], dtype=self.dtype, device=_META)
        return torch.empty(given, dtype=self.dtype, device=_META)


_LEGACY = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip
_SILENT = (
    "synchronize", "empty_cache", "init", "_lazy_init", "set_device", "manual_seed",
    "manual_seed_all", "seed", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "ipc_collect",
)  # fmt: skip
_EMPTY = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
    "current_device",
)  # fmt: skip


def _stand_ins():
    """(holder, name, stand-in) of what this build may lack or refuse."""
    cuda = torch.cuda
    named = {name: _always(None) for name in _SILENT}
    named.update({name: _always(0) for name in _EMPTY})
    named.update({name: _LegacyTensor(dtype) for name, dtype in _LEGACY.items()})
    named.update(
        is_available=_always(True), is_bf16_supported=_always(True), device_count=_always(1),
        get_device_capability=_always(_CAPABILITY), get_device_name=_always("GPU"),
        get_device_properties=_always(types.SimpleNamespace(major=8, minor=0, name="GPU")),
        Event=_Nothing, Stream=_Nothing, stream=_Nothing, current_stream=_Nothing,
    )  # fmt: skip
    found = [(cuda, name, value) for name, value in named.items() if hasattr(cuda, name)]
    found += [(cuda.nvtx, name, _always(None)) for name in ("range_push", "range_pop", "mark")]
    found += [
        (torch.amp.GradScaler, "_maybe_opt_step", _stepped),
        (torch.autocast, "__enter__", _entered), (torch.autocast, "__exit__", _always(None)),
        (torch, "load", _loading(torch.load)),
        (torch.nn.Module, "to", _moved(torch.nn.Module.to)),
        (torch.nn.Module, "cpu", _itself), (torch.nn.DataParallel, "forward", _on_one_device),
        (_data_parallel(), "_check_balance", _always(None)),
    ]  # fmt: skip
    return found


def _data_parallel():
    """The module, whose name in its package is that of a function."""
    return importlib.import_module("torch.nn.parallel.data_parallel")


def _stepped(scaler, optimizer, optimizer_state, *args, **kwargs):
    """The update of a scaler: nothing is infinite, which the host still waits to read."""
    for found in optimizer_state["found_inf_per_device"].values():
        found.item()
    return optimizer.step(*args, **kwargs)


def _moved(move):
    """``Module.to``: parameters stay where they are, in another format where one is named."""

    def moved(module, *given, **named):
        _, dtype, _, _ = torch._C._nn._parse_to(*given, **named)
        return module if dtype is None else move(module, dtype)

    return moved


def _itself(module):
    return module


def _on_one_device(model, *inputs, **kwargs):
    """`nn.DataParallel` as each of its devices runs it."""
    return model.module(*inputs, **kwargs)


def _entered(region):
    """A region of the code's own precision: the trace keeps FP32, and paceline sets the formats."""
    return region


def _loading(load):
    def loaded(*args, **kwargs):
        kwargs["map_location"] = "cpu"
        return load(*args[:1], **kwargs)

    return loaded


@contextlib.contextmanager
def pretended():
    """Inside, this machine has one CUDA device, whose tensors are on meta."""
    # PyTorch's compiler asks for devices while it is imported, which code may do at any time.
    importlib.import_module("torch._dynamo")
    before = []
    try:
        for holder, name, value in _stand_ins():
            before.append((holder, name, holder.__dict__.get(name, _MISSING)))
            setattr(holder, name, value)
        with Accelerator():
            yield
    finally:
        for holder, name, value in reversed(before):
            if value is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, value)


_MISSING = types.SimpleNamespace()
