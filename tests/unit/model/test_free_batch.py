"""Batch and length are free: a model traced once is the model traced at that batch and length."""

import pytest
from tests.sampled import sampled
from traced import reported, trace_here, worker

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower

CONFIGURATIONS = (
    Configuration(precision="fp32"),
    Configuration(precision="bf16", checkpointing="block"),
    Configuration(precision="bf16", compiler="compiled"),
)


def totals(workload, batch, seq):
    """FLOP, bytes moved, kernels and peak bytes of every pass in some configurations."""
    at, found = monomials(batch, seq), []
    for one in workload.passes:
        for configuration in CONFIGURATIONS:
            lowered = lower(one.graph, configuration)
            costs = lowered.costs
            found += [
                float(costs.count @ (costs.flop @ at[0])),
                float(costs.moved_bytes(at)[0] @ costs.count),
                float(costs.count @ costs.num_kernels),
                float((lowered.memory.by_owner.sum(axis=1) @ at[0]).max()),
            ]
    return found


@pytest.mark.parametrize(
    ("entry", "task", "batch", "seq"),
    sampled(
        [
        ("torchvision:resnet18", "train", 64, 1), ("bert-base", "train", 32, 128),
        ("gpt2", "train", 8, 512), ("gpt2", "infer", 8, 512), ("lstm", "train", 64, 200),
        ("dcgan", "train", 128, 1), ("vae", "train", 128, 1), ("ppo", "train", 32, 1),
        ("dqn", "train", 32, 1), ("dlrm", "train", 2048, 1), ("gnmt", "train", 64, 50),
        ("hf:t5-small", "train", 16, 128), ("hf:mamba-130m", "train", 4, 512),
        ("torchvision:fasterrcnn_resnet50_fpn", "train", 4, 1),
    ],
        "torchvision:resnet18", ("gpt2", "infer"), "lstm", "ppo", "dlrm", "gnmt",
    ),
)  # fmt: skip
def test_traced_once_is_traced_at_that_point(entry, task, batch, seq, monkeypatch):
    once = totals(trace_here(entry, task=task), batch, seq)
    points = worker("torch_tracing.trace_points")
    # The point asked for becomes one of those that are seen, where nothing is interpolated.
    monkeypatch.setattr(points, "BATCHES", (batch, batch + 16, batch + 32))
    monkeypatch.setattr(points, "SEQUENCES", (seq, seq + 128))
    monkeypatch.setattr(points, "_FAR_SEQUENCES", (seq + 256, seq + 64))
    reported.cache_clear()
    assert once == pytest.approx(totals(trace_here(entry, task=task), batch, seq), rel=1e-9)
    reported.cache_clear()
