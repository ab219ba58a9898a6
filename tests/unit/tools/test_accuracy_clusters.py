"""The tool that holds predictions of clusters against published figures, and the classic curves."""

import tomllib
from importlib import import_module

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
classic_curves = import_module("accuracy_clusters.classic_curves")
bridge, mlperf, report = (
    import_module(f"accuracy_clusters.{name}") for name in ("bridge", "mlperf", "report")
)


def test_rows_of_fine_tuning_are_what_their_heading_says(monkeypatch):
    monkeypatch.setattr(bridge, "with_answers", lambda rows, _: rows)
    table = pd.DataFrame({
        "compiler_flags": ["SFT/LoRA", "SFT/LoRA", "pretrain"],
        "notes": ["26.06 > LoRA Performance > x", "26.06 > SFT Performance > x", "26.06 > x"],
    })  # fmt: skip
    found = bridge.with_predictions(table, None)
    assert found.compiler_flags.tolist() == ["LoRA", "SFT", "pretrain"]


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
