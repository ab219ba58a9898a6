"""Published tables read as what they are: the level of the tables that measured a device.

The fit of the built-in coefficients gives every table an effect of its own, so that no author's
habits end in devices or networks. What tables of a framework and task have in common is part of the
time of a step there; what those of one device add is expected of their rows alone
(decisions 0078, 0082 and 0090). Users' own jobs have none of it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from paceline.prediction.calibration.fitted import Calibration, SourceLevels
from paceline.shipped import shipped_path


def as_published(calibration: Calibration) -> Calibration:
    """The calibration for rows of published tables."""
    return replace(calibration, source_levels=_source_levels())


@cache
def _source_levels() -> SourceLevels:
    levels = json.loads(shipped_path("scoring", "source_levels.json").read_text(encoding="utf-8"))
    return SourceLevels(device=levels["device"], family=levels["family"])
