"""One write at a time beside the training, in a thread of its own."""

import threading


class BackgroundWriter:
    """What writes saves while the training goes on."""

    def __init__(self):
        self._thread = None

    @property
    def is_busy(self):
        """Whether something is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, write, *args):
        """Call ``write`` with its arguments; nothing else may be being written."""
        self._thread = threading.Thread(target=write, args=args, name="paceline-save")
        self._thread.start()

    def join(self):
        """Wait until nothing is being written, and say whether something was."""
        if self._thread is None:
            return False
        self._thread.join()
        self._thread = None
        return True
