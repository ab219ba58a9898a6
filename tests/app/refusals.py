"""What tests of broken and hostile input share."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings

from paceline.errors import PacelineError

#: A quarter of the profile's examples: each of these reads a whole file.
EXAMPLES = settings(max_examples=settings.default.max_examples // 4)
AS_OF = ("--as-of", "2026-11-20")


class Outcome:
    """What a command left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def assert_helpful(self) -> None:
        lines = self.err.strip().splitlines()
        assert self.status == 2, self.err
        assert self.out == ""
        assert "Traceback" not in lines[-2] + lines[-1]
        assert lines[-2].startswith("error: "), self.err
        assert lines[-1].startswith("hint: "), self.err


def assert_refused(call: Callable[[], object]) -> None:
    """The call succeeds or raises an error with a message and a hint; nothing else."""
    try:
        call()
    except PacelineError as error:
        message, hint = str(error), error.hint
    else:
        return
    assert message
    assert hint
    assert "\n" not in hint
