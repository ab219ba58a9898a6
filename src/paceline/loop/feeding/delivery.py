"""From the buffers to the device: bytes are sent, and normalised there.

On CUDA buffers are pinned, and copied on a stream of their own while the device computes. On the
CPU the tensors are the buffers themselves, reused only when nobody holds them any more.
"""

import sys
from collections import deque

import numpy as np
import torch

#: Batches whose copy is under way while the device computes.
_COPIED_AHEAD = 2
#: Normalised batches whose memory is kept to be reused, and the references to it that are ours:
#: the list, the loop over it, and the argument of getrefcount.
_KEPT, _OURS = 4, 3


class Batch(tuple):
    """``(inputs, labels)``; unpacks like a pair.

    Attributes:
        indices: The sample of each row.
        num_own: Rows that this rank counts; 0 where it reads another's sample to keep step.
        size: Samples of the batch on all ranks.
    """

    def __new__(cls, inputs, labels, indices, num_own, size):
        """The pair, with what is known of its rows."""
        self = tuple.__new__(cls, (inputs, labels))
        self.indices, self.num_own, self.size = indices, num_own, size
        return self


def deliver_to(device, kind, filler, normalise, precision):
    """The delivery for a device."""
    device = torch.device("cpu" if device is None else device)
    change = _Change(kind, filler, normalise, precision, device)
    return OverCuda(device, change, filler) if device.type == "cuda" else InMemory(device, change)


class _Change:
    """What happens on the device: channels first, tokens widened, normalised."""

    def __init__(self, kind, filler, normalise, precision, device):
        self.is_image = kind == "image" and len(filler.shape) == 3 and filler.dtype == "uint8"
        self.is_tokens = kind == "tokens"
        self.precision = precision or torch.float32
        self.scale, self.memory = None, _Memory() if device.type == "cpu" else None
        if normalise is not None and not self.is_image:
            raise ValueError("only images of bytes are normalised")
        if normalise is not None:
            mean, deviation = (torch.tensor(v, dtype=torch.float32) for v in normalise)
            row = filler.shape[1]  # A row of pixels at once: channels alone are too short a loop.
            dtype = torch.float32 if self.memory else self.precision
            self.scale = (1 / (255 * deviation)).repeat(row).to(device, dtype)
            self.offset = (-mean / deviation).repeat(row).to(device, dtype)

    def __call__(self, inputs, labels):
        if self.is_tokens:
            wide = inputs.to(torch.int64)
            return wide[:, :-1], wide[:, 1:]
        if self.scale is not None:
            normalised = self._on_device if self.memory is None else self._in_this_thread
            inputs = normalised(inputs.flatten(2)).view(inputs.shape)
        return inputs.permute(0, 3, 1, 2) if self.is_image else inputs, labels

    def _on_device(self, rows):
        rows = rows.to(self.precision)
        return torch.addcmul(self.offset, rows, self.scale, out=rows)

    def _in_this_thread(self, rows):
        """Normalised with NumPy: PyTorch's team of threads would spin where others decode."""
        numbers = self.memory.tensor(rows.shape, torch.float32)
        scale, offset = self.scale.numpy(), self.offset.numpy()
        for image, out in zip(rows.numpy(), numbers.numpy()):
            np.copyto(out, image)
            np.multiply(out, scale, out=out)
            np.add(out, offset, out=out)
        return numbers.to(self.precision)


class _Memory:
    """Memory of batches on the CPU, used again as soon as nobody holds the last tensor of it.

    Fresh pages of a batch, zeroed by the kernel, cost as much as what is written to them.
    """

    def __init__(self):
        self._kept = deque(maxlen=_KEPT)

    def tensor(self, shape, dtype):
        """A tensor whose content is arbitrary."""
        num_bytes = max(1, shape.numel()) * dtype.itemsize
        array = self._unused(num_bytes)
        if array is None:
            array = np.empty(num_bytes, np.uint8)
            self._kept.append(array)
        return torch.from_numpy(array[:num_bytes]).view(dtype)[: shape.numel()].view(shape)

    def _unused(self, num_bytes):
        for array in self._kept:
            if array.nbytes >= num_bytes and sys.getrefcount(array) <= _OURS:
                return array
        return None


class InMemory:
    """Deliver to the CPU, or by a plain copy to a device that is not CUDA."""

    new_arrays = None

    def __init__(self, device, change):
        self.device, self.change = device, change

    def __call__(self, filled_batches):
        """Yield a `Batch` for each filled one, whose buffer goes back to its engine.

        Args:
            filled_batches: The engine that takes the buffer back, and with it what was filled, the
                samples of its rows, how many are this rank's own, and those of all ranks.
        """
        for engine, (filled, indices, own, size) in filled_batches:
            count, buffer = len(indices), filled.buffer
            is_shared = isinstance(buffer, int)
            inputs = _tensor(self._widened(filled.inputs[:count]), is_shared)
            labels = _tensor(filled.labels[:count], is_shared)
            filled = None
            if self.device.type != "cpu":
                inputs, labels = inputs.to(self.device), labels.to(self.device)
            inputs, labels = self.change(inputs, labels)
            engine.give_back(buffer, is_shared)
            batch = Batch(inputs, labels, indices, own, size)
            inputs = labels = buffer = None
            yield batch
            batch = None

    def _widened(self, array):
        """Tokens as numbers that PyTorch indexes with; in this thread, where it costs least."""
        is_wanted = self.change.is_tokens and self.device.type == "cpu"
        return array.astype(np.int64) if is_wanted else array


class OverCuda:
    """Deliver to a CUDA device over pinned buffers and a stream of its own."""

    def __init__(self, device, change, filler):
        self.device, self.change, self.filler = device, change, filler
        self.stream = torch.cuda.Stream(device)

    def new_arrays(self, num_rows):
        """Pinned arrays of one batch."""
        shape, kind = (num_rows, *self.filler.shape), getattr(torch, self.filler.dtype)
        inputs = torch.empty(shape, dtype=kind, pin_memory=True)
        labels = torch.empty(num_rows, dtype=torch.int64, pin_memory=True)
        return inputs.numpy(), labels.numpy()

    def __call__(self, filled_batches):
        """As `InMemory` does; the copy of the next batch begins before one is yielded."""
        waiting = deque()
        for engine, (filled, indices, own, size) in filled_batches:
            tensors, copied = self._copy(filled, len(indices))
            waiting.append((engine, filled.buffer, tensors, copied, (indices, own, size)))
            if len(waiting) >= _COPIED_AHEAD:
                yield Batch(*self._arrived(waiting.popleft()))
        while waiting:
            yield Batch(*self._arrived(waiting.popleft()))

    def _copy(self, filled, count):
        """Begin the copy of a batch; what happens to it on the device goes on the same stream."""
        with torch.cuda.stream(self.stream):
            sent = [
                torch.from_numpy(a[:count]).to(self.device, non_blocking=True)
                for a in (filled.inputs, filled.labels)
            ]
            tensors = self.change(*sent)
            copied = torch.cuda.Event()
            copied.record(self.stream)
        return tensors, copied

    def _arrived(self, sent):
        """The batch for the stream that computes; its buffer is free as soon as it was copied."""
        engine, buffer, tensors, copied, rest = sent
        computing = torch.cuda.current_stream(self.device)
        computing.wait_event(copied)
        for tensor in tensors:
            tensor.record_stream(computing)
        copied.synchronize()
        engine.give_back(buffer, True)
        return (*tensors, *rest)


def _tensor(array, is_shared):
    """The array as a tensor; of memory that is reused at once, a copy."""
    return torch.from_numpy(np.array(array) if is_shared else array)
