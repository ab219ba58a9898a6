"""What is known of the kernels of a sort of device: rows of ``data/device_kinds.csv``."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.model.graph.costs import Configuration
from paceline.prediction.calibration.fitted import Calibration
from paceline.shipped import read_as
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFacts:
    """How the kernels of a sort of device, that no fit saw, compare with what is predicted.

    Attributes:
        log_level: Log of the time of its kernels over that of the physical model.
        log_sigma: Standard deviation of that log from device to device and job to job.
        host_is_measured: Whether its host runs code that was timed elsewhere, as HIP is driven like
            CUDA; what the host sets the pace of is then as sure as there.
    """

    log_level: float
    log_sigma: float
    host_is_measured: bool


def has_early_kernels(configuration: Configuration) -> bool:
    """Whether an engine runs kernels that were not yet tuned for other makers' devices.

    Those in FP8 are of libraries that came tuned, however early the engine: vLLM reads FP8 on AMD's
    devices since 0.6, and builds of AMD's own did before (release notes of vLLM; recalled).
    """
    return configuration.engine_kernels == "early" and configuration.precision != "fp8"


def runs_of(configuration: Configuration) -> tuple[str, ...]:
    """What runs, in the words of the table, the most special first.

    >>> runs_of(Configuration(is_served=True, engine_kernels="early"))
    ('served early', 'served', '')
    >>> runs_of(Configuration(is_served=True, engine_kernels="early", precision="fp8"))
    ('served', '')
    """
    if not configuration.is_served:
        return ("",)
    if configuration.engine_kernels == "early" and not has_early_kernels(configuration):
        return ("served", "")
    return (f"served {configuration.engine_kernels}", "served", "")


def kind_facts(
    kind: tuple[str, str], calibration: Calibration, *, runs: Sequence[str] = ("",)
) -> KindFacts:
    """Of one sort of device: the first row of ``data/device_kinds.csv`` that holds for it.

    Args:
        kind: Maker and sort.
        calibration: Has the table.
        runs: What runs, in the words of the table and the most special first (`runs_of`).
    """
    vendor, sort = kind
    for row in calibration.constants["device_kinds"]:
        if row["kind"] == sort and row["vendor"] in (vendor, "") and row["runs"] in runs:
            return read_as(KindFacts, row)
    raise AssertionError(f"device_kinds.csv has no row for any {sort}")
