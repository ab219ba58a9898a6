"""Finding devices and offers by the names people type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from paceline.catalog.entities import Catalog, Device, Offer
from paceline.catalog.naming.device_words import (
    devices_in,
    holds,
    is_slice,
    listed_names,
    plainer_names,
    without_count,
)
from paceline.catalog.naming.slices import is_cut_so, slice_of, without_slice
from paceline.catalog.naming.suffixes import has_unsaid_suffix, nearest_by_suffix
from paceline.catalog.tables import read_rows
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.patterns import pattern

_BRANDS = pattern(
    r"\b(nvidia|geforce|tesla|quadro|radeon instinct|radeon|instinct|amd|intel|aws|google|apple)\b"
)
#: What drivers and shops add to a name, without which it is the same card.
_NOISE = pattern(
    r"\((r|tm)\)|\b(gpu|generation|edition|graphics|with|design|hbm\d?e?|"
    r"macbook( air| pro)?|mac (mini|studio|pro)|imac)\b"
)
#: Gigabytes without their unit, as in ``a100-40``.
_BARE_SIZE = pattern(r"(?<=[\s-])(\d{1,3})$")
_LAPTOP = "laptop"
_REMARK = pattern(r"\s*\([^)]*\)")
_SERIES = pattern(r"^(rtx|gtx|rx|tpu|core|xeon platinum|xeon|epyc|ryzen \d)\b")
_POWER = pattern(r"\s+[\d.]+w\b.*")
_FORM = pattern(r"\b(sxm|pcie|nvl)\d?\b")
#: Between names: not within brackets.
_COMMA = pattern(r",(?![^(]*\))")
#: All but letters, digits and the plus of some names.
_SEPARATORS = pattern(r"[^\w+]|_")
#: What frameworks call a place to run: a kind, and an example of it.
_KINDS = {
    "cpu": "Xeon Platinum 8480+", "gpu": "RTX 4090", "cuda": "RTX 4090", "rocm": "MI300X",
    "mps": "M2 Max", "tpu": "TPU v5e", "xpu": "Max 1550", "hpu": "Gaudi 2",
}  # fmt: skip
_OWN = "describe any other in a file for --facts (docs/how-to/own-devices.md)"

_Index = dict[str, tuple[Device, ...]]


def find_device(catalog: Catalog, name: str) -> Device:
    """The one device that ``name`` means; a family name gives its default variant.

    Case, spaces, dashes and brand words are ignored: ``rtx 4090``, ``RTX4090`` and
    ``geforce-rtx-4090`` are one name.

    Raises:
        UnknownNameError: Nothing of that name; close names are in the hint.
        InvalidInputError: A family without a default variant; the hint lists its variants.
    """
    found = find_devices(catalog, name)
    exact = [d for d in found if _key(d.name) == _key(name)]
    if exact or len(found) == 1:
        return (exact or list(found))[0]
    defaults = [d for d in found if d.is_default_variant]
    if len(defaults) == 1:
        return defaults[0]
    return _nearest_to_default(catalog, name, found)


def variant_note(catalog: Catalog, name: str, device: Device) -> str:
    """That a name means several devices, or leaves out which, and what was taken; else empty."""
    others = [one.name for one in find_devices(catalog, name) if one.name != device.name]
    if others:
        return f"{name} is taken as {device.name} (others: {', '.join(others)})"
    for row in read_rows("device_remarks.csv"):
        is_said = re.search(row["said_by"], name, re.IGNORECASE)
        if not is_said and re.fullmatch(row["pattern"], device.name):
            return f"{name} is taken as {device.name}: {row['remark']}"
    is_near = has_unsaid_suffix(name, device)
    return f"{name} is taken as {device.name}, the nearest in the catalogue" if is_near else ""


def find_devices(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Every device that ``name`` can mean: all variants of a family, or one device.

    Raises:
        UnknownNameError: Nothing of that name; close names are in the hint.
    """
    if (plain := _plain_index(catalog).get(_key(name))) is not None:
        return plain
    if whole := without_slice(name):
        return (slice_of(_cut_so(catalog, whole, name), name),)
    bare, count = without_count(name)
    if count > 1 and _means(catalog, bare):
        raise UnknownNameError(
            f"`{name}` is {count} devices, and one kind of device is asked for here",
            hint=f"name it alone, `{bare}`, and say beside it how many (--max-devices {count} in a "
            f"plan, --counts {count} in scale); `paceline devices '{bare}'` shows it",
        )
    if found := _means(catalog, name):
        return found
    if (example := _KINDS.get(name.strip().lower())) is not None:
        raise UnknownNameError(
            f"`{name}` is a kind of device, and those of a kind are far apart",
            hint=f"name one, such as --device '{example}'; `paceline devices` lists them, and "
            "`paceline doctor` says what this machine has",
        )
    raise _no_device(catalog, name)


