"""A word on stderr for work that takes longer than a second, on a terminal only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_SILENT: ContextVar[bool] = ContextVar("is_silent", default=False)
_PATIENCE_S = 1.0
_ERASE_LINE = "\r\x1b[K"


@contextmanager
def silent() -> Iterator[None]:
    """Say nothing of what is done meanwhile: someone else tells the user that it goes on."""
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say what is being done if it is not done after a second.

    On a terminal the line counts the seconds and goes away at the end; elsewhere it stands once.
    """
    if _IS_SILENT.get():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_talk, args=(what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _talk(what: str, done: threading.Event) -> None:
    if done.wait(_PATIENCE_S):
        return
    if not sys.stderr.isatty():
        print(f"{what} …", file=sys.stderr, flush=True)
        return
    elapsed_s = _PATIENCE_S
    while True:
        print(f"\r{what} … {elapsed_s:.0f} s", end="", file=sys.stderr, flush=True)
        if done.wait(1.0):
            break
        elapsed_s += 1.0
    print(_ERASE_LINE, end="", file=sys.stderr, flush=True)
