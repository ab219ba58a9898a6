"""What follows from a generation of devices, from ``data/architectures.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from paceline.shipped import shipped_toml
from paceline.values import dataclass

#: Facts that an entry takes from the one it is ``like``.
_SHARED = (
    "num_lanes", "num_schedulers", "batched_tile", "attention_slowdown", "operation_energy", "rates"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What the matrix units of one multiprocessor do in a cycle.

    Attributes:
        segment: ``consumer``, ``professional`` or ``any`` market.
        precision: Key of `Device.peak_flop_per_s`.
        flop_per_clock_per_sm: Dense FLOP.
        source: Where it was read.
    """

    segment: str
    precision: str
    flop_per_clock_per_sm: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Facts that all devices of a generation share. An unknown fact is None.

    Attributes:
        architecture: ``Device.architecture``.
        code: CUDA compute capability or LLVM target; empty for any device of the architecture.
        platform: What drives it: ``cuda``, ``rocm`` …
        software_code: What software calls it, where that is not its code.
        system: Operating system and processor of its machines.
        first_device_year: When its first device came out.
        num_lanes: FP32 lanes of a multiprocessor, where its schedulers cannot feed them all.
        num_schedulers: Warps that it can issue in a cycle; there alone.
        batched_tile: Rows and columns of the only tile that libraries have for batched FP32
            products; None where they choose.
        attention_slowdown: Time of each family of attention kernels over that of the kernels
            that were measured.
        operation_energy: Energy of an operation on its matrix units at the listed clock, over that
            of the reference (``prediction/data/sustained_clock.csv``).
        rates: Of its matrix units.
    """

    architecture: str
    code: str
    platform: str | None = None
    software_code: str | None = None
    system: str = "linux-x86_64"
    first_device_year: int | None = None
    num_lanes: int | None = None
    num_schedulers: int | None = None
    batched_tile: tuple[int, int] | None = None
    attention_slowdown: Mapping[str, float]
    operation_energy: float = 1.0
    rates: tuple[Rate, ...] = ()


#: Of a device that did not come from a catalogue: nothing is known of its generation.
NO_GENERATION = Generation(architecture="", code="", attention_slowdown={})


@cache
def shipped_generations() -> tuple[Generation, ...]:
    """The entries of ``data/architectures.toml``."""
    facts = shipped_toml("catalog", "architectures.toml")
    usual: Mapping[str, float] = facts["attention_slowdown"]
    start = replace(NO_GENERATION, attention_slowdown=usual)
    return with_entries((start,), facts["generation"])


def with_entries(
    known: Sequence[Generation], entries: Iterable[Mapping[str, Any]]
) -> tuple[Generation, ...]:
    """Generations with entries added; one of the same architecture and code is replaced.

    Args:
        known: Generations; the first is that of devices that nobody described.
        entries: As in ``data/architectures.toml``; ``like`` names the code of a known one.

    Raises:
        KeyError: ``like`` names no known code.
    """
    found = {(one.architecture, one.code): one for one in known}
    for entry in entries:
        model = known[0]
        if like := entry.get("like"):
            by_code = {one.code: one for one in found.values()}
            model = by_code[like]
        one = _generation(entry, model)
        found[one.architecture, one.code] = one
    return tuple(found.values())


def generation_of(known: Sequence[Generation], architecture: str, code: str | None) -> Generation:
    """The generation of a device: by its code, else by its architecture's name.

    >>> generation_of(shipped_generations(), "Hopper", "9.0").first_device_year
    2022
    """
    return generation_finder(known)(architecture, code)


def generation_finder(known: Sequence[Generation]) -> Callable[[str, str | None], Generation]:
    """The same for many devices: takes the architecture and the code of each."""
    named = {(one.architecture, one.code): one for one in known}
    by_code = {one.code: one for one in reversed(known) if one.code}

    def found(architecture: str, code: str | None) -> Generation:
        """By code where one is known, else by name, else the first."""
        if code and code in by_code:
            return named.get((architecture, code), by_code[code])
        return named.get((architecture, ""), known[0])

    return found


def _generation(entry: Mapping[str, Any], model: Generation) -> Generation:
    stated = {name: entry[name] for name in _SHARED if entry.get(name) is not None}
    if tile := stated.get("batched_tile"):
        stated["batched_tile"] = (int(tile[0]), int(tile[1]))
    if slower := stated.get("attention_slowdown"):
        stated["attention_slowdown"] = {**model.attention_slowdown, **slower}
    if rates := stated.get("rates"):
        names = Rate.__slots__
        stated["rates"] = tuple(Rate(**{name: rate[name] for name in names}) for rate in rates)
    return replace(
        model,
        architecture=entry["architecture"],
        code=entry.get("code") or "",
        platform=entry.get("platform") or model.platform,
        software_code=entry.get("software_code"),
        system=entry.get("system") or NO_GENERATION.system,
        first_device_year=entry.get("first_device_year"),
        **stated,
    )
