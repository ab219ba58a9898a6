"""Every field of a Configuration does to the ranks of every strategy what it does to one device.

Two laws. A rank runs the program of one device, op for op and storage for storage, each whole or a
part: so whatever a setting rewrites, it rewrites on every rank. And where a strategy leaves blocks
whole, a setting changes the busy time of the busiest rank as it changes that of one device.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import cache
from typing import get_args

import numpy as np
import pytest
from tests.sampled import sampled
from tests.unit.parallelism.stated_of_tests import evaluate_stated

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.block_names import block_names, blocks_of_ops
from paceline.model.graph.costs import Configuration, Loss
from paceline.model.graph.graph import Owner, Phase
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.program import Program
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower, rewritten
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.fixed_strategy import evaluated_steps
from paceline.parallelism.memory.training_state import training_state
from paceline.parallelism.split import split
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

#: What each field is set to beside its default, with the fields that it needs.
SETTINGS: dict[str, list[dict[str, object]]] = {
    "precision": [{"precision": name} for name in ("fp32", "fp16", "fp8")],
    "compiler": [{"compiler": name} for name in ("compiled", "xla")],
    "checkpointing": [{"checkpointing": name} for name in ("selective", "block", "full")],
    "checkpoint_blocks": [{"checkpointing": "block", "checkpoint_blocks": "1/2"}],
    "platform": [{"platform": name} for name in ("rocm", "cpu")],
    "channels_last": [{"channels_last": False}],
    "attention": [{"attention": name} for name in ("math", "vendor", "memory-efficient")],
    "optimizer_kernel": [{"optimizer_kernel": name} for name in ("plain", "fused")],
    "frozen": [{"frozen": ("except:norm",)}],
    "lora_rank": [{"lora_rank": 8}],
    "lora_modules": [{"lora_rank": 8, "lora_modules": ("*.q_proj", "*.attn", "*.q", "*.to_q")}],
    "lora_kind": [{"lora_kind": kind, "lora_rank": 8} for kind in ("dora", "loha", "prefix")],
    "num_adapters": [{"num_adapters": 4, "lora_rank": 8, "is_served": True}],
    "offload": [{"offload": name} for name in ("optimizer", "weights", "activations")],
    "training_format": [
        {"training_format": n}
        for n in (
            "autocast",
            "half-weights",
            "half-gradients",
            "joined-gradients",
            "pure",
            "narrow-autocast",
        )
    ],
    "inference_format": [{"inference_format": "autocast"}],
    "accumulates": [{"accumulates": True}],
    "objective": [{"objective": name} for name in ("dpo", "ppo")],
    "gradient_buffers": [{"gradient_buffers": 10**8}],
    "update": [{"update": "in-backward"}],
    "frozen_weights": [
        {"frozen_weights": name, "lora_rank": 8}
        for name in ("fp8", "int8", "nvfp4", "mxfp4", "int4", "gptq", "awq")
    ],
    "libraries": [
        {"libraries": ("torch==1.10",)},
        {"libraries": ("bitsandbytes==0.41",), "frozen_weights": "int4", "lora_rank": 8},
    ],
    "widens_in_kernels": [{"widens_in_kernels": True, "frozen_weights": "int4", "lora_rank": 8}],
    "convolutions": [{"convolutions": "tuned", "compiler": "compiled"}],
    "is_served": [{"is_served": True}],
    "engine_kernels": [
        {"engine_kernels": name, "is_served": True} for name in ("early", "portable")
    ],
    "cache_format": [{"cache_format": "fp8", "is_served": True}],
    "loss": [{"loss": name, "training_format": "pure"} for name in get_args(Loss)[1:]],
    "widths": [{"widths": "padded"}],
    "table_updates": [{"table_updates": name} for name in ("sparse", "fused")],
    "results": [{"results": "dropped"}],
    "frozen_products": [
        {"frozen_products": name, "frozen_weights": "int8", "lora_rank": 8}
        for name in ("kept", "cast", "held")
    ],
    "peaks": [{"peaks": "rough"}],
    "checkpoint_inputs": [{"checkpoint_inputs": "kept", "checkpointing": "block"}],
    "adapter_inputs": [
        {"adapter_inputs": name, "lora_rank": 8, "training_format": "pure"}
        for name in ("cast", "dropped")
    ],
}
EVERY = [(name, number) for name, values in SETTINGS.items() for number in range(len(values))]
#: Of each field its last value; the others where there is time.
LAST = sampled(EVERY, *((name, len(values) - 1) for name, values in SETTINGS.items()))
#: Items per device, and the shapes of ranks that can share the model.
MODELS = {
    "resnet50": (256, ("tp8",)), "gpt2": (64, ("tp4+sp", "tp2", "cp2")),
    "llama-3-8b": (1, ("tp8", "tp4+sp", "cp2")), "mixtral-8x7b": (1, ("tp2", "cp2", "ep8")),
    "t5-base": (64, ("tp4+sp", "tp2", "cp2")), "sd15-unet": (32, ("tp8",)),
}  # fmt: skip
#: Those of every test run; the others take minutes.
QUICK = ("gpt2",)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name not in QUICK]
#: Strategies that leave every block whole.
WHOLE = ("dp8", "dp8+zero1", "dp8+zero2", "dp8+zero3", "pp2.dp4/mb4")
SPLIT = ("tp8", "dp2.tp4+sp", "pp4.tp2/mb8", "pp2.dp2.tp2@interleaved2/mb4+zero1", "dp4.cp2")


def setting(name: str, number: int) -> Configuration:
    return Configuration(**SETTINGS[name][number])  # type: ignore[arg-type]


@cache
def workload(model: str) -> Workload:
    return load_workload(model)


@cache
def cluster() -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    device = find_device(catalog, "H100 SXM5 80GB")
    return Cluster(
        device=replace(device, memory_bytes=10**14, usable_memory_bytes=None), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
    )  # fmt: skip


def job(model: str, how: Configuration) -> TracedJob:
    one = workload(model)
    return TracedJob(
        graph=one.passes[0].graph, configuration=how, cluster=cluster(), seq=one.default_seq
    )


@cache
def program(model: str, how: Configuration, shape: str = "dp1") -> Program:
    graph = workload(model).passes[0].graph
    part = split(graph, SplitShape.of(Strategy.parse(shape)))
    return rewritten(part.graph, with_weight_format(graph, how))


def test_every_field_is_asked() -> None:
    assert set(SETTINGS) == {field.name for field in fields(Configuration)}
    for name, values in SETTINGS.items():
        assert all(value[name] != getattr(Configuration(), name) for value in values)


@pytest.mark.parametrize(("name", "number"), EVERY)
@pytest.mark.parametrize("model", [*QUICK, *SLOW])
def test_ranks_run_the_program_of_one_device(model: str, name: str, number: int) -> None:
    """The same ops, and the same storages as long and in the same format; sizes alone differ."""
    how = setting(name, number)
    try:
        alone = program(model, how)
    except InvalidInputError as refused:
        why = max(str(refused).split("`"), key=len)[:20]
        for shape in MODELS[model][1]:
            with pytest.raises(InvalidInputError, match=re.escape(why)):
                program(model, how, shape)
        return
    for shape in MODELS[model][1]:
        mine = program(model, how, shape)
        for column in ("kind", "variant", "phase", "module"):
            assert np.array_equal(getattr(mine.ops, column), getattr(alone.ops, column)), shape
        for column in ("owner", "element_bytes", "birth", "death", "is_trainable"):
            assert np.array_equal(getattr(mine.stores, column), getattr(alone.stores, column))
        sizes = (mine.stores.elements.sum(axis=1), alone.stores.elements.sum(axis=1))
        assert (sizes[0] <= sizes[1] * (1 + 1e-9)).all(), shape


@pytest.mark.parametrize(("name", "number"), LAST)
@pytest.mark.parametrize("model", [*QUICK, "mixtral-8x7b"])
def test_blocks_keep_and_move_what_one_device_does(model: str, name: str, number: int) -> None:
    """By owner, and what updates move."""
    graph, how = workload(model).passes[0].graph, setting(name, number)
    try:
        whole = lower(graph, how)
    except InvalidInputError:
        pytest.skip("refused of one device")
    mine = program(model, how)
    names = block_names(graph)
    block = blocks_of_ops(mine.modules, mine.ops.module, names)
    is_expert = np.zeros(len(graph.storages.owner), dtype=np.bool_)
    state = training_state(mine, how, block, len(names), is_expert)
    costs = whole.costs
    is_update = costs.phase == Phase.OPTIMIZER
    moved = (costs.read_bytes + costs.write_bytes)[is_update, 0] * costs.count[is_update]
    workspace = mine.stores.num_bytes()[:, 0][
        (mine.stores.owner == Owner.WORKSPACE)
        & (mine.ops.phase[np.maximum(mine.stores.birth, 0)] == Phase.OPTIMIZER)
    ]
    for counted, expected in (
        (state.parameters, whole.num_parameters), (state.trained, whole.num_trainable_parameters),
        (state.weight, whole.parameter_bytes), (state.reduced, whole.gradient_bytes),
        (state.optimizer, whole.optimizer_state_bytes), (state.update, moved.sum()),
        (state.workspace, workspace.sum()),
    ):  # fmt: skip
        assert counted.sum() == pytest.approx(expected, rel=1e-9)


@cache
def busy_s(model: str, how: Configuration, text: str) -> float:
    """Of a step, what the busiest rank computes of its microbatches, block by block."""
    items = [float(MODELS[model][0])]
    steps = evaluated_steps(job(model, how), Strategy.parse(text), microbatches=items).steps
    waits_s = steps.lost_s + steps.update_s
    return float((steps.step_s - waits_s)[0])


@cache
def alone_s(model: str, how: Configuration) -> float:
    """Of a step of one device, what is no update, by the whole pass."""
    one = Job(workload=workload(model), configuration=how, batch=MODELS[model][0])
    found = simulate([one], [Machine.of_cluster(cluster(), 1)])
    found.check()
    return float((found.step_s - found.update_s)[0])


@pytest.mark.parametrize(("name", "number"), LAST)
@pytest.mark.parametrize("model", [*QUICK, *SLOW])
def test_time_changes_as_it_does_on_one_device(model: str, name: str, number: int) -> None:
    """Within 10 %, where strategies leave blocks whole."""
    how = setting(name, number)
    try:
        expected = alone_s(model, how) / alone_s(model, Configuration())
    except PacelineError as refused:
        for text in WHOLE:
            with pytest.raises(type(refused)):
                busy_s(model, how, text)
        return
    # What is not trained lies in some stages more than in others, the loss in the last.
    by_stage = name in ("frozen", "loss")
    for text in (text for text in WHOLE if not (by_stage and "pp" in text)):
        change = busy_s(model, how, text) / busy_s(model, Configuration(), text)
        assert change == pytest.approx(expected, rel=0.1), text


@pytest.mark.parametrize("text", SPLIT)
def test_what_a_split_rank_cannot_run_is_refused_with_a_hint(text: str) -> None:
    how = Configuration(attention="math")
    strategy = Strategy.parse(text)
    items = strategy.num_parts
    if "cp" not in text:
        plain, unfused = (
            evaluate_stated(job("llama-3-8b", one), strategy, global_batch=items).step_s
            for one in (Configuration(), how)
        )
        assert unfused > 1.05 * plain
        return
    with pytest.raises(InvalidInputError, match="all scores at once") as refused:
        evaluate_stated(job("llama-3-8b", how), strategy, global_batch=items)
    assert "flash" in refused.value.hint


def test_a_setting_that_is_not_of_training_changes_nothing() -> None:
    for name in ("inference_format", "is_served", "engine_kernels", "cache_format", "peaks"):
        plain, other = (program("gpt2", how, "tp2") for how in (Configuration(), setting(name, 0)))
        assert np.array_equal(plain.ops.kind, other.ops.kind)
        assert (plain.ops.kind != OpKind.HOST_COPY).all()
