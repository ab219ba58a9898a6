"""Recommenders are told as their trainers run them, by every verb that is asked without a word."""

from __future__ import annotations

import pytest

from paceline import plan, predict, scale

DAY = "2026-11-20"
DCN = "published_tables:dlrm_dcnv2"


@pytest.mark.parametrize("model", [DCN, "published_tables:dlrm_small"])
def test_scale_without_a_batch_keeps_devices_busy(model: str) -> None:
    """One item a device was 81 samples/s; MLPerf's runs of eight H100 do 6 to 60 million."""
    found = scale(model, device="H100 SXM5 80GB", counts=(8,), as_of=DAY)
    (point,) = found.curve.points
    assert "ep8" in point.strategy
    assert point.items_per_s > 2e6
    assert any("table_updates=dense" in words for words in found.assumptions)


def test_a_plan_shares_tables_between_devices() -> None:
    """Four billion samples are minutes of eight H100 (MLPerf Training v3.0: 4.3 to 8.0)."""
    found = plan(DCN, samples="4B", device="H100 SXM5 80GB", cloud="lambda", as_of=DAY)
    first = found.choices[0]
    assert "ep" in str(first.strategy)
    assert first.time_s.mid < 2 * 3600


def test_predict_shares_tables_unless_replicas_are_asked_for() -> None:
    how = {"device": "a100", "devices": "8", "batch": "4096", "task": "train"}
    shared, replicas = (
        predict("published_tables:dlrm_small", **how, **more).cells[0]
        for more in ({}, {"sharding": "none"})
    )
    assert shared.samples_per_s.mid > 5 * replicas.samples_per_s.mid
