"""The scorer of `make gpu-truth`, on records that are predictions times a known factor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu import score as score_gpu_truth
from gpu.one_operator import operator_pass

from paceline.catalog.load import load_catalog
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.lowering import lower
from paceline.model.ops.registry import DIM_NAMES
from paceline.model.reading.load import load_workload

CATALOG = load_catalog()
FP32 = Configuration(precision="fp32")
FACTOR = 1.3
SHAPES = [
    ("MATMUL", (1, 4096, 4096, 4096)), ("MATMUL", (1, 8192, 8192, 1024)),
    ("CONV", (64, 64, 56, 56, 64, 3, 3, 56, 56, 1)), ("ELEMENTWISE", (67108864, 1, 2)),
    ("ATTENTION", (4, 32, 32, 2048, 2048, 128, 1, 0)), ("SOFTMAX", (67108864, 512, 2)),
    ("RECURRENT", (64, 128, 512, 512, 1, 1, 4)), ("OPTIMIZER", (25000000, 160, 320)),
]  # fmt: skip


def operator(kind: str, shape: tuple[float, ...]) -> Record:
    return Record(
        kind="operator", outcome="ok", recorded_at="2026-11-21", source="test", workload=kind,
        device_name="A100 SXM4 80GB", precision="fp16", shape=tuple(map(float, shape)),
        samples_s=(1.0,), compiler="eager",
    )  # fmt: skip


def step(mode: str, batch: float) -> Record:
    return replace(
        operator("resnet50", ()), kind="step", shape=(), batch_per_device=batch, mode=mode,
        task="infer" if mode == "forward" else "train", framework_version="2.13.0",
        optimizer=None if mode == "forward" else "sgd", allocated_bytes=1e9, mean_power_w=300.0,
    )  # fmt: skip


def planted() -> list[Record]:
    """Records that took the predicted time, times a factor."""
    records = [operator(*one) for one in SHAPES]
    records += [step(mode, batch) for mode in ("forward", "step") for batch in (32.0, 64.0)]
    scored = score_gpu_truth.score(records, CATALOG, None)
    assert all(one.predicted_s for one in scored), [one.reason for one in scored]
    return [replace(one.record, samples_s=(FACTOR * (one.predicted_s or 0.0),)) for one in scored]


def test_a_common_factor_is_found_and_the_other_half_takes_most_of_it() -> None:
    for one in score_gpu_truth.score(planted(), CATALOG, None):
        assert one.predicted_s
        assert one.calibrated_s
        assert one.record.median_s
        assert one.record.median_s / one.predicted_s == pytest.approx(FACTOR)
        assert one.predicted_s < one.calibrated_s < one.record.median_s


def test_the_page_names_classes_models_and_what_failed() -> None:
    records = planted()
    broken = replace(records[0], outcome="failed", samples_s=(), reason="no")
    text = score_gpu_truth.page(
        score_gpu_truth.score([*records, broken], CATALOG, None), [*records, broken]
    )
    for word in ("MATMUL", "ATTENTION", "resnet50 (step)", "0.77", "Not measured: 1."):
        assert word in text


def test_an_unknown_device_is_named_and_nothing_is_guessed() -> None:
    (scored,) = score_gpu_truth.score(
        [replace(operator(*SHAPES[0]), device_name="nobody's GPU")], CATALOG, None
    )
    assert scored.predicted_s is None
    assert "nobody's GPU" in scored.reason


def test_without_records_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score_gpu_truth.main([str(tmp_path / "none")])
    assert "no records" in capsys.readouterr().out
    with Store(tmp_path / "some") as store:
        store.append(operator(*SHAPES[0]))
    score_gpu_truth.main([str(tmp_path / "some"), "--out", str(tmp_path / "page.md")])
    assert "MATMUL" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("kind", ["CONV", "CONV_BACKWARD_WEIGHT", "MATMUL", "OPTIMIZER"])
def test_an_operator_alone_asks_for_what_it_asks_for_in_a_graph(kind: str) -> None:
    fused = replace(FP32, optimizer_kernel="fused")
    costs = lower(load_workload("resnet50").passes[0].graph, fused).costs
    at_32 = monomials(32, 1)[0]
    for row in np.flatnonzero(costs.kind == OpKind[kind])[:8]:
        shape = (costs.dims[row] @ at_32)[: len(DIM_NAMES[OpKind[kind]])]
        alone = operator_pass(OpKind[kind], shape, "fp32").costs
        moved = (costs.read_bytes[row] + costs.write_bytes[row]) @ at_32
        assert alone.flop[0] @ at_32 == pytest.approx(costs.flop[row] @ at_32)
        assert alone.read_bytes[0] @ at_32 == pytest.approx(moved, rel=0.01)


def test_a_stream_alone_has_the_rows_and_operands_that_it_has_in_a_graph() -> None:
    costs = lower(load_workload("resnet50").passes[0].graph, FP32).costs
    at_32 = monomials(32, 1)[0]
    is_sum = (costs.kind == OpKind.ELEMENTWISE) & (costs.dims[:, 2, 0] == 2)
    row = np.flatnonzero(is_sum)[0]
    rows, columns, operands = (costs.dims[row] @ at_32)[:3]
    shape = (rows * columns, columns, operands + 1)
    alone = operator_pass(OpKind.ELEMENTWISE, shape, "fp32").costs
    assert (alone.dims[0] @ at_32)[:3] == pytest.approx((rows, columns, operands))


def test_a_causal_mask_spares_no_arithmetic_that_a_graph_counts() -> None:
    """The tile model knows the mask by its shape number; FLOP are those of the whole square."""
    whole, causal = (
        operator_pass(OpKind.ATTENTION, (1, 1, 1, 8, 8, 4, mask, 0), "fp16").costs
        for mask in (0, 1)
    )
    assert whole.flop[0, 0] == causal.flop[0, 0] == 4 * 8 * 8 * 4
