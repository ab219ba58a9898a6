"""Every engine in its own environment: the same architecture, the same numbers.

Stacks that are missing are created first, with the user's own pip configuration.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from run_machines import cpu_place

from paceline.execution.cells import Sweep, sweep_cells
from paceline.execution.conditions import Settings
from paceline.execution.machine.probe import probe_host
from paceline.execution.measure import EXPORTER, make_request, measure_cells
from paceline.execution.stacks import (
    create_stack,
    find_spec,
    list_stacks,
    remove_stack,
    stacks_folder,
)
from paceline.execution.worker import Limits, run_worker
from paceline.measurements.store import Store

pytestmark = pytest.mark.stacks

TIMING = {
    "min_samples": 2, "max_samples": 3, "min_s": 0.0, "max_s": 5.0, "max_warmup_s": 0.1,
    "min_sample_s": 0.0,
}  # fmt: skip
SETTINGS = Settings(timeout_s=300.0, num_threads=1, timing=TIMING)
PLACE = cpu_place()
#: Trainable parameters as torchvision publishes them, and of the tracer's two small models.
PARAMETERS = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "mnist-cnn": 34_826,
}
#: Gluon's bottlenecks have a bias in their 1×1 convolutions, which torchvision's have not.
GLUON_EXTRA = {"resnet50": 18_880}


def stack(name):
    return create_stack(find_spec(name), stacks_folder())


def measure(tmp_path, names, workloads, *, mode, devices=(1,), batch=2):
    stacks = {name: stack(name) for name in names}
    sweep = Sweep(workloads=workloads, batches=(batch,), devices=devices, modes=(mode,))
    cells = sweep_cells(sweep, list(stacks.values()))
    with Store(tmp_path) as store:
        everything = {**stacks, EXPORTER: stack("torch")}
        return list(measure_cells(cells, everything, PLACE, store, SETTINGS))


@pytest.mark.parametrize("mode", ["forward", "forward-backward", "step"])
@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax", "mxnet"])
def test_training_frameworks_measure_both_small_models(tmp_path, name, mode):
    records = measure(tmp_path, [name], ("mnist-cnn", "lstm"), mode=mode)
    assert [(r.outcome, r.reason) for r in records] == [("ok", "")] * 2


def test_exported_models_give_the_numbers_of_the_framework_they_came_from(tmp_path):
    names = ["onnxruntime", "openvino", "tvm"]
    records = measure(tmp_path, names, ("mnist-cnn",), mode="forward")
    assert [r.outcome for r in records] == ["ok"] * 3
    assert max(r.numerical_difference for r in records) < 1e-5


@pytest.mark.parametrize(
    "name", ["openvino", "tvm", *([] if probe_host().gpus else ["tensorflow", "jax", "mxnet"])]
)
def test_an_engine_that_sees_no_gpu_times_nothing_under_the_name_of_one(name):
    chosen = stack(name)
    (cell,) = sweep_cells(
        Sweep(workloads=("mnist-cnn",), batches=(1,), modes=("forward",)), [chosen]
    )
    request = make_request(cell, chosen, replace(SETTINGS, device="cuda"))
    result = run_worker(
        chosen.command(),
        request,
        limits=Limits(timeout_s=60.0),
        environment=chosen.spec.environment,
    )
    assert (result.ending, "device `cuda`" in result.reason) == ("unsupported", True)


@pytest.mark.parametrize("model", PARAMETERS)
@pytest.mark.parametrize("name", ["torch", "jax", "mxnet"])
def test_definitions_have_the_published_number_of_parameters(name, model):
    chosen = stack(name)
    sweep = Sweep(workloads=(model,), batches=(1,), modes=("forward",))
    (cell,) = sweep_cells(sweep, [chosen])
    result = run_worker(
        chosen.command(),
        make_request(cell, chosen, SETTINGS),
        limits=Limits(timeout_s=300.0),
        environment=dict(chosen.spec.environment),
    )
    assert result.ending == "ok", result.reason
    extra = GLUON_EXTRA.get(model, 0) if name == "mxnet" else 0
    assert result.answer["num_parameters"] == PARAMETERS[model] + extra


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_two_devices_answer(tmp_path, name):
    records = measure(tmp_path, [name], ("mnist-cnn",), mode="step", devices=(1, 2), batch=4)
    assert [r.outcome for r in records] == ["ok", "ok"]


def test_a_stack_is_made_listed_and_removed(tmp_path):
    spec = find_spec("onnxruntime")
    made = create_stack(spec, tmp_path)
    assert f"onnxruntime=={spec.version}" in made.packages
    assert list_stacks(tmp_path) == (made,)
    assert create_stack(spec, tmp_path) == made
    (made.python.parents[1] / "paceline-stack.json").unlink()  # an attempt that did not end
    assert list_stacks(tmp_path) == ()
    assert create_stack(spec, tmp_path).spec == spec
    assert remove_stack("onnxruntime", tmp_path)
    assert not Path(tmp_path / "onnxruntime").exists()
