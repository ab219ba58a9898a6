"""What runs a model: PyTorch for the user's own, ONNX Runtime or OpenVINO for an ONNX file.

A model file is data: weights that would have to be unpickled are refused.
"""

import importlib
import math
import os
import sys
import time

import numpy as np
import torch

from ..errors import LoopError
from .artefact import first_of, write_checked

RUNTIMES = ("torch", "onnxruntime", "openvino")
_PICKLED = (".pt", ".pth", ".pkl", ".bin", ".ckpt", ".pt2")
_TRIAL_S = 0.5


def open_model(model, runtime, device, example, export=None):
    """What turns a batch ``[n, ...]`` into a CPU tensor ``[n, classes]``, its name, and its pace.

    Args:
        model: ``module:function`` that returns a ``torch.nn.Module``, or an ONNX file.
        runtime: One of ``RUNTIMES``, or ``auto``: of those that can, the one that is predicted to
            take least time, by trials on ``example``.
        device: Such as ``cpu`` or ``cuda``.
        example: A batch.
        export: ONNX file that a ``module:function`` is written to, checked, for all runtimes.

    Returns:
        ``(run, name, seconds)``: of a batch like the example, None where nothing was tried.

    Raises:
        LoopError: No such model, or nothing here runs it.
    """
    _check_device(device)
    if model.endswith(_PICKLED):
        raise LoopError(
            "`%s` would have to be unpickled, which runs code" % model,
            "name module:function that builds the model and loads safetensors, or an ONNX file",
        )
    is_file = model.endswith(".onnx")
    if is_file and export:
        raise LoopError("`%s` is an ONNX file already" % model, "leave --export out")
    if is_file and not os.path.exists(model):
        raise LoopError("no file `%s`" % model, "name an ONNX file")
    found = {} if is_file else {"torch": _of_torch(model, device)}
    if export:
        write_checked(found["torch"].module, example.to(device), export)
    if is_file or export:
        found.update(_of_onnx(model if is_file else export, device))
    if runtime != "auto":
        found = {name: run for name, run in found.items() if name == runtime}
    if not found:
        raise LoopError(*_missing(model, runtime, is_file))
    if len(found) == 1:
        return next((run, name, None) for name, run in found.items())
    seconds = _batch_s(found, example)
    best = min(seconds, key=lambda name: seconds[name])
    return found[best], best, seconds[best]


def _check_device(device):
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        why = str(error).splitlines()[0]
        raise LoopError(
            "no device `%s` here: %s" % (device, why),
            "--device cpu, or --python with another torch",
        ) from None


def _missing(model, runtime, is_file):
    """What is in the way, and what to do."""
    if is_file and runtime == "torch":
        return "torch runs no ONNX file", "onnxruntime or openvino do"
    if is_file:
        named = "onnxruntime, or openvino" if runtime == "auto" else runtime
        return "nothing here runs `%s`" % model, "pip install " + named
    return "%s runs ONNX files, not `%s`" % (runtime, model), "--export FILE.onnx writes one"


def _of_torch(model, device):
    module, _, name = model.partition(":")
    if not name:
        raise LoopError(
            "`%s` has no trained weights here" % model,
            "name module:function that returns the trained model, or an ONNX file",
        )
    sys.path.insert(0, os.getcwd())
    try:
        built = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise LoopError("`%s`: %s" % (model, error), "run it from the module's folder") from None
    if not isinstance(built, torch.nn.Module):
        raise LoopError("`%s` returned a %s" % (model, type(built).__name__), "return the model")
    built = built.eval().to(device)

    def run(inputs):
        with torch.inference_mode():
            return first_of(built(inputs.to(device, non_blocking=True))).float().cpu()

    run.module = built
    return run


def _of_onnx(path, device):
    """Each installed runtime with the file loaded."""
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino}
    made = {name: _made(make, path, device) for name, make in makers.items()}
    return {name: run for name, run in made.items() if run is not None}


def _made(make, path, device):
    try:
        return make(path, device)
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - runtimes raise types of their own for a bad file
        raise LoopError("`%s` does not load: %s" % (path, error), "export it again") from None


def _onnxruntime(path, device):
    import onnxruntime

    wanted = "CUDAExecutionProvider" if device.startswith("cuda") else "CPUExecutionProvider"
    session = onnxruntime.InferenceSession(path, providers=[wanted])
    name = session.get_inputs()[0].name
    return lambda inputs: torch.from_numpy(session.run(None, {name: _plain(inputs)})[0])


def _openvino(path, device):
    import openvino

    if device.startswith("cuda"):
        raise ImportError("OpenVINO does not run on CUDA")
    # Without this it computes in BF16 where the CPU can.
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: torch.from_numpy(np.array(compiled([_plain(inputs)])[0]))


def _plain(inputs):
    return np.ascontiguousarray(inputs.cpu().numpy())


def _batch_s(found, example):
    """Seconds of a batch by each, tried by turns: the best of several, as others only slow it."""
    seconds = dict.fromkeys(found, math.inf)
    for run in found.values():
        run(example)
    end = time.perf_counter() + _TRIAL_S * len(found)
    while time.perf_counter() < end or math.inf in seconds.values():
        for name, run in found.items():
            start = time.perf_counter()
            run(example)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds
