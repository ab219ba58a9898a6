"""Models of Flax and Equinox: counts that JAX and XLA give, and loops by hand.

They run in a Python with jax, flax, equinox and optax, which `make test-jax` makes.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from test_front_ends import DATA

import paceline.frontends
from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind, Phase, monomials
from paceline.model.reading.load import load_workload

pytestmark = pytest.mark.stacks
FOLDER = DATA / "jax"
PYTHON = os.environ.get("PACELINE_JAX_PYTHON", "")
BATCH, LENGTH = 4, 128
WITHOUT_LOOPS = (
    "NnxMlp", "NnxCnn", "NnxTransformer", "LinenMlp", "LinenResNet", "LinenTransformer",
    "EquinoxMlp", "EquinoxCnn",
)  # fmt: skip
#: XLA counts the body of a scan once: these are counted by hand, per token.
RECURRENT = {
    "LinenLstm": 2 * (4 * 256 * (64 + 256) + 256 * 2000),
    "LinenGru": 2 * (3 * 256 * (64 + 256) + 256 * 2000),
}


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch):
    if not PYTHON:
        pytest.skip("no Python with jax is named; run `make test-jax`")
    monkeypatch.chdir(FOLDER)


@pytest.fixture(scope="module")
def told():
    """What JAX says, by model."""
    command = [PYTHON, "-B", "jax_truth.py", str(BATCH), str(LENGTH)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def traced(name, task="infer"):
    return load_workload(f"jax:jax_zoo:{name}", task=task, python=PYTHON)


def flop(workload, batch, seq, phase=Phase.FORWARD):
    graph = workload.passes[0].graph
    return (graph.ops.flop[graph.ops.phase == phase] @ monomials(batch, seq)[0]).sum()


@pytest.mark.parametrize("name", [*WITHOUT_LOOPS, *RECURRENT])
def test_parameters_and_flop_are_those_of_jax(name, told):
    found = traced(name)
    parameters, xla = told[name]
    assert found.num_parameters == parameters
    seq = LENGTH if found.default_seq > 1 else 1
    if name in RECURRENT:
        assert flop(found, BATCH, seq) == BATCH * seq * RECURRENT[name]
    else:
        assert flop(found, BATCH, seq) == pytest.approx(xla, rel=0.03)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_layer_is_one_op_each_way(name):
    found = traced(name, "train")
    kinds = [OpKind(one) for one in found.passes[0].graph.ops.kind]
    assert kinds.count(OpKind.RECURRENT) == kinds.count(OpKind.RECURRENT_BACKWARD) == 1
    forward, backward = (flop(found, 2, 64, one) for one in (Phase.FORWARD, Phase.BACKWARD))
    assert backward == 2 * forward


@pytest.mark.parametrize(
    ("name", "num_products"), [("scanned", 12), ("counted", 7), ("branched", 2)]
)
def test_loops_count_as_often_as_they_run(name, num_products):
    assert flop(traced(name), 3, 1) == num_products * 2 * 3 * 64 * 64


def test_a_training_step_is_the_gradient_of_the_model():
    found = traced("NnxCnn", "train")
    forward, backward = (flop(found, 1, 1, one) for one in (Phase.FORWARD, Phase.BACKWARD))
    # The first convolution's input needs no gradient.
    assert backward == 2 * forward - 2 * 62 * 62 * 64 * 27
    kinds = {OpKind(one) for one in found.passes[0].graph.ops.kind}
    assert {OpKind.CONV_BACKWARD_INPUT, OpKind.CONV_BACKWARD_WEIGHT, OpKind.OPTIMIZER} <= kinds


@pytest.mark.parametrize(("name", "optimizer"), [("NnxMlp", "adamw"), ("LinenMlp", "sgd-momentum")])
def test_the_optimizer_of_optax_is_known_by_its_state(name, optimizer):
    assert traced(name, "train").optimizer == optimizer


#: What one trace with a symbol for the batch tells, beside a trace at each of three batches.
ONE_AND_THREE = """
import json, sys
folders, names, tasks = json.loads(sys.argv[1])
sys.path[:0] = folders
from jax_models import subject_of
from jax_symbolic import seen_at
from torch_tracing import trace_points
for name in names:
    for task in tasks:
        subject = subject_of({"entry": "jax:jax_zoo:" + name, "task": task, "directory": "."})
        views, modules = seen_at(subject, task, trace_points.BATCHES)
        for batch, (topology, _, numbers) in zip(trace_points.BATCHES, views, strict=True):
            rows = subject.rows(task, batch, 1)
            known, _, wanted = rows.seen()
            # Sizes that are numbers are constants too, which are only counted in another order.
            assert [topology[one] for one in ("names", "ops")] == [known["names"], known["ops"]]
            assert numbers["dims"] == wanted["dims"], (name, task, batch)
            assert sorted(numbers["bytes"]) == sorted(wanted["bytes"]), (name, task, batch)
            assert modules == rows.modules
"""


def test_one_trace_with_a_symbol_tells_what_a_trace_per_batch_tells():
    front_ends = Path(paceline.frontends.__file__).parent
    folders = [str(front_ends / "jax"), str(front_ends / "torch")]
    names = ["NnxCnn", "LinenMlp", "LinenResNet", "EquinoxCnn"]
    request = json.dumps([folders, names, ["train", "infer"]])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [PYTHON, "-B", "-c", ONE_AND_THREE, request]
    subprocess.run(command, cwd=FOLDER, env=environment, check=True)


def test_a_model_beside_an_example_batch_is_the_model_with_its_inputs():
    beside, whole = traced("paired"), traced("NnxMlp")
    assert beside.num_parameters == whole.num_parameters
    assert flop(beside, 8, 1) == flop(whole, 8, 1)
    with pytest.raises(InvalidInputError, match=r"gives \(2, 64\), not an example batch") as error:
        traced("sized")
    assert "return model, x" in error.value.hint


def test_a_loop_that_data_ends_is_refused():
    with pytest.raises(InvalidInputError, match="ends when its data says so") as error:
        traced("endless")
    assert "fori_loop" in error.value.hint
