"""Settings shared by all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: the two cores that run the tests may be busy. The same tree gives the same answer
# twice; new cases are what ``make soak`` looks for.
_SLOW_MACHINE = [HealthCheck.too_slow]
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=_SLOW_MACHINE
)
settings.register_profile(
    "soak", deadline=None, suppress_health_check=_SLOW_MACHINE, max_examples=5_000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
