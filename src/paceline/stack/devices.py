"""What the planner asks of the software tables: one device, the newest stack, and why not."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from paceline.catalog.architectures import Generation
from paceline.catalog.entities import Device
from paceline.planfile import PlannedStack
from paceline.stack.resolver import Combination, newest_combination, reasons_against
from paceline.stack.rules import Facts, code_in
from paceline.stack.tables import DeviceTarget, load_tables, named_targets


def frameworks() -> tuple[str, ...]:
    """Frameworks whose releases and compilers are on record.

    >>> frameworks()
    ('jax', 'tensorflow', 'torch')
    """
    return tuple(sorted({row.framework for row in load_tables().compilers}))


def newest_stack(device: Device, *, framework: str = "torch") -> PlannedStack | None:
    """The newest stable release of ``framework`` with code for ``device``; None if there is none.

    ``framework`` may state its release, as ``name==release``. The driver is free: the answer states
    the oldest that will do.
    """
    target = target_of(device)
    combination = None if target is None else _newest(target, framework)
    return None if combination is None else planned_stack(combination)


def why_unsupported(device: Device, *, framework: str = "torch") -> str | None:
    """One sentence saying why no release runs on ``device``; None if one does."""
    target = target_of(device)
    if target is None:
        return f"the software tables do not know how {device.name} is driven"
    if _newest(target, framework) is not None:
        return None
    code = f"{target.platform} {target.code}"
    return f"no {framework} release runs on {device.name} ({code}): {_why(target, framework)}"


def usable_precisions(device: Device) -> frozenset[str]:
    """Names in ``dtypes.PRECISIONS`` that ``device`` and its newest framework release have."""
    target = target_of(device)
    return frozenset() if target is None else _precisions(target)


def usable_compilers(device: Device, *, framework: str = "torch") -> frozenset[str]:
    """Ways in which some release of ``framework`` runs a model on ``device``: ``eager`` ….

    A compiler that a rule forbids on the device, such as Triton before Volta, is left out.
    """
    target = target_of(device)
    return frozenset() if target is None else _compilers(target, framework)


def compiler_elsewhere(compiler: str, device: Device) -> str:
    """Which frameworks use a compiler on ``device``, as a sentence; empty where none on record do.

    A compiler that no framework on record uses has engines of its own, which are timed and not
    predicted.
    """
    if all(row.name != compiler for row in load_tables().compilers):
        command = f"paceline measure MODEL --stack {compiler}"
        return f"no figures of {compiler} exist: `{command}` times it"
    others = [f for f in frameworks() if compiler in usable_compilers(device, framework=f)]
    if not others:
        return ""
    return (
        f"{compiler} runs there with {' or '.join(others)}: `paceline plan --framework {others[0]}`"
    )


def target_of(device: Device) -> DeviceTarget | None:
    """How software addresses ``device``; None where the tables do not say."""
    usual = None
    for row in named_targets():
        if row.kind == device.kind and row.name_has in device.name.lower():
            if row.name_has:
                return _completed(row.target, device.compute_capability)
            usual = row.target
    known = generation_target(device.generation, device.code)
    return known or (usual and _completed(usual, device.compute_capability))


def generation_target(generation: Generation, code: str | None) -> DeviceTarget | None:
    """How software addresses the devices of a generation; None where nobody says."""
    called = generation.software_code or code
    if not (generation.platform and called):
        return None
    return DeviceTarget(
        platform=generation.platform, code=called, system=generation.system,
        source="architectures.toml of the catalogue",
    )  # fmt: skip


def _completed(target: DeviceTarget, code: str | None) -> DeviceTarget | None:
    """A target; with the device's own code where it has none."""
    if target.code:
        return target
    return None if code is None else replace(target, code=code)


def planned_stack(combination: Combination) -> PlannedStack:
    """The combination as a plan file states it, with the newest Python it works with."""
    return PlannedStack(
        framework=combination.framework,
        framework_version=combination.release,
        platform=combination.platform,
        platform_version=combination.platform_version,
        python_version=combination.pythons[0],
        min_driver=combination.min_driver,
    )


def _facts_of(target: DeviceTarget, framework: str | None) -> Facts:
    """What is known when only the device and the framework are, with or without its release."""
    name, _, release = (framework or "").partition("==")
    return Facts(
        platform=target.platform, device=target.code, framework=name or None,
        release=release or None, system=target.system,
    )  # fmt: skip


@lru_cache(maxsize=512)
def _newest(target: DeviceTarget, framework: str) -> Combination | None:
    return newest_combination(_facts_of(target, framework))


@lru_cache(maxsize=512)
def _why(target: DeviceTarget, framework: str) -> str:
    return reasons_against(_facts_of(target, framework))[0].text


@lru_cache(maxsize=512)
def _compilers(target: DeviceTarget, framework: str) -> frozenset[str]:
    name = framework.partition("==")[0]
    return frozenset(
        row.name
        for row in load_tables().compilers
        if row.framework == name
        and target.platform in row.platforms
        and _runs_by(row.name, target, framework)
    )


def _runs_by(compiler: str, target: DeviceTarget, framework: str) -> bool:
    """Whether some release runs through a compiler; any does through one that no rule names."""
    if not any(compiler in rule.compilers for rule in load_tables().rules):
        return _newest(target, framework) is not None
    facts = replace(_facts_of(target, framework), compiler=compiler)
    return newest_combination(facts) is not None


@lru_cache(maxsize=512)
def _precisions(target: DeviceTarget) -> frozenset[str]:
    return frozenset(
        row.name
        for row in load_tables().precisions
        if row.platform == target.platform and code_in(target.code, row.devices)
    )
