"""A small plan made by hand: the numbers are invented, the shapes are real."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.deployment import plans

from paceline.planfile import Interval, PlanFile, RejectedChoice


def around(mid: float, share: float = 0.1) -> Interval:
    return Interval(low=mid * (1 - share), mid=mid, high=mid * (1 + share))


_PLACE = plans.place(
    offer="lambda/gpu_1x_a100_sxm4",
    cloud="Lambda",
    instance_type="gpu_1x_a100_sxm4",
    usd_per_hour=1.29,
    priced_on="2026-10-03",
    source="the provider's price page",
    devices_per_node=1,
    num_vcpus_per_node=30,
    host_memory_bytes_per_node=200e9,
    interconnect="",
    network_bytes_per_s=None,
    interruption_frac_per_month=None,
)
_CHOICE = plans.choice(
    place=_PLACE,
    strategy="dp1",
    batch_per_device=512,
    global_batch=512,
    stack=None,
    step_s=around(0.241),
    samples_per_s=around(2121.0),
    time_s=around(54_360.0),
    cost_usd=around(19.48),
    usd_per_million_samples=around(0.169),
    energy_j_per_sample=0.15,
    power_w=330.0,
    memory_bytes=around(20e9),
    parallel_efficiency_frac=1.0,
    chance_time=0.995,
    chance_memory=0.999,
    reason="the cheapest that meets the deadline",
    num_devices=1,
)


@pytest.fixture
def plan() -> PlanFile:
    ada = replace(_PLACE, cloud="RunPod", device="GeForce RTX 4090", usd_per_hour=0.44)
    eight = replace(_PLACE, device="H100 SXM5 80GB", devices_per_node=8, usd_per_hour=23.92)
    choices = (
        _CHOICE,
        replace(
            _CHOICE,
            place=ada,
            time_s=around(82_080.0),
            chance_time=0.71,
            meets_goal=False,
            remark="too unsure for 24 h",
        ),
        replace(_CHOICE, place=eight, num_devices=8, strategy="dp8", label="fastest"),
    )
    return plans.plan(
        *choices,
        calibration="builtin-1",
        assumptions=(
            "the reference job: 1,281,167 images × 90 epochs",
            "224×224, SGD, the input is fed from local NVMe",
        ),
        workload=plans.workload(optimizer="sgd", job="1,281,167 images × 90 epochs"),
        goal_text="done within 24 h (chance ≥ 80 %), cheapest first",
        rejected=(
            RejectedChoice(
                name="Vast 1×H100",
                reason="priced 14 months ago",
                wins_below_usd_per_hour=0.61,
                kind="stale price",
            ),
            RejectedChoice(name="AWS p2", reason="no framework supports the K80 any more"),
        ),
        why=("the cheapest of 312 that meet the deadline",),
        turns=("a deadline of 27 h makes the RTX 4090 win at 10.0 USD",),
        next_commands=("paceline deploy plan.yaml --to skypilot",),
    )
