"""A traced step takes another optimizer: as if it had been traced with that one."""

import dataclasses

import numpy as np
import pytest

from paceline.errors import UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.store import save_workload
from paceline.model.lowering import lower
from paceline.model.ops.optable import read_table
from paceline.model.reading.load import load_workload, with_optimizer

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from traced import trace_here  # noqa: E402

ENTRIES = (
    "torchvision:resnet18",
    "transformer:layers=2,hidden=64,heads=4,vocab=100",
    "transformer:layers=1,hidden=64,heads=4,vocab=100,tied=1,gated=1,norm=rms",
    "lstm",
)


class TwoPhases:
    """Two updates by phases that leave the optimizer open, over parts of the parameters."""

    def __init__(self):
        self.model = nn.ModuleList([nn.Linear(8, 4), nn.Linear(4, 2)])
        self.phases = [("both", 1, self._both), ("head", 2, self._head)]

    def inputs(self, batch):
        return torch.empty(batch, 8)

    def _both(self, model, x):
        return model[1](model[0](x)).sum()

    def _head(self, model, x):
        return model[1](model[0](x).detach()).sum()


class OwnOptimizer:
    """A step that names its optimizer."""

    optimizer = "lion"

    def __init__(self):
        self.model = nn.Linear(8, 4)

    def inputs(self, batch):
        return torch.empty(batch, 8)


def same_tables(left, right):
    names = [field.name for field in dataclasses.fields(left)]
    return all(np.array_equal(getattr(left, n), getattr(right, n)) for n in names)


def same(left, right):
    """Equal ops with their shapes and FLOP, tensors, and storages with their lives."""
    assert len(left.passes) == len(right.passes)
    pairs = [(a.graph, b.graph) for a, b in zip(left.passes, right.passes, strict=True)]
    tables = ("ops", "tensors", "storages")
    return all(same_tables(getattr(a, t), getattr(b, t)) for a, b in pairs for t in tables)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_step_with_another_optimizer_is_the_step_traced_with_it(entry):
    """Every optimizer on the last one, and on each of the others every third."""
    starts = ("sgd", "adamw", "adamw-8bit")
    number = ENTRIES.index(entry)
    names = [row["name"] for row in read_table("optimizers.csv")]
    some = names if number == 3 else (*starts, *names[number::3])
    traced = {name: trace_here(entry, optimizer=name) for name in some}
    for start in starts:
        for name, expected in traced.items():
            rewritten = with_optimizer(traced[start], name)
            assert rewritten.optimizer == name
            assert same(rewritten, expected), (start, name)


def test_passes_that_update_parts_hold_the_states_of_all():
    traced = {name: load_workload(TwoPhases(), optimizer=name) for name in ("sgd", "adam", "lion")}
    for start, of_start in traced.items():
        for name, expected in traced.items():
            assert same(with_optimizer(of_start, name), expected), (start, name)


def test_what_the_code_calls_stays():
    own = load_workload(OwnOptimizer(), optimizer="sgd")
    assert own.has_own_optimizer
    assert own.optimizer == "lion"
    assert with_optimizer(own, "adamw") is own
    assert same(own, load_workload(OwnOptimizer()))


def test_a_file_answers_for_every_optimizer_without_a_framework(tmp_path):
    path = tmp_path / "traced.npz"
    save_workload(trace_here("lstm"), path)
    assert same(load_workload(str(path), optimizer="sgd"), trace_here("lstm", optimizer="sgd"))
    with pytest.raises(UnknownNameError, match="adamm"):
        load_workload(str(path), optimizer="adamm")


def test_a_model_of_the_zoo_answers_for_another_optimizer_without_a_worker(monkeypatch):
    monkeypatch.setattr("paceline.model.reading.worker.run_worker", None)
    one = load_workload("resnet50", optimizer="adam")
    assert one.optimizer == "adam"
    lowered = lower(one.passes[0].graph, Configuration())
    assert lowered.optimizer_state_bytes == pytest.approx(2 * 4 * one.num_parameters)
    assert with_optimizer(load_workload("resnet50", task="infer"), "adam").optimizer is None


@pytest.mark.parametrize("name", ["dcgan", "dqn", "ppo"])
def test_models_of_the_zoo_that_call_their_own_optimizer_say_so(name):
    shipped = load_workload(name)
    assert shipped.has_own_optimizer
    assert same(load_workload(name, optimizer="lion"), shipped)


@pytest.mark.parametrize("name", ["galore", "galore-8bit", "bert-adam"])
@pytest.mark.parametrize("entry", ["gpt2", "resnet18"])
def test_a_loop_of_a_script_holds_temporaries_of_one_tensor(entry, name):
    """It has no foreach kernels: one parameter is updated after the other."""
    graph = load_workload(entry, task="train", optimizer=name).passes[0].graph
    foreach, plain = (
        lower(graph, Configuration(optimizer_kernel=kernel)).memory.by_owner[:, :, 0].sum(1).max()
        for kernel in ("foreach", "plain")
    )
    assert foreach == plain
