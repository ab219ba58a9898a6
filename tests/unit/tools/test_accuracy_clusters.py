"""The tool that holds predictions of clusters against published figures, and the classic curves."""

import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
ROOT = Path(__file__).parents[3]
classic_curves = import_module("accuracy_clusters.classic_curves")
adapters, bridge, mlperf, report = (
    import_module(f"accuracy_clusters.{name}")
    for name in ("adapters", "bridge", "mlperf", "report")
)


def recipe(parallelism, *, n_gpus, global_batch, batch_per_gpu=1, **changes):
    stated = {"notes": "26.08 NeMo", "precision": "FP8", "parallelism": parallelism}
    counts = {"n_gpus": n_gpus, "global_batch": global_batch, "batch_per_gpu": batch_per_gpu}
    return SimpleNamespace(**stated | counts | changes)


@pytest.mark.parametrize(
    ("parallelism", "n_gpus", "global_batch", "expected"),
    [
        ("TP=4 PP=16 CP=1 VP=4 EP=n/a", 256, 1536,
         "pp16.dp4.tp4@interleaved4/mb384+zero1+sp"),
        ("TP=1 PP=1 CP=1 VP=n/a EP=n/a FSDP=64", 64, 256, "dp64/mb4+zero3"),
        ("TP=8 PP=8 CP=2 VP=8 EP=n/a", 1024, 1536,
         "pp8.dp8.cp2.tp8@interleaved8/mb192+zero1+sp"),
        ("TP=1 PP=4 CP=1 VP=4 EP=64", 256, 4096, "pp4.ep64@interleaved4/mb64+zero1"),
        ("TP=2 PP=1 EP=64", 64, 512, "ep32.tp2/mb16+zero1+sp"),
    ],
)  # fmt: skip
def test_a_recipe_becomes_the_strategy_it_states(parallelism, n_gpus, global_batch, expected):
    row = recipe(parallelism, n_gpus=n_gpus, global_batch=global_batch)
    assert str(bridge._strategy(row)) == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (recipe("TP=4 PP=1 EP=6", n_gpus=64, global_batch=512), "expert ranks"),
        (recipe("TP=1 PP=1", n_gpus=64, global_batch=100), "no whole number of microbatches"),
        (recipe("TP=1", n_gpus=8, global_batch=64, precision="NVFP4"), "no such precision"),
    ],
)
def test_a_recipe_that_cannot_be_built_says_why(row, reason):
    with pytest.raises(bridge.NotBuiltError, match=reason):
        bridge._strategy(row)


@pytest.mark.parametrize(
    ("n_gpus", "global_batch", "grad_accum", "expected"),
    [
        (8, 8, 4, "dp2.tp4/mb4+sp"),
        (8, 8, 2, "dp4.tp2/mb2+sp"),
        (1024, 128, 1, "dp128.cp2.tp4+sp"),
        (8, 8, 1, "dp8"),
    ],
)
def test_batch_and_devices_tell_how_adapters_are_trained(
    n_gpus, global_batch, grad_accum, expected
):
    """The first three are the names of NVIDIA's configurations."""
    row = SimpleNamespace(n_gpus=n_gpus, global_batch=global_batch, grad_accum=grad_accum)
    assert str(adapters.strategy_of(row)) == expected


def test_a_row_has_what_the_recipe_of_its_release_says():
    table = pd.DataFrame({
        "model": ["DeepSeekV3 (w/o MTP)", "DeepSeekV3", "LLAMA3_8B"], "gpu": ["GB200"] * 3,
        "precision": [np.nan, "MXFP8", "FP8"], "parallelism": ["TP=1 PP=4 (8) CP=1"] * 3,
        "notes": ["25.09 NeMo Container", "26.06.01 NeMo Container", "26.06 NeMo Container"],
    })  # fmt: skip
    found = bridge.stated(table)
    assert found.model.tolist() == ["DeepSeekV3", "DeepSeekV3", "LLAMA3_8B"]
    assert found.precision[0] == "FP8"
    assert set(found.parallelism) == {"TP=1 PP=4 CP=1"}
    assert found.sends_once.tolist() == [True, True, False]
    assert found.hides_exchange.tolist() == [False, True, False]


def test_facts_of_a_submission_follow_its_benchmark_and_device():
    cut = "NVLINK + Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-"
    table = pd.DataFrame({
        "model": ["bert", "bert", "gpt3"], "gpu": ["H100-SXM5-80GB", "A30", "H100-SXM5-80GB"],
        "interconnect": [cut, "PCIe", "PCIe"],
        **{name: [np.nan] * 3 for name in mlperf._STATED},
    })  # fmt: skip
    found = mlperf.stated(table)
    assert found.precision.tolist()[:2] == ["fp8-true", "fp16-true"]
    assert found.is_stated.tolist() == [True, True, False]
    assert found.interconnect[0] == "NVLink + 8x ConnectX-7 IB NDR 400Gb/s"


def test_items_that_several_devices_share_are_named_and_not_predicted(monkeypatch):
    monkeypatch.setattr(mlperf, "with_answers", lambda rows, _: rows.assign(predicted=1.0))
    table = pd.DataFrame({
        "model": ["unet3d"] * 2, "gpu": ["A100"] * 2, "interconnect": ["NVLink"] * 2,
        "n_gpus": [800, 8], "global_batch": [80, 56],
        **{name: [np.nan] * 2 for name in mlperf._STATED},
    })  # fmt: skip
    found = mlperf.with_predictions(table, None).set_index("n_gpus")
    assert found.predicted[8] == 1.0
    assert np.isnan(found.predicted[800])
    assert "share an item" in found.reason[800]


def test_scaling_is_throughput_per_device_against_one_node_of_the_same_system():
    notes = "MLPerf Training v3.0; org=A; rest"
    rows = pd.DataFrame({
        "model": ["bert"] * 3, "gpu": ["X"] * 3, "n_nodes": [1, 2, 2], "n_gpus": [8, 16, 16],
        "throughput": [80.0, 120.0, 144.0], "predicted": [100.0, 160.0, np.nan],
        "notes": [notes] * 3,
    })  # fmt: skip
    pairs = mlperf.scaling_pairs(rows)
    assert pairs.measured.tolist() == [0.75]
    assert pairs.predicted.tolist() == [0.8]
    assert report.median_points(pairs) == pytest.approx(5.0)


def test_classic_curves_name_a_source_and_explain_what_differs():
    curves = tomllib.loads(classic_curves.CURVES.read_text(encoding="utf-8"))["curve"]
    assert all(curve["source"] for curve in curves)
    near, far = (
        classic_curves.Point(
            devices=8, batch=1, items_per_s=1.0, frac=frac, published_frac=0.9
        )
        for frac in (0.88, 0.8)
    )  # fmt: skip
    bare = {key: value for key, value in curves[0].items() if key != "note"}
    assert "Agrees." in "\n".join(classic_curves.section(bare, [near]))
    with pytest.raises(SystemExit, match="not explained"):
        list(classic_curves.section(bare, [far]))
