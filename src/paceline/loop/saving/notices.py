"""Signals that announce an end: SIGTERM saves and ends the run, SIGUSR1 saves and goes on."""

import os
import signal
import threading


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
        for number in (signal.SIGTERM, signal.SIGUSR1):
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


def ignore_in_worker():
    """Leave signals to the training process: a batch that it waits for must still come."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
