"""What every op rule, every rewrite and every front end must satisfy."""

from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from tests.sampled import zoo_names

from paceline.dtypes import find_precision
from paceline.model.costs_table import cost_table
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import NUM_DIMS, OpKind, monomials
from paceline.model.graph.program import OUTLIVES
from paceline.model.lowering import rewritten as as_run
from paceline.model.ops.optable import find_rule, read_table, variants
from paceline.model.ops.registry import DIM_NAMES
from paceline.model.reading.load import load_workload

REWRITES = {
    "fp32": {"precision": "fp32"},
    "bf16": {},
    "fp8": {"precision": "fp8"},
    "pure": {"training_format": "pure"},
    "autocast": {"training_format": "autocast"},
    "narrow autocast": {"training_format": "narrow-autocast"},
    "half weights": {"training_format": "half-weights"},
    "half gradients": {"training_format": "half-gradients"},
    "joined gradients": {"training_format": "joined-gradients"},
    "checkpointed": {"checkpointing": "full"},
    "blocks": {"checkpointing": "block"},
    "some blocks": {"checkpointing": "block", "checkpoint_blocks": "1/2"},
    "selective": {"checkpointing": "selective", "attention": "math"},
    "experts": {"checkpointing": "experts"},
    "compiled": {"compiler": "compiled"},
    "results let go": {"results": "dropped"},
    "xla": {"compiler": "xla", "platform": "xla"},
    "math attention": {"attention": "math"},
    "eager attention": {"attention": "eager"},
    "cpu": {"platform": "cpu", "precision": "fp32"},
    "offloaded optimizer": {"offload": "optimizer"},
    "offloaded weights": {"offload": "weights"},
    "offloaded activations": {"offload": "activations"},
    "accumulating": {"accumulates": True},
    "updated in backward": {"update": "in-backward"},
    "buffers of gradients": {"gradient_buffers": 10**6},
    "older": {"libraries": ("torch==1.10",), "attention": "math", "checkpointing": "full"},
    "everything": {"checkpointing": "full", "compiler": "compiled", "attention": "math"},
    "fp16": {"precision": "fp16"},
    "tf32": {"precision": "tf32"},
    "images last": {"channels_last": False},
    "rocm": {"platform": "rocm"},
    "tensorrt": {"compiler": "tensorrt"},
    "memory-efficient": {"attention": "memory-efficient"},
    "vendor": {"attention": "vendor"},
    "flash 2": {"attention": "flash-2"},
    "padded": {"widths": "padded"},
    "tables by rows": {"table_updates": "fused"},
    "sparse tables": {"table_updates": "sparse"},
    "whole tables": {"table_updates": "dense"},
    "plain optimizer": {"optimizer_kernel": "plain"},
    "casts in inference": {"inference_format": "autocast"},
    "fused optimizer": {"optimizer_kernel": "fused"},
    "early kernels of an engine": {"engine_kernels": "early"},
    "portable kernels of an engine": {"engine_kernels": "portable"},
    "a cache in 8 bits": {"cache_format": "fp8"},
    "a cache as wide as the step": {"cache_format": "wide"},
    "peaks derived": {"peaks": "derived"},
    "peaks without lengths": {"peaks": "lengths"},
    "rough peaks": {"peaks": "rough"},
    "written by hand": {"compiler": "compiled", "convolutions": "tuned"},
}
#: What layers of a narrow base read, in attributes of the graph.
ATTACHED = {"lora_rank": 4, "frozen_weights": "int4", "frozen_products": "attached"}
#: Rewrites that change what is trained or its loss, each of a model that has the modules.
RETRAINED = (
    ("gpt2", {"lora_rank": 4}),
    ("gpt2", {"lora_rank": 8, "lora_modules": ("*.q", "*.v")}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "int4", "checkpointing": "full"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "int8", "compiler": "compiled"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "fp8"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "nvfp4"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "mxfp4"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "gptq"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "awq"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "int8", "frozen_products": "kept"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "fp8", "frozen_products": "cast"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "int4", "frozen_products": "held"}),
    ("gpt2", {**ATTACHED, "checkpointing": "block"}),
    ("gpt2", {**ATTACHED, "checkpointing": "full", "compiler": "compiled"}),
    ("gpt2", {**ATTACHED, "objective": "dpo"}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "int4", "libraries": ("bitsandbytes==0.41",)}),
    ("gpt2", {"lora_rank": 4, "frozen_weights": "int4", "widens_in_kernels": True}),
    ("gpt2", {"lora_rank": 4, "adapter_inputs": "cast"}),
    ("gpt2", {"lora_rank": 4, "frozen": ("except:embedding",)}),
    ("gpt2", {"lora_rank": 4, "adapter_inputs": "dropped"}),
    ("gpt2", {"lora_rank": 4, "lora_kind": "dora"}),
    ("gpt2", {"lora_rank": 4, "lora_kind": "dora", "frozen_weights": "int4"}),
    ("gpt2", {"lora_rank": 4, "lora_kind": "loha"}),
    ("gpt2", {"lora_rank": 4, "lora_kind": "loha", "adapter_inputs": "cast"}),
    ("gpt2", {"lora_rank": 4, "lora_kind": "prefix"}),
    ("vgg16", {"frozen": ("features",)}),
    ("gpt2", {"loss": "wide"}),
    ("gpt2", {"loss": "fused"}),
    ("gpt2", {"loss": "fused-wide"}),
    ("gpt2", {"loss": "compiled-wide"}),
    ("gpt2", {"loss": "shifted"}),
    ("gpt2", {"loss": "wide-shifted"}),
    ("gpt2", {"loss": "fused-shifted"}),
    ("gpt2", {"loss": "fused-wide-shifted"}),
    ("gpt2", {"loss": "chunked"}),
    ("gpt2", {"loss": "recomputed"}),
    ("gpt2", {"checkpointing": "block", "checkpoint_inputs": "kept"}),
    *(("gpt2", {"objective": objective}) for objective in ("dpo", "kto", "grpo", "ppo")),
    ("gpt2", {"lora_rank": 4, "objective": "dpo", "checkpointing": "block"}),
)
#: What an engine does to a model that it serves.
SERVED = {"is_served": True, "compiler": "compiled"}
WITH_ADAPTERS = {**SERVED, "lora_rank": 8, "num_adapters": 4}
TRAINED = ["resnet50", "gpt2", "lstm", "googlenet", "dcgan"]


