"""Who is answered next: two workers, the shortest work first, one search for one question."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from itertools import count
from queue import PriorityQueue

from paceline.app.progress import silent
from paceline.errors import PacelineError

#: Answers that are looked for at the same time: a third would take memory and gain nothing.
_NUM_WORKERS = 2


Find = Callable[[], object]


class Turns:
    """Answers by key, kept for as long as there are not too many.

    Whoever asks what is already looked for waits for that answer. Only the workers search, so that
    what a search takes of memory is taken twice at most, however many ask.
    """

    def __init__(self, most_kept: int) -> None:
        self._most_kept = most_kept
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Future[object]] = OrderedDict()
        self._waiting: PriorityQueue[tuple[int, int, Future[object], Callable[[], object]]]
        self._waiting = PriorityQueue()
        self._numbers = count()
        self._own = threading.local()
        for _ in range(_NUM_WORKERS):
            threading.Thread(target=self._work, daemon=True).start()

    def answer(self, key: Hashable, find: Find, *, effort: int = 0) -> object:
        """What ``find`` returns, or did when this was asked before.

        Args:
            key: Of the question.
            find: Looks for the answer.
            effort: Those with less are answered first.

        Raises:
            PacelineError: What ``find`` refuses, or did.
        """
        is_part = getattr(self._own, "works", False)
        with self._lock:
            found = self._kept.get(key)
            is_new = found is None or (is_part and not found.done())
            if is_new or found is None:
                found = self._kept[key] = Future()
                while len(self._kept) > self._most_kept:
                    self._kept.popitem(last=False)
        if is_new and is_part:
            _fill(found, find)
        elif is_new:
            self._waiting.put((effort, next(self._numbers), found, find))
        return self._told(key, found)

    def _told(self, key: Hashable, found: Future[object]) -> object:
        error = found.exception()
        if error is None:
            return found.result()
        if not isinstance(error, PacelineError):
            with self._lock:
                self._kept.pop(key, None)
        raise error.with_traceback(None)

    def _work(self) -> None:
        self._own.works = True
        with silent():
            while True:
                _, _, found, find = self._waiting.get()
                _fill(found, find)


def _fill(found: Future[object], find: Find) -> None:
    try:
        found.set_result(find())
    except Exception as error:  # noqa: BLE001 (it is raised where the answer is waited for)
        found.set_exception(error)
