"""`parallelize` trains as one process does, on meshes of gloo ranks; refuses what it cannot."""

import pytest

torch = pytest.importorskip("torch")

from mesh_models import GPT  # noqa: E402
from mesh_ranks import mesh_differences  # noqa: E402
from torch import nn  # noqa: E402

from paceline.loop import layout  # noqa: E402
from paceline.loop.errors import LoopError  # noqa: E402
from paceline.loop.parallel import notation, parallelize, tensor_parallel  # noqa: E402
from paceline.loop.parallel import pairs as flow  # noqa: E402
from paceline.loop.parallel.blocks import blocks, units  # noqa: E402
from paceline.loop.parallel.choice import CHOICE_VARIABLE  # noqa: E402

#: Of two ranks, few steps: all kinds once, half of them in microbatches.
_QUICK = [
    ("gpt", "adamw", "dp2/mb2"), ("cnn", "sgd", "fsdp2/mb2"), ("gpt", "clipped", "dp2+zero2"),
    ("gpt", "adamw", "tp2"), ("tied", "clipped", "pp2+recompute-block"), ("cnn", "sgd", "pp2/mb1"),
    ("adapted", "adamw", "fsdp2"), ("headed", "sgd", "pp2"),
    ("tied", "clipped", "pp2@interleaved2/mb2+recompute-block"),
]  # fmt: skip
_MESHES = {
    2: ["tp2", "pp2/mb4", "pp2@interleaved2/mb4"],
    4: ["dp4", "fsdp4/mb2", "dp2.fsdp2", "dp2.tp2/mb2", "pp2.dp2/mb2", "fsdp2.tp2",
        "pp2.dp2@interleaved2/mb2", "pp2.fsdp2@interleaved2/mb2"],
}  # fmt: skip


def _cases(dtype, optimizers, num_ranks, steps):
    return [
        (model, optimizer, mesh, dtype, steps)
        for model in ("cnn", "gpt")
        for optimizer in optimizers
        for mesh in _MESHES[num_ranks]
    ]


def test_two_ranks_train_as_one():
    cases = [(*case, "float64", 3) for case in _QUICK]
    assert max(mesh_differences(2, cases)) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_fifty_steps_in_fp64_on_every_mesh(num_ranks):
    cases = _cases("float64", ("sgd", "adamw"), num_ranks, 50)
    found = dict(zip(map(str, cases), mesh_differences(num_ranks, cases), strict=True))
    assert {case: d for case, d in found.items() if isinstance(d, str) or d > 1e-12} == {}


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_fifty_steps_in_fp32_on_every_mesh(num_ranks):
    cases = _cases("float32", ("sgd",), num_ranks, 50)
    found = dict(zip(map(str, cases), mesh_differences(num_ranks, cases), strict=True))
    assert {case: d for case, d in found.items() if isinstance(d, str) or d > 1e-5} == {}


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_frozen_and_adapted_models_train_on_every_mesh(num_ranks):
    """A frozen CNN with a new head, a GPT with frozen first layers, and one with adapters."""
    cases = [
        (model, "adamw", mesh, "float64", 10)
        for model in ("headed", "late", "adapted")
        for mesh in _MESHES[num_ranks]
    ]
    found = dict(zip(map(str, cases), mesh_differences(num_ranks, cases), strict=True))
    assert {case: d for case, d in found.items() if isinstance(d, str) or d > 1e-12} == {}


@pytest.fixture(autouse=True)
def _own_layout(monkeypatch):
    monkeypatch.setattr(layout, "_chosen", None)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def _sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_one_process_needs_no_group():
    model, optimizer = parallelize.parallelize(GPT(), _sgd)
    assert isinstance(model, GPT)
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {
        id(p) for p in model.parameters()
    }
    assert layout.current() == (0, 1, 0, 1)


def test_the_choice_of_a_plan_comes_by_the_environment(monkeypatch):
    monkeypatch.setenv(CHOICE_VARIABLE, '{"strategy": "dp4", "precision": "bf16"}')
    with pytest.raises(LoopError, match="has 4 ranks, and 1 processes run"):
        parallelize.parallelize(GPT(), _sgd)
    monkeypatch.setenv(CHOICE_VARIABLE, "dp4")
    with pytest.raises(LoopError, match="holds no choice"):
        parallelize.parallelize(GPT(), _sgd)


def test_a_precision_without_a_switch_is_refused():
    with pytest.raises(LoopError, match="`fp8` needs a library"):
        parallelize.parallelize(GPT(), _sgd, precision="fp8")


def test_autocast_and_recomputation_reach_the_blocks():
    model, _ = parallelize.parallelize(GPT(), _sgd, "dp1+recompute-block", precision="bf16")
    out = model(torch.zeros(2, 12, dtype=torch.int64))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert model.layers[0].up.weight.grad is not None


def test_a_model_that_nothing_interrupts_is_compiled_whole(monkeypatch):
    """So the layers beside the blocks are compiled, too: a head of odd width is padded there."""
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    whole, _ = parallelize.parallelize(GPT(), _sgd, "dp1", compiled=True)
    assert compiled == [whole]
    compiled.clear()
    again, _ = parallelize.parallelize(GPT(), _sgd, "dp1+recompute-block", compiled=True)
    assert compiled == list(again.layers)


def test_recomputation_without_blocks_is_refused():
    with pytest.raises(LoopError, match="no repeated blocks"):
        parallelize.parallelize(nn.Linear(2, 2), _sgd, "dp1+recompute-block")


def test_units_hold_every_weight_once_but_shared_ones():
    model = GPT(is_tied=True)
    held = [id(p) for one in units(model) for p in one.parameters()]
    left = {name for name, p in model.named_parameters() if id(p) not in held}
    assert len(held) == len(set(held))
    assert left == {"tokens.weight", "places"}
    assert len(blocks(model)) == 4


def test_what_differs_is_said():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
    share = layout.Layout(0, 2, 0, 2)
    told = parallelize.differences(model, notation.parse("dp2/mb4"), share)
    assert told[0].startswith("1 batch norms")
    assert "1/8" in told[0]
    assert "1 dropouts" in told[1]
    assert not parallelize.differences(model, notation.parse("dp1"), layout.Layout(0, 1, 0, 1))


class _Weighing(nn.Module):
    """Attention that is given a table and gives its weights, too, as transformers' does."""

    def __init__(self):
        super().__init__()
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x, table):
        weights = (self.query(x) * table).softmax(-1)
        return self.out(weights * self.value(x)), weights


class _Reader(nn.Module):
    def __init__(self, reads_weights):
        super().__init__()
        self.inner, self.table = _Weighing(), torch.ones(8)
        self.reads_weights = reads_weights

    def forward(self, x):
        out, weights = self.inner(x, self.table)
        return out + weights if self.reads_weights else out


@pytest.mark.parametrize(("reads", "places"), [(False, (0,)), (True, (0, 1))])
def test_only_what_others_read_must_stay_the_same(reads, places):
    model = _Reader(reads)
    trial = flow.Trial(model, (torch.randn(2, 8),))
    pair = flow.Pair(("inner.query", "inner.value"), "inner.out", (), "inner")
    assert flow.read_outside(trial, pair) == places
    assert not any(one.requires_grad for one in tensor_parallel._fresh(trial.calls["inner"].args))
