"""Seconds that collectives take: latency and bandwidth per algorithm and link level.

All functions are vectorised: one element per candidate. A message is what one rank holds before
(all_reduce, reduce_scatter, all_to_all, send_recv) or after (all_gather) the call.

Sources:
    Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
    IJHPCA 19(1), 2005 (rings); Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth
    broadcast, reduction and scan", Parallel Computing 35(12), 2009 (double trees); the rule that
    the library takes the faster of its protocols is NCCL's own tuning model.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.collectives.links import (
    KNOT_S,
    MEASURED_RANKS,
    TRANSFERS,
    Collective,
    LinkTable,
)
from paceline.values import dataclass

#: NCCL leaves the switch alone for up to four ranks: its ring is as fast there.
_MAX_RANKS_WITHOUT_SWITCH = 4
#: Time of one chunk in the pipeline between the two link levels (22 MB at the peak of NVLink 4).
_PIPELINE_CHUNK_S = 50e-6
_FIRST_KNOT = math.log2(KNOT_S[0])
_KNOT_STEP = math.log2(KNOT_S[1]) - _FIRST_KNOT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankGroup:
    """Ranks that communicate, one group per candidate.

    Attributes:
        num_ranks: Ranks in the group, (num_candidates,).
        ranks_per_node: Of these, how many share a node; equal in every node.
        device: Link inside the node, one row per candidate.
        node: Link between nodes, one row per candidate.
        node_share_frac: Share of the node's network that the group has for itself while its
            sibling groups (other tensor ranks, say) communicate too.
    """

    num_ranks: FloatArray
    ranks_per_node: FloatArray
    device: LinkTable
    node: LinkTable
    node_share_frac: FloatArray

    @classmethod
    def of(
        cls,
        num_ranks: npt.ArrayLike,
        ranks_per_node: npt.ArrayLike,
        device: LinkTable,
        node: LinkTable,
        *,
        node_share_frac: npt.ArrayLike = 1.0,
    ) -> RankGroup:
        """Groups from plain numbers, broadcast to one element per candidate.

        ``ranks_per_node`` above ``num_ranks`` means that the group leaves the rest of the node to
        others.
        """
        shape = np.broadcast_shapes(
            np.shape(num_ranks), np.shape(ranks_per_node), (max(len(device), len(node)),)
        )
        ranks = np.broadcast_to(np.asarray(num_ranks, dtype=np.float64), shape)
        local = np.broadcast_to(np.asarray(ranks_per_node, dtype=np.float64), shape)
        rows = np.zeros(shape, dtype=np.int64)
        return cls(
            num_ranks=ranks,
            ranks_per_node=np.minimum(local, ranks),
            device=device if len(device) == shape[0] else device.take(rows),
            node=node if len(node) == shape[0] else node.take(rows),
            node_share_frac=np.broadcast_to(np.asarray(node_share_frac, dtype=np.float64), shape),
        )

    @property
    def num_nodes(self) -> FloatArray:
        """Nodes that the group spans."""
        return np.ceil(self.num_ranks / self.ranks_per_node)


def collective_s(name: Collective, message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds of one call of a collective, (num_candidates,).

    Groups of one rank cost nothing; a missing link that must be crossed gives infinity.

    Args:
        name: Which collective.
        message_bytes: Size of the message as the module defines it, (num_candidates,) or scalar.
        group: Who communicates.
    """
    if not (group.num_ranks > 1).any():
        return np.zeros(group.num_ranks.shape)
    size = np.broadcast_to(np.asarray(message_bytes, dtype=np.float64), group.num_ranks.shape)
    ways = [_ring_s(name, size, group)]
    if name == "all_reduce":
        ways += [_tree_s(size, group, in_switch=False), _tree_s(size, group, in_switch=True)]
    return np.where(group.num_ranks > 1, np.minimum.reduce(ways), 0.0)


