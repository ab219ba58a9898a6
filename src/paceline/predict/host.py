"""What the host spends to dispatch a step, by framework and compiler."""

from __future__ import annotations

import numpy as np

from paceline.errors import UnknownNameError
from paceline.predict.calibration import Calibration
from paceline.predict.features import Array
from paceline.trace.costs import LoweredPass
from paceline.trace.graph import Phase


def dispatch_s(lowered: LoweredPass, framework: str, calibration: Calibration) -> Array:
    """Host time to dispatch each op in execution order, (num_ops,).

    One op costs a fixed time and one time per kernel it launches; autograd's own thread runs the
    backward pass, so its ops have a cost of their own.

    Args:
        lowered: The pass.
        framework: ``torch``, ``tensorflow``, ``mxnet``, ``caffe`` …
        calibration: Dispatch times.

    Raises:
        UnknownNameError: No dispatch times for that framework.
    """
    table = calibration.constants["host"]["per_kernel_s"]
    if framework not in table:
        raise UnknownNameError.from_name(
            "framework", framework, table, command="paceline predict --help"
        )
    costs = lowered.costs
    times = table[framework][lowered.configuration.compiler]
    per_kernel = np.where(costs.phase == Phase.BACKWARD, times["backward"], times["forward"])
    row_s = (costs.num_kernels * per_kernel).astype(np.float32)
    ordered: Array = row_s[costs.order]
    return ordered
