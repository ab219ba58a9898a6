"""Where saves go, and how often that place interrupts a run, where a call does not say so."""

import os
import sys

from paceline.loop.errors import LoopError

#: Where saves go if the call does not say so, and how often a place interrupts what it runs.
FOLDER_VARIABLE = "PACELINE_SAVES"
RATE_VARIABLE = "PACELINE_INTERRUPTIONS_PER_HOUR"


def default_folder():
    """Where saves go without being told: one folder for a script."""
    if os.environ.get(FOLDER_VARIABLE):
        return os.environ[FOLDER_VARIABLE]
    script = os.path.basename(getattr(sys.modules["__main__"], "__file__", None) or "session")
    return os.path.join("saves", os.path.splitext(script)[0])


def rate_of(given):
    """Interruptions an hour: those given, else those of the place; None where nobody knows.

    Raises:
        LoopError: The variable holds no number.
    """
    if given is not None:
        return given
    text = os.environ.get(RATE_VARIABLE)
    try:
        return float(text) if text else None
    except ValueError:
        raise LoopError("%s is `%s`" % (RATE_VARIABLE, text), hint="give a number") from None
