"""Code that decides by values: what follows from sizes is known, the rest is taken and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from traced import worker

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload


class _Job:
    """A linear layer with something before it."""

    def __init__(self, before: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.model = nn.Linear(8, 8)
        self._before = before

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 8)

    def step(self, model: nn.Module, features: torch.Tensor) -> None:
        model(self._before(features)).sum().backward()


def _products(workload: Workload) -> int:
    return int((workload.passes[0].graph.ops.kind == OpKind.MATMUL).sum())


def test_a_condition_is_not_met_and_that_is_said() -> None:
    workload = load_workload(_Job(lambda x: x @ x.T @ x if x.sum() > 0 else x))
    assert _products(workload) == _products(load_workload(_Job(lambda x: x)))
    assert "(assumed: condition at test_users_values.py:" in workload.title
    assert "not met" in workload.title


def _checked(x: torch.Tensor) -> torch.Tensor:
    assert (x < 100).all()
    return x


def _until_small(x: torch.Tensor) -> torch.Tensor:
    while not (x < 1).all():
        x = x / 2
    return x


@pytest.fixture(autouse=True)
def soon_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop is taken to have no end after as many turns as its numbers would last."""
    monkeypatch.setattr(worker("torch_tracing.choices"), "_MOST", 500)


@pytest.mark.parametrize("before", [_checked, _until_small])
def test_a_condition_without_which_code_fails_is_met(
    before: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    title = load_workload(_Job(before)).title
    assert title.count("condition at") == 1
    assert " met)" in title
    assert "not met" not in title


def _halved_until_small(x: torch.Tensor) -> torch.Tensor:
    while not x.abs().max().item() < 1:
        x = x / 2
    return x


def test_a_loop_that_waits_for_a_number_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="has no end") as caught:
        load_workload(_Job(_halved_until_small))
    assert "a fixed number of times" in caught.value.hint


class _Graph:
    """A convolution over edges, whose nodes are counted by the largest number among them."""

    def __init__(self) -> None:
        self.model = nn.Linear(16, 4)

    def inputs(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(10 * batch, 16), torch.randint(0, 10 * batch, (2, 30 * batch))

    def step(self, model: nn.Module, inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        features, edges = inputs
        num_nodes = int(edges.max()) + 1
        gathered = torch.zeros(num_nodes, 16, device=features.device)
        gathered = gathered.index_add(0, edges[1], features[edges[0]])
        model(gathered).square().mean().backward()


def test_a_number_that_follows_from_sizes_is_the_true_one() -> None:
    workload = load_workload(_Graph())
    assert workload.title == "_Graph"
    flop = workload.passes[0].graph.ops.flop.sum(axis=0) @ monomials(8, 1)[0]
    assert flop == 2 * (2 * 80 * 16 * 4)


class _Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell = nn.Embedding(50, 8), nn.LSTM(8, 8, batch_first=True)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        output, _ = nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True)
        return output


class _PackedJob:
    def __init__(self) -> None:
        self.model = _Packed()

    def inputs(self, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randint(0, 50, (batch, length)), torch.full((batch,), length)


def test_lengths_of_packed_sequences_are_known() -> None:
    workload = load_workload(_PackedJob(), seq=32)
    assert "assumed" not in workload.title
    kinds = workload.passes[0].graph.ops.kind
    assert (kinds == OpKind.RECURRENT).sum() == 1


class _Metrics:
    """Numbers that are only looked at."""

    def __init__(self) -> None:
        self.model = nn.Linear(8, 3)

    def inputs(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch, 8), torch.randint(0, 3, (batch,))

    def step(
        self, model: nn.Module, inputs: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, str]:
        scores = model(inputs[0])
        num_right = (scores.argmax(1) == inputs[1]).sum().item()
        seen = f"{num_right / len(scores)} {scores.argmax(1).cpu().numpy()}"
        return nn.functional.cross_entropy(scores, inputs[1]), seen


def test_numbers_that_are_only_looked_at_are_waits() -> None:
    workload = load_workload(_Metrics())
    assert (workload.passes[0].graph.ops.kind == OpKind.HOST_WAIT).sum() == 2
    assert "unknown numbers are zero on the host" in workload.title


_MESSAGES = """
import torch
from torch import nn

class Messages(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(16, 8)

    def forward(self, nodes, *edges):
        source, target = edges if len(edges) == 2 else edges[0]
        mixed = self.mix(nodes)
        return torch.zeros_like(mixed).index_add(0, target, mixed[source])

def vectors():
    edges = torch.zeros(90, dtype=torch.long)
    return Messages(), (torch.zeros(30, 16), edges, edges.clone())

def rows():
    return Messages(), (torch.zeros(30, 16), torch.zeros(2, 90, dtype=torch.long))
"""


@pytest.mark.parametrize("function", ["vectors", "rows"])
def test_an_example_with_edges_is_one_graph_and_a_batch_so_many(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a batch of as many graphs as it has nodes: 30 nodes and 90 edges stand in each."""
    (tmp_path / "users_graph.py").write_text(_MESSAGES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ops = load_workload(f"users_graph:{function}", task="infer").passes[0].graph.ops
    products = ops.flop[ops.kind == OpKind.MATMUL].sum(axis=0)
    for graphs in (1, 4):
        assert products @ monomials(graphs, 1)[0] == 2 * graphs * 30 * 16 * 8


class _Seen:
    """A convolution over items of some extents, and nothing that says what they are."""

    def __init__(self, convolution: nn.Module, extents: tuple[int, ...]) -> None:
        self.model, self._extents = convolution, extents

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, *self._extents)

    def loss(self, output: torch.Tensor, _inputs: torch.Tensor) -> torch.Tensor:
        return output.sum()


@pytest.mark.parametrize(
    ("convolution", "extents", "unit"),
    [
        (nn.Conv2d(1, 4, 3), (1, 48, 64), "images"),
        (nn.Conv3d(3, 4, 3), (3, 8, 32, 32), "clips"),
        (nn.Conv3d(1, 4, 3), (1, 32, 32, 16), "volumes"),
        (nn.Conv2d(8, 4, 3), (8, 48, 64), "samples"),
        (nn.Linear(8, 4), (8,), "samples"),
    ],
)  # fmt: skip
def test_an_item_of_ones_own_is_called_by_its_extents(
    convolution: nn.Module, extents: tuple[int, ...], unit: str
) -> None:
    workload = load_workload(_Seen(convolution, extents))
    assert workload.sample_unit == unit
    assert (unit == "samples") == ("×" not in workload.input_description)
