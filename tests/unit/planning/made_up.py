"""Hand-made forecasts and places, whose right answers can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from paceline.model.graph.costs import Configuration
from paceline.parallelism.memory.sharded_memory import PeakMoments
from paceline.parallelism.steps import Steps
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.places.configurations import ConfiguredDevices
from paceline.planning.places.place_table import PlaceTable
from paceline.planning.search.candidates import CandidateTable
from paceline.simulation.rank import Lengths


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
    columns = {
        "step_s": step_s,
        "step_low_s": step_s * np.exp(-z80 * log_sigma),
        "step_high_s": step_s * np.exp(z80 * log_sigma),
        "log_sigma": spread(log_sigma),
        "device_log_sigma": spread(log_sigma),
        "sharing_log_sigma": spread(0.0),
        "exposed_s": spread(0.0),
        "tensor_s": spread(0.0),
        "bubble_s": spread(0.0),
        "per_token_s": step_s,
        "energy_j": step_s * 300.0,
        "flop": spread(1e12 * batch),
        "memory_low_bytes": memory * np.exp(-z80 * memory_log_sigma),
        "memory_mid_bytes": memory,
        "memory_high_bytes": memory * np.exp(z95 * memory_log_sigma),
        "parameter_bytes": spread(state_bytes / 4),
        "optimizer_state_bytes": spread(state_bytes / 2),
    }
    flat = {name: column.ravel() for name, column in columns.items()}
    return Forecast(
        configured=tuple(
            ConfiguredDevices(
                configuration=Configuration(precision=p), rows=tuple(range(num_devices))
            )
            for p in ("bf16", "fp32", "tf32")[:num_configurations]
        ),
        passes=(SimpleNamespace(host="jax"),)
        * num_configurations,  # whose replicas have no buckets
        lengths=Lengths(
            batch=batch, seq=batch, prompt=batch, output=batch, rounds=np.ones_like(batch)
        ),
        steps=Steps.of(step_s.size, flat).laid_out(shape),
        moments=(made_moments(batch, item_bytes, state_bytes),) * num_configurations,
    )


def made_steps(candidates: CandidateTable, made: Forecast, added_s: float = 1e-4) -> Steps:
    """Microbatches one after the other; each further device adds so much to a step."""
    cell = (candidates.configuration, np.zeros_like(candidates.place), candidates.batch)
    alone = made.steps.take(cell)
    exposed_s = added_s * (candidates.num_devices - 1)
    step_s = candidates.microbatches * alone.step_s + exposed_s
    is_alone = step_s == alone.step_s
    return replace(
        alone,
        step_s=step_s,
        exposed_s=exposed_s,
        step_low_s=np.where(is_alone, alone.step_low_s, np.nan),
        step_high_s=np.where(is_alone, alone.step_high_s, np.nan),
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
    """Machines without set-up, interruption or whatever else ``terms`` do not state."""
    num, per_node = len(devices_per_node), np.array(devices_per_node, dtype=np.int64)
    zeros, no = np.zeros(num), np.zeros(num, dtype=bool)
    plain = PlaceTable(
        device=np.array(device, dtype=np.int64),
        devices_per_node=per_node,
        usd_per_hour=np.array(usd_per_hour, dtype=np.float64),
        memory_bytes=np.array(memory_bytes, dtype=np.float64),
        tdp_w=np.full(num, 300.0),
        heat_w=zeros,
        has_device_link=np.full(num, linked),
        num_channels=np.zeros(num, dtype=np.int64),
        devices_per_domain=per_node,
        has_node_link=np.full(num, linked),
        is_ranked=np.ones(num, dtype=bool),
        is_owned=no,
        num_machines=np.full(num, 2**31),
        is_joined=no,
        setup_s=zeros,
        granularity_s=np.ones(num),
        minimum_s=zeros,
        price_log_sigma=zeros,
        interruption_frac_per_month=zeros,
        wait_s=zeros,
        storage_usd_per_s=zeros,
        egress_usd=zeros,
        input_samples_per_s=np.full(num, np.inf),
    )
    return replace(plain, **terms)
