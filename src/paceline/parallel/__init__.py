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
from paceline.parallel.links import LinkTable
from paceline.parallel.profile import gradient_profile
from paceline.parallel.scaling import (
    BatchRule,
    Cluster,
    ScalingCurve,
    ScalingPoint,
    scaling_curve,
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
    "GradientProfile",
    "Knee",
    "LinkTable",
    "MeshAxis",
    "Placement",
    "RankGroup",
    "ScalingCurve",
    "ScalingPoint",
    "Schedule",
    "Sharding",
    "Strategy",
    "all_gather_s",
    "all_reduce_s",
    "all_to_all_s",
    "data_parallel_step",
    "gradient_profile",
    "knee",
    "reduce_scatter_s",
    "scaling_curve",
    "send_recv_s",
    "sharded_memory_bytes",
]
