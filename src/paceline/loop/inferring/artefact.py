"""A trained module as an ONNX file that any server loads, checked before it is there."""

import importlib.util
import os
import warnings

import torch

from ..errors import LoopError

#: Most that a score may differ from PyTorch's, against the largest score, or 1 if that is less.
TOLERANCE = 1e-4
INPUT, OUTPUT = "input", "scores"
#: An ONNX file holds 2 GiB (protobuf); a little of it is not weights.
_MOST_BYTES = 2_000_000_000
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


class _Scores(torch.nn.Module):
    """A model whose answer is its scores alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return first_of(self.model(inputs))


def write_checked(model, example, path):
    """Write ``path`` with a free batch size, if ONNX Runtime gives PyTorch's scores with it.

    Args:
        model: ``torch.nn.Module`` in evaluation mode.
        example: A batch of the data, on the model's device.
        path: The file; whole or not there.

    Raises:
        LoopError: Something is not installed, the model cannot be exported, or scores differ.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LoopError("an export needs " + ", ".join(missing), "pip install " + " ".join(missing))
    if sum(p.nbytes for p in model.parameters()) > _MOST_BYTES:
        raise LoopError("weights of over 2 GB do not fit one ONNX file", "run it by PyTorch")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    beside = "%s.%d.writing" % (path, os.getpid())
    try:
        _exported(model, example).save(beside)
        off = difference(model, beside, example)
        if not off <= TOLERANCE:
            raise LoopError(
                "ONNX Runtime is %.1e off PyTorch (%.0e allowed)" % (off, TOLERANCE),
                "run it by PyTorch: --runtime torch",
            )
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.remove(beside)


def difference(model, path, example):
    """Largest difference of scores on the whole batch, its first sample, and the batch twice."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    for inputs in (example, example[:1], torch.cat([example, example])):
        with torch.inference_mode():
            wanted = first_of(model(inputs)).float().cpu()
        found = torch.from_numpy(session.run(None, {INPUT: inputs.cpu().numpy()})[0])
        off = (found - wanted).abs().max() / max(1.0, float(wanted.abs().max()))
        worst = max(worst, float(off)) if off == off else float("inf")
    return worst


def _exported(model, example):
    several = example if len(example) > 1 else torch.cat([example, example])
    sizes = {"inputs": {0: torch.export.Dim("batch", min=1)}}
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of the exporter's own code: the check decides.
            return torch.onnx.export(
                _Scores(model).eval(), (several,), dynamo=True, dynamic_shapes=sizes, verbose=False,
                input_names=[INPUT], output_names=[OUTPUT],
            )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - the exporter raises a score of types
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise LoopError(
            "the model cannot be exported: " + first[0], "run it by PyTorch: --runtime torch"
        ) from None


def first_of(outputs):
    """The scores: the output itself, ``logits`` of it, or the first of several."""
    if hasattr(outputs, "logits"):
        return outputs.logits
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs
