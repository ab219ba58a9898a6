"""What the observer wrote on an H200 (PyTorch 2.11, 2026-11-27), read without one.

The scripts are `scripts/on_a_gpu.py`: 25 small layers; ResNet-50 in FP16 from memory that is not
pinned, and the same channels last with pinned memory and eight workers. Their capture is of before
steps that a scaler of losses leaves out were told from microbatches.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from paceline.watch.captured import CAPTURE_FILE, read_capture
from paceline.watch.diagnosis.blocks import Found, found_in
from paceline.watch.diagnosis.causes import ranked_causes
from paceline.watch.diagnosis.gpu_steps import GpuStep, gpu_step_of
from paceline.watch.events import RankEvents

_FOLDER = Path(__file__).parent / "recorded"
_NAMES = ("mlp", "resnet_unpinned", "resnet_loaded")
#: 64 pictures of 3 x 224 x 224 in FP32.
_BATCH_BYTES = 64 * 3 * 224 * 224 * 4


def rank(name: str) -> RankEvents:
    found = RankEvents(path=Path(f"{name}.jsonl"))
    found.take(lzma.decompress((_FOLDER / f"h200_{name}.jsonl.xz").read_bytes()).splitlines())
    assert found.num_damaged == 0
    return found


def recorded(name: str) -> Found:
    return found_in([rank(name)])


def gpu(name: str) -> GpuStep:
    found = recorded(name).gpu
    assert found is not None
    return found


def record(name: str) -> dict[str, Any]:
    return dict(rank(name).last("gpu_steps"))


@pytest.mark.parametrize("name", _NAMES)
def test_parts_of_a_recorded_step_add_up(name: str):
    one = gpu(name)
    parts_s = (one.compute_s, one.communication_s, one.copies_s, one.idle_s)
    assert sum(parts_s) == pytest.approx(one.step_s)
    assert one.communication_s == 0.0


@pytest.mark.parametrize("name", _NAMES)
def test_three_steps_are_those_that_a_record_tells_alone(name: str):
    whole, parts = record(name), []
    for first, last in zip(whole["bounds_ns"], whole["bounds_ns"][1:], strict=False):
        parts.append(gpu_step_of({**whole, "bounds_ns": [first, last]}))
    assert len(parts) == 3
    compute_s = sum(one.compute_s for one in parts if one is not None)
    assert compute_s == pytest.approx(3 * gpu(name).compute_s)


@pytest.mark.parametrize("name", _NAMES)
def test_work_counts_once_where_it_overlaps(name: str):
    """On Hopper a kernel may begin while the one before it in its stream ends."""
    one, seen = gpu(name), record(name)
    summed_s = sum(seen["durations_ns"]) / 1e9 / 3
    assert 0.98 * summed_s < one.compute_s + one.copies_s < 1.000001 * summed_s


@pytest.mark.parametrize("name", _NAMES)
def test_steps_between_events_of_a_gpu_fill_the_time_of_their_block(name: str):
    for block in rank(name).events["block"]:
        if block["name"] in ("own", "replay"):
            assert sum(block["steps"]) / 1e9 == pytest.approx(block["machine"][0], rel=0.08)


@pytest.mark.parametrize("name", _NAMES)
def test_a_gpu_is_no_longer_busy_than_a_step_takes_with_its_batch_there(name: str):
    one = gpu(name)
    assert one.step_s - one.idle_s < recorded(name).step_s("replay")


def test_copies_are_as_fast_as_their_memory_lets_the_bus_be():
    """PCIe 5.0 x16 carries 63 GB/s at most; memory that is not pinned is copied twice."""
    pageable_per_s = _BATCH_BYTES / gpu("resnet_unpinned").pageable_s
    pinned = gpu("resnet_loaded")
    assert 2e9 < pageable_per_s < 20e9
    assert pinned.pageable_s == 0.0
    assert 40e9 < _BATCH_BYTES / pinned.copies_s < 63e9


def test_small_layers_are_bound_by_their_host():
    found = recorded("mlp")
    one, first = gpu("mlp"), ranked_causes(found)[0]
    assert one.idle_s > 0.85 * one.step_s
    assert one.num_launches == 189
    assert one.num_waits == 0
    assert first.kind == "host-bound"
    assert "starts 189 kernels in each" in first.text
    assert first.step_s.mid > one.compute_s + one.copies_s


def test_a_scaler_of_losses_is_waited_for_once_a_step():
    assert gpu("resnet_unpinned").num_waits == pytest.approx(1, abs=0.4)


def test_batches_that_pytorch_itself_collates_need_no_other_collate_fn():
    events = rank("resnet_unpinned")
    events.events["probe"][-1] = {**events.last("probe"), "is_own_collate": False}
    cause = next(one for one in ranked_causes(found_in([events])) if one.kind == "slow-collate")
    assert cause.text.startswith("collating takes 26.7 ms")
    assert "collate_fn" not in cause.remedy


@pytest.mark.parametrize(
    ("name", "precision", "note"),
    [
        ("mlp", "fp32", "float32"),
        ("resnet_unpinned", "fp16", "autocast float16 over float32"),
        ("resnet_loaded", "fp16", "autocast float16 over float32"),
    ],
)
def test_precision_of_a_gpu_is_read(tmp_path: Path, name: str, precision: str, note: str):
    facts = rank(name).last("capture")["facts"]
    (tmp_path / CAPTURE_FILE).write_text(json.dumps({"facts": facts, "report": None}))
    job, _ = read_capture(tmp_path)
    assert job is not None
    assert (job.precision, job.precision_note, job.batch) == (precision, note, 64)
    assert (job.optimizer, job.compiler) == ("adamw", "eager")
