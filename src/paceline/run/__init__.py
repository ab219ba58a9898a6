"""Do it: probe the machine, keep isolated environments, measure, train."""

from paceline.run.doctor import Finding, diagnose_machine, diagnose_output
from paceline.run.facts import GpuFacts, HostFacts
from paceline.run.probe import describe_machine, match_device, probe_host, probe_machine

__all__ = [
    "Finding",
    "GpuFacts",
    "HostFacts",
    "describe_machine",
    "diagnose_machine",
    "diagnose_output",
    "match_device",
    "probe_host",
    "probe_machine",
]
