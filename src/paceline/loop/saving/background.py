"""Saves of a run in a folder, one at a time, each written in a thread beside the training."""

import os
import threading


class BackgroundSaves:
    """The saves of a run in a folder; what they hold and how it is written is a subclass's.

    Attributes:
        folder: Of all of them.
        keep: How many are kept.
        say: Prints a line.
        outcome: How the last one went; None until that is known, and once it was heard.
    """

    def __init__(self, folder, *, keep, say):
        self.folder, self.keep, self.say = os.path.abspath(folder), keep, say
        self.outcome = self._thread = self._lock = None

    @property
    def is_busy(self):
        """Whether a save is being written."""
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, write, *args):
        """Call ``write`` with its arguments in the thread; no save may be being written."""
        self._thread = threading.Thread(target=write, args=args, name="paceline-save")
        self._thread.start()

    def join(self):
        """Wait until no save is being written, and say whether one was."""
        if self._thread is None:
            return False
        self._thread.join()
        self._thread = None
        return True

    def close(self):
        """Wait for the save that is being written, and give the folder free."""
        self.join()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
