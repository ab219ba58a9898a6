"""Data workers that end with the process they work for.

PyTorch's own watchdog asks for the parent of a worker. Started by a fork server (the default from
Python 3.14 on) that parent is the server, which lives as long as its workers do: a trainer that is
killed would leave both behind.
"""

import os
import threading
import time

_LOOK_S = 1.0


class EndsWith:
    """A `worker_init_fn` that ends the worker once a process is gone, and calls the user's own.

    Args:
        pid: The process that is worked for.
        own: The user's `worker_init_fn`, or None.
    """

    def __init__(self, pid, own=None):
        self.pid = pid
        self.own = own
        self.began = _began(pid)

    def __call__(self, worker):
        """Begin to look after the process, in the worker of that number."""
        threading.Thread(target=self._look, daemon=True, name="ends-with-trainer").start()
        if self.own is not None:
            self.own(worker)

    def _look(self):
        while _began(self.pid) == self.began:
            time.sleep(_LOOK_S)
        os._exit(1)


def _began(pid):
    """What tells a process from a later one of its number; None where it is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return None if os.path.isdir("/proc/self") else _answers(pid)
    # Field 3 is the state: what has ended and was not waited for runs no more.
    return None if words[0] in "ZX" else words[19]


def _answers(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "runs"
