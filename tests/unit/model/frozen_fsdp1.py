"""Hidden states alive at the fullest moment of a backward pass under FSDP1: a script of a test.

python frozen_fsdp1.py BLOCKS FROZEN SHARDED
"""

import sys
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

HIDDEN, TOKENS = 64, 1000
BLOCKS, FROZEN, SHARDED = (int(word) for word in sys.argv[1:])


class Block(nn.Module):
    """A layer with an adapter."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.layer.weight.requires_grad_(not FROZEN)
        self.down, self.up = (
            nn.Linear(HIDDEN, 2, bias=False),
            nn.Linear(2, HIDDEN, bias=False),
        )

    def forward(self, x):
        return x + self.layer(x) + self.up(self.down(x))


class Net(nn.Module):
    """Blocks, each computed again by a reentrant checkpoint."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x


class Counting(TorchDispatchMode):
    """How many storages of a hidden state's size are alive, and at most were."""

    def __init__(self):
        super().__init__()
        self.live, self.most = set(), 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor):
                self.count(one.untyped_storage())
        self.most = max(self.most, len(self.live))
        return made

    def count(self, storage):
        if storage.nbytes() == 4 * TOKENS * HIDDEN and storage._cdata not in self.live:
            self.live.add(storage._cdata)
            weakref.finalize(storage, self.live.discard, storage._cdata)


def wraps(module, recurse, nonwrapped_numel):
    trained = isinstance(module, nn.Linear) and module.weight.requires_grad
    return recurse or isinstance(module, Block) or trained


dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
net = Net()
if SHARDED:
    net = FullyShardedDataParallel(net, auto_wrap_policy=wraps, device_id=torch.device("cpu"))
x = torch.randn(TOKENS, HIDDEN, requires_grad=True)
with Counting() as counting:
    loss = net(x).sum()
    counting.most = 0
    loss.backward()
print(counting.most)
