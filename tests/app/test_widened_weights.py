"""FP8 checkpoints on devices without units for FP8, as engines run them."""

from __future__ import annotations

import pytest

import paceline
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.stack.engines import find_engine

ASKED = {"task": "infer", "prompt_tokens": 800, "output_tokens": 200}


@pytest.mark.parametrize("device", ["a100", "T4"])
def test_weights_alone_in_fp8_take_what_eight_bits_take(device: str) -> None:
    told, bits = (
        paceline.predict("mistral-7b", device=device, batch=2, precision=precision, **ASKED)
        for precision in ("fp8", "int8")
    )
    assert told.cells[0].latency_s == bits.cells[0].latency_s
    assert any("widened by kernels" in line for line in told.assumptions)
    assert not any("widened by kernels" in line for line in bits.assumptions)


def test_units_of_fp8_multiply_it() -> None:
    told = paceline.predict("mistral-7b", device="l40s", batch=2, precision="fp8", **ASKED)
    assert told.cells[0].precision == "fp8"


@pytest.mark.parametrize(
    ("engine", "device", "kept"),
    [("vllm", "Tesla T4", "int8"), ("sglang", "Tesla T4", "fp8"), ("trtllm", "A10G", "fp8"),
     ("sglang", "A10G", "int8"), ("vllm", "Tesla P100 PCIe 16GB", "fp8"), ("vllm", "L4", "fp8")],
)  # fmt: skip
def test_an_engine_keeps_what_its_documentation_says(engine: str, device: str, kept: str) -> None:
    found = find_device(load_catalog(), device)
    assert find_engine(engine).kept_precision("fp8", found) == kept


def test_training_names_only_what_trains() -> None:
    (silent,) = paceline.predict("gpt2", device="a100", precision="fp8").unanswered
    assert "does not run fp8" in silent.reason
    assert "bf16" in silent.reason
    assert "int4" not in silent.reason


@pytest.mark.parametrize("asked", [{"precision": "fp8"}, {"pin": "precision=fp8"}])
def test_the_server_is_told_fp8(asked: dict[str, str]) -> None:
    plan = paceline.plan("mistral-7b", device="a10g", rps=1.0, max_devices=2, **ASKED, **asked)
    assert plan.choices[0].precision == "int8"
    assert plan.choices[0].service.weight_format == "fp8"
    files = paceline.deploy(plan, "docker", settings={"weights": "some/model"})
    assert "--quantization" in str(files)
