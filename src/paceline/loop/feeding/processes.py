"""Batches filled by processes: for the user's Python, which holds the GIL.

The arrays of a batch lie in memory that all processes share; a worker is sent rows and indices and
answers with what was damaged. The memory has no name, so that nothing is left behind by a crash.
"""

import mmap
import multiprocessing
import signal
import time
from collections import deque
from multiprocessing.connection import wait

import numpy as np

from .filling import NOTHING, Spent, added
from .threads import Buffer, Filled, _Work


class Processes:
    """Fill batches ahead in processes that are forked from this one.

    Takes what ``Threads`` takes; the number of processes stays as it is.
    """

    def __init__(self, filler, shares, epoch, batch, ahead, num_processes, rows_a_turn=1):
        self.shares, self.epoch, self.ahead = shares, epoch, ahead
        self.rows_a_turn = rows_a_turn
        self.spent, self.num_filled = NOTHING, 0
        self._works, self._turns, self._is_done = deque(), deque(), False
        self._buffers = [_shared_buffer(filler, batch) for _ in range(ahead)]
        self._free = list(range(ahead))
        context = multiprocessing.get_context("fork")
        self._workers = []
        for _ in range(num_processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(
                    theirs,
                    [ours, *(pipe for _, pipe in self._workers)],
                    filler,
                    self._buffers,
                    epoch,
                ),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._workers.append((process, ours))
        self._idle = deque(range(num_processes))
        self._doing = {}

    def resize(self, num_threads):
        """The number of processes is fixed."""

    def next(self):
        """The next batch in order, and how long it was waited for; None after the last."""
        start = time.perf_counter()
        self._hand_out()
        while not (self._works and self._works[0].left == 0):
            if not self._works:
                return None, time.perf_counter() - start
            self._take_answers()
            self._hand_out()
        work = self._works.popleft()
        if work.error is not None:
            raise work.error
        buffer = self._buffers[work.buffer]
        filled = Filled(work.share, buffer.inputs, buffer.labels, work.damaged, work.buffer)
        return filled, time.perf_counter() - start

    def give_back(self, buffer, is_copied):
        """Reuse the buffer of that number; its content must have been copied."""
        self._free.append(buffer)
        self._hand_out()

    def close(self):
        """End the processes."""
        for process, pipe in self._workers:
            pipe.close()
            process.terminate()
        for process, _ in self._workers:
            process.join()

    def _hand_out(self):
        while self._idle and (self._turns or self._begin()):
            work, first = self._turns.popleft()
            rows = range(first, min(first + self.rows_a_turn, len(work.share.indices)))
            worker = self._idle.popleft()
            self._doing[worker] = work, len(rows)
            indices = work.share.indices[first : first + len(rows)]
            self._workers[worker][1].send((work.buffer, rows, indices))

    def _begin(self):
        """Begin the next batch; False after the last, or if no buffer is free."""
        share = next(self.shares, None) if self._free and not self._is_done else None
        if share is None:
            self._is_done = self._is_done or bool(self._free)
            return False
        work = _Work(share, self._free.pop())
        self._works.append(work)
        self._turns.extend((work, row) for row in range(0, work.left, self.rows_a_turn))
        return True

    def _take_answers(self):
        pipes = {self._workers[worker][1]: worker for worker in self._doing}
        for pipe in wait(list(pipes)):
            worker = pipes[pipe]
            work, num_rows = self._doing.pop(worker)
            try:
                damaged, spent, error = pipe.recv()
            except EOFError:
                self._workers[worker][0].join(1)
                status = self._workers[worker][0].exitcode
                raise RuntimeError("a worker process of feed ended with %s" % status) from None
            work.damaged.extend(damaged)
            work.error = error or work.error
            work.left -= num_rows
            self.spent = added(self.spent, Spent(*spent))
            self.num_filled += num_rows
            self._idle.append(worker)


def _work(pipe, inherited, filler, buffers, epoch):
    """Fill rows until the pipe is closed, which the end of the main process does, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            number, rows, indices = pipe.recv()
        except EOFError:
            return
        damaged, spent, error = [], NOTHING, None
        try:
            buffer = buffers[number]
            damaged, spent = filler.fill(buffer.inputs, buffer.labels, rows, indices, epoch)
        except Exception as raised:  # noqa: BLE001 - raised again where the batch is asked for
            error = RuntimeError("%s: %s" % (type(raised).__name__, raised))
        pipe.send((damaged, tuple(spent), error))


def _shared_buffer(filler, batch):
    kind = np.dtype(filler.dtype)
    num_values = batch * int(np.prod(filler.shape, dtype=np.int64))
    inputs = np.frombuffer(mmap.mmap(-1, max(1, num_values * kind.itemsize)), kind, num_values)
    labels = np.frombuffer(mmap.mmap(-1, batch * 8), np.int64)
    return Buffer(inputs.reshape((batch, *filler.shape)), labels)
