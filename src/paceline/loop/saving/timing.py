"""What steps and saves of a run take, and when the next save is due."""

import statistics
import time
from collections import deque, namedtuple

from paceline.loop.saving.pace import pace_of

#: How a save went: what the training waited for, how long until the commit, what went wrong.
Outcome = namedtuple("Outcome", ["name", "step", "blocked_s", "save_s", "failure"])
#: An epoch that took so many times a save ends with one.
_WORTH_A_SAVE = 20


class Timing:
    """What steps and saves take, and when the next save is due.

    Attributes:
        last: Cost and length of the last save, in seconds; None before the first.
    """

    def __init__(self):
        self.last = None
        self.pace = None
        self._steps = deque(maxlen=64)
        self._excess_s = 0.0
        self._step_at_s = self._saved_at_s = time.monotonic()
        self._has_saved = False

    def begin(self):
        """An epoch begins: what was between is no step."""
        self._step_at_s = time.monotonic()
        if not self._has_saved and not self._steps:
            self._saved_at_s = self._step_at_s

    def step(self, is_saving):
        """A step has ended."""
        now = time.monotonic()
        took_s, self._step_at_s = now - self._step_at_s, now
        if not is_saving:
            self._steps.append(took_s)
        elif self._steps:
            self._excess_s += max(0.0, took_s - statistics.median(self._steps))

    def saved(self):
        """A save begins."""
        self._has_saved = True
        self._saved_at_s = self._step_at_s = time.monotonic()
        self._excess_s = 0.0

    def learn(self, outcome, settings):
        """Learn from a save; a line about it where the pace has changed much."""
        cost_s = outcome.blocked_s + self._excess_s
        self.last = [cost_s, outcome.save_s]
        before = self.pace
        self.pace = pace_of(cost_s, outcome.save_s, settings.interruptions_per_hour)
        if settings.every_s or settings.every_steps:
            if before is not None:
                return None
            return "%.2f s, of which the training waited %.2f s" % (outcome.save_s, cost_s)
        if before is not None and 0.5 < self.pace.interval_s / before.interval_s < 2:
            return None
        return "%.2f s, of which the training waited %.2f s; then every %.0f s (%s)" % (
            outcome.save_s, cost_s, self.pace.interval_s, self.pace.reason
        )  # fmt: skip

    def is_due(self, settings):
        """Whether it is time; the first save comes at once and shows that saves work."""
        passed_s = time.monotonic() - self._saved_at_s
        if settings.every_s:
            return passed_s >= settings.every_s
        if self.pace is None and self.last is not None:
            self.pace = pace_of(*self.last, settings.interruptions_per_hour)
        return self.pace is None or passed_s >= self.pace.interval_s

    def is_worth_a_save(self):
        """Whether more was done since the last save than saves may cost."""
        if self.last is None:
            return False
        return time.monotonic() - self._saved_at_s >= _WORTH_A_SAVE * self.last[1]
