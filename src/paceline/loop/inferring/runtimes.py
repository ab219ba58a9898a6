"""What runs a model: PyTorch for the user's own, ONNX Runtime or OpenVINO for an ONNX file.

A model file is data: weights that would have to be unpickled are refused.
"""

import importlib
import os
import sys
import time

import numpy as np
import torch

from ..errors import LoopError

RUNTIMES = ("torch", "onnxruntime", "openvino")
_PICKLED = (".pt", ".pth", ".pkl", ".bin", ".ckpt", ".pt2")
_TRIAL_S = 0.5


def open_model(model, runtime, device, example):
    """What turns a batch ``[n, ...]`` into a CPU tensor ``[n, classes]``, and its name.

    Args:
        model: ``module:function`` that returns a ``torch.nn.Module``, or an ONNX file.
        runtime: One of ``RUNTIMES``, or ``auto``: of those installed, the fastest on ``example``.
        device: Such as ``cpu`` or ``cuda``.
        example: A batch.

    Raises:
        LoopError: No such model, or nothing here runs it.
    """
    if model.endswith(_PICKLED):
        raise LoopError(
            "`%s` would have to be unpickled, which runs code" % model,
            "name module:function that builds the model and loads safetensors, or an ONNX file",
        )
    if model.endswith(".onnx"):
        return _of_onnx(model, runtime, device, example)
    if runtime not in ("auto", "torch"):
        raise LoopError("%s runs ONNX files, not `%s`" % (runtime, model), "export the model first")
    return _of_torch(model, device), "torch"


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
            return _first(built(inputs.to(device, non_blocking=True))).float().cpu()

    return run


def _of_onnx(path, runtime, device, example):
    if not os.path.exists(path):
        raise LoopError("no file `%s`" % path, "name an ONNX file")
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino}
    if runtime != "auto" and runtime not in makers:
        raise LoopError("%s runs no ONNX file" % runtime, "onnxruntime or openvino do")
    found = {}
    for name in makers if runtime == "auto" else [runtime]:
        made = _made(makers[name], path, device)
        if made is not None:
            found[name] = made
    if not found:
        raise LoopError("nothing here runs `%s`" % path, "pip install onnxruntime, or openvino")
    if len(found) == 1:
        return next((run, name) for name, run in found.items())
    rates = {name: _rate(run, example) for name, run in found.items()}
    best = max(rates, key=lambda name: rates[name])
    return found[best], best


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


def _rate(run, example):
    """Batches per second, after one that is not counted."""
    run(example)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < _TRIAL_S:
        run(example)
        count += 1
    return count / (time.perf_counter() - start)


def _first(outputs):
    """The scores: the output itself, ``logits`` of it, or the first of several."""
    if hasattr(outputs, "logits"):
        return outputs.logits
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs
