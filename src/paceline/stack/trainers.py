"""What trainers do by default, by the name of the framework: settings of a training step.

Rows of ``data/trainers.csv``, each with its source and the day on which it was read. What a user or
a published row states wins over them.
"""

from __future__ import annotations

import re
from functools import cache

from paceline.shipped import shipped_rows


@cache
def trainer_settings(framework: str, *, trains_all: bool) -> str:
    """Settings that a trainer takes where nothing is stated, as ``--rewrite`` reads them.

    Args:
        framework: As written, with or without its release.
        trains_all: Whether every parameter is trained, rather than adapters beside a frozen model.

    >>> trainer_settings("torchtune 0.6", trains_all=True)
    'training_format=pure,loss=chunked'
    >>> trainer_settings("PyTorch 2.4", trains_all=True)
    ''
    """
    for row in shipped_rows("stack", "trainers.csv"):
        fits = re.fullmatch(row["pattern"], framework, re.IGNORECASE)
        if fits and (not row["needs"] or trains_all):
            return row["settings"]
    return ""
