"""Adapters that a device holds at once, fewer than there are: who waits, and what is brought in.

An engine takes the request that has waited longest of those whose adapter is there, or for which
one that no request uses may go; the one that was asked for longest ago goes.

Source: vLLM, ``Scheduler.schedule`` (``max_loras``: requests of further adapters are passed over)
and ``LRUCacheWorkerLoRAManager``; recalled 2026-11-27.
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np

#: Which adapter each request asks for is drawn by it.
_SEED = 0


class AdapterSlots:
    """The adapters on a device while a run goes on, and the requests that wait for theirs.

    Args:
        num_requests: Of the run.
        num_adapters: Of which each asks for one, any as likely.
        num_held: On the device at once.
        load_s: Bringing one there.
    """

    def __init__(
        self, num_requests: int, *, num_adapters: int, num_held: int, load_s: float
    ) -> None:
        draws = np.random.default_rng(_SEED).integers(num_adapters, size=num_requests)
        self._of: list[int] = draws.tolist()
        self._num_held, self._load_s = num_held, load_s
        self._used: Counter[int] = Counter()
        #: Those on the device, who was asked for longest ago first.
        self._there: dict[int, None] = {}
        #: Requests that wait, with their place in line: all of them, and by adapter; those that
        #: wait no more are still among all for a while.
        self._all: deque[tuple[int, int]] = deque()
        self._by_adapter: dict[int, deque[tuple[int, int]]] = {}
        self._gone: set[int] = set()
        self._first = self._last = self._num_waiting = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._num_waiting

    def append(self, number: int) -> None:
        """A request waits behind all others."""
        self._last += 1
        for queue in self._queues_of(number):
            queue.append((self._last, number))
        self._num_waiting += 1

    def appendleft(self, number: int) -> None:
        """A request waits before all others."""
        self._first -= 1
        for queue in self._queues_of(number):
            queue.appendleft((self._first, number))
        self._num_waiting += 1

    def first(self) -> int | None:
        """Who has waited longest of those whose adapter is used or may come; None without one."""
        if len(self._used) >= self._num_held:
            heads = [queue[0] for one in self._used if (queue := self._by_adapter.get(one))]
            return min(heads)[1] if heads else None
        while self._all and self._all[0][0] in self._gone:
            self._gone.discard(self._all.popleft()[0])
        return self._all[0][1] if self._all else None

    def _queues_of(self, number: int) -> tuple[deque[tuple[int, int]], deque[tuple[int, int]]]:
        return self._all, self._by_adapter.setdefault(self._of[number], deque())

    def take(self, number: int) -> float:
        """Seconds until the adapter of a request is there, which waits no more and uses it.

        Args:
            number: Of `first`.
        """
        adapter = self._of[number]
        self._gone.add(self._by_adapter[adapter].popleft()[0])
        self._num_waiting -= 1
        is_there = adapter in self._there
        self._there.pop(adapter, None)
        self._there[adapter] = None
        self._used[adapter] += 1
        if is_there:
            return 0.0
        if len(self._there) > self._num_held:
            del self._there[next(one for one in self._there if one not in self._used)]
        return self._load_s

    def give(self, number: int) -> None:
        """A request uses its adapter no more."""
        adapter = self._of[number]
        self._used[adapter] -= 1
        if not self._used[adapter]:
            del self._used[adapter]
