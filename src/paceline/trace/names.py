"""From a model's name, however it is spelled, to its entry: zoo, hub and model libraries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

from paceline.errors import UnknownNameError, close_names
from paceline.shipped import shipped_rows
from paceline.trace.zoo_facts import zoo_facts

_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^a-z0-9]+(?=\d)")
_SEPARATORS = re.compile(r"[^a-z0-9_]+|(?<![0-9])_+|_+(?![0-9])")
#: ``owner/name``, as hubs write it, or the module that holds the model.
_OWNER = re.compile(
    r"^(?:[\w.-]+/|(?:torchvision|(?:tf\.)?keras)(?:\.(?:models|applications))?[.:])"
)
#: Endings that name another training of the same architecture or another file format.
_SAME_SIZES = re.compile(
    r"[-_ ](instruct|chat|it|base|hf|thinking|reasoning|uncased|cased|fp8|fp8-dynamic|bf16|fp16|"
    r"awq|gptq|bnb-4bit|int4|int8|w4a16|w8a8|quantized\.w\d+a\d+|nvfp4|gguf|v\d(\.\d)?|\d{4}|"
    r"preview|sft|dpo|finetuned|zero|0324|0528)$"
)
#: What may follow a word for a model, and says no more.
_NOUN = re.compile(r"(model|network|classifier|architecture)s?$")
_NUM_NEIGHBOURS = 5
#: What is left to someone whose model has no name here.
_OTHER_WAYS = (
    "any other model: hf:config.json with the config of its release, timm:NAME, torchvision:NAME, "
    "package.module:function, or `transformer:layers=…,hidden=…`"
)


def entry_of(typed: str) -> str:
    """The entry that is meant by what a user typed; an entry means itself.

    >>> entry_of("resnet50"), entry_of("ResNet-50"), entry_of("timm:resnet18")
    ('resnet50', 'resnet50', 'timm:resnet18')
    >>> entry_of("Qwen/Qwen3-8B"), entry_of("convnext_tiny.fb_in22k")
    ('hf:qwen3-8b', 'timm:convnext_tiny')

    Raises:
        UnknownNameError: No such model; names that begin or look alike are in the hint.
    """
    if typed in zoo_facts() or ":" in typed or typed.endswith((".npz", ".pt2")):
        return _checked(typed)
    if _is_config(Path(typed)):
        return f"hf:{typed}"
    written = (typed, without_owner(typed))
    found = zoo_entry(typed) or _short_entry(typed) or spelled_entry(typed)
    libraries = filter(None, map(library_entry, written))
    found = found or next(libraries, None) or _published().get(name_key(written[1]))
    if found is None:
        raise _unknown(typed)
    return found


def _checked(entry: str) -> str:
    """The entry; refused where it is said to be of a published network and is none.

    Raises:
        UnknownNameError: No such network.
    """
    known = _published().values()
    scheme = entry.partition(":")[0]
    alike = [one for one in known if one.partition(":")[0] == scheme]
    if alike and entry not in alike:
        raise UnknownNameError.from_name("model", entry, alike, command="paceline models")
    return entry


def _is_config(path: Path) -> bool:
    return path.suffix == ".json" or (path / "config.json").is_file()


def reading_of(typed: str) -> str:
    """How a short name was read, as a sentence among assumptions; empty for all other names.

    >>> reading_of("VGG")
    '`VGG` is taken as `vgg16`: the size most used; `timm:vgg11` to `timm:vgg19` are others'
    >>> reading_of("vgg16")
    ''
    """
    row = _short_row(typed)
    if row is None or zoo_entry(typed) or "|" in row["entry"]:
        return ""
    return f"`{typed}` is taken as `{row['entry'].removeprefix('hf:')}`: {row['reading']}"


def _short_entry(typed: str) -> str | None:
    """What is meant by a word that people use for a model of several sizes.

    Raises:
        UnknownNameError: Its sizes or generations differ too much for one to be meant.
    """
    row = _short_row(typed)
    if row is None:
        return None
    entries = row["entry"].split("|")
    if len(entries) > 1:
        listed = ", ".join(f"`{entry.removeprefix('hf:')}`" for entry in entries)
        raise UnknownNameError(
            f"`{typed}` names no single model: {row['reading']}",
            hint=f"choose one of {listed}; {_OTHER_WAYS}",
        )
    return entries[0]


def _short_row(typed: str) -> dict[str, str] | None:
    key = name_key(without_owner(typed.replace("×", "x")))
    return _short_names().get(key) or _short_names().get(_NOUN.sub("", key))


@cache
def _short_names() -> dict[str, dict[str, str]]:
    """Rows by each of their names, as `name_key` spells it."""
    rows = shipped_rows("trace", "short_names.csv")
    return {name: row for row in rows for name in row["names"].split("|")}


def _unknown(typed: str) -> UnknownNameError:
    """With names that look alike and names that begin so; where none begins so, with near ones."""
    begun = _begun(without_owner(typed))
    if begun:
        alike = close_names(without_owner(typed), zoo_facts())
        listed = ", ".join(f"`{name}`" for name in dict.fromkeys((*alike, *begun)))
        return UnknownNameError(
            f"`{typed}` names no single model", hint=f"did you mean {listed}? {_OTHER_WAYS}"
        )
    published = (entry.partition(":")[2] for entry in _published().values())
    known = (*zoo_facts(), *_hub_names(), *published)
    error = UnknownNameError.from_name(
        "model", without_owner(typed), known, command="paceline models"
    )
    return UnknownNameError(f"no model named `{typed}`", hint=f"{error.hint}; {_OTHER_WAYS}")


def _begun(name: str) -> list[str]:
    """Some names of every source that begin with ``name``, however it is spelled."""
    key = name_key(name)
    if not key:
        return []
    keyed = (_libraries()[1], _published())
    found = [[one for one in {**zoo_facts(), **_hub_names()} if name_key(one).startswith(key)]]
    found += [[entry for one, entry in names.items() if one.startswith(key)] for names in keyed]
    return [one for names in found for one in sorted(names)[:_NUM_NEIGHBOURS]]


def name_key(name: str) -> str:
    """``name`` in lower case; what separates two digits stays, as an underscore.

    >>> name_key("RegNetY-1.6GF"), name_key("regnet_y_1_6gf"), name_key("regnet_y_16gf")
    ('regnety1_6gf', 'regnety1_6gf', 'regnety16gf')
    """
    return _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("_", name.lower()))


def without_owner(name: str) -> str:
    """A name without the owner or module before it.

    >>> without_owner("microsoft/resnet-50"), without_owner("torchvision.models.alexnet")
    ('resnet-50', 'alexnet')
    """
    return _OWNER.sub("", name.strip())


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


def library_names(library: str) -> tuple[str, ...]:
    """Names of the models of ``timm`` or ``torchvision``, as shipped; a newer release has more."""
    rows = shipped_rows("trace", "library_names.csv")
    return tuple(row["name"] for row in rows if row["library"] == library)


def torchvision_name(typed: str) -> str | None:
    """The name in torchvision of a model typed without its library; None where it has none.

    >>> torchvision_name("ResNet-34"), torchvision_name("gpt2")
    ('resnet34', None)
    """
    return None if ":" in typed else _torchvision().get(name_key(typed))


@cache
def _torchvision() -> dict[str, str]:
    return {name_key(name): name for name in library_names("torchvision")}


@cache
def _libraries() -> tuple[dict[str, str], dict[str, str]]:
    """Entries by name, and by its key."""
    written: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for row in shipped_rows("trace", "library_names.csv"):
        entry = f"{row['library']}:{row['name']}"
        written.setdefault(row["name"], entry)
        spelled.setdefault(name_key(row["name"]), entry)
    return written, spelled


def zoo_entry(name: str) -> str | None:
    """The zoo's model of that name, however it is spelled."""
    return _zoo().get(name_key(name))


