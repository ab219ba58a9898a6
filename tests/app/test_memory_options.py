"""Options that change memory: in the right direction and by the right amount, as a user sees it."""

import re
from functools import cache

import pytest
import torch
from tests.sampled import sampled
from torch import nn

from paceline import predict
from paceline.app.main import main
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.model.settings import read_settings
from paceline.reporting.figures import MEMORY_BOUND, memory_bound_bytes

BATCH = 8
#: Below it segments decide which way a process moves.
CLEAR_BYTES = 3e8


@cache
def told_cell(model="gpt2", **options):
    return predict(model, device="a100", batch=(BATCH,), precision="bf16", **options).cells[0]


def process_bytes(model="gpt2", **options):
    return told_cell(model, **options).memory_bytes.mid


def told_live_bytes(cell):
    """All but what the driver, libraries and the allocator add."""
    parts = cell.memory_parts
    return parts.weights_bytes + parts.optimizer_bytes + parts.rest_bytes


@cache
def live_bytes(model, rewrite=""):
    workload = load_workload(model)
    lowered = lower(workload.passes[0].graph, read_settings(rewrite, Configuration()))
    point = monomials(BATCH, workload.default_seq)[0]
    return float((lowered.memory.by_owner.sum(axis=1) @ point).max())


REWRITES = (
    "checkpointing=block", "checkpointing=full", "attention=math", "offload=optimizer",
    "offload=activations", "lora_rank=8", "lora_rank=8,frozen_weights=int4", "accumulates=yes",
    "training_format=pure", "frozen=layers.0*|layers.1*|layers.2*", "optimizer_kernel=plain",
    "loss=fused", "loss=chunked", "loss=recomputed",
)  # fmt: skip


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewrite_moves_process_memory_by_what_it_moves_live_bytes(rewrite):
    live = live_bytes("gpt2", rewrite) - live_bytes("gpt2")
    before, after = told_cell(), told_cell(rewrite=rewrite)
    seen = told_live_bytes(after) - told_live_bytes(before)
    assert seen == pytest.approx(live, rel=0.01, abs=2e6)
    moved = process_bytes(rewrite=rewrite) - process_bytes()
    assert moved * live > 0 or abs(live) < CLEAR_BYTES


def test_each_option_moves_memory_in_its_direction():
    plain = process_bytes()
    less = ("checkpointing=block", "offload=optimizer", "offload=activations", "lora_rank=8")
    assert all(process_bytes(rewrite=rewrite) < plain for rewrite in less)
    assert process_bytes(rewrite="attention=math") > plain
    assert process_bytes(rewrite="lora_rank=8,frozen_weights=int4") < process_bytes(
        rewrite="lora_rank=8"
    )
    assert process_bytes(rewrite="accumulates=yes") >= plain


def test_checkpointing_is_the_same_as_an_option_and_as_a_rewrite():
    as_rewrite = process_bytes(rewrite="checkpointing=block")
    assert process_bytes(checkpointing="block") == as_rewrite


#: Bytes of state per trained parameter.
STATE = {"sgd": 0, "lion": 4, "adafactor": 0, "adamw-8bit": 2, "adamw": 8, "adam": 8}


class Dense:
    """16.8 million parameters, so that their state is what counts."""

    def __init__(self, optimizer):
        self.model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4)))
        self.inputs = lambda batch: torch.zeros(batch, 2048)
        self.optimizer = optimizer


@pytest.mark.parametrize("optimizer", sorted(STATE))
def test_optimizers_keep_what_their_papers_say(optimizer):
    workload = load_workload(Dense(optimizer))
    lowered = lower(workload.passes[0].graph, Configuration(optimizer_kernel="plain"))
    state = lowered.memory.by_owner[:, Owner.OPTIMIZER_STATE, 0].max(initial=0.0)
    assert state == pytest.approx(STATE[optimizer] * workload.num_parameters, rel=0.02, abs=1e5)


@pytest.mark.parametrize("optimizer", sampled(["sgd", "lion", "adamw-8bit"], "adamw-8bit"))
def test_a_smaller_state_is_less_memory_of_the_process_by_as_much(optimizer):
    def told(name):
        return predict(Dense(name), device="a100", batch=(BATCH,), precision="fp32").cells[0]

    def live(name):
        graph = load_workload(Dense(name)).passes[0].graph
        table = lower(graph, Configuration(precision="fp32")).memory.by_owner
        return float((table.sum(axis=1) @ monomials(BATCH, 1)[0]).max())

    large, small = told("adamw"), told(optimizer)
    saved = told_live_bytes(large) - told_live_bytes(small)
    assert saved == pytest.approx(live("adamw") - live(optimizer), rel=0.01)
    state_bytes = (8 - STATE[optimizer]) * 16_785_408
    assert large.memory_bytes.mid - small.memory_bytes.mid > 0.9 * state_bytes


