"""Every model that is answered by its name: what the name means, its size, what it needs.

``data/models.csv`` holds a row per name, written by ``tools/facts/models.py``;
``data/aliases.csv`` the words that people use for one, and spellings of other releases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal

from paceline.errors import UnknownNameError, close_names
from paceline.model.names.spelling import name_key, of_one_size, plainer
from paceline.shipped import read_as, shipped_rows
from paceline.values import dataclass

Needs = Literal["nothing", "torch", "transformers", "timm", "torchvision"]
_NEEDS: dict[str, Needs] = {
    "nothing": "nothing", "torch": "torch", "transformers": "transformers", "timm": "timm",
    "torchvision": "torchvision",
}  # fmt: skip
#: Where a model's entry comes from: the zoo, sizes of a hub, a model library, the code of a
#: published measurement, a language model known by its hyperparameters alone, or the applications
#: of Keras, which are meant where their prefix says so.
Origin = Literal["zoo", "hub", "library", "published", "numbers", "keras"]
_ORIGINS: dict[str, Origin] = {
    "": "zoo", "hf": "hub", "timm": "library", "torchvision": "library", "transformer": "numbers",
    "denoiser": "numbers", "keras": "keras",
}  # fmt: skip
_NO_NEIGHBOURS = "any part of a name will do; `paceline models` alone lists the zoo"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A name and what it stands for.

    Attributes:
        name: As it is typed.
        entry: What is loaded or traced.
        parameters: All of the model's, counted from its architecture.
        needs: The library that a Python must have for it to be traced; ``nothing`` for what is
            shipped as a graph.
        source: The release or library whose sizes are meant.
    """

    name: str
    entry: str
    parameters: int
    needs: Needs
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Entries of the models of one origin.

    Attributes:
        entries: In the order of the table.
        written: By name without its scheme; of two entries, the first.
        spelled: By `name_key` of that name, likewise.
    """

    entries: tuple[str, ...]
    written: Mapping[str, str]
    spelled: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Other words for a model.

    Attributes:
        entry: What is meant; several between bars where the words name no single model; groups of
            a pattern stand in it by number.
        seq: Length that its releases have, as text; empty where none is meant.
        reading: Why, for the user.
    """

    entry: str
    seq: str
    reading: str


def known_models(search: str = "") -> tuple[KnownModel, ...]:
    """The models whose name, or whose source, holds every word of ``search``.

    The zoo stands first, then what is traced, each in its table's order.

    >>> known_models("resnet 152")[0].name, known_models("405B llama")[0].parameters
    ('resnet152', 405853388800)

    Raises:
        UnknownNameError: None does.
    """
    words = [name_key(word) if word.isascii() else word for word in search.split()]
    found = tuple(one for key, one in _listed() if all(w and w in key for w in words))
    if found:
        return found
    close = ", ".join(f"`{name}`" for name in close_names(search, [m.name for _, m in _listed()]))
    hint = f"did you mean {close}? {_NO_NEIGHBOURS}" if close else _NO_NEIGHBOURS
    raise UnknownNameError(f"no model's name holds `{search}`", hint=hint)


@cache
def parameters_of(entry: str) -> int | None:
    """Parameters of an entry of the registry; None where nobody counted them.

    >>> parameters_of("hf:qwen-14b"), parameters_of("hf:nothing")
    (14167290880, None)
    """
    rows = shipped_rows("model", "models.csv")
    counted = (row["parameters"] for row in rows if entry in (row["entry"], row["name"]))
    return next((int(count) for count in counted if count), None)


@cache
def names_of(origin: Origin) -> Names:
    """The names of one origin, also of models whose parameters nobody counted."""
    rows = shipped_rows("model", "models.csv")
    written: dict[str, str] = {}
    spelled: dict[str, str] = {}
    named = [(row["name"], row["entry"]) for row in rows if origin_of(row["entry"]) == origin]
    for whole, entry in named:
        for name in _names(whole, origin):
            written.setdefault(name, entry)
            spelled.setdefault(name_key(name), entry)
    return Names(entries=tuple(entry for _, entry in named), written=written, spelled=spelled)


@cache
def released_precisions(entry: str) -> tuple[str, ...]:
    """Precisions that a model's weights are released in, what devices prefer first; mostly none.

    >>> released_precisions("hf:gpt-oss-120b"), released_precisions("hf:llama-2-7b")
    (('mxfp4',), ())
    """
    for row in shipped_rows("model", "released_formats.csv"):
        if re.fullmatch(row["entry"], entry):
            return tuple(row["precisions"].split())
    return ()


def origin_of(entry: str) -> Origin:
    """Where an entry of the registry comes from.

    >>> origin_of("resnet50"), origin_of("hf:qwen3-8b"), origin_of("published_yolo:yolo11n")
    ('zoo', 'hub', 'published')
    """
    return _ORIGINS.get(entry.rpartition(":")[0].partition(":")[0], "published")


@cache
def words() -> Mapping[str, Alias]:
    """Aliases by each of their words, as `word_keys` spells it."""
    rows = shipped_rows("model", "aliases.csv")
    return {word: read_as(Alias, row) for row in rows for word in row["words"].split("|") if word}


@cache
def patterns() -> tuple[tuple[re.Pattern[str], Alias], ...]:
    """Aliases by a regular expression of a plain name, in the order of their table."""
    rows = shipped_rows("model", "aliases.csv")
    return tuple(
        (of_one_size(row["pattern"]), read_as(Alias, row)) for row in rows if row["pattern"]
    )


def _names(name: str, origin: Origin) -> tuple[str, ...]:
    """A name without its scheme; of hyperparameters, without its last decorations too."""
    return tuple(plainer(name)) if origin == "numbers" else (name.rpartition(":")[2],)


@cache
def _listed() -> tuple[tuple[str, KnownModel], ...]:
    """Counted models with the key that is searched; the first where a name stands twice."""
    models: dict[str, KnownModel] = {}
    for row in shipped_rows("model", "models.csv"):
        if row["parameters"]:
            known = read_as(KnownModel, row, needs=_NEEDS[row["needs"]])
            models.setdefault(known.name, known)
    return tuple((name_key(f"{one.name} {one.source}"), one) for one in models.values())
