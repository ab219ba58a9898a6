"""Names that model libraries know, however their separators and capitals are written."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources

from paceline.app.scoring.tables import read_table
from paceline.trace import zoo_names

_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^a-z0-9]+(?=\d)")
_SEPARATORS = re.compile(r"[^a-z0-9_]+|(?<![0-9])_+|_+(?![0-9])")


def name_key(name: str) -> str:
    """``name`` in lower case; what separates two digits stays, as an underscore.

    >>> name_key("RegNetY-1.6GF"), name_key("regnet_y_1_6gf"), name_key("regnet_y_16gf")
    ('regnety1_6gf', 'regnety1_6gf', 'regnety16gf')
    """
    return _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("_", name.lower()))


def library_entry(name: str) -> str | None:
    """Entry of a model of timm or torchvision; None where neither has that name.

    The name as written comes first, without what timm says of its weights; then any spelling of
    it. Where both libraries have a spelling, timm's is meant.

    >>> library_entry("EfficientNetB0"), library_entry("R3D-18"), library_entry("ViT-B/32")
    ('timm:efficientnet_b0', 'torchvision:r3d_18', 'torchvision:vit_b_32')
    """
    written, spelled = _libraries()
    plain = name.lower()
    stem = plain.partition(".")[0]
    return written.get(plain) or spelled.get(name_key(plain)) or written.get(stem)


@cache
def _libraries() -> tuple[dict[str, str], dict[str, str]]:
    """Entries by name, and by its key."""
    written: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for row in read_table("library_names.csv"):
        entry = f"{row['library']}:{row['name']}"
        written.setdefault(row["name"], entry)
        spelled.setdefault(name_key(row["name"]), entry)
    return written, spelled


def zoo_entry(name: str) -> str | None:
    """The zoo's model of that name, however it is spelled."""
    return _zoo().get(name_key(name))


@cache
def _zoo() -> dict[str, str]:
    return {name_key(name): name for name in zoo_names()}


def hub_entry(name: str) -> str | None:
    """Entry of a model whose sizes are known by name, in lower case with hyphens."""
    return f"hf:{name}" if name in _hub_names() else None


@cache
def _hub_names() -> frozenset[str]:
    path = resources.files("paceline.trace").joinpath("workers", "hf_models.json")
    return frozenset(json.loads(path.read_text(encoding="utf-8"))["models"])
