"""Bytes that products with frozen 8-bit weights keep for backward, as torchao 0.18 writes them.

python quantised_products.py TOKENS INPUTS OUTPUTS: a test's script. It prints what is kept of each
weight and of each element that enters. Products on 8 bits have no backward pass on a CPU.
"""

import sys

import torch
from torch.nn.functional import linear

TOKENS, INPUTS, OUTPUTS = (int(word) for word in sys.argv[1:])
FP8 = torch.float8_e4m3fn


def widened(x, weight):
    """Float8Tensor and Int8Tensor of weights alone."""
    return linear(x, weight.to(x.dtype))


def cast(x, _weight):
    """Float8Tensor.from_hp of an input: _choose_scale_float8, then _quantize_affine_float8."""
    most = torch.finfo(FP8).max
    scale = (x.abs().amax(dim=-1, keepdim=True) / most).to(torch.float32)
    return (x.to(torch.float32) / scale).clamp(min=-most, max=most)


def kept_bytes(product):
    x = torch.randn(TOKENS, INPUTS, dtype=torch.bfloat16, requires_grad=True)
    entered = x * 1.0
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = product(entered, torch.randn(OUTPUTS, INPUTS).to(FP8))
    kept.pop(entered.untyped_storage()._cdata, None)
    del result
    return sum(kept.values())


print(kept_bytes(widened) / (INPUTS * OUTPUTS), kept_bytes(cast) / (TOKENS * INPUTS))
