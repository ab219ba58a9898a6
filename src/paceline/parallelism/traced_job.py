"""A training step as it was traced, on one kind of cluster: what any strategy is asked of."""

from __future__ import annotations

from dataclasses import replace

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import TensorGroup
from paceline.parallelism.schedule.table import ClusterLinks
from paceline.parallelism.split import SplitShape
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import Calibration
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TracedJob:
    """One training step on one kind of cluster, whatever the strategy.

    Attributes:
        configuration: How a rank runs it; a strategy says what is recomputed.
        seq: Sequence length.
        calibration: Of the predictor; the built-in one if None.
    """

    graph: Graph
    configuration: Configuration
    cluster: Cluster
    seq: float
    calibration: Calibration | None = None

    @property
    def fabric(self) -> ClusterLinks:
        """The cluster as strategies see it."""
        return fabric_of(self.cluster, self.configuration)

    def how(self, strategy: Strategy) -> Configuration:
        """How a rank runs: what the strategy recomputes, or else what the configuration does."""
        if strategy.recompute == "none":
            return self.configuration
        return replace(self.configuration, checkpointing=strategy.recompute)

    def group(self, strategy: Strategy) -> TensorGroup:
        """The ranks that share every block under a strategy."""
        cluster, fabric = self.cluster, self.fabric
        return TensorGroup(
            shape=SplitShape.of(
                strategy,
                whole_experts=cluster.profile.whole_experts,
                splits_words=cluster.profile.splits_words,
            ),
            ranks_per_node=fabric.devices_per_domain,
            device_link=fabric.device_link,
            node_link=fabric.node_link,
            profile=cluster.profile,
        )


def fabric_of(cluster: Cluster, configuration: Configuration) -> ClusterLinks:
    """A cluster as strategies see it."""
    num_nodes = cluster.devices_per_domain // cluster.devices_per_node
    return ClusterLinks(
        devices_per_node=cluster.devices_per_node,
        device_link=LinkTable.from_links([cluster.device_link]),
        node_link=LinkTable.from_links([cluster.node_link]).of_nodes(num_nodes),
        platform=configuration.platform,
        profile=cluster.profile,
        nodes_per_domain=num_nodes,
    )
