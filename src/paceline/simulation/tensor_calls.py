"""What a tensor-parallel group exchanges in each pass, and how long that takes in a place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.parallel import RankGroup
from paceline.parallel.collectives import collective_s
from paceline.parallel.links import COLLECTIVES
from paceline.parallel.split.tensor import CollectiveTable
from paceline.predict import Points
from paceline.trace.costs import Configuration
from paceline.trace.graph import FloatArray, monomials


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallTable:
    """Distinct collectives of a pass, K of them.

    Attributes:
        name: Index into `COLLECTIVES`, (K,).
        count: How often each is called, (K,).
        message_bytes: At each batch size, (K, P).
    """

    name: npt.NDArray[np.int64]
    count: FloatArray
    message_bytes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorCalls:
    """Collectives of a whole batch: once, and once per output token.

    Attributes:
        first: Of the step, or of the prefill.
        repeated: Of one decode; empty unless text is generated.
        num_repeats: Output tokens.
    """

    first: CallTable
    repeated: CallTable
    num_repeats: int


NO_CALLS = CallTable(
    name=np.zeros(0, dtype=np.int64), count=np.zeros(0), message_bytes=np.zeros((0, 0))
)


def call_table(calls: CollectiveTable, configuration: Configuration, points: Points) -> CallTable:
    """The calls of a split graph, equal ones counted together.

    Args:
        calls: In order of their op.
        configuration: Its activations are what is exchanged.
        points: Batch sizes and lengths, P of them.
    """
    if not len(calls.op):
        return NO_CALLS
    distinct, count = np.unique(calls.messages(configuration), axis=0, return_counts=True)
    return CallTable(
        name=distinct[:, 0].astype(np.int64),
        count=count.astype(np.float64),
        message_bytes=distinct[:, 1:] @ monomials(points.batch, points.seq).T,
    )


def calls_s(calls: CallTable, batch: npt.NDArray[np.int64], group: RankGroup) -> FloatArray:
    """Seconds of all calls of a pass for some candidates; nothing hides them.

    Args:
        calls: Of the pass.
        batch: Index of each candidate's batch size, (num_candidates,).
        group: The tensor group of each candidate.
    """
    seconds = np.zeros(len(batch))
    for name, count, message_bytes in zip(
        calls.name.tolist(), calls.count.tolist(), calls.message_bytes, strict=True
    ):
        seconds += count * collective_s(COLLECTIVES[name], message_bytes[batch], group)
    return seconds
