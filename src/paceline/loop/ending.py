"""How a process that has done its work leaves the others: with status 0.

A gloo group has threads that run its collectives. Each lets go of a collective's tensors a moment
after the collective is said to be done, and takes the interpreter's lock for it. An interpreter
that has begun to end gives it to nobody: up to Python 3.13 it ends a thread that asks, which C++
answers by ending the process ("terminate called without an active exception"). So the interpreter
waits here, while it still gives the lock, until those threads have nothing to do.
"""

import atexit
import os
import sys
import time

import torch.distributed as dist

_TASKS = "/proc/self/task"
#: What PyTorch calls threads of its groups. Older releases leave them the name of the program.
_NAME = "pt_gloo"
#: Longer than any thread takes that only lets go, on a machine that is not at a standstill.
_PATIENCE_S = 10.0
#: Where the state of threads cannot be read.
_BLIND_PAUSE_S = 0.2
_LOOK_S = 0.002
#: Looks in a row that find no thread at work.
_NUM_LOOKS = 3
_state = {"is_heard": False, "owns_group": False}


def leave_in_order(*, owns_group=False):
    """Have this process wait for its groups' threads before its interpreter ends.

    Args:
        owns_group: Whether the loop itself joined the processes: then it parts them, too.
    """
    _state["owns_group"] = _state["owns_group"] or owns_group
    if not _state["is_heard"]:
        _state["is_heard"] = True
        atexit.register(_leave, os.getpid())


def _leave(pid):
    """At the interpreter's end, of the process that asked for it: not of what it forked."""
    if os.getpid() != pid:
        return
    has_failed = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
    if _state["owns_group"] and dist.is_initialized() and not has_failed:
        dist.destroy_process_group()
    wait_for_threads()


def wait_for_threads(patience_s=_PATIENCE_S):
    """Wait, without the interpreter's lock, until no thread of a group is at work.

    Args:
        patience_s: Until when at most.

    Returns:
        Whether all of them were seen at rest.
    """
    if not os.path.isdir(_TASKS):
        time.sleep(_BLIND_PAUSE_S)
        return False
    own = _words("comm", str(os.getpid()))
    until_s, quiet = time.monotonic() + patience_s, 0
    while quiet < _NUM_LOOKS and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        quiet = 0 if _are_at_work(own) else quiet + 1
    return quiet == _NUM_LOOKS


def _are_at_work(own):
    """Whether a thread runs, or would if it had a core. One that waited for the lock does now."""
    for task in os.listdir(_TASKS):
        name = _words("comm", task)
        is_ours = name.startswith(_NAME) or (name == own and task != str(os.getpid()))
        if is_ours and _words("stat", task).rpartition(") ")[2][:1] in ("R", "D"):
            return True
    return False


def _words(kind, task):
    """What the system says of a thread; nothing where it has ended."""
    try:
        with open("%s/%s/%s" % (_TASKS, task, kind)) as file:
            return file.read()
    except OSError:
        return ""
