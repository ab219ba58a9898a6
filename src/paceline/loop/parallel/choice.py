"""The choice of a plan that this process was started with."""

import json
import os

from ..errors import LoopError

#: What `paceline run PLAN` sets: the choice of the plan, as JSON.
CHOICE_VARIABLE = "PACELINE_CHOICE"


def planned():
    """The plan's choice that this process was started with, as a mapping; empty without one.

    Raises:
        LoopError: The variable holds something else.
    """
    text = os.environ.get(CHOICE_VARIABLE)
    if not text:
        return {}
    try:
        choice = json.loads(text)
    except ValueError:
        choice = None
    if not isinstance(choice, dict):
        raise LoopError(
            "`%s` holds no choice of a plan" % CHOICE_VARIABLE,
            "unset it, or start with `paceline run PLAN -- …`",
        )
    return choice
