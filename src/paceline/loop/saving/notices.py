"""Signals that announce an end: SIGTERM saves and ends the run, SIGUSR1 saves and goes on."""

import contextlib
import os
import signal
import threading

_NUMBERS = (signal.SIGTERM, signal.SIGUSR1)


class Notices:
    """What this process was told.

    Attributes:
        must_end: SIGTERM has come.
        must_save: SIGUSR1 has come since the last save.
    """

    def __init__(self):
        self.must_end = self.must_save = False
        self._before = {}

    def listen(self):
        """Take the signals, where this thread may."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _NUMBERS:
            self._before[number] = signal.signal(number, self._heard)

    def _heard(self, number, frame):
        if number == signal.SIGTERM:
            self.must_end = True
        else:
            self.must_save = True

    def wishes(self):
        """To end, and to save, as numbers that ranks can exchange."""
        return [int(self.must_end), int(self.must_save or self.must_end)]

    def stop_listening(self):
        """Give the signals back to whoever had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def end(self):
        """End as the signal would have ended this process."""
        self.stop_listening()
        os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def held_back():
    """Inside, processes are started that never hear the signals, not even while they begin.

    A loader's worker must still bring the batch that the training waits for. This thread hears
    afterwards what came meanwhile.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
