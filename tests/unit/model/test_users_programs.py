"""Programs as people publish them: they trace without a GPU and without being rewritten."""

from __future__ import annotations

import warnings
from collections import UserDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Phase, monomials
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower
from paceline.model.ops.optable import variants
from paceline.model.reading.load import load_workload
from paceline.model.reading.worker import reported_error
from paceline.model.table_updates import written_updates

_functional = nn.functional


def _flop(workload: Workload, batch: int = 16) -> float:
    flop = workload.passes[0].graph.ops.flop.sum(axis=0)
    return float(flop @ monomials(batch, workload.default_seq)[0])


# Batches ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Record:
    features: torch.Tensor
    labels: torch.Tensor


class _Pair(NamedTuple):
    features: torch.Tensor
    labels: torch.Tensor


class _OfRecord(nn.Module):
    """Takes its batch whole."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, record: Any) -> torch.Tensor:
        is_mapping = isinstance(record, (dict, UserDict))
        scores: torch.Tensor = self.layer(record["features"] if is_mapping else record.features)
        return scores


class _Batch:
    def __init__(self, make: type, model: nn.Module) -> None:
        self.model, self._make = model, make

    def inputs(self, batch: int) -> object:
        return self._make(features=torch.rand(batch, 8), labels=torch.randint(0, 3, (batch,)))


@pytest.mark.parametrize("make", [dict, UserDict, _Record, _Pair])
def test_a_batch_of_any_structure_reaches_the_model(make: type) -> None:
    workload = load_workload(_Batch(make, _OfRecord()))
    assert _flop(workload) == 2 * (2 * 16 * 8 * 3)
    assert workload.sample_bytes == 8 * 4 + 8


class _OfFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(features)
        return scores


@pytest.mark.parametrize("make", [dict, _Pair])
def test_what_only_the_loss_reads_is_no_argument_of_the_model(make: type) -> None:
    assert _flop(load_workload(_Batch(make, _OfFeatures()))) == 2 * (2 * 16 * 8 * 3)


class _Losses(_Batch):
    def loss(self, output: torch.Tensor, inputs: dict[str, torch.Tensor]) -> dict[str, object]:
        loss = _functional.cross_entropy(output, inputs["labels"])
        return {"classes": loss, "weights": output.square().mean(), "step": 3}


def test_losses_by_name_are_added() -> None:
    names = load_workload(_Losses(dict, _OfFeatures())).passes[0].graph.ops.kind
    assert (names == OpKind.CROSS_ENTROPY).any()
    assert _flop(load_workload(_Losses(dict, _OfFeatures()))) == 2 * (2 * 16 * 8 * 3)


class _WithItsLoss(_OfFeatures):
    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        scores = self.layer(features)
        return (scores.square().mean(), scores)


def test_a_model_that_returns_its_loss_is_trained_on_it() -> None:
    workload = load_workload(_Batch(dict, _WithItsLoss()))
    assert not (workload.passes[0].graph.ops.kind == OpKind.CROSS_ENTROPY).any()
    assert _flop(workload) == 2 * (2 * 16 * 8 * 3)


# Devices ----------------------------------------------------------------------------------------


class _Scaled:
    """Mixed precision by hand, on the device that everybody hard-codes."""

    def __init__(self) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = nn.DataParallel(nn.Linear(8, 3)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.rand(batch, 8)

    def step(self, model: nn.Module, features: torch.Tensor) -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(features.cuda(non_blocking=True)).square().mean()
        loss = loss + torch.zeros(1, device="cuda:0").sum()
        torch.cuda.synchronize()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def test_a_gpu_named_in_a_step_is_the_device_of_the_trace() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = _Scaled()
        workload = load_workload(job)
    assert _flop(workload) == 16 * 2 * 8 * 3 * 2
    assert (workload.passes[0].graph.ops.kind == OpKind.OPTIMIZER).sum() == 1


_PROGRAM = """
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3).cuda()
    def forward(self, x):
        return self.layer(x + torch.zeros(8).cuda() + torch.cuda.FloatTensor(8).fill_(0))

def build():
    net = Net().to(device)
    return net, torch.optim.SGD(net.parameters(), 0.1)

def wants(config):
    return Net()
"""


def test_a_module_that_asks_for_cuda_is_built_and_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_program.py").write_text(_PROGRAM)
    monkeypatch.chdir(tmp_path)
    workload = load_workload("their_program:build")
    assert workload.num_parameters == 27
    assert _flop(workload) == 2 * (2 * 16 * 8 * 3)


# Sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "size"),
    [
        ([nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, 3)], "1×28×28"),
        ([nn.Conv1d(1, 4, 9), nn.Flatten(), nn.Linear(4 * 1016, 3)], "1×1024"),
        ([nn.Conv3d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 30**3, 3)], "1×32×32×32"),
    ],
)
def test_sizes_that_nobody_states_are_the_first_that_fit_and_said(
    layers: list[nn.Module], size: str
) -> None:
    assert f"(assumed: items of {size})" in load_workload(nn.Sequential(*layers)).title


def test_pictures_of_the_usual_size_need_no_word() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert load_workload(layers).title == "Sequential"


class _Cell(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.cell = nn.GRU(8, 8, batch_first=batch_first)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.cell(features)[0]
        return output


def test_a_recurrent_layer_eats_steps_in_its_own_order() -> None:
    first, last = (load_workload(_Cell(batch_first=is_first), seq=20) for is_first in (True, False))
    assert _flop(first) == _flop(last) == 3 * (2 * 3 * 8 * (8 + 8) * 16 * 20)


class _Chunks(_Batch):
    """Splits its batch in two, which an odd one does not allow."""

    def step(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        pairs = batch["features"].view(2, len(batch["features"]) // 2, 8)
        return torch.stack([model(one).square().mean() for one in pairs]).sum()


def test_a_step_that_splits_its_batch_is_traced_at_even_batches() -> None:
    workload = load_workload(_Chunks(dict, _OfFeatures()))
    assert "batches that are multiples of 16" in workload.title
    assert _flop(workload, 32) == 2 * _flop(workload, 16) > 0


class _Triangle(nn.Module):
    """Each pair of positions looks at every third one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 4)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        pairs = self.layer(sequence[:, :, None, None] - sequence[:, None, :, None])
        return torch.einsum("bikc,bjkc->bijc", pairs, pairs)


