"""Convolutions data parallel, dense layers model parallel: how AlexNet was spread over eight GPUs.

Dense layers hold nearly all parameters of such a model and do a small part of its work. Each rank
keeps a part of their columns and runs them for the images of all ranks, so that activations travel
in place of dense gradients.

Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
arXiv:1404.5997, 2014, section 4: scheme (b), ranks send their batches one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup, all_gather_s, reduce_scatter_s
from paceline.parallelism.replicas.data_parallel import data_parallel_step
from paceline.parallelism.schedule.blocks import BlockCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridStep:
    """One step of the hybrid.

    Attributes:
        step_s: The whole step.
        dense_exposed_s: Of it, activations of dense layers on the wire that nothing hides.
        gradient_exposed_s: Of it, gradients of the other layers that nothing hides, and waiting
            for the slowest rank.
    """

    step_s: float
    dense_exposed_s: float
    gradient_exposed_s: float


def hybrid_step(
    costs: BlockCosts,
    is_dense: npt.NDArray[np.bool_],
    *,
    num_ranks: int,
    ranks_per_node: int,
    device_link: LinkTable,
    node_link: LinkTable,
    gradient_element_bytes: int,
) -> HybridStep:
    """Step of a model whose last blocks are dense, at the first point of ``costs``.

    A dense layer works on all ranks' items with its share of the columns: as much arithmetic as
    its whole width on the own items.

    Args:
        costs: Blocks on one rank with its own items.
        is_dense: Blocks that are split, (num_blocks,).
        num_ranks: Ranks.
        ranks_per_node: Of them, behind one switch.
        device_link: Link inside, one row.
        node_link: Link between, one row.
        gradient_element_bytes: Of one gradient.
    """
    forward_s, backward_s = costs.forward_s[0], costs.backward_s[0]
    group = RankGroup.of(num_ranks, ranks_per_node, device_link, node_link)
    exposed_s = _dense_exposed_s(costs, is_dense, num_ranks, group)
    host_s = float((costs.forward_host_s + costs.backward_host_s)[0].sum())
    alone_s = max(float((forward_s + backward_s).sum()), host_s)
    step = data_parallel_step(
        mid_s=alone_s,
        backward_s=float(backward_s[~is_dense].sum()),
        gradient_bytes=gradient_element_bytes * float(costs.parameters[~is_dense].sum()),
        num_ranks=num_ranks,
        ranks_per_node=ranks_per_node,
        device_link=device_link,
        node_link=node_link,
    )
    return HybridStep(
        step_s=float(step.mid_s[0]) + exposed_s,
        dense_exposed_s=exposed_s,
        gradient_exposed_s=float(step.exposed_communication_s[0]),
    )


def _dense_exposed_s(
    costs: BlockCosts, is_dense: npt.NDArray[np.bool_], num_ranks: int, group: RankGroup
) -> float:
    """What is left of the wire's time after one rank's batch travels while another's is computed.

    Forward gathers the input of each dense layer; backward scatters the sum of its gradients.
    """
    layers = np.flatnonzero(is_dense & (costs.parameters > 0))
    message_bytes = num_ranks * costs.boundary_bytes[0, layers - 1]
    exposed_s = 0.0
    for wire, compute_s in ((all_gather_s, costs.forward_s), (reduce_scatter_s, costs.backward_s)):
        wire_s: FloatArray = np.array([float(wire(size, group)[0]) for size in message_bytes])
        hidden_s = np.minimum(wire_s, compute_s[0, layers]) * (num_ranks - 1.0) / num_ranks
        exposed_s += float((wire_s - hidden_s).sum())
    return exposed_s
