"""Files of tests in two processes: ``pytest --two`` runs them as one session.

A file is collected where it is run and when its turn comes, so that neither process imports the
tests of the other. One takes files from the front, the other from the back, the larger first: a
framework is imported, and a model traced, in one of them, and neither waits long for the other.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import signal
import struct
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

import pytest

#: Which files are left: the first, and the one after the last.
_LEFT = struct.Struct("=II")
#: How long a message is.
_LENGTH = struct.Struct("=I")
#: A process whose tests ran, whatever they said, and one that found none.
_RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Two:
    """Lists the files of tests, then runs them in this process and in a fork of it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._plugins = config, config.pluginmanager
        self._files: list[pytest.File] = []
        self._left = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  Open to the end.
        self._listing, self._forked = True, False
        self._told = _Told(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> pytest.CollectReport | None:
        """A file has no tests until its turn."""
        if not self._listing or not isinstance(collector, pytest.File):
            return None
        self._files.append(collector)
        return pytest.CollectReport(collector.nodeid, "passed", None, [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the files of both processes, and report their tests in this one."""
        if self._config.option.collectonly or session.testsfailed:
            return None
        self._listing = False
        self._files.sort(key=_turn)
        os.pwrite(self._left.fileno(), _LEFT.pack(0, len(self._files)), 0)
        child = self._fork()
        if not child:
            self._run(session)
            return True
        try:
            self._run(session)
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                session.testscollected += self._told.report()
                time.sleep(0.05)
        except BaseException:
            os.kill(child, signal.SIGTERM)
            raise
        session.testscollected += self._told.report()
        if os.waitstatus_to_exitcode(ended[1]) not in _RAN:
            raise RuntimeError(f"the second process of tests ended in {self._told.running}")
        return True

    def _fork(self) -> int:
        """Each with a capture of output of its own; the second is silent, and tells the first."""
        capture = self._plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        child = os.fork()
        capture.start_global_capturing()
        capture.suspend_global_capture(in_=True)
        if not child:
            self._forked = True
            self._config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: SIM115
            for name in ("lfplugin", "nfplugin"):
                self._plugins.unregister(name=name)
            self._plugins.register(_Teller(self._told))
        return child

    def _run(self, session: pytest.Session) -> None:
        for item, following in pairwise(chain(self._items(session), (None,))):
            assert item is not None
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if not self._forked:
                session.testscollected += self._told.report()
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    def _items(self, session: pytest.Session) -> Iterator[pytest.Item]:
        while (file := self._next()) is not None:
            # What a file imports comes to stay: no use in looking through it.
            gc.disable()
            items = list(session.genitems(file))
            self._config.hook.pytest_collection_modifyitems(
                session=session, config=self._config, items=items
            )
            gc.freeze()
            gc.enable()
            session.testscollected += len(items)
            yield from items

    def _next(self) -> pytest.File | None:
        fcntl.lockf(self._left, fcntl.LOCK_EX)
        first, end = _LEFT.unpack(os.pread(self._left.fileno(), _LEFT.size, 0))
        if first == end:
            taken = None
        elif self._forked:
            taken, end = end - 1, end - 1
        else:
            taken, first = first, first + 1
        os.pwrite(self._left.fileno(), _LEFT.pack(first, end), 0)
        fcntl.lockf(self._left, fcntl.LOCK_UN)
        return None if taken is None else self._files[taken]


class _Told:
    """What the second process tells the first: reports, in a file, so that nobody waits."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._file = config, tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._at, self.running = 0, ""

    def tell(self, what: Any) -> None:
        words = pickle.dumps(what)
        self._file.write(_LENGTH.pack(len(words)) + words)

    def tell_report(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        hook = self._config.hook.pytest_report_to_serializable
        self.tell(hook(config=self._config, report=report))

    def report(self) -> int:
        """Report what was told since the last time, and count the tests that ended."""
        ended = 0
        while (told := self._next()) is not None:
            if isinstance(told, str):
                self.running = told
                continue
            if isinstance(told, int):
                self._config.hook.pytest_deselected(items=[None] * told)
                continue
            report = self._config.hook.pytest_report_from_serializable(
                config=self._config, data=told
            )
            if isinstance(report, pytest.CollectReport):
                self._config.hook.pytest_collectreport(report=report)
                continue
            self._config.hook.pytest_runtest_logreport(report=report)
            ended += report.when == "teardown"
        return ended

    def _next(self) -> Any:
        head = os.pread(self._file.fileno(), _LENGTH.size, self._at)
        if len(head) < _LENGTH.size:
            return None
        length, start = _LENGTH.unpack(head)[0], self._at + _LENGTH.size
        words = os.pread(self._file.fileno(), length, start)
        if len(words) < length:
            return None
        self._at = start + length
        return pickle.loads(words)


class _Teller:
    """Tells reports, and how many tests are left out."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._told.tell(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._told.tell_report(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._told.tell_report(report)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._told.tell(len(items))


def _turn(file: pytest.File) -> tuple[bool, int]:
    """Files that use a framework from the back, the others from the front, both by size."""
    text = file.path.read_bytes()
    framework = b"torch" in text
    return framework, len(text) if framework else -len(text)