def all_reduce_s(message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds to sum a message over all ranks, by the fastest of ring, tree and switch."""
    return collective_s("all_reduce", message_bytes, group)


def all_gather_s(message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds until every rank has the whole message, of which each held one part."""
    return collective_s("all_gather", message_bytes, group)


def reduce_scatter_s(message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds until every rank has its part of the sum of all messages."""
    return collective_s("reduce_scatter", message_bytes, group)


def exchange_tokens_s(
    message_bytes: npt.ArrayLike,
    group: RankGroup,
    *,
    per_rank_frac: FloatArray,
    per_node_frac: FloatArray,
) -> FloatArray:
    """Seconds until every rank has the tokens that it asked for, each sent to a place only once.

    A token crosses the network once for each node that wants it, and is handed on inside the node
    once for each rank; an all-to-all sends one copy for each expert.

    Args:
        message_bytes: Copies for all experts, (num_candidates,).
        group: Who communicates.
        per_rank_frac: Distinct ranks that a token reaches, over its copies.
        per_node_frac: Distinct nodes, over its copies.

    Source:
        DeepEP (github.com/deepseek-ai/DeepEP, README, read 2026-11-21): normal kernels forward
        from the network's domain to that of NVLink.
    """
    size = np.broadcast_to(np.asarray(message_bytes, dtype=np.float64), group.num_ranks.shape)
    r, m, transfer = group.ranks_per_node, group.num_nodes, TRANSFERS.index("all_to_all")
    call_s = _call_s(group.device, transfer, r) + _call_s(group.node, transfer, m)
    device_s = _wire_s(group.device, transfer, r, size * per_rank_frac, (r - 1.0) / r)
    node_frac = r * (m - 1.0) / m / group.node_share_frac
    node_s = _wire_s(group.node, transfer, m, size * per_node_frac, node_frac)
    return np.where(group.num_ranks > 1, call_s + _pipelined_s(device_s, node_s), 0.0)


def send_recv_s(message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds to hand a message to the next rank of the group.

    The slowest neighbour counts: a group that spans nodes pays the network.
    """
    return collective_s("send_recv", message_bytes, group)


def _ring_s(name: Collective, size: FloatArray, group: RankGroup) -> FloatArray:
    """Rings (or pairwise exchange), which pass through all ranks of all nodes."""
    n, r, m = group.num_ranks, group.ranks_per_node, group.num_nodes
    shares: dict[Collective, tuple[FloatArray | float, FloatArray | float]] = {
        "all_reduce": (2.0 * (n - 1.0) / n, 2.0 * (n - 1.0) / n),
        "all_gather": ((n - 1.0) / n, (n - 1.0) / n),
        "reduce_scatter": ((n - 1.0) / n, (n - 1.0) / n),
        "all_to_all": ((r - 1.0) / n, r * (m - 1.0) / m),
        "send_recv": (1.0, 1.0),
    }
    device_frac, node_frac = shares[name]
    transfer = TRANSFERS.index(name)
    call_s = _call_s(group.device, transfer, r) + _call_s(group.node, transfer, m)
    device_s = _wire_s(group.device, transfer, r, size, device_frac)
    node_s = _wire_s(group.node, transfer, m, size, node_frac / group.node_share_frac)
    return call_s + _pipelined_s(device_s, node_s)


def _tree_s(size: FloatArray, group: RankGroup, *, in_switch: bool) -> FloatArray:
    """All-reduce by a double binary tree between nodes, and a ring or the switch inside.

    Every node passes each byte up and down once, so its network carries ``2 (m - 1) / m`` times
    the message, and latency grows with the logarithm of the number of nodes. A switch that
    reduces (NVLink SHARP) takes every rank's message once and returns the sum once; its efficiency
    was fitted as bus bandwidth, the way nccl-tests prints it.
    """
    n, r, m = group.num_ranks, group.ranks_per_node, group.num_nodes
    usable = m > 1
    if in_switch:
        usable = group.device.reduces_in_switch & (r > _MAX_RANKS_WITHOUT_SWITCH)
    if not usable.any():
        return np.full(n.shape, np.inf)
    inside = TRANSFERS.index("in_switch" if in_switch else "all_reduce")
    between = TRANSFERS.index("all_reduce")
    depth = np.ceil(np.log2(np.maximum(m, 1.0)))
    call_s = _call_s(group.device, inside, r) + depth * _call_s(
        group.node, between, np.minimum(m, 2.0)
    )
    ranks = n if in_switch else r
    device_s = _wire_s(group.device, inside, r, size, 2.0 * (ranks - 1.0) / ranks)
    node_frac = 2.0 * (m - 1.0) / m / group.node_share_frac
    seconds = call_s + _pipelined_s(device_s, _wire_s(group.node, between, m, size, node_frac))
    return np.where(usable, seconds, np.inf)


def _call_s(link: LinkTable, transfer: int, ranks: FloatArray) -> FloatArray:
    """Start-up of a call among so many ranks on this link; none among one."""
    if not (ranks > 1).any():
        return np.zeros(ranks.shape)
    table = link.coefficients
    low, high, frac = _rank_position(ranks)
    calls = table.call_s[:, transfer]
    inside = calls[link.kind_row, low] * (1.0 - frac) + calls[link.kind_row, high] * frac
    beyond = table.hop_s[link.kind_row, transfer] * np.maximum(ranks - MEASURED_RANKS[-1], 0.0)
    return np.where(ranks > 1, inside + beyond, 0.0)


def _wire_s(
    link: LinkTable, transfer: int, ranks: FloatArray, size: FloatArray, frac: FloatArray | float
) -> FloatArray:
    """Seconds of a message's bytes on a link; infinite without one, nothing for one rank.

    Networks of several nodes carry it together, each as well as one carries all of it.
    """
    if not (ranks > 1).any():
        return np.zeros(ranks.shape)
    ideal_s = size / np.where(link.bytes_per_s > 0, link.bytes_per_s, 1.0)
    log_rate = _log_efficiency(link, transfer, ranks, ideal_s)
    wire_s = frac / link.num_nodes * ideal_s * np.exp(-log_rate)
    seconds = np.where(link.bytes_per_s > 0, wire_s, np.inf)
    return np.where(ranks > 1, seconds, 0.0)


def _log_efficiency(
    link: LinkTable, transfer: int, ranks: FloatArray, ideal_s: FloatArray
) -> FloatArray:
    """Logarithm of the efficiency, linear between knots in log seconds and between rank counts."""
    table = link.coefficients.log_efficiency[:, transfer]
    position = (np.log2(np.maximum(ideal_s, 1e-30)) - _FIRST_KNOT) / _KNOT_STEP
    position = np.minimum(np.maximum(position, 0.0), len(KNOT_S) - 1.0)
    knot = np.minimum(position.astype(np.int64), len(KNOT_S) - 2)
    along = position - knot
    low, high, frac = _rank_position(ranks)
    row = link.kind_row
    at_low = table[row, low, knot] * (1.0 - along) + table[row, low, knot + 1] * along
    at_high = table[row, high, knot] * (1.0 - along) + table[row, high, knot + 1] * along
    return np.asarray(at_low * (1.0 - frac) + at_high * frac)


def _rank_position(ranks: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Measured rank counts on both sides of ``ranks``, and how far it is from the first."""
    position = np.log2(np.maximum(ranks, 2.0)) - 1.0
    position = np.minimum(position, len(MEASURED_RANKS) - 1.0)
    low = np.minimum(position.astype(np.int64), len(MEASURED_RANKS) - 2)
    return low, low + 1, position - low


def _pipelined_s(device_s: FloatArray, node_s: FloatArray) -> FloatArray:
    """Two levels that pass chunks on: the slower one, and one chunk of the other.

    Small messages are one chunk, so both times add; large ones hide the faster level.
    """
    longer, shorter = np.maximum(device_s, node_s), np.minimum(device_s, node_s)
    return longer + shorter / (1.0 + longer / _PIPELINE_CHUNK_S)
