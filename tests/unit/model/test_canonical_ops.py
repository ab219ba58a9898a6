"""Canonical ops: what each keeps for the backward pass, counted by hand, and what it launches.

An op stands between two dense layers of 16 and is compared with the same model without it. Without
it the output of the first layer is kept (the input of the second): 64 bytes per item.
"""

import numpy as np
import pytest
import torch
from torch import nn

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase
from paceline.model.lowering import lifetimes, lower
from paceline.model.ops.optable import read_table
from paceline.model.reading.load import load_workload

WIDTH = 16


class Reshaped(nn.Module):
    """An op on images of 4 × 2 × 2 made of 16 numbers."""

    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x):
        return self.op(x.view(-1, 4, 2, 2)).flatten(1)


class Job:
    def __init__(self, op, outputs=WIDTH):
        middle = [] if op is None else [op]
        self.model = nn.Sequential(nn.Linear(8, WIDTH), *middle, nn.Linear(outputs, 3))

    def inputs(self, batch):
        return torch.empty(batch, 8)


def traced(op, outputs=WIDTH):
    return load_workload(Job(op, outputs)).passes[0].graph


def kept(graph, platform="cuda"):
    """(bytes once, bytes per item) that the forward pass leaves for the backward pass."""
    configuration = Configuration(precision="fp32", platform=platform)
    one, lived = lower(graph, configuration), lifetimes(graph, configuration)
    phase = one.costs.phase[one.costs.order]
    first = int(np.flatnonzero(phase == Phase.BACKWARD)[0])
    crosses = (lived.birth < first) & (lived.death >= first) & (lived.owner == Owner.ACTIVATION)
    return lived.num_bytes[crosses].sum(axis=0)[:2]


#: Op, kinds forward and backward, further bytes once and per item, width after it.
CASES = {
    "batch norm": (nn.BatchNorm1d(16), (OpKind.NORM, OpKind.NORM_BACKWARD), 2 * 16 * 4, 64, 16),
    "layer norm": (nn.LayerNorm(16), (OpKind.NORM, OpKind.NORM_BACKWARD), 0, 64 + 8, 16),
    "group norm": (nn.GroupNorm(4, 16), (OpKind.NORM, OpKind.NORM_BACKWARD), 0, 64 + 4 * 8, 16),
    "rms norm": (nn.RMSNorm(16), (OpKind.NORM, OpKind.NORM_BACKWARD), 0, 64 + 4, 16),
    "softmax": (nn.Softmax(-1), (OpKind.SOFTMAX, OpKind.SOFTMAX_BACKWARD), 0, 0, 16),
    "relu": (nn.ReLU(), (OpKind.ELEMENTWISE, OpKind.ELEMENTWISE), 0, 0, 16),
    "gelu": (nn.GELU(), (OpKind.ELEMENTWISE, OpKind.ELEMENTWISE), 0, 64, 16),
    "dropout": (nn.Dropout(0.5), (OpKind.DROPOUT, OpKind.DROPOUT_BACKWARD), 0, 16, 16),
    "max pooling": (Reshaped(nn.MaxPool2d(2)), (OpKind.POOL, OpKind.POOL_BACKWARD), 0,
                    4 * 8 + 4 * 4, 4),
    "mean pooling": (Reshaped(nn.AvgPool2d(2)), (OpKind.POOL, OpKind.POOL_BACKWARD), 0, 4 * 4, 4),
    "interpolation": (Reshaped(nn.Upsample(scale_factor=2)),
                      (OpKind.INTERPOLATE, OpKind.INTERPOLATE_BACKWARD), 0, 4 * 64 - 64, 64),
    "convolution": (Reshaped(nn.Conv2d(4, 2, 1)), (OpKind.CONV, OpKind.CONV_BACKWARD_WEIGHT), 0,
                    4 * 8, 8),
    "transposed convolution": (Reshaped(nn.ConvTranspose2d(4, 2, 2, 2)),
                               (OpKind.CONV_BACKWARD_INPUT, OpKind.CONV), 0, 4 * 32, 32),
}  # fmt: skip


