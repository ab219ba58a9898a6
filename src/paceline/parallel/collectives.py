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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.parallel.links import COLLECTIVES, Collective, LinkTable
from paceline.trace.graph import FloatArray


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
    size = np.broadcast_to(np.asarray(message_bytes, dtype=np.float64), group.num_ranks.shape)
    ways = [_protocol_s(name, size, group, protocol) for protocol in (0, 1)]
    if name == "all_reduce":
        ways.append(_tree_s(size, group))
        ways.append(_in_switch_s(size, group))
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


def all_to_all_s(message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds until every rank has its part of every rank's message."""
    return collective_s("all_to_all", message_bytes, group)


def send_recv_s(message_bytes: npt.ArrayLike, group: RankGroup) -> FloatArray:
    """Seconds to hand a message to the next rank of the group.

    The slowest neighbour counts: a group that spans nodes pays the network.
    """
    return collective_s("send_recv", message_bytes, group)


def _protocol_s(name: Collective, size: FloatArray, group: RankGroup, protocol: int) -> FloatArray:
    """One library protocol with its ring (or pairwise) algorithm, inside and between nodes.

    Both levels work at the same time on chunks of the message (it is pipelined), so the slower
    one sets the rate, while latencies add.
    """
    row = COLLECTIVES.index(name)
    inside = group.ranks_per_node
    device_steps, node_steps = _steps(name, inside), _steps(name, group.num_nodes)
    device_s, node_s = _wires_s(name, size, group, protocol)
    start_s = np.maximum(
        _where_used(group.device.base_s[:, row, protocol], inside),
        _where_used(group.node.base_s[:, row, protocol], group.num_nodes),
    )
    latency_s = start_s + (
        device_steps * _where_used(group.device.hop_s[:, row, protocol], inside)
        + node_steps * _where_used(group.node.hop_s[:, row, protocol], group.num_nodes)
    )
    return latency_s + np.maximum(device_s, node_s)


def _tree_s(size: FloatArray, group: RankGroup) -> FloatArray:
    """Double binary tree between nodes, chain inside: latency grows with the logarithm.

    Every node passes each byte up and down once, so the network carries
    ``2 (m - 1) / m`` times the message per node, like the ring between nodes.
    """
    row, nodes = COLLECTIVES.index("all_reduce"), group.num_nodes
    depth = np.ceil(np.log2(np.maximum(nodes, 1.0)))
    latency_s = (
        _where_used(group.node.base_s[:, row, 1], nodes)
        + 2.0 * depth * group.node.hop_s[:, row, 1]
        + _steps("all_reduce", group.ranks_per_node) * group.device.hop_s[:, row, 1]
    )
    device_s, node_s = _wires_s("all_reduce", size, group, 1)
    return np.where(nodes > 2, latency_s + np.maximum(device_s, node_s), np.inf)


def _in_switch_s(size: FloatArray, group: RankGroup) -> FloatArray:
    """All-reduce inside the switch of one node (NVLink SHARP).

    Each rank sends its message once and receives the sum once, instead of twice
    ``(n - 1) / n``; the fitted share of the peak is in bus bandwidth, as nccl-tests prints it.
    The library turns to it where the ring's bandwidth is worse.
    """
    row, ranks = COLLECTIVES.index("all_reduce"), group.num_ranks
    rate = group.device.bytes_per_s * group.device.switch_efficiency_frac
    wire_s = _wire_s(size * 2.0 * (ranks - 1.0) / ranks, rate, ranks)
    start_s = group.device.base_s[:, row, 1] + 2.0 * group.device.hop_s[:, row, 1]
    usable = group.device.reduces_in_switch & (group.num_nodes == 1) & (ranks > 4)
    return np.where(usable, start_s + wire_s, np.inf)


def _steps(name: Collective, ranks: FloatArray) -> FloatArray:
    """Messages one rank sends after another."""
    if name == "all_reduce":
        return 2.0 * (ranks - 1.0)
    if name in ("all_gather", "reduce_scatter"):
        return ranks - 1.0
    return np.where(ranks > 1, 1.0, 0.0)


def _device_share(name: Collective, group: RankGroup) -> FloatArray:
    """Message fraction that one rank's device link carries in each direction."""
    n, r = group.num_ranks, group.ranks_per_node
    if name == "all_reduce":
        return 2.0 * (r - 1.0) / r
    if name in ("all_gather", "reduce_scatter"):
        return (r - 1.0) / r
    return (r - 1.0) / n if name == "all_to_all" else np.where(r > 1, 1.0, 0.0)


def _node_share(name: Collective, group: RankGroup) -> FloatArray:
    """Message fraction that one node's network carries in each direction."""
    m, r = group.num_nodes, group.ranks_per_node
    if name == "all_reduce":
        return 2.0 * (m - 1.0) / m
    if name in ("all_gather", "reduce_scatter"):
        return (m - 1.0) / m
    return r * (m - 1.0) / m if name == "all_to_all" else np.where(m > 1, 1.0, 0.0)


def _wires_s(
    name: Collective, size: FloatArray, group: RankGroup, protocol: int
) -> tuple[FloatArray, FloatArray]:
    """Seconds on the device links and on the network of one node."""
    row = COLLECTIVES.index(name)
    device_rate = group.device.bytes_per_s * group.device.efficiency_frac[:, row, protocol]
    node_rate = group.node.bytes_per_s * group.node.efficiency_frac[:, row, protocol]
    device_bytes, node_bytes = size * _device_share(name, group), size * _node_share(name, group)
    return (
        _wire_s(device_bytes, device_rate, group.ranks_per_node),
        _wire_s(node_bytes, node_rate * group.node_share_frac, group.num_nodes),
    )


def _wire_s(num_bytes: FloatArray, rate: FloatArray, ranks: FloatArray) -> FloatArray:
    """Bytes over rate; infinite where the link is missing, nothing where nobody is across it."""
    seconds = num_bytes / np.where(rate > 0, rate, 1.0)
    return _where_used(np.where(rate > 0, seconds, np.inf), ranks)


def _where_used(value: FloatArray, ranks: FloatArray) -> FloatArray:
    return np.where(ranks > 1, value, 0.0)