@pytest.mark.parametrize("setting", ["precision=fp16", "compiler=compiled", "platform=rocm"])
def test_what_has_an_option_of_its_own_is_no_rewrite(setting):
    with pytest.raises(InvalidInputError):
        predict("gpt2", device="a100", batch=(1,), rewrite=setting)


def told(capsys, *arguments, status=0):
    assert main(["predict", *arguments]) == status
    return " ".join(capsys.readouterr().out.split())


def test_a_job_that_does_not_fit_is_told_what_would_and_that_does(capsys):
    """Two roads: the hint, and the command that it names."""
    words = ("gpt2-xl", "--device", "RTX 3090", "--batch", "1")
    out = told(capsys, *words, status=3)
    fits = r"batch 1 fits with (--rewrite \S+): ([\d.]+) GB of ([\d.]+) GB, (.*?); ([\d.]+) GB less"
    hint = re.search(fits, out)
    assert hint is not None
    assert hint[4] == MEMORY_BOUND
    assert float(hint[2]) <= float(hint[3])
    again = told(capsys, *words, *hint[1].split())
    assert "OOM" not in again
    cell = predict("gpt2-xl", device="RTX 3090", batch=(1,), rewrite=hint[1].split()[1]).cells[0]
    assert memory_bound_bytes(cell.memory_bytes) == pytest.approx(float(hint[2]) * 1e9, rel=0.01)
    before = predict("gpt2-xl", device="RTX 3090", batch=(1,)).cells[0]
    saved = memory_bound_bytes(before.memory_bytes) - memory_bound_bytes(cell.memory_bytes)
    assert saved == pytest.approx(float(hint[5]) * 1e9, rel=0.01)


def test_the_hint_says_what_each_rewrite_saves(capsys):
    out = told(capsys, "gpt2-xl", "--device", "RTX 3090", "--batch", "1", status=3)
    needed = re.search(r"of ([\d.]+) GB at batch 1", out)
    saving = re.search(r"offload=optimizer saves ([\d.]+) GB", out)
    assert needed is not None
    assert saving is not None
    bounds = [
        memory_bound_bytes(
            predict("gpt2-xl", device="RTX 3090", batch=(1,), rewrite=rewrite).cells[0].memory_bytes
        )
        for rewrite in ("", "offload=optimizer")
    ]
    assert float(needed[1]) == pytest.approx(bounds[0] / 1e9, rel=0.01)
    assert float(saving[1]) == pytest.approx((bounds[0] - bounds[1]) / 1e9, rel=0.01)


def test_a_plan_that_nothing_fits_says_what_each_rewrite_saves(capsys):
    status = main(["plan", "llama-3-8b", "--device", "RTX 4090", "--max-devices", "1"])
    told = " ".join(capsys.readouterr().err.split())
    assert status not in (0, 1, 2)
    assert re.search(r"--rewrite .*live at batch 1, .*lora_rank=16 saves [\d.]+ GB", told)
    assert "offload" not in told


@pytest.mark.parametrize(("model", "stated"), [("gpt2", "none"), ("llama-3-8b", "zero3")])
def test_devices_share_the_training_state_only_where_one_cannot_hold_it(model, stated):
    asked = {"device": "h200", "batch": (1,), "devices": (1, 4)}
    chosen = predict(model, **asked).cells
    said = predict(model, **asked, sharding=stated).cells
    assert [cell.sharding for cell in chosen] == ["none", stated]
    assert chosen[1] == said[1]
    assert chosen[0].memory_bytes == said[0].memory_bytes


def test_shares_on_the_host_are_none_of_the_parts_on_the_device():
    cell = told_cell(devices=(4,), sharding="zero3", rewrite="offload=weights")
    kept = told_cell(devices=(4,), sharding="zero3", rewrite="offload=optimizer")
    assert cell.memory_parts.weights_bytes == cell.memory_parts.optimizer_bytes == 0.0
    assert kept.memory_parts.weights_bytes > 0.0
    assert told_live_bytes(cell) + kept.memory_parts.weights_bytes <= told_live_bytes(kept)