@pytest.fixture(scope="module")
def graphs():
    return {name: traced(case[0], case[-1]) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def plain():
    return traced(None)


@pytest.mark.parametrize("name", CASES)
def test_an_op_keeps_what_its_kernels_read_again(name, graphs, plain):
    """Its own input where that is read, its output for the next layer, statistics, masks."""
    _, _, fixed, per_item, _ = CASES[name]
    assert (kept(graphs[name]) - kept(plain)).tolist() == [fixed, per_item]


@pytest.mark.parametrize("name", CASES)
def test_an_op_and_its_backward_are_of_their_kinds(name, graphs):
    forward, backward = CASES[name][1]
    ops = graphs[name].ops
    assert forward in ops.kind[ops.phase == Phase.FORWARD]
    assert backward in ops.kind[ops.phase == Phase.BACKWARD]


def test_dropout_keeps_noise_in_the_format_of_activations_on_a_cpu(graphs, plain):
    graph = graphs["dropout"]
    assert (kept(graph, "cpu") - kept(plain, "cpu")).tolist() == [0, 64]


@pytest.mark.parametrize("platform", ["cuda", "rocm", "cpu", "xla"])
def test_every_op_launches_the_kernels_of_its_platform(platform, graphs):
    table = {(row["kind"], row["variant"]): float(row[platform])
             for row in read_table("kernels.csv")}  # fmt: skip
    costs = lower(graphs["layer norm"], Configuration(platform=platform)).costs
    for kind in (OpKind.NORM, OpKind.NORM_BACKWARD):
        launched = costs.num_kernels[costs.kind == kind]
        assert launched.tolist() == [table[kind.name, "layer"]]


def test_a_loss_keeps_log_probabilities_and_launches_both_ways(plain):
    kinds = plain.ops.kind.tolist()
    assert kinds.count(OpKind.CROSS_ENTROPY) == kinds.count(OpKind.CROSS_ENTROPY_BACKWARD) == 1


class Words:
    def __init__(self, cell):
        self.model = nn.ModuleDict({"table": nn.Embedding(50, 16), "cell": cell(16, 8)})
        self.model.forward = self._forward

    def _forward(self, tokens):
        return self.model["cell"](self.model["table"](tokens).transpose(0, 1))[0]

    def inputs(self, batch, seq):
        return torch.empty(batch, seq, dtype=torch.int64)


def monomial_of(name):
    """Coefficients of the batch, or of the length, alone."""
    at = {"batch": 1, "seq": 2}[name]
    return np.eye(9)[at]


#: Numbers that a recurrent layer keeps per step and unit beside its input and its output.
RESERVES = {nn.LSTM: (4, 6), nn.GRU: (3, 5), nn.RNN: (1, 2)}


@pytest.mark.parametrize("cell", RESERVES)
@pytest.mark.parametrize("platform", ["cuda", "rocm", "xla"])
def test_recurrent_layers_are_one_op_with_a_reserve(cell, platform):
    gates, reserve = RESERVES[cell]
    graph = load_workload(Words(cell)).passes[0].graph
    kinds = graph.ops.kind.tolist()
    for kind in (OpKind.EMBEDDING, OpKind.EMBEDDING_BACKWARD,
                 OpKind.RECURRENT, OpKind.RECURRENT_BACKWARD):  # fmt: skip
        assert kinds.count(kind) == 1
    dims = graph.ops.dims[kinds.index(OpKind.RECURRENT)]
    assert dims[6, 0] == gates
    assert (dims[0] == monomial_of("batch")).all()  # though steps come first here
    assert (dims[1] == monomial_of("seq")).all()
    lived = lifetimes(graph, Configuration(precision="fp32", platform=platform))
    per_step = lived.num_bytes[:, 3]
    assert 4 * reserve * 8 in per_step


@pytest.mark.parametrize("row", read_table("optimizers.csv"), ids=lambda row: row["name"])
def test_an_optimizer_keeps_its_states_and_fuses_its_kernels(row):
    graph = load_workload(Job(None), optimizer=row["name"]).passes[0].graph
    num_elements = 8 * 16 + 16 + 16 * 3 + 3
    width = {"FP32": 4, "INT8": 1}[row["state_dtype"]]
    kernels = []
    for kernel in ("plain", "foreach", "fused"):
        one = lower(graph, Configuration(precision="fp32", optimizer_kernel=kernel))
        states = width * int(row["states_per_element"]) * num_elements
        assert one.optimizer_state_bytes == states
        kernels.append(one.costs.num_kernels[one.costs.kind == OpKind.OPTIMIZER].sum())
    plain, foreach, fused = kernels
    assert plain == 4 * int(row["plain_kernels_per_tensor"])
    assert plain >= foreach >= fused == 1
