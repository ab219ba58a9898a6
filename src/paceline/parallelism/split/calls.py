"""What the ranks of a split graph tell each other, as one table, and how long that takes.

Shapes: num_calls calls of a pass; K distinct messages among them; R places or points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from paceline.columns import join_tables, take_rows
from paceline.model.graph.costs import Checkpointing
from paceline.model.graph.distinct import distinct_rows
from paceline.model.graph.graph import NUM_MONOMIALS, FloatArray, IntArray, monomials
from paceline.parallelism.collectives.engine_sums import EngineSums, engine_all_reduce_s
from paceline.parallelism.collectives.links import COLLECTIVES, Collective
from paceline.parallelism.collectives.times import RankGroup, collective_s, exchange_tokens_s
from paceline.parallelism.split.routing import Routing
from paceline.prediction.prediction import Points
from paceline.values import dataclass

#: Who takes part in a call: ranks that share widths and heads of every layer; those among which
#: keys and values go round; those that hand tokens for heads; all that share the tokens of an
#: item; those that share experts; and all that hold the same items.
SplitAxis = Literal["tensor", "ring", "ulysses", "sequence", "experts", "items"]
AXES: tuple[SplitAxis, ...] = get_args(SplitAxis)

#: Op, axis, collective, elements of the message, and bytes of one (NaN: those of activations).
Call: TypeAlias = tuple[int, SplitAxis, Collective, FloatArray, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallTable:
    """Collectives that a rank of a split graph takes part in.

    Attributes:
        op: Op of the graph after which each is called, int64 (num_calls,).
        axis: Index into `AXES`, int64 (num_calls,). What goes round the ring is the message of one
            of its rounds, of which there is one fewer than ranks.
        name: Index into `COLLECTIVES`, int64 (num_calls,).
        elements: Elements of the whole message, (num_calls, 9).
        element_bytes: Bytes of one element; NaN where it is the format of activations.
    """

    op: IntArray
    axis: IntArray
    name: IntArray
    elements: FloatArray
    element_bytes: FloatArray

    @classmethod
    def of(cls, calls: Sequence[Call]) -> CallTable:
        """Calls as columns, in the order of their ops."""
        calls = sorted(calls, key=lambda call: call[0])
        return cls(
            op=np.array([op for op, *_ in calls], dtype=np.int64),
            axis=np.array([AXES.index(axis) for _, axis, *_ in calls], dtype=np.int64),
            name=np.array([COLLECTIVES.index(call[2]) for call in calls], dtype=np.int64),
            elements=np.array([call[3] for call in calls]).reshape(len(calls), NUM_MONOMIALS),
            element_bytes=np.array([num_bytes for *_, num_bytes in calls], dtype=np.float64),
        )

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.op)

    @property
    def goes_round(self) -> npt.NDArray[np.bool_]:
        """Whether each is one round of a ring, which the op's work hides, (num_calls,)."""
        is_sent = self.name == COLLECTIVES.index("send_recv")
        return np.asarray(is_sent & (self.axis == AXES.index("ring")))

    def are_repeated(self, checkpointing: Checkpointing) -> npt.NDArray[np.bool_]:
        """Whether what is computed again in a block has each call of its forward, (num_calls,)."""
        if checkpointing == "experts":
            return np.asarray(self.axis == AXES.index("experts"))
        return np.full(len(self), checkpointing in ("block", "full"))

    def take(self, chosen: npt.NDArray[np.bool_ | np.int64]) -> CallTable:
        """Some of the calls, by a mask or by rows."""
        return take_rows(self, chosen)

    def along(self, *axes: SplitAxis) -> CallTable:
        """The calls of some axes."""
        return self.take(np.isin(self.axis, [AXES.index(axis) for axis in axes]))

    def messages(self, element_bytes: float) -> Messages:
        """The messages that differ.

        Args:
            element_bytes: Of an activation.
        """
        width = np.where(np.isnan(self.element_bytes), element_bytes, self.element_bytes)
        num_bytes = self.elements * width[:, None]
        rows = np.column_stack([self.axis, self.name, num_bytes])
        first, of_call, count = distinct_rows(rows)
        return Messages(
            axis=self.axis[first],
            name=self.name[first],
            num_bytes=num_bytes[first],
            count=count.astype(np.float64),
            of_call=of_call,
        )


