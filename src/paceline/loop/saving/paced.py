"""What runs of every framework do alike about their saves: when, what is said, and the end."""

import sys

from paceline.loop.errors import LoopError
from paceline.loop.saving.notices import Notices
from paceline.loop.saving.timing import Timing


class PacedRun:
    """A run that saves when it is time, says how a save went, and ends as SIGTERM asks.

    A subclass sets ``_saves`` and ``_settings``, has `say` and `is_first`, and counts ``step``.

    Attributes:
        step: Optimizer steps done.
    """

    def __init__(self):
        self.step = self._saved_step = 0
        self._timing, self._notices = Timing(), Notices()

    def _is_due(self):
        """Whether this process wants a save, as a number that ranks can exchange."""
        settings = self._settings
        if settings.every_steps:
            return int(self.step - self._saved_step >= settings.every_steps)
        if not self.is_first or self._saves.is_busy:
            return 0
        return int(self._timing.is_due(settings))

    def _hear_of_saves(self):
        """Say how a save went, and learn what it cost."""
        outcome, self._saves.outcome = self._saves.outcome, None
        if outcome is None:
            return
        if outcome.failure:
            self._saved_step = min(self._saved_step, outcome.step - 1)
            self.say(
                "the save of step %d failed: %s; the ones before are kept, the run goes on"
                % (outcome.step, outcome.failure)
            )
            return
        line = self._timing.learn(outcome, self._settings)
        if line:
            self.say("saved step %d to %s: %s" % (outcome.step, self._saves.folder, line))

    def _end(self):
        """End as SIGTERM ends a process; everything is saved."""
        self.say("saved step %d after SIGTERM; the same command goes on from there" % self.step)
        sys.stdout.flush()
        sys.stderr.flush()
        self._notices.end()
        raise SystemExit(143)


def check_format(directory, body, version):
    """Refuse a save that was written in another format.

    Raises:
        LoopError: It was.
    """
    if body["version"] != version:
        raise LoopError(
            "`%s` was saved in format %s, and this Paceline reads %d"
            % (directory, body["version"], version),
            "finish the run with the Paceline that saved it, or save into another folder",
        )


def check_count(body, count):
    """Refuse data of another length than a save was made with.

    Raises:
        LoopError: It has one.
    """
    if body["num_samples"] not in (None, count):
        raise LoopError(
            "the data has %d samples; the save was made with %d" % (count, body["num_samples"]),
            "give the data as it was, or save into another folder (`folder=`)",
        )
