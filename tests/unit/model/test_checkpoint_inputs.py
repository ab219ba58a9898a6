"""What enters blocks that are computed again, where FSDP1 keeps it beside frozen weights."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.memory.peak import live_at_peak
from paceline.prediction.prediction import Points

HIDDEN, BATCH, SEQ = 64, 256.0, 256.0
STATE_BYTES = 2.0 * HIDDEN * BATCH * SEQ
SCRIPT = Path(__file__).parent / "frozen_fsdp1.py"


@cache
def peak_bytes(layers, inputs):
    sizes = f"layers={layers},hidden={HIDDEN},heads=2,ffn=256,vocab=512,gated=0,norm=layer,bias=0"
    graph = load_workload(f"transformer:{sizes}", task="train").passes[0].graph
    how = Configuration(
        precision="bf16", training_format="pure", checkpointing="block", lora_rank=2,
        loss="chunked", results="dropped", checkpoint_inputs=inputs,
    )  # fmt: skip
    at = Points(batch=np.array([BATCH]), seq=np.array([SEQ]))
    return float(live_at_peak(lower(graph, how).memory, at)[0][0])


def test_one_gradient_more_is_alive_for_every_block():
    more = [peak_bytes(layers, "kept") - peak_bytes(layers, "freed") for layers in (6, 10)]
    assert more[1] - more[0] == pytest.approx(4 * STATE_BYTES, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frozen", "sharded", "of_block"), [(True, True, 2), (True, False, 1), (False, True, 1)]
)
def test_real_fsdp1_keeps_two_hidden_states_of_each_block(frozen, sharded, of_block):
    """And one where nothing is frozen, or nothing sharded: what each checkpoint keeps."""
    peaks = [
        int(subprocess.check_output(
            [sys.executable, str(SCRIPT), str(blocks), str(int(frozen)), str(int(sharded))],
            stderr=subprocess.DEVNULL,
        ))
        for blocks in (6, 10)
    ]  # fmt: skip
    assert peaks[1] - peaks[0] == 4 * of_block