def joined_calls(*tables: CallTable) -> CallTable:
    """All calls of some tables, in the order of their ops."""
    every = join_tables(*tables)
    return every.take(np.argsort(every.op, kind="stable"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """The messages of some calls that differ, K of them.

    Attributes:
        axis: Index into `AXES`, int64 (K,).
        name: Index into `COLLECTIVES`, int64 (K,).
        num_bytes: Of the whole message, (K, 9).
        count: How many calls send it, (K,).
        of_call: Message of each call, (num_calls,).
    """

    axis: IntArray
    name: IntArray
    num_bytes: FloatArray
    count: FloatArray
    of_call: IntArray

    def bytes_at(self, points: Points) -> FloatArray:
        """Bytes of each message at each point, (num_points, K)."""
        return np.asarray(monomials(points.batch, points.seq) @ self.num_bytes.T)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wires:
    """Over what the ranks of each axis talk, and by whose software.

    Attributes:
        groups: Ranks of each axis that has calls, one element per row.
        engine_sums: Sums of an engine beside those of the library; None where it has none.
        routing: Where tokens go, if each is sent to a place only once; None where a copy is sent
            for each of its experts.
        sends_gathered: Whether what experts gather is sent to their ranks instead, by ``routing``,
            where that is faster.
    """

    groups: Mapping[SplitAxis, RankGroup]
    engine_sums: EngineSums | None = None
    routing: Routing | None = None
    sends_gathered: bool = False


def _messages_s(messages: Messages, message_bytes: FloatArray, wires: Wires) -> FloatArray:
    """Seconds of one call with each message that differs, (R, K); of the ring, of one round.

    Args:
        messages: K of them.
        message_bytes: (R, K).
        wires: Of each row.
    """
    seconds = np.zeros(message_bytes.shape)
    for row, (axis, name) in enumerate(zip(messages.axis, messages.name, strict=True)):
        group = wires.groups[AXES[axis]]
        seconds[:, row] = _call_s(COLLECTIVES[name], message_bytes[:, row], group, wires)
        if wires.sends_gathered and wires.routing is not None and AXES[axis] == "experts":
            copies = wires.routing.experts_per_token / group.num_ranks
            sent_s = _tokens_once_s(message_bytes[:, row] * copies, group, wires.routing)
            seconds[:, row] = np.minimum(seconds[:, row], sent_s)
    return seconds


def calls_s(
    calls: CallTable, points: Points, wires: Wires, *, element_bytes: float,
    busy_s: FloatArray | None = None,
) -> FloatArray:  # fmt: skip
    """Seconds that each call adds, (num_points, num_calls); equal messages are evaluated once.

    Calls stand between ops that need their result, so that nothing hides them, but for what goes
    round a ring: a message hides behind the op's work on the part that the rank has.

    Args:
        calls: Of a pass.
        points: Batch sizes and lengths.
        wires: Groups with one element per point.
        element_bytes: Of an activation.
        busy_s: Device time of the op of each call, (num_points, num_calls); nothing by default.
    """
    messages = calls.messages(element_bytes)
    seconds = _messages_s(messages, messages.bytes_at(points), wires)[:, messages.of_call]
    of_ring = np.flatnonzero(calls.goes_round)
    if len(of_ring):
        num_ranks = wires.groups["ring"].num_ranks[:, None]
        hidden_s = 0.0 if busy_s is None else busy_s[:, of_ring] / num_ranks
        bare_s = np.maximum(seconds[:, of_ring] - hidden_s, 0.0)
        seconds[:, of_ring] = (num_ranks - 1.0) * bare_s
    return seconds


def _call_s(
    name: Collective, message_bytes: FloatArray, group: RankGroup, wires: Wires
) -> FloatArray:
    if name == "all_reduce" and wires.engine_sums is not None:
        return engine_all_reduce_s(message_bytes, group, wires.engine_sums)
    if name == "all_to_all" and wires.routing is not None:
        return _tokens_once_s(message_bytes, group, wires.routing)
    return collective_s(name, message_bytes, group)


def _tokens_once_s(message_bytes: FloatArray, group: RankGroup, routing: Routing) -> FloatArray:
    """Tokens that are sent once to each place."""
    per_rank, per_node = (
        _places(count, routing) / routing.experts_per_token
        for count in (group.num_ranks, group.num_nodes)
    )
    return exchange_tokens_s(message_bytes, group, per_rank_frac=per_rank, per_node_frac=per_node)


def _places(counts: FloatArray, routing: Routing) -> FloatArray:
    """Places that a token reaches, of so many; each number that differs is worked out once."""
    unlike, which = np.unique(counts, return_inverse=True)
    reached = np.array([routing.places(count) for count in unlike.tolist()], dtype=np.float64)
    return np.asarray(reached[which])
