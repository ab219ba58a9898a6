"""Trace workers that begin with their frameworks imported, most of what a worker takes.

One process imports them once for all test processes of a run. Each worker is a fork of it: its
modules, folder, environment and pipes are its own, and so is its end.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NoReturn

from paceline.execution import worker as engines
from paceline.model.reading import worker
from paceline.watch.command import FOLDER_VARIABLE

#: Engines that only need PyTorch.
_ENGINES = ("torch_engine.py", "torch_launch.py", "torch_micro.py")
#: What workers import of frameworks, most of their time.
_IMPORTED = ("torch._dynamo", "transformers.configuration_utils")
#: Bytes that say how long a request is.
_LENGTH = 8
#: To find or to start the process that forks; others may start or end one meanwhile.
_TRIES = 5


#: Models that are made by a library alone, of their name.
_NAMED = ("transformer:", "torchvision:", "timm:", "hf:")
#: What a request says of where it is asked.
_PLACES = ("output", "description", "directory")
#: Some megabytes each, for tests that follow one another.
_MOST_KEPT = 16


def asked_once(converse: Callable[..., Any]) -> Callable[..., Any]:
    """What workers report of models with a name, kept for who asks the same of warm workers."""
    kept: dict[str, tuple[Any, bytes]] = {}

    def ask(command: Sequence[str], request: Mapping[str, Any], *more: Any) -> Any:
        told = {name: value for name, value in request.items() if name not in _PLACES}
        key = json.dumps([command, told, sorted(_path())], sort_keys=True)
        is_kept = request["entry"].startswith(_NAMED) and worker._start == WORKERS.start
        if is_kept and key in kept:
            event, report = kept[key]
            Path(request["output"]).write_bytes(report)
            return event
        event = converse(command, request, *more)
        if is_kept and Path(request["output"]).is_file():
            kept[key] = event, Path(request["output"]).read_bytes()
            if len(kept) > _MOST_KEPT:
                del kept[next(iter(kept))]
        return event

    return ask


class WarmWorkers:
    """Starts workers of this Python as forks, and all others as processes."""

    def __init__(self) -> None:
        self._start, self._start_engine = worker._start, engines._start
        self._path = _path()
        self._server: socket.socket | None = None
        self._forks: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], talk: IO[str]) -> Any:
        """A worker that is used as `subprocess.Popen` is."""
        if command[0] != sys.executable or not _path() >= self._path:
            return self._start(command, talk)
        return _Worker(self._connection(), (command[-1],), talk)

    def start_engine(
        self, command: Sequence[str], errors: IO[bytes], environment: Mapping[str, str] | None
    ) -> Any:
        """An engine of PyTorch in a session of its own; any other as a process."""
        program, *words = command
        if program != sys.executable or Path(words[0]).name not in _ENGINES:
            return self._start_engine(command, errors, environment)
        begun = self.start_script(*words, talk=errors, env=environment)
        begun.stdin.close()
        return begun

    def start_watched(
        self, command: Sequence[str], *, env: Mapping[str, str], **streams: Any
    ) -> Any:
        """As `subprocess.Popen` starts a file of Python whose words go to a file."""
        program, *words = command
        if program != sys.executable or not words[0].endswith(".py"):
            return subprocess.Popen(command, env=env, **streams)
        out = streams["stdout"]
        begun = _Worker(self._connection(), tuple(words), out, env, out=out)
        begun.stdin.close()
        begun.stdout.close()
        return begun

    def Popen(self, command: Sequence[str], **_streams: Any) -> _Worker:  # noqa: N802  As there.
        """As `subprocess.Popen` starts this Python with pipes of text; warnings go to a file."""
        return self.start_script(*command[1:], talk=tempfile.TemporaryFile("w+"))

    def run(self, command: Sequence[str], **_streams: Any) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` does it."""
        return self.run_script(*command[1:])

    #: As there.
    PIPE = subprocess.PIPE

    def start_script(
        self, *words: str | Path, talk: IO[Any], env: Mapping[str, str] | None = None
    ) -> _Worker:
        """A script of a test, with its arguments and with more in its environment."""
        return _Worker(self._connection(), tuple(map(str, words)), talk, env or {})

    def run_script(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` runs a script that imports PyTorch, without waiting for that."""
        with tempfile.TemporaryFile("w+") as talk:
            ended = self.start_script(*words, talk=talk)
            out, errors = ended.communicate()
            return subprocess.CompletedProcess(words, ended.wait(), out, errors)

    def close(self) -> None:
        """Let go of the process that forks, which ends with the last that asks it."""
        if self._server is not None:
            self._server.close()
        if self._forks is not None:
            self._forks.wait()

    def _connection(self) -> socket.socket:
        """To the process that forks, which the first to ask has started."""
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        for _ in range(_TRIES):
            if self._server is not None:
                return self._server
            asked = socket.socket(socket.AF_UNIX)
            # Where there is none, or it was about to end.
            with contextlib.suppress(OSError):
                asked.connect(f"\0paceline-{run}")
                self._server = asked if asked.recv(1) else None
            if self._server is None:
                asked.close()
                # Where another test process was faster.
                with contextlib.suppress(OSError):
                    self._forks = _forks(f"\0paceline-{run}")
        raise AssertionError("no process forks")


def _forks(name: str) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        number = listener.fileno()
        return subprocess.Popen([sys.executable, __file__, str(number)], pass_fds=[number])


def _path() -> set[str]:
    return set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


#: Those of this test process.
WORKERS = WarmWorkers()


class _Worker:
    """What is used of a `subprocess.Popen`: its pipes, its end, and its status."""

    def __init__(
        self, server: socket.socket, words: tuple[str, ...], talk: IO[Any],
        more: Mapping[str, str] = MappingProxyType({}), out: IO[Any] | None = None,
    ) -> None:  # fmt: skip
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        self._mine, theirs = socket.socketpair()
        env = {**os.environ, worker._SHIPPED: str(worker.FRONT_ENDS), **more}
        request = json.dumps({"words": words, "env": env, "cwd": os.getcwd()}).encode()
        said = write_out if out is None else out.fileno()
        descriptors = [read_in, said, talk.fileno(), theirs.fileno()]
        socket.send_fds(server, [len(request).to_bytes(_LENGTH, "big")], descriptors)
        server.sendall(request)
        for one in (read_in, write_out):
            os.close(one)
        theirs.close()
        self.stdin: IO[str] = os.fdopen(write_in, "w")
        self.stdout: IO[str] = os.fdopen(read_out, errors="replace")
        self.pid, self._talk = int(self._line()), talk
        self.returncode: int | None = None

    def _line(self) -> str:
        """What its watcher says next: its process, then its status."""
        said = b""
        while not said.endswith(b"\n"):
            one = self._mine.recv(1)
            assert one, "the process that forks has ended"
            said += one
        return said.decode()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._mine], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def communicate(self, text: str = "") -> tuple[str, str]:
        # A script that reads nothing may have ended.
        with contextlib.suppress(BrokenPipeError), self.stdin as asked:
            asked.write(text)
        with self.stdout as said:
            out = said.read()
        self.wait()
        with self._talk as talk:
            talk.seek(0)
            return out, talk.read()

    def kill(self) -> None:
        # A worker that has ended listens no more.
        with contextlib.suppress(OSError):
            self._mine.sendall(b"kill\n")

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if timeout is not None and not select.select([self._mine], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a worker", timeout)
            self.returncode = int(self._line())
            self._mine.close()
        return self.returncode


def serve(listener: socket.socket) -> None:
    """Fork a worker for each request, until all who asked have closed."""
    for name in _IMPORTED:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    askers = [_greeted(listener)]
    while askers:
        for one in select.select([listener, *askers], [], [])[0]:
            if one is listener:
                askers.append(_greeted(listener))
            elif not _served(one, [listener, *askers]):
                askers.remove(one)
                one.close()


def _greeted(listener: socket.socket) -> socket.socket:
    asker, _ = listener.accept()
    # Who has gone is seen by what it asks: nothing.
    with contextlib.suppress(OSError):
        asker.sendall(b"+")
    return asker


def _served(asker: socket.socket, ours: Sequence[socket.socket]) -> bool:
    """Whether there was a request."""
    length, descriptors, *_ = socket.recv_fds(asker, _LENGTH, 4)
    if not length:
        return False
    request = _received(asker, int.from_bytes(length, "big"))
    if not os.fork():
        for one in ours:
            one.close()
        _watch(json.loads(request), descriptors)
    for one in descriptors:
        os.close(one)
    return True


def _received(server: socket.socket, length: int) -> bytes:
    request = b""
    while len(request) < length:
        request += server.recv(length - len(request))
    return request


def _watch(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Fork the worker, say its start and its end, and kill it when told to."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *pipes, told = descriptors
    child = os.fork()
    if not child:
        os.close(told)
        _work(request, pipes)
    for one in pipes:
        os.close(one)
    with socket.socket(fileno=told) as asker:
        asker.sendall(f"{child}\n".encode())
        ended = os.pidfd_open(child)
        if ended not in select.select([ended, asker], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # Nobody listens where the test process has gone.
        with contextlib.suppress(BrokenPipeError):
            asker.sendall(f"{status}\n".encode())
    os._exit(0)


def _work(request: Mapping[str, Any], pipes: Sequence[int]) -> NoReturn:
    """Be the worker: its pipes, its folder and its environment, then its file."""
    for number, one in enumerate(pipes):
        os.dup2(one, number)
        os.close(one)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    file = request["words"][0]
    sys.argv, sys.path[0] = request["words"], str(Path(file).parent)
    sys.path[1:1] = sorted(_path().difference(sys.path))
    status = 0
    try:
        _observe()
        runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001  A worker ends as an interpreter does.
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    if FOLDER_VARIABLE in os.environ:
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _observe() -> None:
    """Put in the observer that stands on the path, as an interpreter does at its start.

    It waits for an import of PyTorch, which is done already.
    """
    if FOLDER_VARIABLE not in os.environ:
        return
    sys.path.insert(0, os.environ["PYTHONPATH"].partition(os.pathsep)[0])
    sys.modules.pop("sitecustomize", None)
    import_module("sitecustomize")
    sys.meta_path[0]._actions.pop("torch")()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
