"""Logits whole in FP32, in one kernel, or never whole: bytes counted by hand."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, Loss, LoweredPass
from paceline.model.graph.graph import OpKind, Owner, monomials
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload
from warm_workers import WORKERS

BATCH, SEQ, WORDS, HIDDEN = 8, 512, 50257, 768
TOKENS = BATCH * SEQ
LOGITS = TOKENS * WORDS


@cache
def lowered(loss: str, training_format: str = "pure", **more: str) -> LoweredPass:
    graph = load_workload("gpt2").passes[0].graph
    how = Configuration(loss=loss, training_format=training_format, **more)  # type: ignore[arg-type]
    return lower(graph, how)


def peak_bytes(one: LoweredPass) -> float:
    return float((one.memory.by_owner.sum(axis=1) @ monomials(BATCH, SEQ)[0]).max())


AT = monomials(BATCH, SEQ)


def flop(one: LoweredPass) -> float:
    return float((one.costs.flop * one.costs.count[:, None]).sum(axis=0) @ monomials(BATCH, SEQ)[0])


def test_the_peak_of_a_head_is_that_of_a_count_by_hand() -> None:
    """Beside the logits, which the caller holds, three tensors of their size: narrow, then wide."""
    plain, wide = peak_bytes(lowered("plain")), peak_bytes(lowered("wide"))
    assert wide - plain == pytest.approx(3 * (4 - 2) * LOGITS, rel=1e-6)


@pytest.mark.parametrize("training_format", ["pure", "half-weights", "autocast"])
def test_a_loss_on_fp32_logits_takes_what_autocast_takes(training_format: str) -> None:
    autocast = peak_bytes(lowered("plain", "autocast"))
    assert peak_bytes(lowered("wide", "autocast")) == autocast
    plain, fused = (peak_bytes(lowered(name, training_format)) for name in ("plain", "fused"))
    chunked, again = (peak_bytes(lowered(n, training_format)) for n in ("chunked", "recomputed"))
    assert max(chunked, again) < fused < plain


@pytest.mark.parametrize(
    ("loss", "narrow", "wide"),
    [
        ("plain", 4, 0),
        ("wide", 2, 4),
        ("fused", 1, 0),
        ("fused-wide", 2, 1),
        ("shifted", 2, 6),
        ("wide-shifted", 2, 6),
        ("fused-shifted", 2, 3),
        ("fused-wide-shifted", 2, 3),
        ("chunked", 0, 0),
        ("recomputed", 0, 0),
    ],
)
def test_as_many_tensors_of_tokens_by_words_as_the_loss_needs(
    loss: Loss, narrow: int, wide: int
) -> None:
    """Logits, log-softmax and their gradients; those of the loss in FP32; one; none."""
    how = Configuration(loss=loss, training_format="pure")
    lived = lifetimes(load_workload("gpt2").passes[0].graph, how)
    sizes = lived.bytes_at(BATCH, SEQ)[lived.owner == Owner.ACTIVATION] / LOGITS
    assert [np.isclose(sizes, width).sum() for width in (2.0, 4.0)] == [narrow, wide]
    assert not (sizes > 4.0).any()


def test_real_pytorch_holds_as_many_bytes_of_logits_as_is_counted() -> None:
    """Trainers' losses as they are written: whole, in one kernel; narrow logits, wide, shifted.

    The last one is that of vocabularies split over tensor ranks (Megatron-LM).
    """
    script = Path(__file__).parent / "logits_alive.py"
    printed = WORKERS.run_script(script, "2", "200", "64").stdout
    real = {name: values for name, *values in map(str.split, printed.splitlines())}
    for name, forms in {
        "wide": ("wide", "fused-wide"),
        "early": ("shifted", "fused-shifted"),
        "wide-shifted": ("wide-shifted", "fused-wide-shifted"),
        "split": ("fused-wide",),
    }.items():
        counted = [peak_bytes(lowered(form, "pure", results="dropped")) for form in forms]
        beside = peak_bytes(lowered("wide", "pure", results="dropped")) - 12 * LOGITS
        told = [(one - beside) / LOGITS for one in counted]
        assert [float(one) for one in real[name]] == pytest.approx(told, rel=0.01)


@pytest.mark.parametrize(
    ("compiles", "loss"),
    [("no", "fused-wide"), pytest.param("yes", "compiled-wide", marks=pytest.mark.slow)],
)
def test_a_compiled_loss_writes_new_tensors(compiles: str, loss: str) -> None:
    """Megatron-LM's parts, as they are and through Inductor: 6 and 10 bytes for each logit."""
    script = Path(__file__).parent / "compiled_loss.py"
    real = float(WORKERS.run_script(script, compiles).stdout.splitlines()[-1])
    fused, counted = (
        peak_bytes(lowered(form, "pure", results="dropped")) for form in ("fused-wide", loss)
    )
    assert real == pytest.approx(6 + (counted - fused) / LOGITS, rel=0.01)


@pytest.mark.parametrize("loss", ["wide", "fused", "fused-wide", "shifted", "chunked"])
def test_no_product_is_computed_twice(loss: str) -> None:
    assert flop(lowered(loss)) == flop(lowered("plain"))


def test_recomputed_chunks_cost_one_more_product_of_the_head() -> None:
    more = flop(lowered("recomputed")) - flop(lowered("plain"))
    assert more == pytest.approx(2.0 * LOGITS * HIDDEN)


def test_one_kernel_of_a_loss_replaces_the_softmax() -> None:
    kinds = {name: lowered(name).costs.kind for name in ("plain", "fused")}
    assert OpKind.SOFTMAX in kinds["plain"]
    assert OpKind.CROSS_ENTROPY in kinds["fused"]
    moved = {name: lowered(name).costs.moved_bytes(AT).sum() for name in ("plain", "fused")}
    assert moved["fused"] < moved["plain"]


def test_a_model_without_a_head_refuses_and_has_no_logits_to_widen() -> None:
    graph = load_workload("sd15-unet").passes[0].graph
    with pytest.raises(InvalidInputError, match="loss=chunked"):
        lower(graph, Configuration(loss="chunked"))
    lower(graph, Configuration(loss="wide"))


def test_inference_has_no_loss() -> None:
    graph = load_workload("gpt2", task="infer").passes[0].graph
    assert lower(graph, Configuration(loss="chunked")).costs.kind.size
