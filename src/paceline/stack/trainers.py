"""What trainers do by default, by the name of the framework: settings of a training step.

Rows of ``data/trainers.csv``, each with its source and the day on which it was read. What a user or
a published row states wins over them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from paceline.shipped import shipped_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What a trainer does where nothing is stated.

    Attributes:
        name: Of its row.
        settings: As ``--rewrite`` reads them.
    """

    name: str
    settings: str


@cache
def trainer_of(framework: str, *, trains_all: bool) -> Trainer:
    """The trainer of a framework; one without settings where none of that name is known.

    Args:
        framework: As written, with or without its release.
        trains_all: Whether every parameter is trained, rather than adapters beside a frozen model.

    >>> trainer_of("torchtune", trains_all=True).settings
    'training_format=pure,loss=chunked'
    >>> trainer_of("PyTorch", trains_all=True)
    Trainer(name='another trainer', settings='')
    """
    for row in shipped_rows("stack", "trainers.csv"):
        fits = re.fullmatch(row["pattern"], framework, re.IGNORECASE)
        if fits and (not row["needs"] or trains_all):
            return Trainer(name=row["name"], settings=row["settings"])
    return Trainer(name="another trainer", settings="")
