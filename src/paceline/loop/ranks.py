"""What the processes of a run say to one another beside their gradients, on gloo groups."""

import json
from datetime import timedelta

import torch
import torch.distributed as dist

from paceline.loop import layout
from paceline.loop.ending import leave_in_order
from paceline.loop.errors import LoopError

#: A rank may wait for another one that verifies a large save or reads a slow disk.
_PATIENCE = timedelta(hours=2)


def connected():
    """The processes of this run.

    Raises:
        LoopError: torchrun started several, and none has joined the others.
    """
    ranks = layout.current().ranks
    if ranks > 1 and not (dist.is_available() and dist.is_initialized()):
        raise LoopError(
            "%d processes were started, and they are not joined" % ranks,
            hint="call `torch.distributed.init_process_group()` before `loop.resume`",
        )
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        leave_in_order()
        return Ranks(dist.get_rank(), dist.get_world_size())
    return Ranks(0, 1)


class Ranks:
    """The processes of a run.

    Attributes:
        rank: Of this process.
        save_group: For the thread that saves; None alone.
    """

    def __init__(self, rank, count):
        self.rank = rank
        self.count = count
        self.save_group = self._group = None
        self._pending = None
        if count > 1:
            self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)
            self.save_group = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def gather(self, value, group=None):
        """Values of all ranks, in their order, on each; they travel as JSON."""
        if self.count == 1:
            return [value]
        group = group or self._group
        data = torch.frombuffer(bytearray(json.dumps(value).encode("utf-8")), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([data.numel()]), group=group)
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: data.numel()] = data
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
        dist.all_gather(parts, padded, group=group)
        return [
            json.loads(bytes(part[: int(size)].tolist()).decode("utf-8"))
            for part, size in zip(parts, sizes)
        ]

    def from_first(self, value, group=None):
        """The value of rank 0, on each."""
        return self.gather(value if self.rank == 0 else None, group)[0]

    def agree(self, wishes):
        """Wishes that any rank had, the same on all: those of this call alone, else of the last.

        The exchange runs while the next step does; its result is used one step later.

        Args:
            wishes: Small whole numbers; the largest of all ranks counts.
        """
        if self.count == 1:
            return wishes
        before = self.settle()
        values = torch.tensor(wishes, dtype=torch.uint8)
        handle = dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        self._pending = (handle, values)
        return before if before is not None else [0] * len(wishes)

    def settle(self):
        """What the last `agree` asked for; None if nothing is under way."""
        if self._pending is None:
            return None
        (handle, values), self._pending = self._pending, None
        handle.wait()
        return values.tolist()
