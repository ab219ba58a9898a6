"""A fit of Keras, watched through the callback that the hook puts in: same bytes, steps exact."""

from __future__ import annotations

import os
import re
from itertools import accumulate
from pathlib import Path

import pytest
from tests.unit.watch.watched import SCRIPTS, observed, plain

from paceline.watch.captured import read_capture, workload_of

_NUM_STEPS, _EPOCH = 18, 6
_TIMES = re.compile(rb"[IWE]?\d{4} \d\d:\d\d:\d\d.*?\]|\d{10}\.\d+ +\d+")


@pytest.mark.stacks
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_a_fit_is_watched_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str):
    python = os.environ.get(f"PACELINE_KERAS_{backend.upper()}")
    if python is None:
        pytest.skip(f"needs PACELINE_KERAS_{backend.upper()}, a Python with Keras on it")
    monkeypatch.setenv("KERAS_BACKEND", backend)
    command = (python, str(SCRIPTS / "keras_fit.py"))
    alone = plain(*command)
    seen, events = observed(tmp_path, *command)
    assert (seen.status, seen.out) == (alone.status, alone.out)
    assert alone.status == 0
    assert _TIMES.sub(b"", seen.err) == _TIMES.sub(b"", alone.err)
    assert not events.failures()
    (rank,) = events.training
    assert len(rank.steps) == _NUM_STEPS
    assert rank.has_ended
    printed = [float(line) for line in alone.out.split()[:_NUM_STEPS]]
    found = [loss for row in rank.steps for loss in row.losses]
    assert (_means(found) if backend == "torch" else found) == pytest.approx(printed, abs=1e-6)
    job, report = read_capture(tmp_path)
    assert job is not None
    assert (job.batch, job.optimizer, job.precision) == (16, "sgd-momentum", "fp32")
    assert workload_of(job, report, name=job.model).num_parameters == job.num_parameters == 804


def _means(losses: list[float]) -> list[float]:
    """Of each epoch so far, as Keras prints it; a backward pass tells those of its own batch."""
    epochs = [losses[n : n + _EPOCH] for n in range(0, len(losses), _EPOCH)]
    return [one / n for epoch in epochs for n, one in enumerate(accumulate(epoch), 1)]