def rewritten(graph, settings):
    return as_run(graph, Configuration(**settings))


def assert_conforms(program):
    """Invariants of a rewritten program."""
    num_ops, num_stores = len(program.ops), len(program.stores)
    assert (np.diff(program.ops.position) >= 0).all()
    stores = program.stores
    assert len(stores.birth) == len(stores.death) == num_stores
    end = np.where(stores.death == OUTLIVES, num_ops, stores.death)
    is_real = stores.elements.any(axis=1)
    assert (stores.birth[is_real] <= end[is_real]).all()
    at = monomials([1, 7], [3, 64])
    assert (stores.num_bytes() @ at.T >= 0).all()
    assert (program.ops.flop @ at.T >= 0).all()
    for accesses in (program.reads, program.writes):
        assert ((accesses.op >= 0) & (accesses.op < num_ops)).all()
        assert ((accesses.storage >= 0) & (accesses.storage < num_stores)).all()
        real = is_real[accesses.storage]
        op, storage = accesses.op[real], accesses.storage[real]
        assert (op >= stores.birth[storage]).all(), "something is touched before it exists"
        assert (op <= end[storage]).all(), "something is touched after it is gone"


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewrite_touches_only_what_exists(name, rewrite):
    settings = REWRITES[rewrite]
    for one in load_workload(name).passes:
        assert_conforms(rewritten(one.graph, settings))


@pytest.mark.parametrize(("name", "settings"), RETRAINED)
def test_adapters_freezing_and_losses_touch_only_what_exists(name, settings):
    assert_conforms(rewritten(load_workload(name).passes[0].graph, settings))


def test_every_setting_and_each_of_its_values_is_among_the_rewrites():
    tried = {field.name: {field.default} for field in fields(Configuration)}
    for settings in [*REWRITES.values(), *(one for _, one in RETRAINED), SERVED, WITH_ADAPTERS]:
        for name, value in settings.items():
            tried[name].add(value)
    for name, hint in get_type_hints(Configuration).items():
        expected = set(get_args(hint)) if get_origin(hint) is Literal else set()
        assert tried[name] >= expected
        assert len(tried[name]) > 1, f"no rewrite changes `{name}`"


@pytest.mark.parametrize("settings", [SERVED, WITH_ADAPTERS], ids=["base", "adapters"])
def test_an_engine_touches_only_what_exists(settings):
    for one in load_workload("llama-3-8b", task="infer").passes:
        assert_conforms(rewritten(one.graph, settings))


@pytest.mark.parametrize("precision", ["bf16", "int8", "int4", "int8-full", "fp8"])
def test_inference_touches_only_what_exists(precision):
    for one in load_workload("gpt2", task="infer").passes:
        assert_conforms(rewritten(one.graph, {"precision": precision}))


@pytest.mark.parametrize("name", zoo_names())
def test_a_shipped_graph_conforms(name):
    for one in load_workload(name).passes:
        program = rewritten(one.graph, {})
        assert_conforms(program)
        costs = cost_table(program, Configuration(), find_precision("bf16"))
        assert costs.count.sum() == len(program.ops)


def test_every_rule_of_the_operator_table_is_complete():
    rows = read_table("torch_ops.csv")
    assert len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        rule = find_rule(row["name"])
        assert rule.kind.name == row["kind"]
        assert row["autocast"] in ("narrow", "wide", "promote", "first")


def test_every_kind_launches_kernels_on_every_platform():
    rows = read_table("kernels.csv")
    assert {row["kind"] for row in rows} >= {k.name for k in OpKind} - {"OPTIMIZER"}
    for row in rows:
        assert row["source"]
        assert not row["variant"] or (row["kind"], row["variant"]) in variants()
        assert all(float(row[p]) >= 1 for p in ("cuda", "rocm", "cpu", "xla"))


def test_shape_numbers_fit_their_table():
    assert all(len(names) <= NUM_DIMS for names in DIM_NAMES.values())


def test_an_unknown_operator_is_read_by_its_tag_or_as_other():
    assert find_rule("aten::brand_new|pointwise").kind == OpKind.ELEMENTWISE
    assert find_rule("aten::brand_new|reduction").kind == OpKind.REDUCE
    assert find_rule("vendor::brand_new|").kind == OpKind.OTHER
