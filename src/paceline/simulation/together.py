"""What all ranks do, from what one does: the half of `simulate` that a search of many asks alone.

Shapes: (num_rows,).
"""

from __future__ import annotations

from paceline.parallelism.steps import Steps
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.cases import Cases
from paceline.simulation.rank import Lengths, RankPasses
from paceline.simulation.replicas import replicated_times


def ranks_together(
    cases: Cases, passes: RankPasses, alone: Steps, asked: Lengths, *,
    calibration: Calibration | None,
) -> Steps:  # fmt: skip
    """Steps of replicas, each of one rank or of ranks that share every layer, without their memory.

    Ranks that share layers exchange between passes that are cut as a whole, which is coarser than
    the blocks of `simulate` in training.

    Args:
        cases: Whose strategies are replicas.
        passes: What every rank runs, cut for those that share layers.
        alone: A rank's own part, per row.
        asked: Of a rank, per row.
        calibration: Of the predictor; the built-in one if None.
    """
    if passes.workload.task == "train" and passes.shape.num_ranks == 1:
        return replicated_times(cases, passes, alone, seq=asked.seq, calibration=calibration)
    from paceline.simulation.shared import exchanged_s, served  # engines: only if needed

    if passes.workload.task == "infer":
        return served(cases, passes, alone, asked, calibration=calibration)
    tensor_s, _ = exchanged_s(cases, passes, asked, calibration)
    return replicated_times(cases, passes, alone, seq=asked.seq, tensor_s=tensor_s)
