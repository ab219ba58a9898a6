"""Gradients of batches that do not divide by the ranks: each sample counts the same.

Data parallel takes the mean over ranks of gradients that are means over each rank's samples. Where
shares differ, what a rank sends back through its model is weighted by its share.
"""

import torch


class Weights:
    """Weighs the gradients that enter a model from its outputs.

    Attributes:
        factor: Of the batch in hand: 1 where shares are equal.
    """

    def __init__(self):
        self.factor = 1.0
        self._met = set()

    def watch(self, modules):
        """Weigh what comes back into these modules."""
        for module in modules:
            if id(module) not in self._met:
                self._met.add(id(module))
                module.register_forward_hook(self._after_forward)

    def _after_forward(self, module, inputs, outputs):
        if self.factor == 1.0 or not torch.is_grad_enabled():
            return None
        return _weighed(outputs, self.factor)


class _Weigh(torch.autograd.Function):
    """The same values; their gradient times a factor."""

    @staticmethod
    def forward(ctx, value, factor):
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def _weighed(value, factor):
    if isinstance(value, torch.Tensor):
        return _Weigh.apply(value, factor) if value.requires_grad else value
    if isinstance(value, dict):
        for key in list(value):
            value[key] = _weighed(value[key], factor)
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_weighed(one, factor) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_weighed(one, factor) for one in value)
    return value