def devices_called(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Every device that a name can mean; of a part of names, such as ``jetson``, all with it.

    Raises:
        UnknownNameError: Nothing of that name, and no name has all of its words.
    """
    try:
        return find_devices(catalog, name)
    except UnknownNameError:
        wanted = set(_plain_words(name))
        found = tuple(
            device for device in catalog.devices
            if wanted and wanted <= set(_plain_words(f"{device.family} {device.name}"))
        )  # fmt: skip
        if not found:
            raise
        return found


def _plain_words(name: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]+", name.lower())


def _cut_so(catalog: Catalog, whole: str, name: str) -> Device:
    """The device that ``whole`` means, of its variants one that has the slice of ``name``."""
    usual = find_device(catalog, whole)
    others = [d for d in find_devices(catalog, whole) if is_cut_so(d, name)]
    if is_cut_so(usual, name) or not others:
        return usual
    return max(others, key=lambda d: _likeness(d, usual))


@lru_cache(maxsize=4096)
def _means(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """What published names say that it is, or the first plainer spelling that is a device's.

    All else that ``name`` says (its maker, memory, form) must hold for it. What only laptops have
    is theirs without that word: `RTX A3000`.
    """
    if is_slice(name):
        return ()
    for listed in listed_names(name):
        if found := _spelled(catalog, listed):
            return found
    for spelling in plainer_names(name):
        if found := tuple(d for d in _spelled(catalog, spelling) if holds(d, name)):
            return found
    if name.lower().endswith(_LAPTOP):
        return ()
    return _means(catalog, f"{name} {_LAPTOP}") or nearest_by_suffix(catalog.devices, name)


def _spelled(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """Devices of a spelling, whatever its case, blanks and brand words."""
    index = _index(catalog)
    bare = _without_brand(_NOISE.sub(" ", name.lower()))
    sized = _BARE_SIZE.sub(r"\1gb", bare)
    keys = (_key(name), _key(_without_brand(name)), _key(bare), _key(sized))
    return next((index[key] for key in keys if key in index), ()) or _worded(catalog, bare)


def _no_device(catalog: Catalog, name: str) -> UnknownNameError:
    """What is said of a name that is no device's: what is in it, or what is spelled like it."""
    rented = _offers_called(catalog, name)
    if rented and rented[0].device_name:
        inside, num_devices = rented[0].device_name, max(1, round(rented[0].num_devices))
        return UnknownNameError(
            f"`{name}` is a machine for rent, no device",
            hint=f"it has {num_devices}×{inside}: --device '{inside}', or in a plan "
            f"--pin offer={rented[0].name}",
        )
    known = _nearby_names(catalog, name)
    error = UnknownNameError.from_name("device", name, known, command="paceline devices")
    return UnknownNameError(str(error), hint=f"{error.hint}; {_OWN}")


def _worded(catalog: Catalog, name: str) -> tuple[Device, ...]:
    """The one family whose name has all of these words, where they hold a number or follow.

    Of several the one whose name is in all the others': `RTX PRO 4000` is not the SFF.
    A remark alone is no name: `EPYC 7742 (Rome, DGX A100)` is the processor of that machine.
    """
    wanted = _words(name)
    has_number = re.search(r"[0-9]{4}", name) is not None
    if len(wanted) < 2 and not has_number:
        return ()
    phrase = f" {' '.join(wanted)} "
    found = [
        device
        for device in catalog.devices
        if set(wanted) & set(_words(_REMARK.sub("", f"{device.family} {device.name}")))
        if (has_number and set(wanted) <= set(_words(f"{device.family} {device.name}")))
        or any(phrase in f" {' '.join(_words(one))} " for one in (device.family, device.name))
    ]
    # A number with a letter behind it is another device: 8380 is no 8380H.
    whole = [
        one for one in found
        if set(wanted) <= set(re.split(r"[\s-]+", f"{one.family} {one.name}".lower()))
    ]  # fmt: skip
    families = [set(_words(one.family)) for one in whole]
    plainest = [
        one for one in whole
        if all(set(_words(one.family)) <= other for other in families)
    ]  # fmt: skip
    sets = map(tuple, (found, whole, plainest))
    return next((kept for kept in sets if _is_one_family(kept)), ())


def _is_one_family(devices: tuple[Device, ...]) -> bool:
    return len({device.family for device in devices}) == 1


@lru_cache(maxsize=8192)  # Every name of the catalogue is compared with each that is typed.
def _words(name: str) -> tuple[str, ...]:
    """Words of a name, each number by itself."""
    return tuple(re.findall(r"[a-z]+|[0-9]+", _without_brand(_NOISE.sub(" ", name.lower()))))


def split_names(text: str) -> tuple[str, ...]:
    """Names between commas; a comma in brackets belongs to a name.

    >>> split_names("a100, Intel Xeon E5-2686 v4 (Broadwell, AWS p2/p3),")
    ('a100', 'Intel Xeon E5-2686 v4 (Broadwell, AWS p2/p3)')
    """
    parts = (part.strip() for part in _COMMA.split(text))
    return tuple(part for part in parts if part)


def parse_device_count(text: str) -> tuple[str, int]:
    """Split ``h100:8`` or ``8x h100`` into name and count; no count means one, or a machine's.

    Raises:
        InvalidInputError: No name, or a count of zero.

    >>> parse_device_count("h100:8"), parse_device_count("rtx 3090"), parse_device_count("4x l4")
    (('h100', 8), ('rtx 3090', 1), ('l4', 4))
    >>> parse_device_count("7900xtx")
    ('7900xtx', 1)
    >>> parse_device_count("DGX H100")
    ('DGX H100', 8)
    """
    name, count = without_count(text)
    count = count if count != 1 else devices_in(name)
    if not name or count < 1:
        raise InvalidInputError(
            f"`{text}` names no device, or none of it", hint="write it like `h100:8` or `rtx 3090`"
        )
    return name, count


def find_offer(catalog: Catalog, name: str) -> Offer:
    """The offer called ``cloud/instance_type``, or an instance type that only one cloud has.

    Raises:
        UnknownNameError: No such offer; close names are in the hint.
        InvalidInputError: Several clouds have an instance type of that name.
    """
    found = _offers_called(catalog, name)
    if not found:
        known = [o.name for o in catalog.offers]
        raise UnknownNameError.from_name("offer", name, known, command="paceline offers")
    if len(found) > 1:
        names = ", ".join(f"`{o.name}`" for o in found[:5])
        raise InvalidInputError(f"`{name}` is the name of several offers", hint=f"one of {names}")
    return found[0]


def _offers_called(catalog: Catalog, name: str) -> list[Offer]:
    wanted = name.strip().lower()
    return [o for o in catalog.offers if wanted in (o.name.lower(), o.instance_type.lower())]


def _nearby_names(catalog: Catalog, name: str) -> list[str]:
    """Families spelled with the same letters, whose number was mistyped; else every name."""
    families = {device.family for device in catalog.devices}
    letters = _letters(_plain(name))
    alike = sorted(family for family in families if _letters(_plain(family)) == letters)
    return alike or sorted(families | {device.name for device in catalog.devices})


def _plain(name: str) -> str:
    return re.sub(r"^core\b", "", _without_brand(name))


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalpha())


