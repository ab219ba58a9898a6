"""Inputs alive at the end of a forward pass over those of one: a loop holds its loss, or drops it.

Products keep what they read in an attribute, as 4-bit layers of bitsandbytes did to 0.43.0. Then
the same of one step whose layers are computed again, by checkpoints that are not reentrant and by
those that are.
"""

import weakref

import torch
from torch.utils.checkpoint import checkpoint

LAYERS, WIDTH = 4, 64


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.tensors = (a, b)
        seen.append(weakref.ref(a))
        return a @ b

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.tensors[1].T, None


seen: list = []


def alive_after_two_steps(holds):
    """Of what entered products, how many are alive when the second loss is to be bound."""
    seen.clear()
    adapter = torch.ones(WIDTH, requires_grad=True)
    weights = [torch.eye(WIDTH) for _ in range(LAYERS)]
    loss = None
    for step in range(2):
        x = torch.ones(8, WIDTH) * adapter
        for weight in weights:
            x = Product.apply(x, weight)
        if step == 1:
            return sum(one() is not None for one in seen) / LAYERS
        loss = x.sum()
        del x
        loss.backward()
        if not holds:
            del loss
    return None


def alive_in_checkpoints(is_reentrant):
    """Of what entered products within layers, how many are alive at the end of a forward pass."""
    seen.clear()
    x = torch.ones(8, WIDTH, requires_grad=True)
    for weight in (torch.eye(WIDTH) for _ in range(LAYERS)):
        layer = lambda a, b=weight: Product.apply(a.sin(), b).cos()  # noqa: E731
        x = checkpoint(layer, x, use_reentrant=is_reentrant)
    return sum(one() is not None for one in seen) / LAYERS


print(alive_after_two_steps(True), alive_after_two_steps(False))
print(alive_in_checkpoints(False), alive_in_checkpoints(True))
