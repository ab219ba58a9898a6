"""Bytes alive for each narrow gradient as DeepSpeed widens them, at most: a test's script.

deepspeedai/DeepSpeed 0.18.2, runtime/zero/stage3.py, `_prepare_fp32_grad_for_sub_group`.
"""

import weakref

import torch
from torch._utils import _flatten_dense_tensors
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    """Bytes of storages that are made: alive, and at most so."""

    def __init__(self):
        super().__init__()
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        storage = made.untyped_storage()
        if storage._cdata not in self.alive:
            self.alive[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self.alive.pop, storage._cdata)
        self.most = max(self.most, sum(self.alive.values()))
        return made


with Counting() as counting:
    gradients = [torch.zeros(1024, 8, dtype=torch.bfloat16) for _ in range(16)]
    _flatten_dense_tensors(gradients).to(torch.float32)
print(counting.most / sum(one.numel() for one in gradients))