def _nearest_to_default(catalog: Catalog, name: str, found: tuple[Device, ...]) -> Device:
    """The variant nearest to its family's default in form and memory, if there is one such."""
    family = found[0].family
    default = next(
        (d for d in catalog.devices if d.family == family and d.is_default_variant), None
    )
    if default is not None and {d.family for d in found} == {family}:
        ranked = sorted(found, key=lambda d: _likeness(d, default), reverse=True)
        if _likeness(ranked[0], default) > _likeness(ranked[1], default):
            return ranked[0]
    variants = ", ".join(f"`{d.name}`" for d in found)
    raise InvalidInputError(f"`{name}` is several devices", hint=f"name one of {variants}")


def _likeness(device: Device, default: Device) -> tuple[bool, bool]:
    return device.form_factor == default.form_factor, device.memory_bytes == default.memory_bytes


@lru_cache(maxsize=8)
def _plain_index(catalog: Catalog) -> _Index:
    """Devices by the keys of families, names and listed aliases, the former before the latter."""
    own = {_key(d.name): (d,) for d in catalog.devices}
    families: dict[str, list[Device]] = {}
    for device in catalog.devices:
        families.setdefault(_key(device.family), []).append(device)
    listed = {_key(r["alias"]): own[_key(r["device_name"])] for r in read_rows("aliases.csv")}
    return listed | own | {key: tuple(found) for key, found in families.items()}


@lru_cache(maxsize=8)
def _index(catalog: Catalog) -> _Index:
    """Devices by every key that a user may type; families beat names, and names aliases."""
    aliases: dict[str, list[Device]] = {}
    for device in catalog.devices:
        for alias in set(_aliases(device)):
            aliases.setdefault(alias, []).append(device)
    return {key: tuple(found) for key, found in aliases.items()} | _plain_index(catalog)


def _aliases(device: Device) -> Iterator[str]:
    """Keys of the name without brand, remark, power, memory size or digit of the form factor.

    Apple's chips are told apart by the cores of their GPUs: ``M3 Max 40-Core GPU``.
    """
    name = _REMARK.sub("", device.name)
    bare, family = _without_brand(name), _without_brand(device.family)
    shorter = _SERIES.sub("", bare), _SERIES.sub("", family), _POWER.sub("", bare)
    yield from map(_key, (name, bare, family, *shorter))
    if device.num_sms:
        yield _key(f"{bare} {device.num_sms} core")
    form = _FORM.search(bare)
    family = _key(family)
    if form is None and device.form_factor.startswith("PCIe"):
        yield from (f"{family}pcie", f"pcie{family}")
    sizes: tuple[str, ...] = ("",)
    if device.memory_bytes:
        size = _key(f"{device.memory_bytes / 1e9:g}g")
        sizes = ("", size, f"{size}b")
    for word, size in product([form[0], form[1]] if form else [""], sizes):
        yield from (family + word + size, family + size + word, family + size)


def _without_brand(name: str) -> str:
    return _BRANDS.sub("", name.lower().replace("-", " ")).strip()


def _key(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())