class _Triangles:
    def __init__(self) -> None:
        self.model = _Triangle()

    def inputs(self, batch: int, length: int) -> torch.Tensor:
        return torch.rand(batch, length)


def test_growth_with_the_third_power_is_known_at_one_length() -> None:
    workload = load_workload(_Triangles(), seq=24)
    assert workload.has_fixed_length
    products = 2 * 16 * 24**3 * 4
    pairs = 2 * 16 * 24**2 * 4
    assert _flop(workload) == 3 * products + 2 * pairs


# Operators --------------------------------------------------------------------------------------


class _Spoken:
    """A loss that PyTorch has no shapes for."""

    def __init__(self) -> None:
        self.model = nn.Linear(8, 5)

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.rand(batch, 20, 8)

    def loss(self, output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        num_items = output.shape[0]
        lengths = torch.full((num_items,), 20), torch.full((num_items,), 6)
        words = torch.randint(1, 5, (num_items, 6))
        return _functional.ctc_loss(output.log_softmax(-1).transpose(0, 1), words, *lengths)


def test_an_operator_without_shapes_has_those_of_its_cpu_kernel() -> None:
    assert _flop(load_workload(_Spoken())) == 2 * (2 * 16 * 20 * 8 * 5)


class _Penalty:
    """The gradient of a gradient."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 1))

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.rand(batch, 1, 8, 8)

    def step(self, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        images.requires_grad_(True)
        (slope,) = torch.autograd.grad(model(images).sum(), images, create_graph=True)
        return slope.square().sum()


def test_the_gradient_of_a_gradient_has_finite_arithmetic() -> None:
    assert 0 < _flop(load_workload(_Penalty())) < 16 * 100_000


class _Clicks(nn.Module):
    """Ids looked up in a table by a sum of rows, and in another one by one."""

    def __init__(self, *, is_sparse: bool) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(300_000, 16, sparse=is_sparse, mode="sum")
        self.rows = nn.Embedding(100_000, 16, sparse=is_sparse)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        read: torch.Tensor = self.bags(ids) + self.rows(ids[:, 0])
        return read


class _ClickJob:
    """With a loss of its own, and perhaps an optimizer."""

    kind = "features"

    def __init__(self, model: nn.Module, optimizer: type[Any] | None = None) -> None:
        self.model = model
        if optimizer is not None:
            self.optimizer = optimizer(model.parameters(), lr=0.1)

    def inputs(self, batch: int) -> torch.Tensor:
        return torch.zeros(batch, 4, dtype=torch.long)

    def loss(self, output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        return output.sum()


def test_gradients_of_rows_move_rows_alone() -> None:
    batch, row_bytes = 64, 16 * 4
    moved = []
    for is_sparse in (True, False):
        graph = load_workload(_ClickJob(_Clicks(is_sparse=is_sparse), torch.optim.SGD))
        graph = graph.passes[0].graph
        assert written_updates(graph) == ("sparse" if is_sparse else "dense")
        costs = lower(graph, Configuration(precision="fp32")).costs
        late = costs.phase == Phase.OPTIMIZER
        moved.append(float(costs.moved_bytes(monomials([batch], [1.0]))[0][late].sum()))
    assert moved[0] < 20 * batch * 5 * row_bytes
    assert moved[1] >= 3 * 400_000 * row_bytes


@pytest.mark.parametrize(
    ("declared", "name"),
    [(torch.optim.SGD, "sgd"), (torch.optim.Adagrad, "adagrad"), (torch.optim.SparseAdam, "adam")],
)
def test_a_declared_optimizer_updates_a_model_with_a_loss_of_its_own(
    declared: type[Any], name: str
) -> None:
    ops = load_workload(_ClickJob(_Clicks(is_sparse=True), declared)).passes[0].graph.ops
    assert set(ops.variant[ops.kind == OpKind.OPTIMIZER]) == {variants()["OPTIMIZER", name]}


@pytest.mark.parametrize(
    ("message", "way_out"),
    [
        ("TypeError: wants() missing 1 required positional argument: 'config'", "write a function"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "install that module"),
        ("URLError: <urlopen error [Errno -2] Name or service not known>", "weights are not"),
        ("RuntimeError: Tensor on device cpu is not on the expected device meta!", "x.device"),
    ],
)
def test_a_failure_that_is_known_by_its_message_has_a_way_out(message: str, way_out: str) -> None:
    event = {"kind": "raised", "message": message, "details": ""}
    assert way_out in reported_error(event, "mine:wants", "python").hint
