"""Which device of the catalogue a published table means."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from paceline.catalog.entities import Catalog, Device
from paceline.catalog.lookup import find_devices
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.scoring.naming.device_words import (
    has_memory,
    holds,
    is_slice,
    listed_names,
    plainer_names,
    states_memory,
)

#: A slice by its name: ``(7x1g.10gb MIG)`` are seven of one unit and 10 GB in each device.
_MIG = re.compile(
    r"\(?\s*(?:\bMIG\b\s*)?(?:\b(?P<each>\d+)x|\b)(?P<units>\d)g\.(?P<gb>\d+)gb\b(?:\s*MIG)?\s*\)?",
    re.IGNORECASE,
)
#: Multiprocessors of a unit: NVIDIA, "MIG User Guide", tables of profiles (recalled 2026-11-26).
_SMS_PER_UNIT = {"Ampere": 14}
_SMS_PER_LATER_UNIT = 16
#: Variants of a device have up to so many times the memory of others, sizes being rounded.
_MOST_VARIANTS_DIFFER, _ROUNDED = 2.0, 0.1
#: From so many devices in one machine on, a table that names no form factor means the module.
_MODULE_COUNT = 4


def resolve_device(
    catalog: Catalog, name: str, memory_gb: float | None, num_gpus: float | None
) -> Device:
    """The device that a table calls ``name``.

    Args:
        catalog: Where to look.
        name: As written in the table.
        memory_gb: Memory as stated there; tells variants apart. Mebibytes are recognised.
        num_gpus: Devices in the job; many mean the module rather than the card.

    Raises:
        UnknownNameError: No such device.
        InvalidInputError: Devices of that name exist, none with that much memory.
    """
    if _MIG.search(name):
        return _slice(catalog, name, memory_gb, num_gpus)
    return _likeliest(catalog, _fitting(_found(catalog, name), name, memory_gb), num_gpus)


def num_slices(name: str, num_gpus: float | None) -> float | None:
    """Slices that a job runs on: all of each device where several are named, and else just one.

    >>> num_slices("A100-SXM-80GB (7x1g.10gb MIG)", 4), num_slices("A100 (1x1g.10gb MIG)", 8)
    (28.0, 1.0)
    >>> num_slices("A100-SXM-80GB", 8)
    8
    """
    found = _MIG.search(name)
    if found is None or not num_gpus:
        return num_gpus
    each = float(found["each"] or 1)
    return 1.0 if each == 1 else each * num_gpus


@lru_cache(maxsize=256)
def _slice(catalog: Catalog, name: str, memory_gb: float | None, num_gpus: float | None) -> Device:
    """A part of a device: so many of its multiprocessors, and its memory's bandwidth by size."""
    found = _MIG.search(name)
    assert found is not None
    whole = resolve_device(catalog, _MIG.sub(" ", name), memory_gb, num_gpus)
    units, size_bytes = int(found["units"]), float(found["gb"]) * 1e9
    sms_per_unit = _SMS_PER_UNIT.get(whole.architecture, _SMS_PER_LATER_UNIT)
    if not whole.num_sms or not whole.memory_bytes:
        raise UnknownNameError.from_name("slice of", whole.name, (), command="paceline devices")
    num_sms = units * sms_per_unit
    computes, holds_frac = num_sms / whole.num_sms, size_bytes / whole.memory_bytes

    def share(value: float | None, frac: float) -> float | None:
        return None if value is None else value * frac

    return replace(
        whole,
        name=f"{whole.name}, slice {units}g.{found['gb']}gb",
        num_sms=num_sms,
        peak_flop_per_s={key: peak * computes for key, peak in whole.peak_flop_per_s.items()},
        measured_bf16_flop_per_s=share(whole.measured_bf16_flop_per_s, computes),
        memory_bytes=size_bytes,
        usable_memory_bytes=share(whole.usable_memory_bytes, holds_frac),
        memory_bytes_per_s=share(whole.memory_bytes_per_s, holds_frac),
        l2_bytes=share(whole.l2_bytes, holds_frac),
        tdp_w=share(whole.tdp_w, computes),
        fabric=None,
        fabric_bytes_per_s=None,
    )


