from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.app.requests.this_host import on_host, with_this_host
from paceline.errors import MissingFactError
from paceline.execution.machine.facts import GpuFacts, HostFacts
from paceline.execution.machine.probe import probe_host
from paceline.stack.queries import Constraints, resolve

GPU = GpuFacts(name="NVIDIA A100-SXM4-40GB", vendor="NVIDIA", compute_capability="8.0")


def host(**changes) -> HostFacts:
    plain = replace(probe_host(), os_name="Linux 6.1", architecture="x86_64", gpus=())
    return replace(plain, nvidia_driver=None, **changes)


def test_a_machine_without_a_gpu_is_a_cpu() -> None:
    asked = on_host(Constraints(gpu="here", framework="torch"), host())
    assert (asked.gpu, asked.system) == ("cpu", "linux-x86_64")
    assert resolve(asked, max_combinations=1).combinations[0].platform == "cpu"


def test_its_gpu_and_driver_bound_the_answer() -> None:
    facts = replace(host(), gpus=(GPU,), nvidia_driver="535.104.05")
    found = resolve(on_host(Constraints(gpu="here", framework="torch"), facts)).combinations
    assert {c.platform for c in found} == {"cuda"}
    assert all(c.platform_version.startswith("12.") for c in found)


def test_what_was_typed_goes_before_what_was_found() -> None:
    facts = replace(host(), gpus=(GPU,), nvidia_driver="535.104.05")
    asked = on_host(Constraints(gpu="here", driver="580", system="windows"), facts)
    assert (asked.driver, asked.system) == ("580", "windows")


def test_a_machine_elsewhere_is_left_alone() -> None:
    assert with_this_host(Constraints(gpu="t4")) == Constraints(gpu="t4")


def test_an_unknown_system_is_not_taken_for_another() -> None:
    with pytest.raises(MissingFactError, match="FreeBSD"):
        on_host(Constraints(gpu="here"), replace(host(), os_name="FreeBSD 14"))
