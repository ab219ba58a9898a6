"""What is being done, and what is left of it, on stderr; on a terminal at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_SILENT: ContextVar[bool] = ContextVar("is_silent", default=False)
#: Seconds until the first word, on a terminal and elsewhere; from when on a bar says what is left.
_FIRST_WORD_S, _PATIENCE_S, _BAR_AFTER_S = 0.05, 1.0, 2.0
_STEP_S = 0.5
_BAR_WIDTH = 20
_ERASE_LINE = "\r\x1b[K"

#: Takes the share that is done, from 0 to 1.
Advance = Callable[[float], None]


@contextmanager
def silent() -> Iterator[None]:
    """Say nothing of what is done meanwhile: someone else tells the user that it goes on."""
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Say what is being done, and what is left where the work says which share is done.

    On a terminal the line counts seconds, is a bar after two of them, and goes away at the end;
    elsewhere it stands once.
    """
    if _IS_SILENT.get():
        yield lambda _: None
        return
    done, shares = threading.Event(), [0.0]
    thread = threading.Thread(target=_talk, args=(what, done, shares), daemon=True)
    thread.start()
    try:
        yield shares.append
    finally:
        done.set()
        thread.join()


def _talk(what: str, done: threading.Event, shares: list[float]) -> None:
    is_terminal = sys.stderr.isatty()
    started_s = time.monotonic()
    if done.wait(_FIRST_WORD_S if is_terminal else _PATIENCE_S):
        return
    if not is_terminal:
        print(f"{what} …", file=sys.stderr, flush=True)
        return
    while True:
        line = progress_line(what, time.monotonic() - started_s, shares[-1])
        print(f"{_ERASE_LINE}{line}", end="", file=sys.stderr, flush=True)
        if done.wait(_STEP_S):
            break
    print(_ERASE_LINE, end="", file=sys.stderr, flush=True)


def progress_line(what: str, elapsed_s: float, share: float) -> str:
    """The line of a terminal.

    >>> progress_line("searching", 0.5, 0.0), progress_line("searching", 3.0, 0.0)
    ('searching …', 'searching … 3 s')
    >>> progress_line("searching", 4.0, 0.25)
    'searching ━━━━━─────────────── 25 %, about 12 s left'
    """
    if elapsed_s < 1.0:
        return f"{what} …"
    if elapsed_s < _BAR_AFTER_S or share <= 0.0:
        return f"{what} … {elapsed_s:.0f} s"
    filled = round(_BAR_WIDTH * min(share, 1.0))
    bar = "━" * filled + "─" * (_BAR_WIDTH - filled)
    left_s = elapsed_s * (1.0 / min(share, 1.0) - 1.0)
    return f"{what} {bar} {100 * share:.0f} %, about {left_s:.0f} s left"
