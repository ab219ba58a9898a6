"""What recipes keep and move per parameter, against the bytes that their papers count."""

from __future__ import annotations

import pytest

from paceline.parallel.rank_program import ADAM, StateBytes, state_bytes
from paceline.trace import Configuration


def kept(state: StateBytes) -> float:
    return state.weight + state.gradient + state.optimizer


def test_adam_keeps_sixteen_bytes_in_fp32_and_eighteen_with_narrow_weights_beside() -> None:
    """Rajbhandari et al., SC 2020, section 3.1; Megatron-LM's gradients stay FP32."""
    assert kept(state_bytes("autocast", Configuration(precision="fp32"), ADAM)) == 16
    assert kept(state_bytes("half-weights", Configuration(precision="bf16"), ADAM)) == 18
    assert kept(state_bytes("autocast", Configuration(precision="bf16"), ADAM)) == 18


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_an_update_reads_and_writes_every_state_once(precision: str) -> None:
    """It reads gradients, and leaves narrow weights behind where these are what is kept."""
    how = Configuration(precision=precision)
    wide = state_bytes("autocast", how, ADAM)
    assert wide.update == wide.gradient + 2 * (wide.gathered + wide.optimizer)
    narrow = state_bytes("half-weights", how, ADAM)
    if precision == "fp32":
        assert narrow == wide
    else:
        assert narrow.update == narrow.gradient + 2 * narrow.optimizer + narrow.weight


def test_frozen_weights_need_neither_gradients_nor_states() -> None:
    frozen = state_bytes("autocast", Configuration(lora_rank=8), ADAM)
    assert kept(frozen) == frozen.weight == frozen.gathered
    assert frozen.update == frozen.reduced == 0
