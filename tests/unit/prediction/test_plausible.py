"""What an expert knows of every device: more of everything is no slower, no unit beats its peak."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Coverage, Points
from paceline.prediction.step.one_pass import predict_pass

CATALOG = load_catalog()


def answer(model, names, *batches, task="infer", framework="torch", **settings):
    """The first pass of a shipped model at its own length, on named devices."""
    workload = load_workload(model, task=task)
    work = lower(workload.passes[0].graph, Configuration(**settings))
    named = [device for name in names for device in CATALOG.devices if device.name == name]
    assert len(named) == len(names)
    points = Points(
        batch=np.array(batches, dtype=float), seq=np.full(len(batches), workload.default_seq)
    )
    return predict_pass(work, DeviceTable.from_devices(named), points, framework=framework)


@pytest.mark.parametrize(("name", "like"), [("A800 SXM4 80GB", "A100"), ("T4G", "T4")])
def test_a_chip_under_another_name_is_as_fast_and_as_well_known(name, like):
    twin = {"A100": "A100 SXM4 80GB", "T4": "Tesla T4"}[like]
    for model, task in (("resnet50", "train"), ("bert-base", "infer")):
        both = answer(model, [name, twin], 1, 32, task=task, precision="fp16")
        np.testing.assert_allclose(both.mid_s[0], both.mid_s[1], rtol=0.1)
        assert (both.knowledge <= Coverage.SIBLING).all()


def test_compiling_does_not_speed_the_kernels_of_vector_units_up():
    for precision, device in (("fp32", "A100 SXM4 80GB"), ("fp16", "Tesla P100 PCIe 16GB")):
        eager, compiled = (
            answer("vgg16", [device], 64, precision=precision, compiler=compiler).device_s[0, 0]
            for compiler in ("eager", "compiled")
        )
        assert 0.75 * eager < compiled <= eager


@pytest.mark.parametrize("model", ["lstm", "gru"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_recurrent_layers_take_no_less_time_for_more_items(model, precision):
    names = ["A100 SXM4 80GB", "L40S", "GeForce RTX 4090", "H100 SXM5 80GB", "B200 SXM"]
    batches = [2**power for power in range(11)]
    for task in ("train", "infer"):
        mid_s = answer(model, names, *batches, task=task, precision=precision).mid_s
        assert (np.diff(mid_s, axis=1) > -0.06 * mid_s[:, 1:]).all()


def test_bf16_without_units_for_it_gains_nothing_from_those_of_fp16():
    """Frameworks run BF16 on a V100 or T4 in wider arithmetic."""
    for name in ("Tesla V100 SXM2 16GB", "Tesla T4", "Radeon VII"):
        narrow, wide = (
            answer("bert-base", [name], 32, precision=precision).device_s[0, 0]
            for precision in ("fp16", "bf16")
        )
        assert wide > 1.5 * narrow


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["eager", "compiled"])
@pytest.mark.parametrize(
    ("model", "task"),
    [("resnet50", "train"), ("bert-base", "train"), ("gpt2", "infer"), ("vit_b_16", "infer")],
)
def test_laws_over_the_whole_catalogue(model, task, compiler):
    names = [one.name for one in CATALOG.devices]
    batches = [1, 4, 16, 64]
    told = answer(model, names, *batches, task=task, precision="fp32", compiler=compiler)
    table = DeviceTable.from_devices(CATALOG.devices)
    known = np.isfinite(told.mid_s).all(axis=1)
    assert known.sum() > 400
    assert (np.diff(told.mid_s[known], axis=1) > -0.05 * told.mid_s[known, 1:]).all()
    assert (told.mid_s[known] >= told.host_s[known]).all()
    peak = table.peaks[known, 0]
    assert (told.flop <= 1.3 * peak[:, None] * told.mid_s[known])[peak > 0].all()
    draws = ~np.isnan(table.tdp_w) & known
    assert (told.power_w[draws] <= table.tdp_w[draws, None]).all()
    on_cuda = np.array([maker == "NVIDIA" for maker, _ in table.kinds])
    is_measured = told.knowledge == Coverage.MEASURED
    least_known = told.log_sigma[known & ~on_cuda & ~is_measured].min()
    assert least_known > np.median(told.log_sigma[known & is_measured])
