"""Hand-made forecasts and places, whose right answers can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.catalog.entities import Link, Source
from paceline.model.graph.costs import Configuration
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.memory.sharded_memory import PeakMoments
from paceline.parallelism.replicas.data_parallel_work import ReplicaWork
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.places.place_table import PlaceTable

LINK = Link(
    name="fast", scope="device", kind="nvlink", bytes_per_s=300e9, latency_s=2e-6,
    measured_bus_bytes_per_s=None, reduces_in_switch=False, source=Source(text="made up"),
)  # fmt: skip


def made_forecast(
    *,
    batch=(1, 2, 4, 8),
    num_devices=1,
    num_configurations=1,
    fixed_s=0.1,
    item_s=0.1,
    item_bytes=1e9,
    state_bytes=4e9,
    log_sigma=0.1,
    memory_log_sigma=0.02,
) -> Forecast:
    """Time is ``fixed_s + batch * item_s``; memory is ``state_bytes + batch * item_bytes``."""
    batch = np.array(batch, dtype=np.float64)
    shape = (num_configurations, num_devices, len(batch))

    def spread(values):
        return np.broadcast_to(np.asarray(values, dtype=np.float64), shape).copy()

    step_s = spread(fixed_s + item_s * batch)
    memory = spread(state_bytes + item_bytes * batch)
    z80, z95 = 1.2815515655446004, 1.6448536269514722
    return Forecast(
        configurations=tuple(
            Configuration(precision=p) for p in ("bf16", "fp32", "tf32")[:num_configurations]
        ),
        batch=batch,
        step_s=step_s,
        low_s=step_s * np.exp(-z80 * log_sigma),
        high_s=step_s * np.exp(z80 * log_sigma),
        backward_s=step_s * 0.6,
        update_s=np.zeros_like(step_s),
        log_sigma=spread(log_sigma),
        latency_s=step_s,
        ttft_s=spread(np.nan),
        prompt_s=spread(np.nan),
        token_s=spread(np.nan),
        weights_s=spread(np.nan),
        energy_j=step_s * 300.0,
        memory_low_bytes=memory * np.exp(-z80 * memory_log_sigma),
        memory_mid_bytes=memory,
        memory_high_bytes=memory * np.exp(z95 * memory_log_sigma),
        bound=np.zeros(shape, dtype=np.int8),
        flop=np.broadcast_to(1e12 * batch, (num_configurations, len(batch))).copy(),
        replicas=(
            ReplicaWork(
                gradient_bytes=state_bytes / 4,
                gathered_bytes=state_bytes / 4,
                renewed_bytes=state_bytes / 4,
                profile=None,
            ),
        )
        * num_configurations,
        parameter_bytes=np.full(num_configurations, state_bytes / 4),
        optimizer_state_bytes=np.full(num_configurations, state_bytes / 2),
        moments=(made_moments(batch, item_bytes, state_bytes),) * num_configurations,
        tensor_degree=np.ones(num_configurations, dtype=np.int64),
        tensor_calls=(),
    )


def made_moments(batch, item_bytes, state_bytes) -> PeakMoments:
    """One moment: a quarter of the state is parameters, a quarter gradients, half optimizer."""
    part = np.full((1, len(batch)), state_bytes / 4)
    return PeakMoments(
        whole=(state_bytes + item_bytes * batch)[None, :],
        states=2 * part,
        update=0 * part,
        gradients=part,
        parameters=part,
    )


def made_places(
    *,
    devices_per_node=(1,),
    usd_per_hour=(1.0,),
    memory_bytes=(80e9,),
    device=(0,),
    linked=True,
    **terms,
) -> PlaceTable:
    num = len(devices_per_node)
    unpriced = PlaceTable.unpriced(
        device=np.array(device, dtype=np.int64),
        devices_per_node=np.array(devices_per_node, dtype=np.int64),
        memory_bytes=np.array(memory_bytes, dtype=np.float64),
        tdp_w=np.full(num, 300.0),
        has_device_link=np.full(num, linked),
    )
    return replace(
        unpriced,
        usd_per_hour=np.array(usd_per_hour, dtype=np.float64),
        has_node_link=np.full(num, linked),
        is_ranked=np.ones(num, dtype=bool),
        **terms,
    )


def made_links(num: int) -> LinkTable:
    return LinkTable.from_links([LINK] * num)
