"""Adapters that a device holds at once, fewer than there are: who waits, and what is brought in.

An engine takes the request that has waited longest of those whose adapter is there, or for which
one that no request uses may go; the one that was asked for longest ago goes.

Source: vLLM, ``Scheduler.schedule`` (``max_loras``: requests of further adapters are passed over)
and ``LRUCacheWorkerLoRAManager``; recalled 2026-11-27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

#: Which adapter each request asks for is drawn by it.
_SEED = 0


class AdapterSlots:
    """The adapters on a device while a run goes on.

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

    def place(self, waiting: Iterable[int]) -> int | None:
        """The first of those that wait whose adapter is used or may come; None without one."""
        if len(self._used) < self._num_held:
            return 0
        return next((at for at, one in enumerate(waiting) if self._of[one] in self._used), None)

    def take(self, number: int) -> float:
        """Seconds until the adapter of a request is there, which uses it from then on."""
        adapter = self._of[number]
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
