"""Programs of `torch.export`: the graph of a program is that of the model it came from."""

import warnings

import numpy as np
import pytest
import torch
from tests.sampled import sampled
from torch import nn
from torch.export import Dim, export

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.reading.load import load_workload


class Convolutional(nn.Module):
    """Batch norm, dropout, a constant made in the forward."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(8, 10)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(self.dropout(y)) + torch.arange(10, device=x.device)

    def inputs(self, batch):
        return torch.zeros(batch, 3, 16, 16)


class Attending(nn.Module):
    """A causal layer on tokens."""

    def __init__(self):
        super().__init__()
        self.embedding, self.project = nn.Embedding(100, 16), nn.Linear(16, 48)
        self.head = nn.Linear(16, 100)

    def forward(self, tokens):
        q, k, v = self.project(self.embedding(tokens)).chunk(3, dim=-1)
        mixed = nn.functional.scaled_dot_product_attention(
            q[:, None], k[:, None], v[:, None], is_causal=True
        )
        return self.head(mixed[:, 0])

    def inputs(self, batch, seq):
        return torch.zeros(batch, seq, dtype=torch.int64)


class Recurrent(nn.Module):
    """An LSTM on 16 steps of features."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.LSTM(12, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])

    def inputs(self, batch):
        return torch.zeros(batch, 16, 12)


BATCH, LENGTH = Dim("batch", max=4096), Dim("length", max=1 << 20)
EXPORTS = {
    "convolutional": (Convolutional, (4,), {0: BATCH}),
    "attending": (Attending, (4, 16), {0: BATCH, 1: LENGTH}),
    # PyTorch fixes the length of recurrent layers.
    "recurrent": (Recurrent, (4,), {0: BATCH}),
}


def quietly(*arguments, **settings):
    """Export, without the warnings of PyTorch about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return export(*arguments, **settings)


def exported(name, task="train"):
    make, sizes, free = EXPORTS[name]
    model = make().train(task == "train")
    return model, quietly(model, (model.inputs(*sizes),), dynamic_shapes=(free,))


def modules_of_kinds(graph):
    """(kind, module) of every op that computes."""
    ops = graph.ops
    skipped = {OpKind.COPY, OpKind.ELEMENTWISE, OpKind.CAST}
    pairs = zip(ops.kind.tolist(), ops.module.tolist(), strict=True)
    return [(OpKind(k).name, graph.modules[m]) for k, m in pairs if OpKind(k) not in skipped]


def assert_same_work(left, right):
    assert modules_of_kinds(left) == modules_of_kinds(right)
    at = monomials([3, 8], [50, 600]).T
    for phase in np.unique(left.ops.phase):
        flop = [(g.ops.flop[g.ops.phase == phase] @ at).sum(axis=0) for g in (left, right)]
        assert flop[0] == pytest.approx(flop[1])


@pytest.mark.parametrize(
    ("name", "task"),
    sampled(
        [(name, task) for name in EXPORTS for task in ("train", "infer")],
        ("convolutional", "infer"), ("attending", "train"), ("recurrent", "train"),
    ),
)  # fmt: skip
def test_a_program_asks_for_what_its_model_asks_for(name, task):
    model, program = exported(name, task)
    before, after = (load_workload(m, task=task) for m in (model, program))
    assert before.num_parameters == after.num_parameters
    for left, right in zip(before.passes, after.passes, strict=True):
        assert left.graph.variables == right.graph.variables
        assert_same_work(left.graph, right.graph)


def test_a_file_is_traced_without_its_code(tmp_path):
    _, program = exported("attending")
    path = tmp_path / "attending.pt2"
    torch.export.save(program, path)
    workload = load_workload(str(path))
    assert workload.sample_unit == "tokens"
    assert_same_work(workload.passes[0].graph, load_workload(program).passes[0].graph)


def test_a_program_that_returns_its_loss_is_trained_on_it():
    class WithLoss(Convolutional):
        def forward(self, x, target):
            return nn.functional.cross_entropy(super().forward(x), target)

    inputs = (torch.zeros(4, 3, 16, 16), torch.zeros(4, dtype=torch.int64))
    program = quietly(WithLoss(), inputs, dynamic_shapes=({0: BATCH}, {0: BATCH}))
    kinds = load_workload(program).passes[0].graph.ops.kind
    assert (kinds == OpKind.CROSS_ENTROPY).sum() == 1
    assert (kinds == OpKind.OPTIMIZER).sum() == 1


def test_a_fixed_batch_is_refused_with_what_to_do():
    model = Convolutional()
    with pytest.raises(InvalidInputError, match="its batch is fixed") as caught:
        load_workload(quietly(model, (model.inputs(4),)))
    assert "torch.export.Dim" in caught.value.hint


def test_a_file_that_is_none_or_absent_is_said(tmp_path):
    path = tmp_path / "broken.pt2"
    path.write_bytes(b"not a program")
    with pytest.raises(InvalidInputError, match="cannot be loaded as an exported program"):
        load_workload(str(path))
    with pytest.raises(InvalidInputError, match="no file at"):
        load_workload(str(tmp_path / "absent.pt2"))
