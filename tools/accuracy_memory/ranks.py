"""Memory of the fullest rank of a Megatron job."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Checkpointing, Configuration
from paceline.model.graph.graph import FloatArray, Graph
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import StrategyEvaluation, evaluate_strategies
from paceline.parallelism.memory.sharded_memory import PeakMoments
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.schedule.table import KINDS, ClusterLinks, StrategyTable, Variant
from paceline.parallelism.split import SplitShape
from paceline.parallelism.training_profile import find_training_profile
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How a model is spread.

    Attributes:
        tp: Tensor ranks.
        pp: Pipeline ranks.
        dp: Ranks that share the distributed optimizer's state; 1 shares nothing.
        tokens: Tokens of a sequence on one rank.
        microbatch: Sequences.
        num_microbatches: Per step.
        chunks: Model chunks per pipeline rank.
        precision: Of weights and activations.
        checkpointing: What is recomputed.
    """

    tp: int
    pp: int
    dp: int
    tokens: int
    microbatch: float
    num_microbatches: int
    chunks: int = 1
    precision: str = "bf16"
    checkpointing: Checkpointing = "none"

    def configuration(self) -> Configuration:
        """As the graph is lowered."""
        return Configuration(
            precision=self.precision, checkpointing=self.checkpointing,
            training_format="half-weights", optimizer_kernel="fused",
        )  # fmt: skip


def rank_costs(graph: Graph, job: Job, catalog: Catalog) -> BlockCosts:
    """Blocks on one rank, with sequence parallelism where there are several tensor ranks."""
    device = find_device(catalog, "B200")
    link = LinkTable.from_links([catalog.links[0]])
    group = TensorGroup(
        shape=_shape(job),
        ranks_per_node=job.tp,
        device_link=link,
        node_link=link,
    )
    points = Points(batch=np.array([job.microbatch]), seq=np.array([float(job.tokens)]))
    devices = DeviceTable.from_devices([device])
    return block_costs(graph, job.configuration(), devices, points, group)


def rank_memory(costs: BlockCosts, job: Job, catalog: Catalog) -> StrategyEvaluation:
    """Memory of the rank that needs most; its times mean nothing."""
    link = LinkTable.from_links([catalog.links[0]])
    fabric = ClusterLinks(
        devices_per_node=job.tp * job.pp * job.dp,
        device_link=link,
        node_link=link,
        profile=replace(find_training_profile("megatron"), cut="layers"),
    )
    variant = Variant(
        shape=_shape(job),
        checkpointing=job.configuration().checkpointing,
        costs=costs,
    )
    return evaluate_strategies(_table(job), [variant], fabric)


def _shape(job: Job) -> SplitShape:
    return SplitShape(tensor=job.tp, sequence_parallel=job.tp > 1)


def with_transient(costs: BlockCosts, block: str, num_bytes: float) -> BlockCosts:
    """The same with more alive while one block runs."""
    added = np.zeros(len(costs.names))
    added[costs.names.index(block)] = num_bytes
    return dataclasses.replace(
        costs, transient_bytes=costs.transient_bytes + added,
        adding_bytes=costs.adding_bytes + added, moments=_raised(costs, added),
    )  # fmt: skip


def with_saved(costs: BlockCosts, prefix: str, num_bytes: float) -> BlockCosts:
    """The same with more kept by each block of a kind."""
    added = num_bytes * np.array([name.startswith(prefix) for name in costs.names])
    return dataclasses.replace(
        costs, saved_bytes=costs.saved_bytes + added, moments=_raised(costs, np.cumsum(added))
    )


def _raised(costs: BlockCosts, added: FloatArray) -> PeakMoments:
    """Moments with so much more alive while each block runs, forward and backward."""
    whole = costs.moments.whole + added[costs.moment_block][:, None]
    return dataclasses.replace(costs.moments, whole=whole)


def _table(job: Job) -> StrategyTable:
    kind = "plain" if job.pp == 1 else "interleaved" if job.chunks > 1 else "1f1b"
    columns = {
        "variant": 0, "dp": job.dp, "pp": job.pp, "chunks": job.chunks, "kind": KINDS.index(kind),
        "microbatches": job.num_microbatches, "point": 0, "sharding": 1 if job.dp > 1 else 0,
        "shards": 0,
    }  # fmt: skip
    return StrategyTable(**{name: np.array([value]) for name, value in columns.items()})