@cache
def _zoo() -> dict[str, str]:
    return {name_key(name): name for name in zoo_facts()}


@cache
def _published() -> dict[str, str]:
    """Entries of models that published measurements name, by key."""
    rows = shipped_rows("trace", "published_names.csv")
    return {name_key(row["name"]): f"{row['scheme']}:{row['name']}" for row in rows}


def spelled_entry(name: str) -> str | None:
    """Entry of a repository of a hub by its sizes: as written, then with less decoration.

    >>> spelled_entry("meta-llama/Llama-3.2-1B-Instruct"), spelled_entry("nobody/no-model")
    ('hf:llama-3.2-1b', None)
    """
    plain = list(plainer(name))
    known = (zoo_entry(one) or hub_entry(one) or (_alike(one) or {}).get("entry") for one in plain)
    numbers = map(_language_models().get, plain)
    return next(filter(None, known), None) or next(filter(None, numbers), None)


def hub_row(plain: str) -> dict[str, str] | None:
    """The ``entry`` of an undecorated name, with the length its ``seq`` says; None if unknown."""
    entry = _language_models().get(plain) or _hub_names().get(plain)
    return {"entry": entry, "seq": ""} if entry else _alike(plain)


@lru_cache(maxsize=8192)
def _alike(plain: str) -> dict[str, str] | None:
    """What has the sizes of another model, or is another spelling of its name."""
    for known in shipped_rows("trace", "hub_names.csv"):
        if match := re.fullmatch(known["pattern"], plain, re.IGNORECASE):
            return {"entry": match.expand(known["entry"]), "seq": known["seq"]}
    return None


def hub_entry(name: str) -> str | None:
    """Entry of a model whose sizes are known by name, however it is spelled."""
    return _hub_names().get(name) or _hub_keys().get(name_key(name))


@cache
def _hub_names() -> dict[str, str]:
    """Entries by name."""
    path = resources.files("paceline.trace").joinpath("workers", "hf_models.json")
    names = json.loads(path.read_text(encoding="utf-8"))["models"]
    return {name: f"hf:{name}" for name in names}


@cache
def _hub_keys() -> dict[str, str]:
    return {name_key(name): entry for name, entry in _hub_names().items()}


def plainer(name: str) -> Iterator[str]:
    """``name`` with one decoration after another taken off, without its owner first.

    >>> list(plainer("Qwen/Qwen2.5-7B-Instruct-AWQ"))[:3]
    ['qwen2.5-7b-instruct-awq', 'qwen2.5-7b-instruct', 'qwen2.5-7b']
    """
    for written in dict.fromkeys((without_owner(name), name.strip())):
        yield from _undecorated(re.sub("[ _]", "-", written.lower()))


def _undecorated(plain: str) -> Iterator[str]:
    yield plain
    while (shorter := _SAME_SIZES.sub("", plain)) != plain:
        plain = shorter
        yield plain


@cache
def _language_models() -> dict[str, str]:
    """Entries by name in lower case with hyphens, and by the same without its last decorations."""
    by_name: dict[str, str] = {}
    for row in shipped_rows("trace", "language_models.csv"):
        for name in plainer(row["name"]):
            by_name.setdefault(name, row["entry"])
    return by_name
