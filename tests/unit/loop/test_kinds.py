"""A run saved under one kind of parallelism goes on under another as if nothing had been."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from tests.unit.loop.kinds_runs import run

from paceline.loop.parallel.notation import parse

_CHAIN = ["dp1", "dp2", "fsdp2", "tp2", "pp2/mb2", "dp2+zero2", "dp1"]
_MIXED = ["dp4", "dp2.tp2", "pp2.dp2/mb2", "fsdp2.tp2", "pp2@interleaved2/mb2", "dp2.fsdp2", "dp3"]


def _ranks(strategy: str) -> int:
    return math.prod(count for _, count in parse(strategy).axes)


def chained(chain: list[str], folder: Path, model: str) -> list[float]:
    """Losses of one run that every kind of a chain takes two steps of, the last one the rest."""
    found: list[float] = []
    for number, strategy in enumerate(chain):
        more = {} if number == len(chain) - 1 else {"ends_at": 1}
        out = folder / f"{number}"
        found += run(
            _ranks(strategy), folder / "saves", out, model=model, strategy=strategy, **more
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("chain", [_CHAIN, _MIXED], ids=["kinds", "mixed"])
@pytest.mark.parametrize("model", ["gpt", "cnn", "tied"])
def test_a_chain_of_kinds_trains_as_one_undisturbed_process(
    tmp_path: Path, model: str, chain: list[str]
) -> None:
    wanted = run(1, tmp_path / "alone", tmp_path / "out", model=model, strategy="dp1")
    found = chained(chain, tmp_path, model)
    assert len(found) == len(wanted) == 12
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= 1e-12


def test_a_run_goes_on_with_groups_that_are_split_otherwise(tmp_path: Path) -> None:
    wanted = run(1, tmp_path / "alone", tmp_path / "out", model="gpt", strategy="dp1")
    found = chained(["dp1", "tp2"], tmp_path, "gpt")
    assert len(found) == len(wanted) == 12
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) <= 1e-12


@pytest.mark.slow
def test_a_state_that_shards_cannot_divide_is_refused(tmp_path: Path) -> None:
    """Adafactor keeps sums of rows and columns, which are cut in no way that a weight is."""
    more = {"model": "cnn", "optimizer": "adafactor"}
    run(1, tmp_path / "s", tmp_path / "a", strategy="dp1", ends_at=1, **more)
    *losses, said = run(2, tmp_path / "s", tmp_path / "b", strategy="fsdp2", **more)
    assert not losses
    assert "split the weight cannot split it alike" in said
