"""What a trace answers where code decides by a value that nobody knows.

Standard library only. A condition is taken as not met. Where code then fails (an assertion, a loop
that never ends), that condition is taken as met instead, and the step is traced again.
"""

import os
import sys

#: Questions at one line after which its loop is taken to have no end.
_MOST = 5000


class Endless(Exception):
    """A loop whose end depends on a value that a trace has not."""

    kind = "endless"


class Choices:
    """Answers by the line that asks; kept from trace to trace."""

    def __init__(self):
        self._answers = {}
        self._numbers_read = False
        self._counts = {}

    def start(self):
        """Before each trace."""
        self._counts = {}

    def truth(self):
        """Whether the condition of the line that runs is met."""
        line = self.counted()
        return self._answers.setdefault(line, False)

    def counted(self):
        """The line that asks, which may not ask for ever."""
        line = _asking_line()
        self._counts[line] = self._counts.get(line, 0) + 1
        if self._counts[line] > _MOST:
            raise Endless("the loop at %s:%d has no end in a trace" % line)
        return line

    def numbers_are_zero(self):
        """Whole numbers, or many numbers, were copied to the host that nobody knows."""
        self._numbers_read = True

    def reversed(self):
        """Take the last condition that was not met as met; whether there was one."""
        for line in reversed(list(self._answers)):
            if self._counts.get(line) and not self._answers[line]:
                self._answers[line] = True
                return True
        return False

    def taken(self):
        """In words; empty where nothing was."""
        words = []
        for is_met, word in ((False, "not met"), (True, "met")):
            lines = ["%s:%d" % line for line, answer in self._answers.items() if answer is is_met]
            if lines:
                words.append("condition at %s %s" % (" and ".join(lines), word))
        if self._numbers_read:
            words.append("unknown numbers are zero on the host")
        return words


def _asking_line():
    """(file, line) of the code outside PyTorch and this front end that runs."""
    frame = sys._getframe(1)
    hidden = tuple(
        os.path.dirname(os.path.abspath(path)) + os.sep
        for path in (os.path.dirname(__file__), sys.modules["torch"].__file__)
    )
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(hidden):
            return os.path.basename(path), frame.f_lineno
        frame = frame.f_back
    return "unknown", 0
