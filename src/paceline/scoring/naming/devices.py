"""Which device of the catalogue a published table means."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache

from paceline.catalog.entities import Catalog, Device
from paceline.catalog.lookup import find_devices
from paceline.catalog.naming.device_words import (
    CORES_PER_CHIP,
    devices_in,
    has_memory,
    holds,
    states_memory,
    without_count,
)
from paceline.catalog.naming.slices import num_slices, slice_memory_bytes, slice_of, without_slice
from paceline.errors import InvalidInputError, UnknownNameError

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
    if whole := without_slice(name):
        return slice_of(resolve_device(catalog, whole, memory_gb, num_gpus), name)
    return _likeliest(catalog, _fitting(_found(catalog, name), name, memory_gb), num_gpus)


def possible_capacities(
    catalog: Catalog, name: str, memory_gb: float | None
) -> tuple[float, float] | None:
    """Least and most memory in bytes of the devices that ``name`` may mean; None if unknown.

    Raises what `resolve_device` raises.
    """
    if without_slice(name):
        return slice_memory_bytes(name), slice_memory_bytes(name)
    fitting = _fitting(_found(catalog, name), name, memory_gb)
    sizes = [device.capacity_bytes for device in fitting if device.capacity_bytes is not None]
    return (min(sizes), max(sizes)) if len(sizes) == len(fitting) else None


@lru_cache(maxsize=4096)
def stated_devices(catalog: Catalog, name: str, stated: float | None) -> float | None:
    """Devices of a job: as stated, else as many as the machine or slice of that name has.

    Slices of TPUs that are named by their cores may count these in the column, too.

    >>> from paceline.catalog.load import load_catalog
    >>> for name, stated in (("TPU v3-8", 8.0), ("p4d.24xlarge", None), ("T4", 2.0)):
    ...     print(stated_devices(load_catalog(), name, stated))
    4.0
    8.0
    2.0
    """
    device, named = without_count(name)
    if stated is None:
        rented = (o.num_devices for o in catalog.offers if o.instance_type == name.lower())
        count = max(named, devices_in(name), next(rented, 1))
        return float(count) if count > 1 else None
    if device.startswith("TPU") and 1 < named == stated / CORES_PER_CHIP:
        return float(named)
    return num_slices(name, stated)


@lru_cache(maxsize=4096)
def _found(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Every device that ``name`` may mean, or that the cloud's machine of that name holds."""
    machines = {o.device_name for o in catalog.offers if o.instance_type == name.lower()}
    for one in (*filter(None, machines), without_count(name)[0], name.partition(",")[0]):
        with suppress(UnknownNameError):
            return find_devices(catalog, one)
    known = [device.name for device in catalog.devices]
    raise UnknownNameError.from_name("device", name, known, command="paceline devices")


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
