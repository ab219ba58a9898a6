"""Live bytes against the profiler's peak of real training jobs on this CPU, within 2 %."""

import warnings

import pytest
import torch
from gpu.workers.memory_models import FAST, SLOW, Job, cross_entropy
from gpu.workers.profiled_memory import peak_bytes

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

BATCH = 4


def predicted_bytes(build, inputs):
    graph = load_workload(Job(build(), inputs)).passes[0].graph
    lowered = lower(
        graph, Configuration(precision="fp32", platform="cpu", optimizer_kernel="plain")
    )
    return float((lowered.memory.by_owner.sum(axis=1) @ monomials(BATCH, 1)[0]).max())


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        *(pytest.param(*case, id=name) for name, case in FAST.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOW.items()),
    ],
)
def test_the_peak_of_a_real_training_job(build, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = peak_bytes(build, lambda: inputs(BATCH), cross_entropy, torch.optim.AdamW)
        predicted = predicted_bytes(build, inputs)
    assert predicted == pytest.approx(real, rel=0.02)
