"""A heap holds what is alive, and what ends of aligned chunks keep apart."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.model.graph.graph import Owner
from paceline.model.graph.program import OUTLIVES
from paceline.model.lowering import Lifetimes
from paceline.prediction.memory.heap import heap_peaks_bytes

_MEGABYTE = 2**20


def _lifetimes(*stores: tuple[float, int, int, Owner]) -> Lifetimes:
    """Of (bytes, birth, death, owner)."""
    num_bytes = np.zeros((len(stores), 9))
    num_bytes[:, 0] = [one[0] for one in stores]
    return Lifetimes(
        num_bytes=num_bytes,
        birth=np.array([one[1] for one in stores]),
        death=np.array([one[2] for one in stores]),
        owner=np.array([int(one[3]) for one in stores]),
    )


def _layers(num_bytes: float, count: int = 12) -> Lifetimes:
    """Activations that a backward pass drops in turn, with what it passes on."""
    kept = [(num_bytes, i, 2 * count - i, Owner.ACTIVATION) for i in range(count)]
    passed = [(num_bytes, count + i, count + i + 1, Owner.ACTIVATION) for i in range(count)]
    gradients = [(5e5, count + i, OUTLIVES - 1, Owner.GRADIENT) for i in range(count)]
    return _lifetimes(*kept, *passed, *gradients)


#: Of `_layers`, tensors that are alive at most: all kept, and two that are passed on.
_ALIVE = 14


def _peaks(lifetimes: Lifetimes, *, joins_ends: bool = False, num_draws: int = 4):
    return heap_peaks_bytes(lifetimes, batch=1, seq=1, joins_ends=joins_ends, num_draws=num_draws)


def test_a_heap_never_holds_less_than_is_alive():
    layers = _layers(3e6)
    alive = 3e6 * _ALIVE
    assert (_peaks(layers) > alive).all()
    assert (_peaks(layers, joins_ends=True) > alive).all()


def test_ends_of_chunks_that_never_join_keep_room_from_use():
    layers = _layers(3e6)
    apart, joined = (_peaks(layers, joins_ends=joins).mean() for joins in (False, True))
    assert apart > 1.1 * joined


def test_large_chunks_are_mapped_and_given_back():
    """Beyond 32 MiB a heap takes no part: nothing but pages is lost."""
    size = 40 * _MEGABYTE
    peaks = _peaks(_layers(size))
    assert peaks == pytest.approx(size * _ALIVE, rel=0.03)


def test_gradients_that_outlast_a_step_are_held_beside_the_next():
    size = 3e6
    stores = [(size, i, 23 - i, Owner.ACTIVATION) for i in range(8)]
    stores += [(size, 12 + i, OUTLIVES - 1, Owner.GRADIENT) for i in range(8)]
    dropped, kept = _peaks(_lifetimes(*stores), joins_ends=True, num_draws=2)
    assert kept - dropped > 2 * size


def test_draws_are_the_same_again():
    assert (_peaks(_layers(2e6)) == _peaks(_layers(2e6))).all()
