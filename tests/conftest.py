"""Settings shared by all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet

from paceline.model import lowering
from paceline.model.reading import load, worker
from paceline.prediction.step import one_pass
from warm_workers import WORKERS, asked_once

# No deadline: the two cores that run the tests may be busy. The same tree gives the same answer
# twice; new cases are what ``make soak`` looks for.
_SLOW_MACHINE = [HealthCheck.too_slow]
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=_SLOW_MACHINE
)
settings.register_profile(
    "soak", deadline=None, suppress_health_check=_SLOW_MACHINE, max_examples=5_000
)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(_PROFILE)
if _PROFILE == "default":
    # Else it reads the code of all modules for constants to draw, six seconds in each process of a
    # fresh clone, and draws others where another test has imported more.
    providers._get_local_constants = lambda: providers._local_constants

#: All characters but surrogates, which hypothesis would try one by one in each process.
_UTF_8 = IntervalSet([(0, 0xD7FF), (0xE000, 0x10FFFF)]), IntervalSet([])
_intervals_of = charmap.intervals_from_codec
charmap.intervals_from_codec = lambda codec: _UTF_8 if codec == "utf-8" else _intervals_of(codec)


# Tests ask for the same models in turn, a user for one: what is kept is that of more of them.
load._read_again = lru_cache(maxsize=16)(load._read_again.__wrapped__)
lowering._lowered = lru_cache(maxsize=64)(lowering._lowered.__wrapped__)
one_pass._predicted = lru_cache(maxsize=256)(one_pass._predicted.__wrapped__)


def pytest_sessionstart() -> None:
    """Ten thousand tests and what they import come to stay: no use in looking through them."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor later on, each time that something is collected or measured without what is left over.

    They are looked for as rarely as `paceline.app.main` does, whichever test comes first.
    """
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def warm_workers() -> Iterator[None]:
    """Models are traced and measured in forks of a process that has imported PyTorch once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.model.reading.worker._start", WORKERS.start)
        patch.setattr("paceline.execution.worker._start", WORKERS.start_engine)
        patch.setattr("paceline.model.reading.worker._converse", asked_once(worker._converse))
        yield
    WORKERS.close()
