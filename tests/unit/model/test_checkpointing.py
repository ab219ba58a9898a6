"""Activation checkpointing, and what old frameworks kept, against counts by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase, monomials
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload

WIDTH, BLOCKS, BATCH = 64, 6, 8


class Job:
    """A stack of blocks, named by number, each a wide layer between two narrow ones."""

    def __init__(self):
        self.model = nn.Sequential(*(self._block() for _ in range(BLOCKS)))

    @staticmethod
    def _block():
        wide, narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        return nn.Sequential(wide, nn.GELU(), narrow)

    def inputs(self, batch):
        return torch.empty(batch, WIDTH)


class Scores:
    """A layer whose softmax is the only thing that keeps a square."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(WIDTH, 512), nn.Softmax(-1), nn.Linear(512, 8))

    def inputs(self, batch):
        return torch.empty(batch, WIDTH)


def live_bytes(graph, op, **settings):
    """Bytes alive during an op, by owner."""
    lived = lifetimes(graph, Configuration(**settings))
    alive = (lived.birth <= op) & (lived.death >= op)
    sizes = lived.bytes_at(BATCH, 1)
    return np.bincount(lived.owner[alive], sizes[alive], minlength=len(Owner))


def phases(graph, **settings):
    """Phase of each op in execution order."""
    costs = lower(graph, Configuration(**settings)).costs
    return costs.phase[costs.order]


class Filled(Job):
    """The same, where each block fills room for its result, as attention over latents does."""

    @staticmethod
    def _block():
        return RoomFiller()


class RoomFiller(nn.Module):
    """Squares both halves of a wide layer into room that it made before."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        wide = self.wide(x)
        room = wide.new_empty(wide.shape)
        room[:, : 2 * WIDTH] = wide[:, : 2 * WIDTH].square()
        room[:, 2 * WIDTH :] = wide[:, 2 * WIDTH :].square()
        return self.narrow(room)


def test_room_is_alive_from_when_it_is_filled():
    graph = load_workload(Filled()).passes[0].graph
    first = live_bytes(graph, 0, precision="fp32")[Owner.ACTIVATION]
    assert first <= 4 * BATCH * (WIDTH + 4 * WIDTH), "the input and the first layer's result"
    settings = {"precision": "fp32", "checkpointing": "block"}
    loss = int(np.flatnonzero(phases(graph, **settings) == Phase.LOSS)[0])
    kept = live_bytes(graph, loss, **settings)[Owner.ACTIVATION]
    assert kept <= 4 * BATCH * WIDTH * (BLOCKS + 3), "what enters blocks, and the loss"


def test_only_what_enters_a_block_is_kept():
    graph = load_workload(Job()).passes[0].graph
    settings = {"precision": "fp32", "checkpointing": "block"}
    first_of_loss = int(np.flatnonzero(phases(graph, **settings) == Phase.LOSS)[0])
    kept = live_bytes(graph, first_of_loss, **settings)[Owner.ACTIVATION]
    results_and_loss = BLOCKS + 1
    assert kept == pytest.approx(results_and_loss * BATCH * WIDTH * 4, rel=0.01)


def test_autocast_holds_narrow_weights_until_the_forward_pass_ends():
    """Checkpointing does not shorten them: the cache is cleared when autocast is left."""
    graph = load_workload(Job()).passes[0].graph
    settings = {"precision": "fp16", "checkpointing": "block"}
    last = int(np.flatnonzero(phases(graph, **settings) == Phase.FORWARD)[-1])
    weights = 2 * BLOCKS * 4 * WIDTH * WIDTH * 2
    within, after = (live_bytes(graph, op, **settings)[Owner.ACTIVATION] for op in (last, last + 5))
    assert weights < within < 1.2 * weights
    assert after < 0.2 * weights


def peak_and_flop(name, how, batch, seq=1):
    one = lower(load_workload(name).passes[0].graph, Configuration(checkpointing=how))
    at = monomials(batch, seq)[0]
    live = float((one.memory.by_owner.sum(axis=1) @ at).max())
    return live, float(one.costs.count @ (one.costs.flop @ at))


@pytest.mark.parametrize("name", ["resnet50", "googlenet"])
def test_full_also_repeats_what_stands_before_the_blocks(name):
    """The stem works at the largest resolution: to keep less of it costs one more pass of it."""
    kept, blocks, full = (peak_and_flop(name, how, 64) for how in ("none", "block", "full"))
    assert full[0] < blocks[0] < kept[0]
    assert kept[1] < blocks[1] < full[1] < 1.5 * kept[1]


def test_without_anything_but_blocks_full_is_block():
    """A transformer's embedding and final norm keep next to nothing."""
    blocks, full = (peak_and_flop("bert-base", how, 16, 512) for how in ("block", "full"))
    assert full[0] <= blocks[0]
    assert full[1] == pytest.approx(blocks[1], rel=1e-3)


def test_softmax_once_kept_its_input():
    """PyTorch before 1.11: one more tensor of the size of the scores."""
    graph = load_workload(Scores()).passes[0].graph
    now, then = (
        lower(graph, Configuration(precision="fp32", libraries=keeps))
        for keeps in (("torch==1.11",), ("torch==1.10",))
    )
    at = monomials(10_000, 1)[0]
    grown = [float((one.memory.by_owner.sum(axis=1) @ at).max()) for one in (now, then)]
    assert (then.costs.kind == OpKind.SOFTMAX).any()
    assert grown[1] - grown[0] == pytest.approx(10_000 * 512 * 4, rel=0.01)


def test_no_cache_of_keys_and_values_outlives_a_step_with_checkpointing():
    """Of Hugging Face's models: `use_cache` is off, so that the update meets the state alone."""
    one = lower(load_workload("hf:llama").passes[0].graph, Configuration(checkpointing="block"))
    is_update = one.costs.phase[one.costs.order[one.memory.op]] == Phase.OPTIMIZER
    at = one.memory.by_owner[is_update] @ monomials(8, 2048)[0]
    assert is_update.any()
    assert at[:, Owner.ACTIVATION].max() < 0.1 * at[:, Owner.PARAMETER].max()
