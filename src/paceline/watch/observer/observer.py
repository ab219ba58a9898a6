"""What a watched process writes down of itself: lines of JSON in the run folder.

Standard library only; old syntax, because it runs in the user's Python. The training thread appends
tuples; a thread of the observer's own writes them twice a second. Nothing here raises into the
script: what goes wrong ends the observer and leaves one line that says so.
"""

import _thread
import atexit
import collections
import functools
import importlib.util
import os
import sys
import time

VERSION = 1
FLUSH_S = 0.5
#: A thread that made no mark for so long has its stack written, and again after as long.
QUIET_S = 2.0
_NUM_FRAMES = 40
_HERE = os.path.dirname(os.path.abspath(__file__))

clock = time.perf_counter_ns


def begin(folder):
    """Wait for the imports that are observed."""
    log = Log(folder)
    names = {"torch": "torch_steps", "keras": "keras_steps"}
    actions = {name: functools.partial(_install, own, log) for name, own in names.items()}
    sys.meta_path.insert(0, _AfterImport(actions))


def _install(name, log):
    load(name).install(log)


def load(name):
    """A module beside this one, under a name that hides none of the user's."""
    full = "_paceline_" + name
    if full not in sys.modules:
        path = os.path.join(_HERE, name + ".py")
        spec = importlib.util.spec_from_file_location(full, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


class _AfterImport:
    """Calls a function once a module is there."""

    def __init__(self, actions):
        self._actions = actions

    def find_spec(self, name, path=None, target=None):
        """The usual spec of a module that is waited for; its action runs after its import."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        loader = getattr(spec, "loader", None)
        if loader is None:
            return None
        plain = loader.exec_module

        def exec_module(module):
            """Execute the module as its loader does, then act."""
            del loader.exec_module
            plain(module)
            quietly(action)

        loader.exec_module = exec_module
        return spec


def quietly(action, *args):
    """The result of a function of the observer; None where it failed."""
    try:
        return action(*args)
    except Exception:  # noqa: BLE001  The script runs on, whatever happens to its observer.
        return None


def write_whole(path, found):
    """Write JSON that others wait for: the file is there once it is complete."""
    import json

    with open(path + ".draft", "w") as file:
        json.dump(found, file)
    os.replace(path + ".draft", path)


class Log:
    """Lines of one process.

    Attributes:
        marks: What the training thread came to since (`rows`).
        made: Makes rows of them.
        rows: Steps that are not written yet.
        heard: Called with each of them too; None where nobody asks.
        events: Mappings that are not written yet.
        facts: Functions called at every writing, each of which gives a list of events.
        at_off: Functions that take the marks out again, called when the observer ends early.
        main_thread: Its identifier.
        is_off: Whether the observer has ended.
        is_closing: Whether the process ends.
    """

    def __init__(self, folder):
        self.folder = folder
        self.marks = collections.deque()
        self.made = load("rows").Rows()
        self.rows = collections.deque()
        self.heard = None
        self.events = collections.deque()
        self.facts = []
        self.at_off = []
        self.main_thread = 0
        self.is_started = False
        self.is_off = False
        self.is_closing = False
        self._rank = None
        self._file = None
        self._lock = _thread.allocate_lock()
        self._stack_at_ns = 0
        os.register_at_fork(after_in_child=self._forget)

    def start(self):
        """Open the file of this process, and begin to write; called at its first mark."""
        import json

        self.is_started = True
        try:
            self.main_thread = _thread.get_ident()
            self.made.last_ns = self.made.last_ns or clock()
            self._rank = _rank()
            name = "rank-%d-%d.jsonl" % (self._rank, os.getpid())
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(os.path.join(self.folder, name), flags, 0o644)
            # At once: a process that ends within half a second was there.
            _write(self._file, (json.dumps(self._header()) + "\n").encode())
            _thread.start_new_thread(self._keep_writing, ())
            atexit.register(self.close)
            _watch_exits(self)
            _at_exit_of_a_child(self.close)
        except Exception as error:  # noqa: BLE001  As in `quietly`.
            self.off(error)

    def off(self, error):
        """End the observer, and say why in the run folder."""
        self.is_off = True
        for undo in self.at_off:
            quietly(undo)
        self.marks.clear()
        path = os.path.join(self.folder, "observer-%d.txt" % os.getpid())
        with open(path, "a") as file:
            file.write("%s: %s\n" % (type(error).__name__, error))

    def event(self, what, /, **facts):
        """Something beside steps."""
        self.events.append(dict(facts, event=what, t=clock()))

    def close(self):
        """Write what is left."""
        if self.is_started and not self.is_off and self._file is not None:
            self.event("end")
            self.is_closing = True
            quietly(self.flush)
            self.is_off = True

    def settle(self):
        """Make rows of what the training thread has noted so far."""
        if self._lock.acquire(timeout=1.0):
            try:
                self.made.settle(self.marks, self._done)
            finally:
                self._lock.release()

    def _done(self, row):
        self.rows.append(row)
        if self.heard is not None:
            self.heard(row)

    def flush(self):
        """Write everything that is not written yet."""
        import json

        line_of = load("rows").line_of
        if not self._lock.acquire(timeout=1.0):
            return
        try:
            self.made.settle(self.marks, self._done)
            self._check_rank()
            for facts in self.facts:
                self.events.extend(facts())
            lines = []
            while self.events:
                lines.append(json.dumps(self.events.popleft()))
            while self.rows:
                lines.append(line_of(self.rows.popleft()))
            if lines:
                _write(self._file, ("\n".join(lines) + "\n").encode())
        finally:
            self._lock.release()

    def _keep_writing(self):
        try:
            while not self.is_off:
                time.sleep(FLUSH_S)
                self.settle()
                self._look_at_the_stack()
                self.flush()
        except Exception as error:  # noqa: BLE001  As in `quietly`.
            quietly(self.off, error)

    def _look_at_the_stack(self):
        """Write where the training thread is, when it has not moved for some time."""
        now = clock()
        quiet_ns = now - self.made.last_ns
        if quiet_ns < 1e9 * QUIET_S or now - self._stack_at_ns < 1e9 * QUIET_S:
            return
        self._stack_at_ns = now
        frame = sys._current_frames().get(self.main_thread)
        self.event("stack", quiet_s=quiet_ns / 1e9, frames=_frames(frame))

    def leaves(self, call, frame):
        """The process is about to end by a call in a line of its own."""
        if self.is_started and not self.is_off:
            self.event("exit", call=call, frames=_frames(frame))
            self.flush()

    def _header(self):
        import platform

        return {
            "event": "begin",
            "version": VERSION,
            "rank": self._rank,
            "world_size": _world_size(),
            "pid": os.getpid(),
            "host": platform.node(),
            "python": platform.python_version(),
            "argv": list(getattr(sys, "argv", [])),
            "time_ns": time.time_ns(),
            "t": clock(),
        }

    def _check_rank(self):
        """A process group may be made after the first mark."""
        rank = _rank()
        if rank != self._rank:
            self._rank = rank
            self.event("rank", rank=rank, world_size=_world_size())

    def _forget(self):
        """A forked child has no lines of its own yet, and no thread that writes them."""
        self.marks.clear()
        self.rows.clear()
        self.events.clear()
        self.is_started = False
        self._file = None
        self._lock = _thread.allocate_lock()


def _frames(frame):
    """File, line and function of a frame and of those that called it."""
    frames = []
    while frame is not None and len(frames) < _NUM_FRAMES:
        code = frame.f_code
        frames.append([code.co_filename, frame.f_lineno or 0, code.co_name])
        frame = frame.f_back
    return frames


def _watch_exits(log):
    """Write down which line ends the process: `os._exit` runs nothing else, `sys.exit` hides it."""
    plain = os._exit, sys.exit

    def leave(status):
        quietly(log.leaves, "os._exit", sys._getframe(1))
        plain[0](status)

    def end(status=None, /):
        quietly(log.leaves, "sys.exit", sys._getframe(1))
        plain[1](status)

    def undo():
        os._exit, sys.exit = plain

    os._exit, sys.exit = leave, end
    log.at_off.append(undo)


def _at_exit_of_a_child(function):
    """Children of multiprocessing end without the interpreter's own exit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, function, exitpriority=0)


def _group():
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not getattr(distributed, "is_initialized", bool)():
        return None
    return distributed


def _rank():
    group = _group()
    return group.get_rank() if group is not None else _number("RANK", 0)


def _world_size():
    group = _group()
    return group.get_world_size() if group is not None else _number("WORLD_SIZE", 1)


def _number(variable, otherwise):
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else otherwise


def _write(file, data):
    while data:
        data = data[os.write(file, data) :]
