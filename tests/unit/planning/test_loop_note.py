"""A plan says what of it `paceline.loop` does not run."""

from types import SimpleNamespace

import pytest

from paceline.planning.explain.notes import loop_note


def _choice(strategy, precision="bf16", framework="torch"):
    return SimpleNamespace(
        strategy=strategy, precision=precision, stack=SimpleNamespace(framework=framework)
    )


@pytest.mark.parametrize(
    "strategy",
    ["dp1", "dp8+zero3", "pp2.dp2@1f1b/mb8+recompute-block", "pp2.dp2@interleaved2/mb8"],
)
def test_what_the_loop_runs_has_no_note(strategy):
    assert loop_note(_choice(strategy)) == ""


@pytest.mark.parametrize(
    ("strategy", "precision", "word"),
    [("tp2+sp", "bf16", "`sp`"), ("dp2.cp2", "bf16", "context"), ("dp2", "fp8", "`fp8`"),
     ("pp2.tp2@1f1b/mb4", "bf16", "stage"), ("pp2@zbh1/mb4", "bf16", "`zbh1`")],
)  # fmt: skip
def test_what_it_does_not_is_said_with_the_reason(strategy, precision, word):
    note = loop_note(_choice(strategy, precision))
    assert note.startswith("`paceline.loop` does not run it: ")
    assert word in note


def test_what_it_splits_less_is_said():
    assert "head and loss whole" in loop_note(_choice("dp2.tp2"))


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_keras_has_data_parallel_alone(framework):
    assert loop_note(_choice("dp8", framework=framework)) == ""
    assert "whole model on each device" in loop_note(_choice("fsdp8", framework=framework))
    assert "gathers microbatches" in loop_note(_choice("dp2/mb4", framework=framework))
    assert "no policy" in loop_note(_choice("dp2", "fp8", framework=framework))


def test_other_frameworks_are_not_its_business():
    assert loop_note(_choice("dp2+parameter-server", framework="mxnet")) == ""
