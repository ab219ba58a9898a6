"""Every model that is answered by its name, with its size: a list to search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from paceline.errors import UnknownNameError, close_names
from paceline.shipped import shipped_rows
from paceline.trace.names import entry_of, name_key
from paceline.trace.shipped_graphs import is_built_here
from paceline.trace.zoo_facts import zoo_facts

Needs = Literal["nothing", "torch", "transformers", "timm", "torchvision"]
_NEEDS: dict[str, Needs] = {
    "hf": "transformers", "timm": "timm", "torchvision": "torchvision", "transformer": "torch",
}  # fmt: skip
_NO_NEIGHBOURS = "any part of a name will do; `paceline models` alone lists the zoo"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A name and what it stands for.

    Attributes:
        name: As it is typed.
        parameters: All of the model's, counted from its architecture.
        needs: The library that a Python must have for it to be traced; ``nothing`` for what
            is shipped as a graph.
        source: The release or library whose sizes are meant.
    """

    name: str
    parameters: int
    needs: Needs
    source: str


def known_models(search: str = "") -> tuple[KnownModel, ...]:
    """The models whose name, or whose source, holds every word of ``search``.

    The zoo stands first, then what is traced, each in its table's order.

    >>> known_models("resnet 152")[0].name, known_models("405B llama")[0].parameters
    ('resnet152', 405853388800)

    Raises:
        UnknownNameError: None does.
    """
    words = [name_key(word) if word.isascii() else word for word in search.split()]
    found = tuple(one for key, one in _all_models() if all(w and w in key for w in words))
    if found:
        return found
    names = [one.name for _, one in _all_models()]
    close = ", ".join(f"`{name}`" for name in close_names(search, names))
    hint = f"did you mean {close}? {_NO_NEIGHBOURS}" if close else _NO_NEIGHBOURS
    raise UnknownNameError(f"no model's name holds `{search}`", hint=hint)


@cache
def _all_models() -> tuple[tuple[str, KnownModel], ...]:
    """Each with the key that is searched; the zoo's model where a name stands twice."""
    models: dict[str, KnownModel] = {}
    for one in (*_of_zoo(), *_counted(), *_numbered()):
        models.setdefault(one.name, one)
    return tuple((name_key(f"{one.name} {one.source}"), one) for one in models.values())


def _of_zoo() -> Iterator[KnownModel]:
    for name, facts in zoo_facts().items():
        yield KnownModel(
            name=name, parameters=facts.parameters, needs="nothing", source=facts.title
        )


def _counted() -> Iterator[KnownModel]:
    """Sizes of hubs by their names alone, all else by its entry."""
    for row in shipped_rows("trace", "model_sizes.csv"):
        yield KnownModel(
            name=row["entry"].removeprefix("hf:"),
            parameters=int(row["parameters"]),
            needs=_needs(row["entry"]),
            source=row["source"],
        )


def _needs(entry: str) -> Needs:
    if not is_built_here(entry):
        return "nothing"
    return _NEEDS.get(entry.partition(":")[0], "torch")


def _numbered() -> Iterator[KnownModel]:
    """Language models known by their sizes, of which many are another training of one above."""
    counted = {row["entry"]: row for row in shipped_rows("trace", "model_sizes.csv")}
    for row in shipped_rows("trace", "language_models.csv"):
        entry = entry_of(row["name"])
        facts = zoo_facts().get(entry)
        if facts is not None:
            parameters, source = facts.parameters, facts.title
        elif entry in counted:
            parameters, source = int(counted[entry]["parameters"]), counted[entry]["source"]
        else:
            parameters, source = _num_parameters(entry), "published configuration"
        needs = "nothing" if facts else _NEEDS[entry.partition(":")[0]]
        yield KnownModel(name=row["name"], parameters=parameters, needs=needs, source=source)


def _num_parameters(entry: str) -> int:
    """Parameters of a decoder, as `transformer` of the worker builds it."""
    spec = dict(pair.split("=") for pair in entry.partition(":")[2].split(","))
    size = {key: int(value) for key, value in spec.items() if value.isdecimal()}
    hidden, ffn, head = size["hidden"], size["ffn"], size["head_size"]
    wide, narrow = size["heads"] * head, size["kv_heads"] * head
    attention = hidden * (2 * wide + 2 * narrow)
    attention += size["attention_bias"] * (wide + 2 * narrow) + size["bias"] * hidden
    products = 3 if size["gated"] else 2
    dense = products * hidden * ffn + size["bias"] * ((products - 1) * ffn + hidden)
    norm = hidden if spec["norm"] == "rms" else 2 * hidden
    words = hidden * size["vocab"] * (1 if size["tied"] else 2)
    blocks = size["layers"] * (attention + dense + 2 * norm)
    return words + size.get("positions", 0) * hidden + norm + blocks
