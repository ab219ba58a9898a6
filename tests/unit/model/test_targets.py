"""Training encoder–decoders on targets of another length than their sources."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind, Phase, monomials
from paceline.model.items import StatedItem, as_items
from paceline.model.reading.load import load_workload
from paceline.model.targets import has_targets, with_target

#: Reading Marian takes longer than the others together.
MODELS = ("t5-small", "bart-base", pytest.param("marian", marks=pytest.mark.slow))


def step(name):
    return load_workload(name).passes[0].graph


@pytest.mark.parametrize("name", MODELS)
def test_a_target_as_long_as_its_source_changes_nothing(name):
    graph, at = step(name), monomials([1, 7], [48, 48]).T
    same = with_target(graph, 48)
    for table in ("ops", "tensors", "storages"):
        for field in fields(type(getattr(graph, table))):
            before, after = (getattr(getattr(one, table), field.name) for one in (graph, same))
            if before.dtype == np.float64:
                assert after @ at == pytest.approx(before @ at)
            else:
                assert (after == before).all()


def test_operations_of_t5_are_those_that_are_counted_by_hand():
    """Of T5 small: width 512, inner 2,048, six layers on each side, 32,128 words."""
    source, target, width, inner, layers, words = 512, 64, 512, 2048, 6, 32_128
    graph = with_target(step("t5-small"), target)
    flop = graph.ops.flop @ monomials(1, source)[0]
    is_forward = graph.ops.phase == Phase.FORWARD
    of = {kind: flop[is_forward & (graph.ops.kind == kind)].sum() for kind in OpKind}
    read = source * layers * (4 * width**2 + 2 * width * inner + 2 * width**2)
    written = target * (layers * (6 * width**2 + 2 * width * inner) + width * words)
    assert of[OpKind.MATMUL] == 2 * (read + written)
    scores = source**2 + target**2 + source * target
    assert of[OpKind.ATTENTION] == 4 * layers * width * scores


@pytest.mark.parametrize("name", MODELS)
def test_what_is_kept_grows_evenly_with_the_target(name):
    """Beside the scores of a target with itself, which have its second power."""
    lengths = (16, 32, 64, 128)
    at = monomials(8, 256)[0]
    kept = [with_target(step(name), one).storages.elements @ at for one in lengths]
    total = [float(one.sum()) for one in kept]
    slopes = np.diff(total) / np.diff(lengths)
    assert (slopes > 0).all()
    assert (np.diff(slopes) >= 0).all()
    assert max(total) < float((step(name).storages.elements @ at).sum())


def test_a_model_without_targets_refuses_a_length_of_one():
    for name in ("gpt2", "bert-base", "whisper-small", "resnet50"):
        assert not has_targets(step(name))
        with pytest.raises(InvalidInputError, match="output-tokens"):
            as_items(load_workload(name), StatedItem(target_tokens=64))


def test_a_stated_target_is_written_and_read_again():
    stated = StatedItem(target_tokens=64)
    words = dict(word.split("=") for word in str(stated).split())
    assert StatedItem.taken_from(words) == stated
    assert as_items(load_workload("t5-small"), stated).stated_item == str(stated)
    served = as_items(load_workload("t5-small", task="infer"), stated)
    assert "target" not in served.stated_item


def test_users_are_told_how_long_targets_are():
    usual, short = (
        as_items(load_workload("t5-small"), StatedItem(target_tokens=one)) for one in (None, 64)
    )
    assert "--output-tokens" in usual.item
    assert "64" in short.item