def possible_capacities(
    catalog: Catalog, name: str, memory_gb: float | None
) -> tuple[float, float] | None:
    """Least and most memory in bytes of the devices that ``name`` may mean; None if unknown.

    Raises what `resolve_device` raises.
    """
    if found := _MIG.search(name):
        size_bytes = float(found["gb"]) * 1e9
        return size_bytes, size_bytes
    fitting = _fitting(_found(catalog, name), name, memory_gb)
    sizes = [device.capacity_bytes for device in fitting if device.capacity_bytes is not None]
    return (min(sizes), max(sizes)) if len(sizes) == len(fitting) else None


@lru_cache(maxsize=4096)
def _found(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Every device that ``name`` may mean; of several that are listed, the first."""
    found = () if is_slice(name) else _listed(catalog, name) or _named(catalog, name)
    if not found and "," in name:
        return _found(catalog, name.partition(",")[0].strip())
    if not found:
        known = [device.name for device in catalog.devices]
        raise UnknownNameError.from_name("device", name, known, command="paceline devices")
    return found


def _listed(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """What the table of aliases says, or the machine of a cloud of that name."""
    machines = {o.device_name for o in catalog.offers if o.instance_type == name.lower()}
    names = (*listed_names(name), *(device for device in machines if device))
    return next((devices for one in names if (devices := _find(catalog, one))), ())


def _named(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Devices of the first plainer spelling for which all that ``name`` says holds."""
    for spelling in plainer_names(name):
        if devices := tuple(d for d in _find(catalog, spelling) if holds(d, name)):
            return devices
    return ()


def _fitting(found: tuple[Device, ...], name: str, memory_gb: float | None) -> list[Device]:
    """Those of them with the stated memory; a name that says it is surer than a column beside.

    Unless the two are too far apart to be variants of one device.
    """
    size_bytes = _memory_bytes(memory_gb)
    fitting = [d for d in found if has_memory(d, size_bytes)]
    if not fitting and size_bytes and states_memory(name):
        named = [d for d in found if holds(d, name) and d.memory_bytes]
        fitting = [d for d in named if _are_near(size_bytes, d.memory_bytes or math.inf)]
    if not fitting:
        raise InvalidInputError(
            f"no {name} with {memory_gb:g} GB in the catalogue",
            hint=f"it has {', '.join(d.name for d in found)}",
        )
    return fitting


def _are_near(one: float, other: float) -> bool:
    return max(one, other) <= _MOST_VARIANTS_DIFFER * (1.0 + _ROUNDED) * min(one, other)


def _find(catalog: Catalog, name: str) -> tuple[Device, ...]:
    try:
        return find_devices(catalog, name) if name else ()
    except (UnknownNameError, InvalidInputError):
        return ()


def _memory_bytes(memory_gb: float | None) -> float | None:
    """Stated memory; above 2,000 the source counts mebibytes."""
    if not memory_gb or memory_gb <= 0:
        return None
    return memory_gb * 2**20 if memory_gb > 2000 else memory_gb * 1e9


def _likeliest(catalog: Catalog, fitting: list[Device], num_gpus: float | None) -> Device:
    """The module where many work together, else the default variant or what resembles it."""
    is_module = (num_gpus or 1) >= _MODULE_COUNT
    families = {d.family for d in fitting}
    defaults = [d for d in catalog.devices if d.is_default_variant and d.family in families]

    def likelihood(device: Device) -> tuple[bool, bool, bool, bool]:
        """What speaks for a variant, the most telling first."""
        return (
            is_module and "SXM" in device.form_factor,
            device.is_default_variant,
            any(device.form_factor == d.form_factor for d in defaults),
            any(device.memory_bytes == d.memory_bytes for d in defaults),
        )

    return max(fitting, key=likelihood)
