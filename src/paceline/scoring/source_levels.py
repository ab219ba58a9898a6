"""Published tables read as what they are: the level that tables of a kind have in common.

The fit of the built-in coefficients gives every table an effect of its own, so that no author's
habits end in devices or networks. Their mean by framework, task and device is what a row of such a
table is expected to state beside the time of its kernels (decisions 0078 and 0082). Users' own jobs
have none of it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib import resources

from paceline.predict import Calibration
from paceline.predict.calibration import SourceLevels


def as_published(calibration: Calibration) -> Calibration:
    """The calibration for rows of published tables."""
    return replace(calibration, source_levels=_source_levels())


def without_levels(calibration: Calibration) -> Calibration:
    """The calibration for a step that makes one token of each item: tables timed whole items."""
    return replace(calibration, source_levels=None)


@cache
def _source_levels() -> SourceLevels:
    path = resources.files("paceline.scoring") / "data" / "source_levels.json"
    levels = json.loads(path.read_text(encoding="utf-8"))
    return SourceLevels(every=levels["all"], device=levels["device"], family=levels["family"])
