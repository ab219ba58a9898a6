"""Many devices: strategies, collectives, sharding, schedules and overlap."""

from paceline.parallel.collectives import (
    RankGroup,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    reduce_scatter_s,
    send_recv_s,
)
from paceline.parallel.data_parallel import (
    DataParallelStep,
    GradientProfile,
    data_parallel_step,
)
from paceline.parallel.knee import Knee, knee
from paceline.parallel.legality import check_strategy
from paceline.parallel.links import LinkTable
from paceline.parallel.profile import gradient_profile
from paceline.parallel.resilience import Resilience, resilience, straggler_factor
from paceline.parallel.scaling import (
    BatchRule,
    Cluster,
    ScalingCurve,
    ScalingPoint,
    scaling_curve,
)
from paceline.parallel.search import (
    FoundStrategy,
    SearchSpace,
    prepare_search,
    search_strategies,
)
from paceline.parallel.sharded_memory import sharded_memory_bytes
from paceline.parallel.strategy import (
    AxisPlacement,
    MeshAxis,
    Placement,
    Schedule,
    Sharding,
    Strategy,
)

__all__ = [
    "AxisPlacement",
    "BatchRule",
    "Cluster",
    "DataParallelStep",
    "FoundStrategy",
    "GradientProfile",
    "Knee",
    "LinkTable",
    "MeshAxis",
    "Placement",
    "RankGroup",
    "Resilience",
    "ScalingCurve",
    "ScalingPoint",
    "Schedule",
    "SearchSpace",
    "Sharding",
    "Strategy",
    "all_gather_s",
    "all_reduce_s",
    "all_to_all_s",
    "check_strategy",
    "data_parallel_step",
    "gradient_profile",
    "knee",
    "prepare_search",
    "reduce_scatter_s",
    "resilience",
    "scaling_curve",
    "search_strategies",
    "send_recv_s",
    "sharded_memory_bytes",
    "straggler_factor",
]
