"""Judge one build against what is known of a machine, by the rules and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from paceline.stack.tables import Build, Kernels, Rule, Tables
from paceline.stack.versions import parse_range, same_line, version_key
from paceline.values import dataclass

#: Subjects and selectors that a user states; everything else belongs to the build.
USER_FIELDS = (
    "device",
    "driver",
    "framework",
    "release",
    "platform",
    "platform_version",
    "python",
    "compiler",
    "system",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the machine and wanted of the software; None is unknown or free.

    Attributes:
        platform: ``cuda``, ``rocm``, ``cpu``, ….
        device: Code of the device, such as its compute capability.
        driver: Release of the kernel driver.
        framework: Framework name.
        release: Release or line of releases of the framework.
        platform_version: CUDA or ROCm release or line of releases.
        python: Minor version of Python.
        compiler: ``eager``, ``compiled``, ``xla``.
        system: Operating system and processor, such as ``linux-x86_64``.
    """

    platform: str | None = None
    device: str | None = None
    driver: str | None = None
    framework: str | None = None
    release: str | None = None
    platform_version: str | None = None
    python: str | None = None
    compiler: str | None = None
    system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One reason why a build cannot be used.

    Attributes:
        fields: Facts that take part; without any one of them the reason falls away.
        rule: Key of the rule, or ``selection`` where the build is merely not the one asked for.
        text: The reason as a sentence.
        source: Where the rule was read.
    """

    fields: frozenset[str]
    rule: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """What a rule demands of the driver.

    Attributes:
        symbol: ``>=`` or ``<``.
        driver: Its release.
        fields: Facts that demand it.
    """

    symbol: str
    driver: str
    fields: frozenset[str]
    rule: Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A build judged.

    Attributes:
        violations: Why not; empty if it works.
        min_driver: Oldest driver that runs it; None where it does not apply.
        below_driver: First driver branch that no longer drives the device; None if none is known.
        pythons: Python versions that remain, oldest first; empty if Python does not matter.
        runs_by: ``binary``, ``ptx``, ``target`` or empty where code is made on the spot.
        rules: Rules that applied.
    """

    violations: tuple[Violation, ...]
    min_driver: str | None
    below_driver: str | None
    pythons: tuple[str, ...]
    runs_by: str
    rules: tuple[Rule, ...]


def judge(build: Build, facts: Facts, tables: Tables, *, stops_early: bool = False) -> Judgement:
    """Apply every rule to ``build`` on a machine with ``facts``.

    Args:
        build: The build.
        facts: What is known of the machine and wanted of the software.
        tables: Facts to judge by.
        stops_early: Whether the first violation is enough, without the facts that take part; of a
            build that has one nothing else is said.
    """
    violations = list(_selection(build, facts, tables))
    if stops_early and violations:
        return _failed(violations[0])
    runs_by = _ways_to_run(build, facts, tables)
    pythons = build.pythons
    bounds: list[_Bound] = []
    narrowing: list[Rule] = []
    applied: list[Rule] = []
    for rule in _rules_of(build, tables):
        if stops_early and violations:
            return _failed(violations[0])
        if rule.kind != "require" or not _matches(rule, facts, runs_by):
            continue
        applied.append(rule)
        if rule.subject == "driver":
            found = _driver_bounds(rule, build, facts, tables)
            bounds += found
            violations += _broken_bounds(found, facts)
        elif rule.subject == "python":
            left = tuple(v for v in pythons if parse_range(rule.allowed).contains(v))
            narrowing += [rule] if left != pythons else []
            pythons = left
        elif not _subject_holds(rule, build, facts, runs_by):
            fields = frozenset() if stops_early else _unheld_fields(rule, build, facts, tables)
            violations.append(_broken(rule, fields))
    if stops_early and violations:
        return _failed(violations[0])
    floors = [bound for bound in bounds if bound.symbol == ">="]
    ceilings = [bound for bound in bounds if bound.symbol != ">="]
    violations += _empty_windows(floors, ceilings)
    violations += _python_violations(build, facts, pythons, narrowing)
    return Judgement(
        violations=_specific_first(violations, tables),
        min_driver=max((f.driver for f in floors), key=version_key, default=None),
        below_driver=min((c.driver for c in ceilings), key=version_key, default=None),
        pythons=pythons,
        runs_by=runs_by[0] if runs_by else "",
        rules=tuple(applied),
    )


def _failed(violation: Violation) -> Judgement:
    """Of a build that is known not to work, and no more."""
    return Judgement(
        violations=(violation,), min_driver=None, below_driver=None, pythons=(), runs_by="",
        rules=(),
    )  # fmt: skip


def _specific_first(violations: Sequence[Violation], tables: Tables) -> tuple[Violation, ...]:
    """That code is missing is true whenever the toolkit is too old or too new: say it last."""
    general = {rule.name for rule in tables.rules if rule.subject == "runs"}
    return tuple(sorted(violations, key=lambda violation: violation.rule in general))


