"""Of ``extra`` only listed inputs are read: the rest was measured."""

from __future__ import annotations

import re

import pytest

from paceline.scoring.extras import StatedInputs, stated_inputs
from paceline.scoring.models import resolve_model
from paceline.scoring.names import UnresolvedRowError
from paceline.scoring.rows import parse_row
from paceline.scoring.tables import read_table

MEASURED = re.compile(r"watt|joule|power_w|time|mfu|tflops|throughput|latency|memory|itl|eff", re.I)


def entry_of(**cells: str) -> str:
    return resolve_model(parse_row({"gpu": "A100", "task": "infer", **cells})).entry


def test_no_measured_key_is_listed() -> None:
    keys = [known["key"] for known in read_table("extra_inputs.csv")]
    assert not [key for key in keys if MEASURED.search(key)]


def test_measured_keys_say_nothing() -> None:
    text = "time_to_train_min=3; avg_power_watts=700; energy_per_image_joules=9; gmacs=4; mfu=0.4"
    assert stated_inputs(text) == StatedInputs()


def test_the_size_of_a_model_is_read() -> None:
    base, large = (
        entry_of(model="BERT", framework="TensorFlow", extra=f"model={size}; mfu=0.3")
        for size in ("base", "large")
    )
    assert (base, large) == ("published:bert_squad_base", "published:bert_squad_large")
    heading = "section=Inference performance results for EfficientNet v1-B4"
    assert entry_of(model="efficientnet_v1", extra=heading) == "timm:efficientnet_b4"


def test_a_stated_beam_settles_a_search() -> None:
    gnmt = {"model": "GNMT", "framework": "PyTorch", "unit": "tok/s"}
    assert entry_of(**gnmt, extra="beam size=2") == "published_sequences:gnmt_beam2"
    with pytest.raises(UnresolvedRowError, match="hypotheses"):
        entry_of(**gnmt)


def test_stated_steps_count_as_passes() -> None:
    row = {"model": "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS", "gpu": "H100"}
    half = resolve_model(parse_row(row | {"extra": "inference_steps=10"}))
    assert (half.num_passes, resolve_model(parse_row(row)).num_passes) == (10, 20)
