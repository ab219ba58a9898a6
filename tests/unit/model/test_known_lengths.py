"""Models whose ops or sizes bend with the length: known at all lengths, from one on, or at one."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.graph.rows import at_length
from paceline.model.graph.store import read_workload, save_workload
from paceline.model.lowering import lower
from paceline.model.reading import load
from paceline.model.reading.load import load_workload

WIDTH = 8


class OverTokens(nn.Module):
    """A model on embedded tokens."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 50)

    def forward(self, tokens):
        return self.head(self.mixed(self.embedding(tokens)))

    def inputs(self, batch, seq):
        return torch.zeros(batch, seq, dtype=torch.int64)


class Looping(OverTokens):
    """A Python loop over time, as recurrent layers have without their own kernel."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(WIDTH, WIDTH, bias=False)

    def mixed(self, x):
        state, states = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            state = torch.tanh(self.cell(state) + x[:, step])
            states.append(state)
        return torch.stack(states, dim=1)


class Chunked(OverTokens):
    """Padded to whole chunks of 64, which attend to themselves."""

    def mixed(self, x):
        length = x.shape[1]
        x = nn.functional.pad(x, (0, 0, 0, -length % 64))
        chunks = x.view(x.shape[0], -1, 64, WIDTH)
        return (chunks @ chunks.transpose(-1, -2) @ chunks).flatten(1, 2)[:, :length]


class OneMore(OverTokens):
    """Scores of S keys and one sink: S (S + 1) per sequence, which no single power is."""

    def mixed(self, x):
        keys = torch.cat((x, x[:, :1]), dim=1)
        return torch.softmax(x @ keys.transpose(-1, -2), dim=-1) @ keys


class BatchWise(OverTokens):
    """A Python loop over the batch."""

    def mixed(self, x):
        return torch.stack([torch.sin(row) for row in x])


def num_products(workload, seq, batch=1):
    """Products of a training step, from their FLOP, by the width they have here."""
    ops = workload.passes[0].graph.ops
    rows = ops.kind == OpKind.MATMUL
    return float((ops.flop[rows] @ monomials(batch, seq).T).sum())


def test_a_loop_over_time_is_traced_at_the_length_asked_for():
    short, long = (load_workload(Looping(), seq=seq) for seq in (20, 40))
    assert short.has_fixed_length
    assert (short.default_seq, long.default_seq) == (20, 40)
    assert len(short.passes[0].graph.ops.kind) < len(long.passes[0].graph.ops.kind)
    # head: 3 products of 2·50·8 per token; cell: 3 of 2·8·8 per step, but the first needs no input
    # gradient.
    steps = 3 * 20 * 2 * WIDTH * WIDTH - 2 * WIDTH * WIDTH
    assert num_products(short, 20) == 3 * 20 * 2 * 50 * WIDTH + steps


def test_the_batch_of_a_fixed_length_is_still_free():
    workload = load_workload(Looping(), seq=20)
    assert num_products(workload, 20, batch=6) == 6 * num_products(workload, 20, batch=1)
    assert lower(workload.passes[0].graph, Configuration()).costs.count.sum() > 0


def test_another_length_of_a_loop_is_refused_not_guessed(tmp_path):
    path = tmp_path / "looping.npz"
    save_workload(load_workload(Looping(), seq=20), path)
    assert load_workload(str(path), seq=20).default_seq == 20
    with pytest.raises(InvalidInputError, match="traced at 20"):
        load_workload(str(path), seq=21)


def test_chunks_are_known_from_a_length_on_and_exact_at_whole_chunks(tmp_path):
    workload = load_workload(Chunked())
    assert (workload.shortest_seq, workload.has_fixed_length) == (512, False)
    per_chunk = 2 * 64 * 64 * WIDTH
    head = 2 * 50 * WIDTH
    for seq in (512, 640, 8192):
        # Two products forward, four backward; the head's three.
        assert num_products(workload, seq) == 6 * (seq // 64) * per_chunk + 3 * seq * head
    path = tmp_path / "chunked.npz"
    save_workload(workload, path)
    assert read_workload(path).shortest_seq == 512
    with pytest.raises(InvalidInputError, match="known from a length of 512 on"):
        load_workload(str(path), seq=100)


def test_a_short_length_of_a_chunked_model_is_traced_there():
    workload = load_workload(Chunked(), seq=100)
    assert workload.has_fixed_length
    assert num_products(workload, 100) == 6 * 2 * 2 * 64 * 64 * WIDTH + 3 * 100 * 2 * 50 * WIDTH


def test_sizes_that_are_products_of_extents_are_known_at_all_lengths():
    workload = load_workload(OneMore())
    assert (workload.shortest_seq, workload.has_fixed_length) == (1, False)
    storages = workload.passes[0].graph.storages
    sizes = storages.elements @ monomials(3, 100).T
    assert np.isclose(sizes, 3 * 100 * 101).any()


def test_ops_that_follow_the_batch_are_refused():
    with pytest.raises(InvalidInputError, match="change with the batch size"):
        load_workload(BatchWise())


def test_a_workload_of_older_files_is_known_at_all_lengths():
    assert load_workload("gpt2").shortest_seq == 1
    assert dataclasses.replace(load_workload("gpt2"), default_seq=7).check_length(3) is None


@pytest.mark.parametrize("model", ["gemma-3-4b", "gemma-3-27b"])
def test_a_shipped_graph_of_one_length_is_traced_at_another(model, monkeypatch):
    whole, asked = load_workload(model), []
    passes = tuple(
        dataclasses.replace(one, graph=at_length(one.graph, whole.default_seq))
        for one in whole.passes
    )
    shipped = dataclasses.replace(whole, passes=passes)
    assert (whole.has_fixed_length, shipped.has_fixed_length) == (False, True)

    def traced(entry, request):
        asked.append((entry, request.seq))
        return dataclasses.replace(shipped, default_seq=request.seq)

    monkeypatch.setattr(load, "_trace_entry", traced)
    monkeypatch.setattr(load, "_read_again", lambda *_: shipped)
    assert load_workload(model, seq=1024).default_seq == 1024
    assert load_workload(model, seq=shipped.default_seq).default_seq == shipped.default_seq
    assert asked == [(f"hf:{model}", 1024)]
