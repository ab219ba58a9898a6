"""The door: a job on a machine goes in, and steps come out.

Only this room lowers, splits, times and sizes what runs. Verbs, searches and the scoreboard list
jobs and read steps. Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.lazy import lazy_exports

if TYPE_CHECKING:
    from paceline.simulation.job import Job
    from paceline.simulation.machine import DeviceGroup, Machine
    from paceline.simulation.simulator import simulate
    from paceline.simulation.steps import Steps

__all__ = ["DeviceGroup", "Job", "Machine", "Steps", "simulate"]

__getattr__ = lazy_exports(
    __name__,
    {
        "job": ("Job",),
        "machine": ("DeviceGroup", "Machine"),
        "simulator": ("simulate",),
        "steps": ("Steps",),
    },
)
