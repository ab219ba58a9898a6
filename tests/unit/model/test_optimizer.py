"""What each optimizer keeps, where it stands in a traced step, and what its update touches."""

from functools import cache

import numpy as np
import pytest

from paceline.dtypes import ELEMENT_BYTES, DType
from paceline.errors import UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.optimizer import find_optimizer, named_optimizer, with_resident_states

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

#: Of two dense layers with biases.
NUM_PARAMETERS, NUM_TENSORS = 256 * 64 + 64 + 64 * 10 + 10, 4
#: Numbers kept per parameter, by the papers: SGD none or a velocity, Adam (Kingma and Ba 2015) two
#: moments, Lion (Chen et al. 2023) one, in 8 bits with bitsandbytes (Dettmers et al. 2022).
KEPT = {
    "sgd": (0, DType.FP32),
    "sgd-momentum": (1, DType.FP32),
    "adam": (2, DType.FP32),
    "adamw": (2, DType.FP32),
    "lion": (1, DType.FP32),
    "adamw-8bit": (2, DType.INT8),
}


class Job:
    """Two dense layers and an optimizer by its name."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))

    def inputs(self, batch):
        return torch.empty(batch, 256)


@cache
def step_of(name):
    return load_workload(Job(name)).passes[0].graph


def update_of(graph):
    (op,) = np.flatnonzero(graph.ops.kind == OpKind.OPTIMIZER)
    return op


def storages_of(graph, op, *, written):
    start = graph.ops.output_start if written else graph.ops.input_start
    tensors = graph.ops.output_tensor if written else graph.ops.input_tensor
    return graph.tensors.storage[tensors[start[op] : start[op + 1]]]


@pytest.mark.parametrize("name", KEPT)
def test_state_is_kept_per_element_in_its_format_from_step_to_step(name):
    graph, (per_element, dtype) = step_of(name), KEPT[name]
    storages = graph.storages
    rows = np.flatnonzero(storages.owner == Owner.OPTIMIZER_STATE)
    assert len(rows) == per_element * NUM_TENSORS
    assert storages.elements[rows, 0].sum() == per_element * NUM_PARAMETERS
    assert (storages.dtype[rows] == dtype).all()
    assert (storages.birth[rows] == -1).all()
    assert (storages.death[rows] >= len(graph.ops.kind)).all()
    assert not storages.is_trainable[rows].any()


class Lookup:
    """A table and a dense layer, updated by bitsandbytes as Trainer of Transformers does."""

    def __init__(self):
        self.optimizer = "adamw_bnb_8bit"
        self.model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 10, bias=False))

    def inputs(self, batch):
        return torch.zeros(batch, 4, dtype=torch.long)


def test_states_of_tables_stay_wide_in_trainer():
    """transformers, trainer.py, `create_optimizer`: ``optim_bits`` is 32 for each embedding."""
    storages = load_workload(Lookup()).passes[0].graph.storages
    states = storages.owner == Owner.OPTIMIZER_STATE
    is_table = storages.elements[states, 0] == 100 * 64
    assert (storages.dtype[states] == np.where(is_table, DType.FP32, DType.INT8)).all()
    assert is_table.sum() == 2


@pytest.mark.parametrize("name", KEPT)
def test_an_update_reads_gradients_and_reads_and_writes_parameters_and_states(name):
    graph, (per_element, _) = step_of(name), KEPT[name]
    op = update_of(graph)
    owner = graph.storages.owner
    parameters, gradients = NUM_TENSORS * [Owner.PARAMETER], NUM_TENSORS * [Owner.GRADIENT]
    states = per_element * NUM_TENSORS * [Owner.OPTIMIZER_STATE]
    assert owner[storages_of(graph, op, written=False)].tolist() == parameters + gradients + states
    assert owner[storages_of(graph, op, written=True)].tolist() == parameters + states
    sizes = graph.ops.dims[op, :3, 0].tolist()
    assert sizes == [NUM_PARAMETERS, NUM_TENSORS, per_element * NUM_TENSORS]


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_each_parameter_has_states_of_its_own_size_in_its_own_place(name):
    graph = step_of(name)
    read = storages_of(graph, update_of(graph), written=False)
    sizes = graph.storages.elements[read, 0].reshape(-1, NUM_TENSORS)
    assert (sizes == sizes[0]).all()
    assert len(set(read.tolist())) == len(read)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_precision_narrows_a_state(name, precision):
    per_element, dtype = KEPT[name]
    configuration = Configuration(precision=precision, training_format="autocast")
    one = lower(step_of(name), configuration)
    expected = per_element * NUM_PARAMETERS * ELEMENT_BYTES[dtype]
    assert one.optimizer_state_bytes == pytest.approx(expected)


def test_a_pass_holds_the_state_that_another_pass_updates():
    """Each pass of a job finds all state in memory: the most that any pass keeps, in FP32."""
    held = with_resident_states([step_of(name) for name in ("sgd", "sgd-momentum", "adamw")])
    for graph in held:
        storages = graph.storages
        rows = np.flatnonzero(storages.owner == Owner.OPTIMIZER_STATE)
        assert storages.elements[rows, 0].sum() == 2 * NUM_PARAMETERS
        assert (storages.dtype[rows] == DType.FP32).all()
        assert (storages.birth[rows] == -1).all()
        assert (storages.death[rows] >= len(graph.ops.kind)).all()
    assert with_resident_states([]) == ()


def test_what_the_code_names_goes_before_what_is_asked_for():
    assert named_optimizer("paceline::optimizer|lion", "sgd") == "paceline::optimizer|lion"
    assert named_optimizer("paceline::optimizer|", "sgd") == "paceline::optimizer|sgd"
    assert named_optimizer("aten::mm|", "sgd") == "aten::mm|"


def test_an_unknown_optimizer_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="adamm") as raised:
        find_optimizer("adamm")
    assert "adamw" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "plain", "foreach"), [("adagrad", 11, 13), ("radam", 15, 22), ("adamw", 20, 20)]
)
def test_each_family_of_kernels_moves_its_own_accesses(name, plain, foreach):
    """As PyTorch's dispatcher counts them; a fused kernel reads and writes everything once."""
    rule = find_optimizer(name)
    fused = 3 + 2 * rule.states_per_element
    assert rule.accessed("fused") == 1
    assert rule.accessed("plain") * fused == pytest.approx(plain)
    assert rule.accessed("foreach") * fused == pytest.approx(foreach)
