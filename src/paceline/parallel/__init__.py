"""Many devices: strategies, collectives, sharding, schedules and overlap.

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.lazy import lazy_exports

if TYPE_CHECKING:
    from paceline.parallel.cluster import Cluster
    from paceline.parallel.collectives import (
        RankGroup,
        all_gather_s,
        all_reduce_s,
        reduce_scatter_s,
        send_recv_s,
    )
    from paceline.parallel.data_parallel import (
        DataParallelStep,
        GradientProfile,
        data_parallel_step,
    )
    from paceline.parallel.failures import straggler_factor
    from paceline.parallel.legality import check_strategy
    from paceline.parallel.links import LinkTable
    from paceline.parallel.profile import gradient_profile
    from paceline.parallel.search import (
        FoundStrategy,
        SearchSpace,
        prepare_search,
        search_strategies,
    )
    from paceline.parallel.sharded_memory import peak_moments, sharded_memory_bytes
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
    "Cluster",
    "DataParallelStep",
    "FoundStrategy",
    "GradientProfile",
    "LinkTable",
    "MeshAxis",
    "Placement",
    "RankGroup",
    "Schedule",
    "SearchSpace",
    "Sharding",
    "Strategy",
    "all_gather_s",
    "all_reduce_s",
    "check_strategy",
    "data_parallel_step",
    "gradient_profile",
    "peak_moments",
    "prepare_search",
    "reduce_scatter_s",
    "search_strategies",
    "send_recv_s",
    "sharded_memory_bytes",
    "straggler_factor",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "cluster": ("Cluster",),
        "collectives": (
            "RankGroup",
            "all_gather_s",
            "all_reduce_s",
            "reduce_scatter_s",
            "send_recv_s",
        ),
        "data_parallel": (
            "DataParallelStep",
            "GradientProfile",
            "data_parallel_step",
        ),
        "failures": ("straggler_factor",),
        "legality": ("check_strategy",),
        "links": ("LinkTable",),
        "profile": ("gradient_profile",),
        "search": (
            "FoundStrategy",
            "SearchSpace",
            "prepare_search",
            "search_strategies",
        ),
        "sharded_memory": ("peak_moments", "sharded_memory_bytes"),
        "strategy": (
            "AxisPlacement",
            "MeshAxis",
            "Placement",
            "Schedule",
            "Sharding",
            "Strategy",
        ),
    },
)
