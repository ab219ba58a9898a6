"""Processors and cards of one number: what the letters behind it change.

A processor that the catalogue lacks is taken as the one of its number whose suffix is of the same
group (`processor_suffixes.csv`): a plain `i7-12700` is the desktop's die, as `i7-12700K` is, and
not the laptop's `i7-12700H`. Sources: Intel, "Intel processor names, numbers and suffixes"; AMD,
"Understanding AMD processor naming" (both recalled).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from paceline.catalog.entities import Device
from paceline.catalog.tables import read_rows
from paceline.patterns import pattern

#: A number of four digits or more, and the letters and digits written to it.
_NUMBERED = pattern(r"(?<![\da-z])(\d{4,5})([a-z]{0,2}\d?[a-z]?)(?![\da-z])")
#: A number of three digits or more, what is written to it, and all that follows.
_NUMBER = pattern(r"(\d{3,5})([a-z\d]*)(.*)")
_REMARK = pattern(r"\s*\([^)]*\)")


def nearest_by_suffix(devices: Iterable[Device], name: str) -> tuple[Device, ...]:
    """The processor of the number in ``name`` with another suffix of its group; else none."""
    said = _NUMBERED.search(name.lower())
    if said is None:
        return ()
    before = set(_words(name.lower()[: said.start()]))
    found = [
        device
        for device in devices
        if device.kind == "cpu"
        and (known := _NUMBERED.search(_bare(device))) is not None
        and known[1] == said[1]
        and before <= set(_words(_bare(device)[: known.start()]))
        and _share_a_group(_bare(device), known[2], said[2])
    ]
    return tuple(sorted(found, key=lambda device: len(device.family))[:1])


def has_unsaid_suffix(name: str, device: Device) -> bool:
    """Whether the number of ``device`` goes on by words or letters that ``name`` leaves out.

    A processor of another suffix is one that goes on differently.

    >>> from paceline.catalog.load import load_catalog
    >>> from paceline.catalog.lookup import find_device
    >>> catalog = load_catalog()
    >>> [has_unsaid_suffix(one, find_device(catalog, one)) for one in ("RX 5600", "RX 5600 XT")]
    [True, False]
    """
    known, said = _NUMBER.search(device.family.lower()), _NUMBER.search(name.lower())
    if known is None or said is None or known[1] != said[1]:
        return False
    if not set(_words(known[2] + known[3])) <= set(_words(said[2] + said[3])):
        return True
    return device.kind == "cpu" and said[2] not in ("", known[2])


def _share_a_group(name: str, one: str, other: str) -> bool:
    return any(
        row["series"] in name and {one, other} <= set(row["suffixes"].split(";"))
        for row in read_rows("processor_suffixes.csv")
    )


def _bare(device: Device) -> str:
    return _REMARK.sub("", device.name).lower()


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", text)