def _selection(build: Build, facts: Facts, tables: Tables) -> Iterator[Violation]:
    """Facts that a build of other make simply is not about."""
    is_other = facts.framework is not None and build.framework != facts.framework
    if is_other:
        yield _unselected("framework", f"{build.framework} is not {facts.framework}", build)
    # A release belongs to the framework it was stated with.
    if facts.release is not None and (is_other or not same_line(build.release, facts.release)):
        yield _unselected("release", f"{build.release} is not {facts.release}", build)
    if facts.platform is not None and build.platform != facts.platform:
        field_name = "platform" if facts.device is None else "device"
        yield _unselected(field_name, f"built for {build.platform}, not {facts.platform}", build)
    wanted = facts.platform_version
    if wanted is not None and not same_line(build.platform_version or "", wanted):
        found = build.platform_version or "no toolkit"
        yield _unselected("platform_version", f"built with {found}, not {wanted}", build)
    ways = [row for row in tables.compilers if row.framework == build.framework]
    here = [row.name for row in ways if build.platform in row.platforms]
    if facts.compiler is not None and ways and facts.compiler not in here:
        runs = " or ".join(here) or "nothing"
        text = f"{build.framework} runs {runs} on {build.platform}, not {facts.compiler}"
        yield _unselected("compiler", text, build)


def _unselected(field_name: str, text: str, build: Build) -> Violation:
    return Violation(
        fields=frozenset({field_name}), rule="selection", text=text, source=build.source
    )


def _ways_to_run(build: Build, facts: Facts, tables: Tables) -> tuple[str, ...]:
    """Ways in which the build's code reaches the device, best first, that some rule permits."""
    if facts.device is None or facts.platform not in (None, build.platform):
        return ()
    covering = _kernels_of(build, facts.system, tables)
    ways = {way for kernels in covering for way in _coverage(kernels, facts.device)}
    permitted = {
        rule.allowed
        for rule in _rules_of(build, tables)
        if rule.kind == "permit" and _matches(rule, facts, ())
    }
    return tuple(way for way in ("binary", "target", "ptx") if way in ways & permitted)


@lru_cache(maxsize=8192)
def _kernels_of(build: Build, system: str | None, tables: Tables) -> tuple[Kernels, ...]:
    return tuple(
        kernels
        for kernels in tables.kernels
        if kernels.framework == build.framework
        and kernels.platform == build.platform
        and kernels.platform_version == build.platform_version
        and (system is None or system in kernels.systems)
        and kernels.releases.contains(build.release)
    )


@lru_cache(maxsize=4096)
def _coverage(kernels: Kernels, device: str) -> frozenset[str]:
    if device in kernels.binary and not _is_number(device):
        return frozenset({"target"})
    if not _is_number(device):
        return frozenset()
    mine = version_key(device)
    binaries = (version_key(code) for code in kernels.binary)
    has_binary = any(code[0] == mine[0] and code <= mine for code in binaries)
    has_ptx = any(version_key(code) <= mine for code in kernels.ptx)
    return frozenset({"binary"} if has_binary else ()) | frozenset({"ptx"} if has_ptx else ())


@lru_cache(maxsize=8192)
def _rules_of(build: Build, tables: Tables) -> tuple[Rule, ...]:
    """Rules whose selectors on the build match it, what fails most often first."""
    cudnn = build.cudnn.split(",")[0].lstrip(">=") or None
    return tuple(
        rule
        for rule in sorted(tables.rules, key=lambda rule: rule.subject != "runs")
        if _word_in(build.platform, rule.platforms)
        and _word_in(build.framework, rule.frameworks)
        and _version_in(build.release, rule.releases)
        and _version_in(build.platform_version, rule.platform_versions)
        and _version_in(cudnn, rule.cudnn)
    )


def _matches(rule: Rule, facts: Facts, runs_by: tuple[str, ...]) -> bool:
    """Whether the selectors on the machine match; a set one never matches the unknown."""
    return (
        code_in(facts.device, rule.devices)
        and _word_in(facts.system, rule.systems)
        and _word_in(facts.compiler, rule.compilers)
        and (not rule.runs_by or runs_by == (rule.runs_by,))
    )


def _word_in(word: str | None, allowed: frozenset[str]) -> bool:
    return not allowed or word in allowed


def _version_in(version: str | None, allowed: str) -> bool:
    return not allowed or (version is not None and parse_range(allowed).contains(version))


@lru_cache(maxsize=8192)
def code_in(code: str | None, allowed: str) -> bool:
    """Whether a device code lies in a range of numbers or a list of words; blank is any."""
    if not allowed:
        return True
    if code is None:
        return False
    if _is_number(code):
        return allowed[0] in "<>=" and parse_range(allowed).contains(code)
    return code in allowed.split()


