"""Which configurations are predicted, and that what is left out could not have won."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.service import service_of
from paceline.planning.places.configurations import choose_configurations, with_common
from paceline.planning.places.support import device_support, platform_of
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.stack.devices import newest_stack

NAMES = ("A100 SXM4 80GB", "Tesla T4", "Tesla P100 PCIe 16GB", "Instinct MI300X", "AWS Graviton3")


def supports(names=NAMES):
    devices = [find_device(load_catalog(), name) for name in names]
    return [device_support(d, platform_of(newest_stack(d))) for d in devices]


def chosen(goal=None, *, num_parameters=100_000_000, names=NAMES):
    found = choose_configurations(supports(names), goal or Goal(), num_parameters=num_parameters)
    return {
        names[row]: {
            (c.configuration.precision, c.configuration.compiler) for c in found if row in c.rows
        }
        for row in range(len(names))
    }


def test_each_device_gets_the_narrowest_precision_it_has_and_one_compiler():
    found = chosen()
    assert found["A100 SXM4 80GB"] == {("bf16", "compiled")}
    assert found["Tesla T4"] == {("fp16", "compiled")}
    assert found["Instinct MI300X"] == {("bf16", "compiled")}


def test_a_device_without_a_compiler_runs_eagerly():
    assert {compiler for _, compiler in chosen()["Tesla P100 PCIe 16GB"]} == {"eager"}


def test_devices_of_one_configuration_keep_the_engine_that_serves_there():
    names, workload = ("Tesla T4", "Tesla P100 PCIe 16GB"), load_workload("gpt2", task="infer")
    found = choose_configurations(
        supports(names), Goal(), num_parameters=workload.num_parameters,
        service=service_of(Goal(), workload),
    )  # fmt: skip
    by_engine = {c.engine.name: c for c in found if c.configuration.precision == "fp16"}
    assert by_engine["vllm"].configuration == by_engine["llamacpp"].configuration
    assert [by_engine[name].rows for name in ("vllm", "llamacpp")] == [(0,), (1,)]
    assert with_common(found, supports(names), []) == found


def test_small_models_also_compete_in_full_width():
    assert chosen(num_parameters=1_000_000)["A100 SXM4 80GB"] == {
        ("bf16", "compiled"),
        ("tf32", "compiled"),
    }


def test_what_the_goal_accepts_is_taken_and_nothing_else():
    goal = Goal(precisions=("fp32", "bf16"), compilers=("eager",))
    found = chosen(goal)
    assert found["A100 SXM4 80GB"] == {("fp32", "eager"), ("bf16", "eager")}
    assert found["Tesla T4"] == {("fp32", "eager")}


def test_a_pin_beats_what_the_goal_accepts():
    goal = Goal(precisions=("fp32",), pins={"precision": "fp16", "compiler": "eager"})
    assert chosen(goal)["A100 SXM4 80GB"] == {("fp16", "eager")}


@pytest.mark.parametrize("name", ["resnet50", "bert-base", "lstm", "mnist-cnn"])
def test_no_prediction_is_slower_compiled(name):
    """So the eager configuration need not be predicted unless it is asked for."""
    model = load_workload(name)
    table = DeviceTable.from_devices(
        [find_device(load_catalog(), n) for n in ("A100 SXM4 80GB", "Tesla T4", "RTX 4090")]
    )
    batch = np.array([1.0, 8.0, 64.0])
    points = Points(batch=batch, seq=np.full(3, float(model.default_seq)))
    eager, compiled = (
        predict_pass(
            lower(model.passes[0].graph, Configuration(precision="fp16", compiler=compiler)),
            table,
            points,
        ).mid_s
        for compiler in ("eager", "compiled")
    )
    assert (compiled <= eager * (1 + 1e-9)).all()
