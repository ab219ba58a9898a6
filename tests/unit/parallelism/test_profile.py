"""When gradients are ready, by a proxy of time that knows no device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.prediction.passes import lowered, matmul, stream

from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import Phase
from paceline.parallelism.replicas.gradient_profile import gradient_profile

#: More than a bucket: each gradient is one.
GRADIENT_BYTES = 2.0**28


def backward_of(*rows: dict[str, object]) -> LoweredPass:
    """A backward pass in which every op makes a gradient."""
    made = lowered(*(row | {"phase": Phase.BACKWARD} for row in rows))
    ready = np.array([[op, GRADIENT_BYTES] for op in range(len(rows))])
    modules = np.arange(len(rows), dtype=np.int32)
    return replace(made, gradient_ready=ready, costs=replace(made.costs, module=modules))


def first_ready(*rows: dict[str, object]) -> float:
    profile = gradient_profile(backward_of(*rows), batch=1.0)
    assert profile is not None
    assert profile.time_frac[-1] == 1.0
    return float(profile.time_frac[0])


def test_ops_that_move_bytes_take_time_by_their_bytes() -> None:
    assert first_ready(stream(2**20), stream(3 * 2**20)) == pytest.approx(0.25, rel=1e-3)


def test_products_take_time_by_their_arithmetic_once_it_exceeds_their_bytes() -> None:
    """At 150 FLOP a byte both weigh the same."""
    product, copied = matmul(4096, 4096, 4096), stream(2**24)
    arithmetic, moved = 2 * 4096**3 / 150, 4 * 2**24
    expected = arithmetic / (arithmetic + moved)
    assert first_ready(product, copied) == pytest.approx(expected, rel=1e-3)
    thin = matmul(1, 4096, 4096)
    assert first_ready(thin, thin) == pytest.approx(0.5)


def test_nothing_trained_has_no_profile() -> None:
    assert gradient_profile(lowered(matmul(64, 64, 64)), batch=1.0) is None
