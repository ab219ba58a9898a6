"""The first law: a job on a machine has one step, whoever asks for it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tolerance import ASKED_TOGETHER
from tests.unit.parallelism.stated_of_tests import evaluate_stated

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.planning.forecast.grid import predict_grid
from paceline.planning.forecast.grid_jobs import GridAxes
from paceline.planning.goal.options import parse_goal, parse_work
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.simulation.held_memory import held_memory
from paceline.simulation.job import Job, usual_habits
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

CATALOG = load_catalog()
LINKS = {link.name: link for link in CATALOG.links}
H100 = find_device(CATALOG, "H100 SXM5")
NODE = Machine.of(H100, 8, device_link=LINKS["dgx-h100-nvls"], node_link=LINKS["dgx-h100-ib"])
#: Items per device.
MODELS = {"resnet50": 32, "gpt2": 2, "dlrm": 64}


def one(workload: Workload, machine: Machine = NODE, **facts: object) -> Steps:
    steps = simulate([Job(workload=workload, **facts)], [machine])  # type: ignore[arg-type]
    steps.check()
    return steps


@pytest.mark.parametrize(
    ("model", "task"),
    [*((model, "train") for model in MODELS), ("resnet50", "infer"), ("dlrm", "infer")],
)
def test_one_device_is_what_a_pass_of_it_takes(model: str, task: str) -> None:
    workload = load_workload(model, task=task)
    how, items = Configuration(precision="fp32"), MODELS[model]
    points = Points.of([items], seq=workload.default_seq)
    found = predict_pass(
        lower(workload.passes[0].graph, how), DeviceTable.from_devices([H100]), points
    )
    steps = one(workload, Machine.of(H100), configuration=how, batch=items)
    for column, name in (
        ("step_low_s", "low_s"), ("step_s", "mid_s"), ("step_high_s", "high_s"),
        ("device_s", "device_s"), ("energy_j", "energy_j"), ("log_sigma", "log_sigma"),
        ("power_w", "power_w"), ("memory_mid_bytes", "memory_mid_bytes"),
        ("memory_high_bytes", "memory_high_bytes"), ("update_s", "update_s"),
    ):  # fmt: skip
        assert getattr(steps, column)[0] == pytest.approx(getattr(found, name)[0, 0], rel=1e-9)


@pytest.mark.parametrize("text", ["dp8", "dp8/mb2+zero2", "dp8+zero3", "dp8+recompute-block"])
@pytest.mark.parametrize("model", MODELS)
def test_replicas_are_what_a_scaling_curve_has(model: str, text: str) -> None:
    workload, strategy = load_workload(model), Strategy.parse(text)
    curve = scaling_curve(
        Job(workload=workload),
        NODE.cluster,
        counts=(8,),
        batch=BatchRule(global_batch=MODELS[model] * strategy.num_parts),
        strategy=strategy,
    )
    steps = one(workload, strategy=strategy, batch=MODELS[model])
    (point,) = curve.points
    assert steps.step_s[0] == pytest.approx(point.step_s, rel=1e-9)
    if strategy.recompute == "none":
        assert steps.log_sigma[0] == pytest.approx(point.log_sigma, rel=1e-9)
    assert steps.needed_bytes()[0] == pytest.approx(point.memory_bytes, rel=1e-9)
    assert steps.exposed_s[0] == pytest.approx(point.exposed_communication_s, abs=1e-12)


@pytest.mark.parametrize(
    "text",
    ["dp2.tp4", "pp2.dp4", "dp4.tp2/mb2+sp", "pp2.dp2.tp2@interleaved2/mb4+zero1", "dp4.cp2"],
)
def test_ranks_that_share_a_model_are_what_is_stated(text: str) -> None:
    workload, strategy = load_workload("gpt2"), Strategy.parse(text)
    job = TracedJob(
        graph=workload.passes[0].graph, configuration=Configuration(), cluster=NODE.cluster,
        seq=workload.default_seq,
    )  # fmt: skip
    found = evaluate_stated(job, strategy, global_batch=2 * strategy.num_parts)
    steps = one(workload, strategy=strategy, batch=2)
    for name in ("step_s", "tensor_s", "bubble_s", "exposed_s", "memory_mid_bytes"):
        assert getattr(steps, name)[0] == pytest.approx(getattr(found, name), rel=1e-9)
    assert steps.memory_high_bytes[0] == pytest.approx(found.memory_bytes, rel=1e-9)


@pytest.mark.kernels
@pytest.mark.parametrize("sharding", ["none", "zero2"])
def test_a_grid_shows_the_step_of_each_of_its_jobs(sharding: str) -> None:
    workload = load_workload("gpt2")
    axes = GridAxes(devices=[H100], counts=(1, 8), batches=(1, 4), sharding=sharding)
    grid = predict_grid(workload, parse_goal({"compiler": "eager"}), parse_work({}), CATALOG, axes)
    for cell in grid.cells:
        job = Job(
            workload=workload,
            configuration=Configuration(precision=cell.precision, compiler="eager"),
            strategy=Strategy.from_degrees(
                dp=cell.num_devices, sharding=sharding if cell.num_devices > 1 else "none"
            ),
            batch=cell.batch_per_device,
        )
        steps = simulate([job], [grid_machine(cell.num_devices)])
        steps.check()
        held = held_memory(job, steps, capacity_bytes=cell.memory_capacity_bytes)
        assert cell.step_s is not None
        assert steps.step_s[0] == pytest.approx(cell.step_s.mid, rel=ASKED_TOGETHER)
        assert steps.step_high_s[0] == pytest.approx(cell.step_s.high, rel=ASKED_TOGETHER)
        for bound in ("low", "mid", "high"):
            told = getattr(cell.memory_bytes, bound)
            assert getattr(held, bound) == pytest.approx(told, rel=1e-9)


def grid_machine(count: int) -> Machine:
    from paceline.planning.forecast.grid_jobs import _place

    place = _place(CATALOG, H100, 0, count)
    return Machine.of(
        H100, count, device_link=place.links.device, node_link=place.links.node,
        num_vcpus=place.num_vcpus,
    )  # fmt: skip


@pytest.mark.parametrize("profile", ["vllm", "torch"])
def test_answers_are_as_a_grid_shows_them(profile: str) -> None:
    workload = load_workload("gpt2", task="infer")
    axes = GridAxes(devices=[H100], batches=(4,))
    lengths = parse_work({"prompt": "100", "output": "20"})
    stated = {"framework": profile} | ({"compiler": "eager"} if profile == "torch" else {})
    grid = predict_grid(workload, parse_goal(stated), lengths, CATALOG, axes)
    (cell,) = grid.cells
    steps = one(
        workload, Machine.of(H100), batch=4, prompt_tokens=100, output_tokens=20,
        configuration=Configuration(precision=cell.precision), profile=profile,
    )  # fmt: skip
    assert cell.step_s is not None
    assert cell.ttft_s is not None
    assert cell.latency_s is not None
    assert steps.step_s[0] == pytest.approx(cell.step_s.mid, rel=1e-9)
    assert steps.first_token_s[0] == pytest.approx(cell.ttft_s.mid, rel=1e-9)
    assert steps.per_token_s[0] == pytest.approx(cell.latency_s.mid, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "strategy", "num_before"), [("gpt2", "", 1), ("gpt2", "tp2", 1), ("t5-base", "", 0)]
)
def test_reading_a_prompt_writes_the_first_token(
    model: str, strategy: str, num_before: int
) -> None:
    workload = load_workload(model, task="infer")
    count = 2 if strategy else 1

    def steps(output_tokens: int) -> Steps:
        return one(
            workload, grid_machine(count), batch=4, prompt_tokens=100, output_tokens=output_tokens,
            **({"strategy": Strategy.parse(strategy)} if strategy else {}),
        )  # fmt: skip

    many = steps(20)
    written_s = (20 - num_before) * many.per_token_s[0]
    assert many.step_s[0] == pytest.approx(many.first_token_s[0] + written_s, rel=1e-9)
    if num_before:
        assert steps(1).step_s[0] == pytest.approx(many.first_token_s[0], rel=1e-9)


def test_many_rows_are_what_each_is_alone() -> None:
    gpt2, resnet = load_workload("gpt2"), load_workload("resnet50", task="infer")
    texts = ("dp8", "dp8/mb2+zero2", "fsdp8", "dp2.tp4", "pp2.dp4", "dp8+parameter-server")
    jobs = [
        Job(workload=gpt2, strategy=Strategy.parse(text), batch=batch)
        for text in texts
        for batch in (1, 4)
    ]
    machines = [NODE] * len(jobs)
    jobs += [Job(workload=resnet, batch=batch) for batch in (1, 32)]
    machines += [Machine.of(H100), Machine.of(find_device(CATALOG, "T4"))]
    together = simulate(jobs, machines)
    assert len(together) == len(jobs)
    for row, (job, machine) in enumerate(zip(jobs, machines, strict=True)):
        alone = simulate([job], [machine])
        for name in ("step_s", "step_high_s", "exposed_s", "memory_high_bytes", "energy_j"):
            np.testing.assert_allclose(
                getattr(together, name)[row], getattr(alone, name)[0], rtol=1e-6
            )


def test_what_cannot_run_has_a_reason_and_leaves_the_others_alone() -> None:
    gpt2 = load_workload("gpt2")
    texts = ("dp8", "dp4", "tp8", "dp8;a=dp:replicate")
    jobs = [Job(workload=gpt2, strategy=Strategy.parse(text)) for text in texts]
    steps = simulate(jobs, [NODE] * len(jobs))
    assert [reason is None for reason in steps.reasons] == [True, False, False, False]
    assert np.isfinite(steps.step_s).tolist() == [True, False, False, False]
    assert all(reason.hint for reason in steps.reasons[1:])


def test_replicas_without_a_link_have_a_reason() -> None:
    job = Job(workload=load_workload("gpt2"), strategy=Strategy.parse("dp8"))
    (reason,) = simulate([job], [Machine.of(H100, 8)]).reasons
    assert "link" in str(reason)


def test_stages_that_let_go_of_messages_hold_no_more_of_more_microbatches() -> None:
    """PyTorch's stages have a buffer for what they receive of each and keep what they sent."""
    workload, seq = load_workload("gpt2"), 256

    def peaks(*habits: str) -> list[float]:
        asked = {"batch": 4, "seq": seq, "configuration": Configuration(precision="bf16")}
        texts = ("pp4.dp2/mb16", "pp4.dp2/mb64")
        found = (one(workload, strategy=Strategy.parse(t), habits=habits, **asked) for t in texts)
        return [float(steps.memory_mid_bytes[0]) for steps in found]

    few, many = peaks("frees-messages")
    assert many == pytest.approx(few, rel=0.01)
    kept_few, kept_many = peaks()
    message_bytes = 2 * 4 * seq * 768
    assert kept_many - kept_few >= (64 - 16) * message_bytes


def test_replicas_that_gather_ahead_hide_it_behind_the_next_forward_pass() -> None:
    """Megatron's optimizer: of what ZeRO-1 gathers less is left, and ZeRO-3 has nothing to move."""
    workload = load_workload("gpt2-xl")
    asked = {"batch": 4, "configuration": Configuration(precision="bf16")}

    def exposed_s(text: str, *habits: str) -> float:
        found = one(workload, strategy=Strategy.parse(text), habits=habits, **asked)
        return float(found.exposed_s[0])

    for text in ("dp8+zero1", "dp8+zero2"):
        assert exposed_s(text, "gathers-ahead") < 0.9 * exposed_s(text)
    assert exposed_s("dp8+zero3", "gathers-ahead") == pytest.approx(exposed_s("dp8+zero3"))
    assert "gathers-ahead" in usual_habits(
        "megatron", model="gpt2-xl", device=None, configuration=Configuration(precision="bf16")
    )
