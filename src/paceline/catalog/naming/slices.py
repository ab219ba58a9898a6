"""Slices of a GPU (MIG) as devices of their own."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from paceline.catalog.entities import Device
from paceline.errors import UnknownNameError
from paceline.patterns import pattern

#: A slice by its name: ``(7x1g.10gb MIG)`` are seven of one unit and 10 GB in each device.
_MIG = pattern(
    r"\(?\s*(?:\bMIG\b[\s-]*)?(?:\b(?P<each>\d+)x|\b)(?P<units>\d)g\.(?P<gb>\d+)gb\b(?:\s*MIG)?\s*\)?",
    re.IGNORECASE,
)
#: Multiprocessors of a unit: NVIDIA, "MIG User Guide", tables of profiles (recalled 2026-11-26).
_SMS_PER_UNIT = {"Ampere": 14}
_SMS_PER_LATER_UNIT = 16
#: Parts of the memory that a slice has, by the same tables, whose sizes are rounded.
_MEMORY_PARTS = (1 / 8, 1 / 4, 1 / 2, 1.0)
_ROUNDED = 0.15


def without_slice(name: str) -> str | None:
    """The device of which ``name`` names a slice; None where it names a whole one.

    >>> without_slice("A100 SXM4 80GB MIG 1g.10gb"), without_slice("A100 SXM4 80GB")
    ('A100 SXM4 80GB', None)
    >>> without_slice("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")
    'NVIDIA-A100-SXM4-40GB'
    """
    return _MIG.sub(" ", name).strip(" -") if _MIG.search(name) else None


def slice_memory_bytes(name: str) -> float:
    """Memory of the slice that ``name`` names."""
    return float(_profile(name)["gb"]) * 1e9


def num_slices(name: str, num_gpus: float | None) -> float | None:
    """Slices that a job runs on: all of each device where several are named, and else just one.

    >>> num_slices("A100-SXM-80GB (7x1g.10gb MIG)", 4), num_slices("A100 (1x1g.10gb MIG)", 8)
    (28.0, 1.0)
    >>> num_slices("A100-SXM-80GB", 8)
    8
    """
    if without_slice(name) is None or not num_gpus:
        return num_gpus
    each = float(_profile(name)["each"] or 1)
    return 1.0 if each == 1 else each * num_gpus


def is_cut_so(whole: Device, name: str) -> bool:
    """Whether the slice that ``name`` names is an eighth, a quarter, half or all of a device.

    1g.5gb is of an A100 of 40 GB; one of 80 GB has no slice so small.
    """
    share = slice_memory_bytes(name) / (whole.memory_bytes or math.inf)
    return any(abs(share - part) <= _ROUNDED * part for part in _MEMORY_PARTS)


def slice_of(whole: Device, name: str) -> Device:
    """The slice that ``name`` names: its share of multiprocessors, and of bandwidth by memory.

    Raises:
        UnknownNameError: The device is not known to be cut so.
    """
    found = _profile(name)
    units, size_bytes = int(found["units"]), slice_memory_bytes(name)
    sms_per_unit = _SMS_PER_UNIT.get(whole.architecture, _SMS_PER_LATER_UNIT)
    if whole.vendor != "NVIDIA" or not whole.num_sms or not whole.memory_bytes:
        raise UnknownNameError.from_name("slice of", whole.name, (), command="paceline devices")
    num_sms = units * sms_per_unit
    computes, holds_frac = num_sms / whole.num_sms, size_bytes / whole.memory_bytes
    if computes > 1.0 or not is_cut_so(whole, name):
        raise UnknownNameError(
            f"a {whole.name} has no slice {found['units']}g.{found['gb']}gb",
            hint="`nvidia-smi mig -lgip` lists the profiles of a device",
        )

    def share(value: float | None, frac: float) -> float | None:
        """A part of what is known of the whole device."""
        return None if value is None else value * frac

    return replace(
        whole,
        name=f"{whole.name} MIG {units}g.{found['gb']}gb",
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


def _profile(name: str) -> re.Match[str]:
    found = _MIG.search(name)
    assert found is not None
    return found
