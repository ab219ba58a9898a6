"""Plans made by hand, with every fact that a launch file states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paceline.deployment.settings import DeploySettings
from paceline.planfile import (
    SCHEMA_VERSION,
    Interval,
    PlanFile,
    PlannedChoice,
    PlannedPlace,
    PlannedService,
    PlannedStack,
    PlannedWorkload,
)

_GB = 1e9


def workload(**changes: Any) -> PlannedWorkload:
    base = PlannedWorkload(
        model="resnet50",
        title="ResNet-50",
        task="train",
        sample_unit="images",
        seq=1,
        num_parameters=25_557_032,
        num_samples=1_281_167,
        num_epochs=90,
        optimizer="sgd-momentum",
    )
    return replace(base, **changes)


def service(**changes: Any) -> PlanFile:
    """A language model on two replicas of four devices of one machine, by vLLM."""
    served = PlannedService(
        engine="vllm", num_replicas=2, num_ranks=4, max_requests=512, chunk_tokens=4096,
        memory_frac=0.9, percentile=95, requests_per_s=20.0,
        capacity_requests_per_s=Interval(low=26.0, mid=35.0, high=47.0), length_spread=0.2,
    )  # fmt: skip
    served = replace(served, **changes)
    one = choice(
        strategy="dp2.tp4", batch_per_device=64, global_batch=128, time_s=None, cost_usd=None,
        latency_s=Interval(low=0.02, mid=0.03, high=0.06),
        ttft_s=Interval(low=0.1, mid=0.2, high=0.4), service=served,
    )  # fmt: skip
    model = workload(
        model="llama-3-70b", title="Llama 3 70B", task="infer", sample_unit="tokens", seq=512,
        prompt_tokens=512, output_tokens=128, requests_per_s=20.0, optimizer=None,
        num_samples=None, num_epochs=None,
    )  # fmt: skip
    return replace(plan(), workload=model, choices=(one,))


def stack(**changes: Any) -> PlannedStack:
    base = PlannedStack(
        framework="torch",
        framework_version="2.13.0",
        platform="cuda",
        platform_version="13.0",
        python_version="3.12",
        min_driver="580.65.06",
    )
    return replace(base, **changes)


def place(**changes: Any) -> PlannedPlace:
    base = PlannedPlace(
        offer="aws/p4d.24xlarge",
        cloud="aws",
        instance_type="p4d.24xlarge",
        region="us-east-1",
        is_spot=False,
        usd_per_hour=21.96,
        priced_on="2026-07-20",
        source="test",
        device="A100 SXM4 40GB",
        num_nodes=1,
        devices_per_node=8,
        num_vcpus_per_node=96,
        host_memory_bytes_per_node=1152 * _GB,
        interconnect="nvlink3",
        network_bytes_per_s=50e9,
        interruption_frac_per_month=(0.05, 0.1),
    )
    return replace(base, **changes)


def choice(**changes: Any) -> PlannedChoice:
    base = PlannedChoice(
        place=place(),
        strategy="dp8",
        batch_per_device=256,
        microbatches=1,
        global_batch=2048,
        precision="bf16",
        compiler="compiled",
        checkpointing="none",
        channels_last=True,
        stack=stack(),
        step_s=Interval(low=0.1, mid=0.11, high=0.12),
        samples_per_s=Interval(low=17_000, mid=18_600, high=20_500),
        time_s=Interval(low=5_600, mid=6_200, high=7_000),
        cost_usd=Interval(low=34, mid=38, high=43),
        usd_per_million_samples=Interval(low=0.3, mid=0.33, high=0.37),
        energy_j_per_sample=0.1,
        power_w=3000,
        memory_bytes=Interval(low=20e9, mid=22e9, high=25e9),
        memory_capacity_bytes=40e9,
        parallel_efficiency_frac=0.95,
        latency_s=None,
        ttft_s=None,
        chance_time=0.9,
        chance_cost=None,
        chance_memory=0.99,
        bound="compute",
        reason="cheapest",
        num_devices=8,
    )
    return replace(base, **changes)


def plan(*choices: PlannedChoice, **changes: Any) -> PlanFile:
    base = PlanFile(
        schema_version=SCHEMA_VERSION,
        paceline_version="0.1.0",
        catalog_version="2026-11",
        calibration="test",
        created_on="2026-11-20",
        assumptions=(),
        workload=workload(),
        goal={"deadline": "24h"},
        choices=choices or (choice(),),
    )
    return replace(base, **changes)


def two_nodes(*, is_spot: bool = False) -> PlanFile:
    return plan(choice(place=place(num_nodes=2, is_spot=is_spot), num_devices=16, strategy="dp16"))


def google() -> PlanFile:
    where = place(
        offer="gcp/a2-highgpu-8g", cloud="gcp", instance_type="a2-highgpu-8g",
        region="us-central1", num_nodes=2,
    )  # fmt: skip
    return plan(choice(place=where, num_devices=16, strategy="dp16"))


def four_t4() -> PlanFile:
    where = place(
        offer="aws/g4dn.12xlarge", instance_type="g4dn.12xlarge", device="Tesla T4",
        devices_per_node=4, num_vcpus_per_node=48, host_memory_bytes_per_node=192 * _GB,
    )  # fmt: skip
    return plan(choice(place=where, num_devices=4, strategy="dp4"))


def cpu(*, num_nodes: int = 1) -> PlanFile:
    where = place(
        offer="own/cluster", cloud="own", instance_type="node", device="AMD EPYC 7763 (Milan)",
        num_nodes=num_nodes, devices_per_node=1, num_vcpus_per_node=2,
        host_memory_bytes_per_node=2e9,
    )  # fmt: skip
    software = stack(platform="cpu", platform_version=None, min_driver=None)
    return plan(
        choice(place=where, stack=software, num_devices=num_nodes, strategy=f"dp{num_nodes}")
    )


def tpu(num_chips: int = 8) -> PlanFile:
    where = place(
        offer="gcp/v5e-8", cloud="gcp", instance_type="v5litepod-8",
        device="TPU v5e (per chip)", num_nodes=1, devices_per_node=num_chips,
    )  # fmt: skip
    software = stack(
        platform="tpu", platform_version=None, framework_version="2.9.0", min_driver=None
    )
    return plan(choice(place=where, stack=software, num_devices=num_chips))


def training(**changes: Any) -> DeploySettings:
    base = DeploySettings(
        command=("train.py", "--epochs", "90"), image="registry.example/resnet50:1"
    )
    return replace(base, **changes)
