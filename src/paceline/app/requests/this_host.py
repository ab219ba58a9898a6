"""``--gpu here``: this machine's own GPU, driver and system as constraints on software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.errors import MissingFactError
from paceline.stack.queries import Constraints

if TYPE_CHECKING:
    from paceline.execution.machine.facts import HostFacts

#: What stands for this machine where a GPU is named.
HERE = "here"

_SYSTEMS: Mapping[tuple[str, str], str] = {
    ("Linux", "x86_64"): "linux-x86_64",
    ("Linux", "aarch64"): "linux-aarch64",
    ("Windows", "AMD64"): "windows",
    ("Darwin", "arm64"): "macos",
}


def with_this_host(stated: Constraints) -> Constraints:
    """What was stated, with this machine's facts where ``here`` stands for the GPU."""
    if stated.gpu != HERE:
        return stated
    from paceline.execution.machine.probe import probe_host

    return on_host(stated, probe_host())


def on_host(stated: Constraints, facts: HostFacts) -> Constraints:
    """``stated`` with what ``facts`` say of the machine; what was typed goes before them.

    Raises:
        MissingFactError: The system is not one that the software tables know.
    """
    system = _SYSTEMS.get((facts.os_name.split()[0], facts.architecture))
    if system is None:
        raise MissingFactError(
            f"software for {facts.os_name} on {facts.architecture} is not on record",
            hint="name the machine that is meant with `--gpu` and `--system`",
        )
    gpu = facts.gpus[0] if facts.gpus else None
    return replace(
        stated,
        gpu="cpu" if gpu is None else gpu.compute_capability or gpu.name,
        driver=stated.driver or facts.nvidia_driver,
        system=stated.system or system,
    )
