"""Plug-in of pytest: a row's last digits follow the rows that are multiplied beside it.

Which laws does the choice of kernels reach? Those that fail here, as they compare what is computed
alone with what is computed beside others more narrowly than sums of 32 bits allow:

    PYTHONPATH=tools python -m pytest -p uneven_kernels tests/unit/prediction
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.prediction.calibration.fitted import EfficiencyModel

#: Of log10 of a slowdown: 2.3e-6 of a time, where `tests/tolerance.py` allows 1e-6.
_OFF = 1e-6


def pytest_configure() -> None:
    """Add to each row what its place and the number of rows make of it."""
    evaluate = EfficiencyModel._evaluate_block

    def uneven(self: EfficiencyModel, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        told = evaluate(self, rows)
        moved = _OFF * np.sin(np.arange(len(told)) + 0.1 * len(rows))
        return np.asarray(told + moved, dtype=np.float32)

    EfficiencyModel._evaluate_block = uneven  # type: ignore[method-assign]
