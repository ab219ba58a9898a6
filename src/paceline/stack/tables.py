"""The facts about software as frozen tables, read once from the CSV files in ``data/``.

Nothing is known here but what a file says. Files ending in ``_more`` hold rows added by hand;
the others are written by ``tools/facts/stack.py``.
"""

from __future__ import annotations

from functools import cache

from paceline.shipped import read_as, shipped_path, shipped_rows
from paceline.stack.versions import VersionRange, parse_range, version_key
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One published build of a framework, or of the bare CUDA toolkit.

    Attributes:
        framework: ``torch``, ``tensorflow``, ``jax``, or ``cuda`` for the toolkit alone.
        release: Exact release.
        tag: The publisher's short name of the variant.
        platform: ``cuda``, ``rocm``, ``cpu``, ``tpu``, ….
        platform_version: Toolkit release; None where there is none.
        pythons: Minor versions with a wheel, oldest first; empty if Python does not matter.
        status: ``stable`` or ``experimental``.
        cudnn: cuDNN it carries; empty if not stated.
        companions: Releases of the libraries that belong to it, by name.
        source: Where the row was read.
    """

    framework: str
    release: str
    tag: str
    platform: str
    platform_version: str | None
    pythons: tuple[str, ...]
    status: str
    cudnn: str
    companions: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Machine code inside a family of builds.

    Attributes:
        systems: Operating systems of the builds.
        binary: Device codes with machine code.
        ptx: Device codes with portable code.
        source: Where the list was read.
    """

    framework: str
    releases: VersionRange
    platform: str
    platform_version: str
    systems: frozenset[str]
    binary: tuple[str, ...]
    ptx: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One sentence of the kind: where all the selectors match, the subject must be as allowed.

    A blank selector matches everything, also what is unknown; a selector that is set matches
    only a known value inside it.

    Attributes:
        name: Unique key.
        kind: ``require`` (must hold) or ``permit`` (one way in which code may run).
        releases: Selector on the framework's release.
        platform_versions: Selector on the toolkit.
        devices: Selector on the device's code: a range, or words.
        cudnn: Selector on the cuDNN a build carries.
        runs_by: Selector on the only way in which the code can run.
        subject: ``driver``, ``device``, ``python``, ``system``, ``platform_version`` or ``runs``.
        allowed: A range, words, or ``toolkit`` for the driver that a toolkit came with.
        source: Where it was read.
    """

    name: str
    kind: str
    frameworks: frozenset[str]
    releases: str
    platforms: frozenset[str]
    platform_versions: str
    devices: str
    systems: frozenset[str]
    compilers: frozenset[str]
    cudnn: str
    runs_by: str
    subject: str
    allowed: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTarget:
    """How software addresses a device.

    Attributes:
        platform: Platform that drives it.
        code: Compute capability, LLVM target, or the vendor's generation name.
        system: Operating system and processor of the machines it sits in.
        source: Where the mapping was read.
    """

    platform: str
    code: str
    system: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTarget:
    """How devices with certain words in their name are addressed.

    Attributes:
        kind: Kind of device that the row is about.
        name_has: Words in the name, lower case; empty matches every name of that kind.
        target: Their target; an empty code means that the device's own number is taken.
    """

    kind: str
    name_has: str
    target: DeviceTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGpu:
    """A product name and its target.

    Attributes:
        name: Marketing name.
        vendor: Maker.
        device_class: Market, as the source says it.
        target: How software addresses it.
    """

    name: str
    vendor: str
    device_class: str
    target: DeviceTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRow:
    """A precision that devices of a platform have.

    Attributes:
        name: Name in ``dtypes.PRECISIONS``.
        devices: Selector on the device's code.
        source: Where it was read.
    """

    name: str
    platform: str
    devices: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerRow:
    """A way in which a framework runs a model on some platforms.

    Attributes:
        name: ``eager``, ``compiled``, ``xla``.
        platforms: Platforms that have it, unless a rule forbids it on a device.
        source: Where it was read.
    """

    name: str
    framework: str
    platforms: frozenset[str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A published container image.

    Attributes:
        repository: Name in the registry.
        platform: Platform inside.
        platform_version: Toolkit inside, to the patch.
        framework: Framework inside; empty if none.
        release: Its release; empty if none.
        ubuntu: Release of the base system.
        python: Minor version of the Python inside; empty if the base system's own.
        source: Where the tag was read.
    """

    repository: str
    tag: str
    platform: str
    platform_version: str
    framework: str
    release: str
    ubuntu: str
    python: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """Every fact of the room.

    Attributes:
        builds: All builds, newest framework release first.
        kernels: Machine code of builds.
        toolkit_drivers: Oldest driver that came with a toolkit, by toolkit and system family.
        gpus: Product names.
        name_targets: Targets of devices that a number alone does not describe, first match wins.
        precisions: Precisions by platform and device.
        compilers: Compilers by framework and platform.
        images: Container images.
    """

    builds: tuple[Build, ...]
    kernels: tuple[Kernels, ...]
    rules: tuple[Rule, ...]
    toolkit_drivers: dict[tuple[str, str], str]
    gpus: tuple[KnownGpu, ...]
    name_targets: tuple[NamedTarget, ...]
    precisions: tuple[PrecisionRow, ...]
    compilers: tuple[CompilerRow, ...]
    images: tuple[Image, ...]


