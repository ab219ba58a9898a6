"""What the words of a device's name say beside the name itself, in a table or as typed.

Tables, drivers and shops decorate: ``AMD MI300X-NPS1-SPX-192GB-750W``, ``GeForce RTX 2080
(Mobile)``, ``NVIDIA DGX-1 (8x V100 16GB)``, ``Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz``.
Decoration may be left out while looking a name up, but what it says (maker, memory, form, laptop)
must hold for the device that is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from paceline.catalog.entities import Device
from paceline.catalog.tables import Row, read_rows
from paceline.patterns import pattern

_TRADE_MARK = pattern(r"\((r|tm)\)", re.IGNORECASE)
#: A virtual device of all the memory of one: the letter says what it is licensed for.
_VIRTUAL = pattern(r"(?<=-)(\d+)[CQ]$")
#: A processor as its system names it: ``CPU: Intel(R) Xeon(R) Gold 6330 CPU @ 2.0GHz``.
_PROCESSOR = pattern(
    r"\bcpu\b:?|@\s*[\d.]+\s*ghz|\b\d+th gen\b|\b(w/|with) radeon.*", re.IGNORECASE
)
_BRACKETS = pattern(r"[()\[\]]")
_IN_BRACKETS = pattern(r"\(.*?\)|\[.*?\]")
#: Names of Radeon cards end in XT and XTX: ``7900xtx`` counts nothing.
_COUNT = pattern(
    r"^\s*(?P<first>\d{1,6})\s*[x×*](?!tx?\b)\s*(?=\w)|"
    r"\s*(?:(?<![a-z])[x×*]|:)\s*(?P<last>\d{1,6})\s*$",
    re.IGNORECASE,
)
#: Cores of a chip of those TPUs whose slices are named by cores.
CORES_PER_CHIP = 2
_MEMORY = pattern(r"\b(\d+(?:\.\d+)?)\s*gb?\b", re.IGNORECASE)
#: Words that decorate a name and never tell two devices apart.
_DECORATION = pattern(
    r"\b(hbm\d?e?|gen\s?\d|tensor core|accelerators?|gpu|graphics|generation|dlc|cts|aarch64|"
    r"nps1|spx|\d+\s?w|nvl\d\d|[dh]gx|hls|superchip|grace (?=hopper|blackwell)|hopper|volta|"
    r"developer kit|google|cloud|nvidia|amd|intel|habana|oam|\d+ (core|gpu)s?|processor|"
    r"station|colab|kaggle)\b",
    re.IGNORECASE,
)
_FORM = pattern(r"\b(sxm|pcie)\d?\b", re.IGNORECASE)
_MOBILE = pattern(r"\bmobile( / max-q)?\b|\bnotebook\b", re.IGNORECASE)
_LAPTOP = pattern(r"\b(laptop|max-?q)\b", re.IGNORECASE)
#: One of several dies is not their module.
_DIE = pattern(r"\bgcds?\b", re.IGNORECASE)
#: A slice of a device is not that device.
_SLICE = pattern(r"\bmig\b|\b\d+g\.\d+gb\b|\bvgpu\b|\b[cd]px\b|\bnps[248]\b", re.IGNORECASE)
#: Two memory sizes are the same if they differ by less: vendors round, drivers subtract.
SAME_MEMORY_FRAC = 0.12
#: Chips that share the memory of their computer are sold with several sizes.
_SHARED_MEMORY = "system on chip"


def is_slice(name: str) -> bool:
    """Whether ``name`` is a part of a device, as virtualisation makes them.

    >>> is_slice("A100-SXM4-40GB MIG 1g.5gb"), is_slice("A100-SXM4-40GB")
    (True, False)
    """
    return bool(_SLICE.search(name))


def listed_names(name: str) -> Iterator[str]:
    """Devices that the table of published names gives for a name, however that is decorated."""
    for device, match in _listed(name, read_rows("published_devices.csv")):
        yield match.expand(device)


def _listed(name: str, rows: Iterable[Row]) -> Iterator[tuple[str, re.Match[str]]]:
    written = dict.fromkeys((name, _squeeze(_words(name)), *plainer_names(name)))
    for row in rows:
        for spelling in written:
            if match := re.fullmatch(row["pattern"], spelling, re.IGNORECASE):
                yield row["device"], match


def without_count(name: str) -> tuple[str, int]:
    """A name without the number of devices before or behind it, and that number; 1 without one.

    Slices of TPUs are named by their chips or cores.

    >>> without_count("8xH100"), without_count("h100:8"), without_count("A100 SXM4 40GB x 8")
    (('H100', 8), ('h100', 8), ('A100 SXM4 40GB', 8))
    >>> without_count("7900xtx"), without_count("v3-8"), without_count("v5litepod-16")
    (('7900xtx', 1), ('TPU v3 (per chip)', 4), ('TPU v5e (per chip)', 16))
    >>> without_count("DGX-1 (8x V100 16GB)")
    ('V100 16GB', 8)
    """
    for text in (name, *(found.strip("()[] ") for found in _IN_BRACKETS.findall(name))):
        if (match := _COUNT.search(text)) and (text == name or not is_slice(text)):
            return _COUNT.sub("", text, count=1).strip(), int(match["first"] or match["last"])
    counting = (row for row in read_rows("published_devices.csv") if "(?P<" in row["pattern"])
    for device, match in _listed(name, counting):
        stated = {key: int(number) for key, number in match.groupdict().items() if number}
        if stated:
            return device, stated.get("chips") or stated["cores"] // CORES_PER_CHIP
    return name.strip(), 1


def devices_in(name: str) -> int:
    """How many devices a maker's machine of that name has; 1 where it is no machine's.

    >>> devices_in("NVIDIA DGX A100 640GB"), devices_in("A100 SXM4 80GB")
    (8, 1)
    """
    plain, rows = _IN_BRACKETS.sub(" ", name), read_rows("device_machines.csv")
    counts = (int(r["devices"]) for r in rows if re.search(r["pattern"], plain, re.IGNORECASE))
    return next(counts, 1)


def plainer_names(name: str) -> Iterator[str]:
    """``name`` with less and less decoration.

    >>> list(dict.fromkeys(plainer_names("NVIDIA H100-PCIe-80GB")))[1:]
    ['NVIDIA H100 PCIe 80GB', 'H100 PCIe 80GB', 'H100 PCIe', 'H100']
    """
    yield name
    for text in (_words(name), _IN_BRACKETS.sub(" ", name), *_IN_BRACKETS.findall(name)):
        yield from _undecorated(_words(text))


def _undecorated(name: str) -> Iterator[str]:
    plain = _squeeze(_DECORATION.sub(" ", _squeeze(name)))
    without_memory = _squeeze(_MEMORY.sub(" ", plain))
    yield _squeeze(name)
    yield plain
    yield _FORM.sub(r"\1", plain)
    yield without_memory
    yield _squeeze(_FORM.sub(" ", without_memory))


def holds(device: Device, name: str) -> bool:
    """Whether a device is what the words of ``name`` say: its maker, form, memory, laptop, die.

    Words that name no such thing hold for every device.
    """
    words = _words(name)
    forms = {form.lower() for form in _FORM.findall(words)}
    sizes = [float(size) * 1e9 for size in _MEMORY.findall(words)]
    return (
        _is_made_so(device, words)
        and all(form in device.form_factor.lower() for form in forms)
        and (not sizes or any(has_memory(device, size) for size in sizes))
        and all(bool(one.search(words)) == bool(one.search(device.name)) for one in (_LAPTOP, _DIE))
    )


def states_memory(name: str) -> bool:
    """Whether ``name`` itself says how much memory there is.

    >>> states_memory("NVIDIA A100-SXM-80GB-500W"), states_memory("NVIDIA A10")
    (True, False)
    """
    return bool(_MEMORY.search(_words(name)))


def has_memory(device: Device, size_bytes: float | None) -> bool:
    """Whether a device has a stated memory; what is not stated or not known fits."""
    if size_bytes is None or device.memory_bytes is None:
        return True
    if device.form_factor == _SHARED_MEMORY and device.vendor == "Apple":
        return size_bytes <= device.memory_bytes * (1 + SAME_MEMORY_FRAC)
    return abs(device.memory_bytes - size_bytes) < SAME_MEMORY_FRAC * size_bytes


def _is_made_so(device: Device, words: str) -> bool:
    makers = read_rows("device_makers.csv")
    said = {m["vendor"] for m in makers if re.search(m["pattern"], words, re.IGNORECASE)}
    return said <= {device.vendor}


def _words(name: str) -> str:
    """``name`` without brackets, a count or underscores; a laptop's word is one."""
    whole = _VIRTUAL.sub(r"\1GB", _TRADE_MARK.sub(" ", name))
    plain = _BRACKETS.sub(" ", _PROCESSOR.sub(" ", whole)).replace("_", " ").strip()
    return _MOBILE.sub("laptop", _COUNT.sub("", plain))


def _squeeze(name: str) -> str:
    return re.sub(r"[\s-]+", " ", name).strip()