def _is_number(code: str) -> bool:
    return code[:1].isdigit()


def _selector_fields(rule: Rule) -> frozenset[str]:
    used = {
        "device": rule.devices or rule.runs_by or rule.subject == "runs",
        "system": rule.systems,
        "compiler": rule.compilers,
    }
    return frozenset(name for name, value in used.items() if value)


def _unheld_fields(rule: Rule, build: Build, facts: Facts, tables: Tables) -> frozenset[str]:
    """Facts that take part where a rule asks for what the build or the machine does not have."""
    fields = _selector_fields(rule)
    has_system = rule.subject == "runs" and facts.system is not None
    if has_system and _ways_to_run(build, replace(facts, system=None), tables):
        fields |= {"system"}
    subject = {"runs": "device"}.get(rule.subject, rule.subject)
    return fields | ({subject} if subject in {"device", "system"} else frozenset())


def _subject_holds(rule: Rule, build: Build, facts: Facts, runs_by: tuple[str, ...]) -> bool:
    if rule.subject == "runs":
        return facts.device is None or bool(runs_by)
    if rule.subject == "device":
        return facts.device is None or code_in(facts.device, rule.allowed)
    if rule.subject == "system":
        return facts.system is None or facts.system in rule.allowed.split()
    if rule.subject == "release":
        return _version_in(build.release, rule.allowed)
    return _version_in(build.platform_version, rule.allowed)


def _driver_bounds(rule: Rule, build: Build, facts: Facts, tables: Tables) -> list[_Bound]:
    """Drivers that a rule demands on any system, and on this one where that is another."""
    symbol, anywhere = _driver_bound(rule, build, None, tables)
    _, here = _driver_bound(rule, build, facts.system, tables)
    fields = _selector_fields(rule)
    demanded = {} if anywhere is None else {anywhere: fields}
    if here is not None:
        demanded.setdefault(here, fields | {"system"})
    return [
        _Bound(symbol=symbol, driver=driver, fields=named, rule=rule)
        for driver, named in demanded.items()
    ]


def _broken_bounds(bounds: Sequence[_Bound], facts: Facts) -> Iterator[Violation]:
    for one in bounds if facts.driver is not None else ():
        if not parse_range(one.symbol + one.driver).contains(str(facts.driver)):
            yield _broken(one.rule, one.fields | {"driver"})


def _driver_bound(
    rule: Rule, build: Build, system: str | None, tables: Tables
) -> tuple[str, str | None]:
    """Which side of which driver a rule demands; no bound where the toolkit's is not known."""
    if rule.allowed != "toolkit":
        symbol = ">=" if rule.allowed.startswith(">=") else "<"
        return symbol, rule.allowed.removeprefix(symbol)
    families = ("linux", "windows") if system is None else (system.partition("-")[0],)
    bounds = [tables.toolkit_drivers.get((build.platform_version or "", f)) for f in families]
    known = [bound for bound in bounds if bound is not None]
    return ">=", min(known, key=version_key) if len(known) == len(bounds) else None


def _empty_windows(floors: Sequence[_Bound], ceilings: Sequence[_Bound]) -> Iterator[Violation]:
    """A floor above a ceiling leaves no driver at all, whichever the machine has."""
    if not floors or not ceilings:
        return
    ceiling = min(ceilings, key=lambda bound: version_key(bound.driver))
    for floor in floors:
        if version_key(floor.driver) >= version_key(ceiling.driver):
            yield _empty_window(floor, ceiling)


def _empty_window(floor: _Bound, ceiling: _Bound) -> Violation:
    low, high = floor.rule, ceiling.rule
    return Violation(
        fields=floor.fields | ceiling.fields,
        rule=f"{low.name} + {high.name}",
        text=f"{low.text}; but {high.text[:1].lower()}{high.text[1:]}",
        source=f"{low.source}; {high.source}",
    )


def _python_violations(
    build: Build, facts: Facts, pythons: Sequence[str], narrowing: Sequence[Rule]
) -> Iterator[Violation]:
    """The wanted Python must have a wheel, and some Python must be left by the rules."""
    fields = frozenset().union(*map(_selector_fields, narrowing))
    if narrowing and not pythons:
        yield _broken(narrowing[-1], fields)
    if facts.python is None or not build.pythons:
        return
    if facts.python not in build.pythons:
        text = f"{build.framework} {build.release} has no wheel for Python {facts.python}"
        yield Violation(
            fields=frozenset({"python"}), rule="python-wheel", text=text, source=build.source
        )
    elif narrowing and facts.python not in pythons:
        yield _broken(narrowing[-1], fields | {"python"})


def _broken(rule: Rule, fields: frozenset[str]) -> Violation:
    return Violation(fields=fields, rule=rule.name, text=rule.text, source=rule.source)