@cache
def load_tables() -> Tables:
    """All tables, read and checked once per process."""
    return Tables(
        builds=_builds(),
        kernels=tuple(
            read_as(Kernels, row, releases=parse_range(row["releases"])) for row in _rows("kernels")
        ),
        rules=tuple(read_as(Rule, row, name=row["rule"]) for row in _rows("rules")),
        toolkit_drivers=_toolkit_drivers(),
        gpus=tuple(
            read_as(KnownGpu, row, target=read_as(DeviceTarget, row)) for row in _rows("gpus")
        ),
        name_targets=named_targets(),
        precisions=tuple(
            read_as(PrecisionRow, row, name=row["precision"]) for row in _rows("precisions")
        ),
        compilers=tuple(
            read_as(CompilerRow, row, name=row["compiler"]) for row in _rows("compilers")
        ),
        images=tuple(read_as(Image, row) for row in _rows("images")),
    )


@cache
def named_targets() -> tuple[NamedTarget, ...]:
    """Targets by what the names of devices hold, which are asked for without the other tables."""
    return tuple(
        NamedTarget(
            kind=row["kind"], name_has=row["name_has"].lower(), target=read_as(DeviceTarget, row)
        )
        for row in _rows("device_targets")
    )


def _builds() -> tuple[Build, ...]:
    builds = [_build(row) for row in _rows("builds")]
    builds += [
        _toolkit_build(version) for version in sorted({r["cuda"] for r in _rows("toolkits")})
    ]
    return tuple(sorted(builds, key=_newest_first, reverse=True))


def _newest_first(build: Build) -> tuple[object, ...]:
    toolkit = version_key(build.platform_version) if build.platform_version else ()
    return version_key(build.release), build.status == "stable", toolkit, build.tag


def _build(row: dict[str, str]) -> Build:
    companions = tuple(pair.split("=", 1) for pair in row["companions"].split())
    return read_as(Build, row, companions=tuple((name, release) for name, release in companions))


def _toolkit_build(version: str) -> Build:
    source = next(r["source"] for r in _rows("toolkits") if r["cuda"] == version)
    return Build(
        framework="cuda",
        release=version,
        tag="toolkit",
        platform="cuda",
        platform_version=version,
        pythons=(),
        status="stable",
        cudnn="",
        companions=(),
        source=source,
    )


def _toolkit_drivers() -> dict[tuple[str, str], str]:
    """The oldest driver over a toolkit's updates, for Linux and for Windows."""
    drivers: dict[tuple[str, str], str] = {}
    for row in _rows("toolkits"):
        for family in ("linux", "windows"):
            driver = row[f"driver_{family}"]
            key = (row["cuda"], family)
            if driver and (key not in drivers or version_key(driver) < version_key(drivers[key])):
                drivers[key] = driver
    return drivers


@cache
def _rows(stem: str) -> tuple[dict[str, str], ...]:
    """Rows of ``stem.csv`` and, where there is one, of ``stem_more.csv``."""
    more = f"{stem}_more.csv"
    added = shipped_rows("stack", more) if shipped_path("stack", more).exists() else ()
    return (*shipped_rows("stack", f"{stem}.csv"), *added)
