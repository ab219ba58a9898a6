"""Batches filled by threads: for work that releases the GIL.

Threads take rows of the next batches in order, write them into reused buffers, and wait when so
many batches are ready. A thread beyond the active number sleeps, so that their number can change
while running.
"""

import sys
import threading
import time
from collections import deque, namedtuple

import numpy as np

from .filling import NOTHING, added

#: A batch that is whole: its ``share`` of the order, the arrays (longer than the share if it is a
#: short one), ``(row, reason)`` of damaged rows, and what to hand back when it was copied.
Filled = namedtuple("Filled", ["share", "inputs", "labels", "damaged", "buffer"])
#: Batches ahead where nothing else is said.
LEAST_AHEAD = 4
#: References to a buffer that nobody uses: the attribute, and the argument of getrefcount.
_UNUSED = 2


class Buffer:
    """Arrays of one batch."""

    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def is_unused(self):
        """Whether nobody holds the arrays, or a view of them, any more."""
        return sys.getrefcount(self.inputs) <= _UNUSED and sys.getrefcount(self.labels) <= _UNUSED


class _Work:
    def __init__(self, share, buffer):
        self.share, self.buffer, self.damaged = share, buffer, []
        self.left, self.error = len(share.indices), None


class Threads:
    """Fill batches ahead.

    Args:
        filler: Of type ``filling.Filler``.
        shares: Iterator of ``order.Share``.
        epoch: For the random numbers.
        batch: Rows of a full buffer.
        ahead: Batches that are made ahead; None: as many as keep all threads at work.
        num_threads: Active at first.
        rows_a_turn: Rows that a thread takes at once.
        new_arrays: Makes the arrays ``(inputs, labels)`` of a buffer; pinned where that helps.
    """

    def __init__(
        self, filler, shares, epoch, batch, ahead, num_threads, rows_a_turn=1, new_arrays=None
    ):
        self.filler, self.shares, self.epoch = filler, shares, epoch
        self.batch, self.ahead, self.rows_a_turn = batch, ahead, rows_a_turn
        self._grows = ahead is None
        self._new_arrays = new_arrays or self._arrays
        # Each waits for its own: a batch that is whole, a turn to take, or being active again.
        self._lock = threading.Lock()
        self._whole, self._wanted, self._woken = (threading.Condition(self._lock) for _ in range(3))
        self._turns, self._works, self._free, self._lent = deque(), deque(), [], []
        self._is_done = self._is_closed = False
        self._threads, self._active = [], 0
        self.spent, self.num_filled = NOTHING, 0
        self.resize(num_threads)

    def resize(self, num_threads):
        """Change how many threads work."""
        with self._lock:
            self._active = num_threads
            if self._grows:  # Besides the batch that waits for its last rows, two for each thread.
                needed = 1 - -2 * num_threads * self.rows_a_turn // self.batch
                self.ahead = max(LEAST_AHEAD, needed)
            for number in range(len(self._threads), num_threads):
                thread = threading.Thread(
                    target=self._run, args=(number,), name="feed-%d" % number, daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._wanted.notify_all()
            self._woken.notify_all()

    def next(self):
        """The next batch in order, and how long it was waited for; None after the last."""
        start = time.perf_counter()
        with self._lock:
            while not (self._works and self._works[0].left == 0):
                if not self._works and not self._more():
                    return None, time.perf_counter() - start
                self._whole.wait()
            work = self._works.popleft()
            self._wanted.notify()  # Who wakes begins the next batch, and wakes others for it.
        if work.error is not None:
            raise work.error
        waited_s = time.perf_counter() - start
        buffer = work.buffer
        return Filled(work.share, buffer.inputs, buffer.labels, work.damaged, buffer), waited_s

    def give_back(self, buffer, is_copied):
        """Reuse a buffer: at once if it was copied, else as soon as nobody holds its arrays."""
        with self._lock:
            (self._free if is_copied else self._lent).append(buffer)
            del self._lent[: -self.ahead - 1]  # Kept by the consumer for longer: theirs.

    def close(self):
        """End the threads; what they were filling is dropped."""
        with self._lock:
            self._is_closed = True
            self._wanted.notify_all()
            self._woken.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self, number):
        began_cpu = time.thread_time()
        while True:
            with self._lock:
                turn = self._taken(number)
            if turn is None:
                return
            began_cpu = self._fill(*turn, began_cpu)

    def _taken(self, number):
        """The next turn, waited for; None at the end."""
        while not self._is_closed:
            if number >= self._active:
                self._woken.wait()
            elif self._turn_waits():
                return self._turns.popleft()
            else:
                self._wanted.wait()
        return None

    def _fill(self, work, first, began_cpu):
        """Fill a turn; all that this thread's core did since ``began_cpu`` is its cost."""
        rows = range(first, min(first + self.rows_a_turn, len(work.share.indices)))
        indices = work.share.indices[first : first + len(rows)]
        damaged, spent = [], NOTHING
        try:
            inputs, labels = work.buffer.inputs, work.buffer.labels
            damaged, spent = self.filler.fill(inputs, labels, rows, indices, self.epoch)
        except Exception as error:  # noqa: BLE001 - raised again where the batch is asked for
            work.error = error
        inputs = labels = None
        ended_cpu = time.thread_time()
        around_s = ended_cpu - began_cpu - spent.read_cpu_s - spent.work_cpu_s
        with self._lock:
            work.damaged.extend(damaged)
            work.left -= len(rows)
            self.spent = added(self.spent, spent._replace(around_cpu_s=around_s))
            self.num_filled += len(rows)
            if work.left == 0:
                self._whole.notify()
        return ended_cpu

    def _turn_waits(self):
        return bool(self._turns) or (len(self._works) < self.ahead and self._more())

    def _more(self):
        """Begin the next batch; False after the last."""
        share = None if self._is_done else next(self.shares, None)
        if share is None:
            self._is_done = True
            return False
        work = _Work(share, self._buffer())
        self._works.append(work)
        turns = [(work, row) for row in range(0, work.left, self.rows_a_turn)]
        self._turns.extend(turns)
        self._wanted.notify(len(turns))
        return True

    def _buffer(self):
        if self._free:
            return self._free.pop()
        for number, buffer in enumerate(self._lent):
            if buffer.is_unused():
                return self._lent.pop(number)
        return Buffer(*self._new_arrays(self.batch))

    def _arrays(self, num_rows):
        inputs = np.empty((num_rows, *self.filler.shape), self.filler.dtype)
        return inputs, np.empty(num_rows, np.int64)
