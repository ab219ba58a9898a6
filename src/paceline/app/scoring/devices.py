"""Which device of the catalogue a published table means."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paceline.app.scoring.tables import read_table
from paceline.catalog import Catalog, Device, find_devices
from paceline.errors import InvalidInputError, UnknownNameError

_IN_BRACKETS = re.compile(r"\(.*?\)|\[.*?\]")
_MEMORY_SIZE = re.compile(r"\b\d+(\.\d+)?\s*-?\s*gb\b", re.IGNORECASE)
_COUNT = re.compile(r"^\s*\d+\s*[x×*]\s*", re.IGNORECASE)
#: Words that decorate a name and never tell two devices apart.
_DECORATION = re.compile(
    r"\b(hbm\d?e?|gen\s?\d|tensor core|accelerators?|gpu|dlc|cts|nvidia|amd|intel|habana|oam)\b",
    re.IGNORECASE,
)
#: Two memory sizes are the same if they differ by less: vendors round, drivers subtract.
_SAME_MEMORY_FRAC = 0.12
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
    found = _found(catalog, name)
    return _likeliest(_fitting(found, name, memory_gb), found, num_gpus)


def possible_capacities(
    catalog: Catalog, name: str, memory_gb: float | None
) -> tuple[float, float] | None:
    """Least and most memory in bytes of the devices that ``name`` may mean; None if unknown.

    Raises what `resolve_device` raises.
    """
    fitting = _fitting(_found(catalog, name), name, memory_gb)
    sizes = [device.capacity_bytes for device in fitting if device.capacity_bytes is not None]
    return (min(sizes), max(sizes)) if len(sizes) == len(fitting) else None


def _found(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Every device that ``name`` may mean."""
    for spelling in _spellings(name):
        if devices := _find(catalog, spelling):
            return devices
    known = [device.name for device in catalog.devices]
    raise UnknownNameError.from_name("device", name, known, command="paceline devices")


def _fitting(found: tuple[Device, ...], name: str, memory_gb: float | None) -> list[Device]:
    """Those of them with the stated memory."""
    size_bytes = _memory_bytes(memory_gb)
    fitting = [d for d in found if _has_memory(d, size_bytes)]
    if not fitting:
        raise InvalidInputError(
            f"no {name} with {memory_gb:g} GB in the catalogue",
            hint=f"it has {', '.join(d.name for d in found)}",
        )
    return fitting


def _find(catalog: Catalog, name: str) -> tuple[Device, ...]:
    try:
        return find_devices(catalog, name) if name else ()
    except (UnknownNameError, InvalidInputError):
        return ()


def _spellings(name: str) -> Iterator[str]:
    """``name`` with less and less decoration."""
    for row in read_table("device_aliases.csv"):
        if re.fullmatch(row["pattern"], name, re.IGNORECASE):
            yield row["device"]
    yield name
    plain = _squeeze(_COUNT.sub("", _IN_BRACKETS.sub(" ", name)))
    yield plain
    yield _squeeze(_DECORATION.sub(" ", plain))
    yield _squeeze(_MEMORY_SIZE.sub(" ", _DECORATION.sub(" ", plain)))


def _squeeze(name: str) -> str:
    return re.sub(r"[\s-]+", " ", name).strip()


def _memory_bytes(memory_gb: float | None) -> float | None:
    """Stated memory; above 2,000 the source counts mebibytes."""
    if not memory_gb or memory_gb <= 0:
        return None
    return memory_gb * 2**20 if memory_gb > 2000 else memory_gb * 1e9


def _has_memory(device: Device, size_bytes: float | None) -> bool:
    if size_bytes is None or device.memory_bytes is None:
        return True
    return abs(device.memory_bytes - size_bytes) < _SAME_MEMORY_FRAC * size_bytes


def _likeliest(fitting: list[Device], found: tuple[Device, ...], num_gpus: float | None) -> Device:
    """The module where many work together, else the default variant or what resembles it."""
    is_module = (num_gpus or 1) >= _MODULE_COUNT
    default_forms = {d.form_factor for d in found if d.is_default_variant}

    def likelihood(device: Device) -> tuple[bool, bool, bool]:
        return (
            is_module and "SXM" in device.form_factor,
            device.is_default_variant,
            device.form_factor in default_forms,
        )

    return max(fitting, key=likelihood)
