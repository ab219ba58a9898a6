"""Layers of bitsandbytes hand on what they read: activations beside FP32 norms are in FP32."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase
from paceline.model.lowering import rewritten
from paceline.model.reading.load import load_workload


def widths_of_products(model: str, endings: tuple[str, ...], **settings: object) -> set[float]:
    """Bytes of an element that forward products of some modules write, but for adapters."""
    graph = load_workload(model).passes[0].graph
    how = Configuration(training_format="autocast", lora_rank=8, **settings)  # type: ignore[arg-type]
    program = rewritten(graph, how)
    ops, stores, writes = program.ops, program.stores, program.writes
    named = np.array([path.endswith(endings) for path in program.modules])
    is_meant = named[ops.module] & (ops.kind == OpKind.MATMUL) & (ops.phase == Phase.FORWARD)
    is_meant &= program.dims[ops.dims, 2, 0] != 8
    is_meant &= program.dims[ops.dims, 3, 0] != 8
    storage = writes.storage[is_meant[writes.op]]
    return set(stores.element_bytes[storage[stores.owner[storage] == Owner.ACTIVATION]].tolist())


UP, DOWN = ("ffn.up", "mlp.up_proj"), ("ffn.down", "mlp.down_proj")


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3.2-1b"])
@pytest.mark.parametrize("bits", ["int4", "int8"])
def test_what_reads_a_norm_in_fp32_hands_on_fp32(model: str, bits: str) -> None:
    assert widths_of_products(model, UP, frozen_weights=bits) == {4.0}
    assert widths_of_products(model, DOWN, frozen_weights=bits) == {4.0}
    assert widths_of_products(model, UP) == {2.0}


def test_what_reads_attention_hands_on_its_16_bits() -> None:
    assert widths_of_products("llama-3-8b", ("attention.o",), frozen_weights="int4") == {2.0}
