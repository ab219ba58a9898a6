"""This machine, what is wrong with it, and its stacks, as text."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.catalog.entities import Machine
from paceline.execution.ceilings import Ceiling
from paceline.execution.machine.doctor import fact_text
from paceline.execution.machine.facts import HostFacts
from paceline.execution.machine.findings import Finding
from paceline.execution.machine.probe import describe_machine
from paceline.execution.stacks import Stack, StackSpec
from paceline.reporting.tables import Table, header
from paceline.units import format_bytes, format_count, format_duration, format_percent

_FACTS = (
    "cpu_name", "cpu_flags", "host_memory_bytes", "shm_bytes", "gpus", "nvidia_driver",
    "cuda_driver", "rocm", "opencl_platforms", "container_engines", "container", "hypervisor",
    "os_name",
)  # fmt: skip


def doctor_text(
    facts: HostFacts,
    machine: Machine,
    findings: Sequence[Finding],
    *,
    frameworks: Sequence[str] = (),
    stacks: Sequence[str] = (),
    log: str | None = None,
    unexplained: str = "",
) -> str:
    """What the machine has, and each finding with its proof and one command.

    What is asked about stands first: the findings of a log, or the machine.
    """
    has = [f"This machine: {describe_machine(machine)}"]
    has += [f"  {fact_text(name, facts)}" for name in _FACTS]
    has += [f"  in this Python: {', '.join(frameworks) or 'no framework'}"]
    has += [f"  stacks: {', '.join(stacks) or 'none (paceline stacks list)'}"]
    found = [*_verdict(findings, log, unexplained)]
    for number, finding in enumerate(findings, start=1):
        found += [f"{number:>2} {finding.cause}"]
        found += [f"     proof   {line}" for line in finding.proof]
        found += [f"     remedy  {finding.remedy}"]
    if log is None:
        return "\n".join([*has, "", *found])
    if findings:
        found += ["what is said of this machine is proof only if the log was written here"]
    return "\n".join([*found, "", *has])


def stacks_table(created: Sequence[Stack], specs: Sequence[StackSpec]) -> Table:
    """Stacks that exist, and those that could."""
    columns = header("stack | package | version | compilers -1 | created")
    by_name = {stack.spec.name: stack for stack in created}
    all_specs = {spec.name: spec for spec in (*specs, *(stack.spec for stack in created))}
    rows = tuple(_stack_row(spec, by_name.get(name)) for name, spec in all_specs.items())
    return Table(columns=columns, rows=rows)


def ceilings_table(ceilings: Sequence[Ceiling]) -> Table:
    """What the machine can do at best."""
    columns = header("what | best > | on")
    rows = tuple(
        (one.name, _rate_text(one), f"{one.record.device_name} · {one.record.stack}")
        for one in ceilings
    )
    return Table(columns=columns, rows=rows)


def _rate_text(ceiling: Ceiling) -> str:
    if ceiling.unit == "s":
        return format_duration(ceiling.rate)
    if ceiling.unit == "frac":
        return format_percent(ceiling.rate) if ceiling.rate > 0 else "none, longer than in turn"
    if ceiling.unit == "B/s":
        return f"{format_bytes(ceiling.rate)}/s"
    return f"{format_count(ceiling.rate)}FLOP/s"


def _verdict(findings: Sequence[Finding], log: str | None, unexplained: str) -> list[str]:
    if unexplained:
        ends = [f"No known cause in {log}, whose last error is:", f"  {unexplained}"]
        return ends + ([f"{len(findings)} found of this machine:"] if findings else [])
    if findings:
        return [f"{len(findings)} found, the most specific first:"]
    if log is not None:
        return [f"No known cause, and no error, in {log}."]
    return ["Nothing wrong was found. `paceline doctor LOG` reads the output of a failed run."]


def _stack_row(spec: StackSpec, stack: Stack | None) -> tuple[str, ...]:
    needs = f" (needs {spec.needs})" if spec.needs else ""
    created = stack.created_on.partition("T")[0] if stack else f"no{needs}"
    return spec.name, spec.package, spec.version, ", ".join(spec.compilers), created
