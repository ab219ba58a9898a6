"""The choice of strategy on vTrain after the runs that `paceline trials` would ask for.

Nothing is fitted beside what `paceline calibrate` learns from those runs, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from accuracy_parallel.sites import Simulator
from accuracy_parallel.tables import with_error
from accuracy_parallel.vtrain_fit import VTRAIN, vtrain_run
from paceline.planning.decisions.trial_worth import doubts, worth_of_trials
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.gaussian_process import Observations, Spreads, learn

#: Runs of one contest do the same work on as many devices.
CONTEST = ("scope", "hidden", "layers", "num_gpus", "global_batch")


class Trials:
    """Rows of one cluster that may be measured, as predicted before.

    Attributes:
        rows: With ``predicted`` and ``seconds``.
        steps: What measurements know each by.
    """

    def __init__(self, simulator: Simulator, rows: pd.DataFrame) -> None:
        self.rows = rows
        self.steps = [simulator.traits(vtrain_run(row), VTRAIN) for row in rows.itertuples()]
        self._told = np.log(rows.predicted.to_numpy())
        self._off = np.log(rows.seconds.to_numpy()) - self._told
        self._contest = rows.groupby(list(CONTEST)).ngroup().to_numpy()
        self._spreads = Spreads.of(builtin_calibration().constants["calibrate"])

    def asked_for(self, count: int, barred: Sequence[int] = ()) -> list[int]:
        """Places of the rows that are asked for, one after the other, knowing those before.

        Args:
            count: So many.
            barred: Places of rows that may not be asked for.
        """
        measured: list[int] = []
        for _ in range(count):
            lessons = self._lessons(measured) if measured else None
            worth = worth_of_trials(
                self._now(lessons), self._contest, doubts(self.steps, self._spreads, lessons)
            )
            worth[[*measured, *barred]] = -np.inf
            measured.append(int(np.argmax(worth)))
        return measured

    def after(self, measured: Sequence[int]) -> pd.DataFrame:
        """All rows as predicted once some were measured."""
        predicted = np.exp(self._now(self._lessons(measured)))
        return with_error(self.rows.assign(predicted=predicted), "seconds")

    def _lessons(self, measured: Sequence[int]) -> Observations:
        return learn([(self.steps[one], self._off[one]) for one in measured], self._spreads)

    def _now(self, lessons: Observations | None) -> np.ndarray:
        shift = 0.0 if lessons is None else lessons.log_shift(self.steps)
        return np.asarray(self._told + shift)
