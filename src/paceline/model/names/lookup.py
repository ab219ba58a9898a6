"""From a model's name, however it is spelled, to its entry: zoo, hub and model libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from paceline.errors import InvalidInputError, UnknownNameError, close_names
from paceline.model.names.adapters import refuse_adapter
from paceline.model.names.denoisers import denoiser_of
from paceline.model.names.front_ends import is_model_path
from paceline.model.names.published_names import published_entry, without_target
from paceline.model.names.registry import (
    Alias,
    names_of,
    origin_of,
    parameters_of,
    patterns,
    words,
)
from paceline.model.names.shipped_graphs import has_graph
from paceline.model.names.spelling import name_key, plainer, without_owner, word_keys
from paceline.patterns import pattern
from paceline.reading import is_file

_NUM_NEIGHBOURS = 5
#: How plans, goals and configs end.
_FILE_ENDINGS = (".yaml", ".yml", ".toml", ".json")
#: What is left to someone whose model has no name here.
_OTHER_WAYS = (
    "any other model: hf:config.json with the config of its release, timm:NAME, torchvision:NAME, "
    "package.module:function, or `transformer:layers=…,hidden=…`"
)

#: Files that hold weights, and say little of how a model computes.
_WEIGHT_ENDINGS = frozenset(
    (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".h5", ".hdf5", ".pkl", ".pb",
     ".caffemodel", ".pdparams", ".msgpack")
)  # fmt: skip
#: Files that hold a program for one kind of device, made from a model that was written elsewhere.
_PROGRAM_ENDINGS = frozenset(
    (".tflite", ".mlmodel", ".mlpackage", ".engine", ".plan", ".trt", ".xml", ".rknn", ".hef")
)

#: A repository of a hub; words for a size, those of them that count parameters, and words for
#: another shape of a network.
_SIZED = pattern(r"\d+(\.\d+)?[bm]|tiny|mini|small|medium|base|large|xl|xxl|huge|giant")
_REPOSITORY = pattern(r"([\w.-]+/)?[\w.-]+")
_NUMBERED = pattern(r"(\d+x)?\d+(\.\d+)?[bm]")
_RESHAPED = pattern(
    r"(patch|window|w|p)\d+|\d{3}|\d+k?x\d+|moe|eagle\d?|draft|adapter|(en|de)coder|tower"
)
_VERSION = pattern(r"v\d+(\.\d+)?")
#: A name that ends in a version.
_VERSIONED = pattern(r"(.+)-v\d+(?:\.\d+)?")
#: A size as Ollama writes it; no function of a module begins with a digit.
_TAG = pattern(r":(?=(\d+x)?\d+(\.\d+)?b\b)", re.IGNORECASE)


def entry_of(typed: str) -> str:
    """The entry that is meant by what a user typed; an entry means itself.

    >>> entry_of("resnet50"), entry_of("ResNet-50"), entry_of("timm:resnet18")
    ('resnet50', 'resnet50', 'timm:resnet18')
    >>> entry_of("Qwen/Qwen3-8B"), entry_of("convnext_tiny.fb_in22k")
    ('hf:qwen3-8b', 'timm:convnext_tiny')
    >>> entry_of("qwen3:8b"), entry_of("hf:Qwen/Qwen3-8B"), entry_of("hf:llama")
    ('hf:qwen3-8b', 'hf:qwen3-8b', 'hf:llama')

    Raises:
        UnknownNameError: No such model; names that begin or look alike are in the hint.
        InvalidInputError: A folder with an adapter, or weights of no model that is known.
    """
    typed = _of_hub(_TAG.sub("-", typed))
    if typed in names_of("zoo").written or ":" in typed or typed.endswith(".npz"):
        return _checked(typed)
    if is_model_path(typed):
        return typed
    refuse_adapter(Path(typed))
    if _is_config(Path(typed)):
        return f"hf:{typed}"
    found = _named(typed) or _guessed(typed)
    if found is None:
        raise _no_model_in(typed) if _has_weights(typed) else _unknown(typed)
    return found


def _of_hub(typed: str) -> str:
    """The repository of a hub that stands behind ``hf:``, where that is neither entry nor file.

    A class or a type of Transformers has neither an owner nor a count of parameters.
    """
    scheme, _, name = typed.partition(":")
    if scheme != "hf" or typed in names_of("hub").entries or Path(name).exists():
        return typed
    is_repository = _REPOSITORY.fullmatch(name) is not None and not name.endswith(_FILE_ENDINGS)
    is_sized = "/" in name or _has(_NUMBERED, re.split(r"[-_]", name.lower()))
    return name if is_repository and is_sized else typed


def _named(typed: str) -> str | None:
    """The entry that has this name, in one spelling or another."""
    bare = without_owner(typed)
    short = None if _has_weights(typed) else _short_entry(typed)
    found = zoo_entry(typed) or short or spelled_entry(typed)
    found = found or library_entry(typed) or library_entry(bare)
    found = found or names_of("published").spelled.get(name_key(bare))
    if found is None and (family := denoiser_of(typed)) is not None:
        return family.entry
    return found


def _guessed(typed: str) -> str | None:
    """What tables of measurements, or people who train a model further, call so."""
    if _has_weights(typed):
        return None
    found = published_entry(typed) or _worded(typed)
    if found is None and (shorter := without_target(typed)) != typed.strip():
        found = _named(shorter)
    return found or (_trained_further(typed) if _REPOSITORY.fullmatch(typed.strip()) else None)


def hub_entry_of(typed: str) -> str:
    """The same model as Hugging Face's Transformers write it, where that is shipped.

    Else its own entry: one with another head, as of an encoder that is fine-tuned, is not the same.

    >>> hub_entry_of("gpt2"), hub_entry_of("bert-base")
    ('hf:gpt2', 'bert-base')

    Raises:
        UnknownNameError: No such model.
    """
    entry = entry_of(typed)
    twin = names_of("hub").written.get(entry)
    if twin is None or not has_graph(twin) or parameters_of(entry) != parameters_of(twin):
        return entry
    return twin


def _worded(typed: str) -> str | None:
    """The one name that has all of these words, and more: ``nllb-600m`` is ``nllb-200-600m``."""
    wanted = set(re.findall(r"[a-z0-9.]+", without_owner(typed).lower()))
    if len(wanted) < 2:
        return None
    plain = {**names_of("hub").written, **names_of("zoo").written}
    found = [name for name in plain if wanted < set(re.findall(r"[a-z0-9.]+", name.lower()))]
    return plain[found[0]] if len(found) == 1 else None


def _trained_further(typed: str) -> str | None:
    """The longest name with a size that others' words stand around: ``bert-base-NER``.

    Words before it are a brand only where the size is a count of parameters: what stands before
    ``roberta-base`` may be another architecture.
    """
    parts = re.split(r"[-_ ]", without_owner(typed).lower())
    for count in range(len(parts) - 1, 1, -1):
        for start in range(len(parts) - count + 1):
            inside, outside = parts[start : start + count], parts[:start] + parts[start + count :]
            size = _NUMBERED if start else _SIZED
            if _has(size, inside) and not _has(_NUMBERED, outside) and not _has(_RESHAPED, outside):
                stem = "-".join(inside)
                if _has(_VERSION, outside) and has_versions(stem):
                    return None
                if (found := spelled_entry(stem)) is not None:
                    return found
    return None


def _has(pattern: re.Pattern[str], parts: Iterable[str]) -> bool:
    return any(map(pattern.fullmatch, parts))


def _checked(entry: str) -> str:
    """The entry; refused where it is said to be of a published network and is none.

    Raises:
        UnknownNameError: No such network.
    """
    if origin_of(entry) != "published":
        return entry
    known = names_of("published").written.values()
    scheme = entry.partition(":")[0]
    alike = [one for one in known if one.partition(":")[0] == scheme]
    if alike and entry not in alike:
        raise UnknownNameError.from_name("model", entry, alike, command="paceline models")
    return entry


def _has_weights(typed: str) -> bool:
    return Path(typed).suffix.lower() in _WEIGHT_ENDINGS | _PROGRAM_ENDINGS


def _no_model_in(typed: str) -> InvalidInputError:
    if Path(typed).suffix.lower() in _PROGRAM_ENDINGS:
        return InvalidInputError(
            f"`{typed}` holds a program for one kind of device, which is not read",
            hint="give the model that it was made from: a .onnx, .pt2 or .keras file, "
            "package.module:function, or its name, with --framework for what runs the program",
        )
    return InvalidInputError(
        f"`{typed}` holds weights, from which a model's layers cannot be read",
        hint="give what builds it: package.module:function, hf:config.json, or a file written "
        "by `torch.export.save` (.pt2), by `model.save` of Keras (.keras) or as .onnx",
    )


def _is_config(path: Path) -> bool:
    return path.suffix == ".json" or is_file(path / "config.json")


def reading_of(typed: str) -> str:
    """How a short name was read, as a sentence among assumptions; empty for all other names.

    >>> reading_of("VGG")
    '`VGG` is taken as `vgg16`: the size most used; `timm:vgg11` to `timm:vgg19` are others'
    >>> reading_of("vgg16")
    ''
    """
    typed = _of_hub(typed)
    alias = _word(typed)
    if alias is not None:
        is_told = not zoo_entry(typed) and "|" not in alias.entry
        told = f"`{typed}` is taken as `{alias.entry.removeprefix('hf:')}`: {alias.reading}"
        return told if is_told else ""
    if ":" in typed or typed.endswith(".npz") or is_model_path(typed) or _named(typed):
        return ""
    guessed = _guessed(typed)
    return f"`{typed}` is taken as `{guessed.removeprefix('hf:')}`" if guessed else ""


def told_reading(typed: str) -> str:
    """`reading_of`, and beside it what is known of a release that is answered as another model.

    >>> told_reading("openvla-7b")
    '`openvla-7b` is taken as `llama-2-7b`: the language model; images enter as tokens'
    """
    typed = _of_hub(typed)
    reading = reading_of(typed)
    if reading or zoo_entry(typed) or hub_entry(typed):
        return reading
    alike = next(filter(None, map(_alike, plainer(typed))), None)
    if alike is None or not alike["reading"]:
        return ""
    return f"`{typed}` is taken as `{alike['entry'].removeprefix('hf:')}`: {alike['reading']}"


def _short_entry(typed: str) -> str | None:
    """What is meant by a word that people use for a model of several sizes.

    Raises:
        UnknownNameError: Its sizes or generations differ too much for one to be meant.
    """
    alias = _word(typed)
    if alias is None:
        return None
    entries = alias.entry.split("|")
    if len(entries) > 1:
        listed = ", ".join(f"`{entry.removeprefix('hf:')}`" for entry in entries)
        raise UnknownNameError(
            f"`{typed}` names no single model: {alias.reading}",
            hint=f"choose one of {listed}; {_OTHER_WAYS}",
        )
    return entries[0]


def _word(typed: str) -> Alias | None:
    return next(filter(None, map(words().get, word_keys(typed))), None)


def _unknown(typed: str) -> UnknownNameError:
    """With names that look alike and names that begin so; where none begins so, with near ones.

    What ends as a file does is one that is not there, or one that describes no model.
    """
    if typed.endswith(_FILE_ENDINGS):
        return _no_model_file(typed)
    if is_file(Path(typed)) or (os.sep in typed and os.path.isdir(typed)):
        return UnknownNameError(f"`{typed}` holds no model that is read", hint=_PATHS)
    bare, zoo = without_owner(typed), names_of("zoo").written
    begun = _begun(bare)
    if begun:
        listed = ", ".join(f"`{name}`" for name in dict.fromkeys((*close_names(bare, zoo), *begun)))
        return UnknownNameError(
            f"`{typed}` names no single model", hint=f"did you mean {listed}? {_OTHER_WAYS}"
        )
    known = (*zoo, *names_of("hub").written, *names_of("published").written)
    error = UnknownNameError.from_name("model", bare, known, command="paceline models")
    return UnknownNameError(f"no model named `{typed}`", hint=f"{error.hint}; {_OTHER_WAYS}")


#: What a path of a model may be.
_PATHS = (
    "a model is read from a file that ends in .npz, .onnx, .pt2, .keras, .gguf or .prototxt, a "
    "config.json, or a folder that holds one or a saved_model.pb"
)


def _no_model_file(typed: str) -> UnknownNameError:
    """A plan, a goal or a config of which nobody can read a model."""
    if not is_file(Path(typed)):
        return UnknownNameError(f"there is no file `{typed}`", hint="check the path")
    return UnknownNameError(
        f"the file `{typed}` describes no model",
        hint="name the model itself; a plan file goes to `paceline deploy`, `run` or `report`",
    )


def _begun(name: str) -> list[str]:
    """Some names of every origin that begin with ``name``, however it is spelled."""
    key = name_key(name)
    if not key:
        return []
    plain = {**names_of("zoo").written, **names_of("hub").written}
    keyed = names_of("library").spelled, names_of("published").spelled
    found = [[one for one in plain if name_key(one).startswith(key)]]
    found += [[entry for one, entry in names.items() if one.startswith(key)] for names in keyed]
    return [one for names in found for one in sorted(names)[:_NUM_NEIGHBOURS]]


def library_entry(name: str) -> str | None:
    """Entry of a model of timm or torchvision; None where neither has that name.

    The name as written comes first, without what timm says of its weights; then any spelling of
    it. Where both libraries have a spelling, timm's is meant.

    >>> library_entry("EfficientNetB0"), library_entry("R3D-18"), library_entry("ViT-B/32")
    ('timm:efficientnet_b0', 'torchvision:r3d_18', 'torchvision:vit_b_32')
    """
    names, plain = names_of("library"), name.lower()
    stem = plain.partition(".")[0]
    found = names.written.get(plain) or names.spelled.get(name_key(plain))
    return found or names.written.get(stem)


def library_names(library: str) -> tuple[str, ...]:
    """Names of the models of ``timm`` or ``torchvision``, as shipped; a newer release has more."""
    entries = (entry.split(":") for entry in names_of("library").entries)
    return tuple(name for scheme, name in entries if scheme == library)


def torchvision_name(typed: str) -> str | None:
    """The name in torchvision of a model typed without its library; None where it has none.

    >>> torchvision_name("ResNet-34"), torchvision_name("gpt2")
    ('resnet34', None)
    """
    return None if ":" in typed else _torchvision().get(name_key(typed))


@cache
def _torchvision() -> dict[str, str]:
    return {name_key(name): name for name in library_names("torchvision")}


def zoo_entry(name: str) -> str | None:
    """The zoo's model of that name, however it is spelled."""
    return names_of("zoo").spelled.get(name_key(name))


def spelled_entry(name: str) -> str | None:
    """Entry of a repository of a hub by its sizes: as written, then with less decoration.

    >>> spelled_entry("meta-llama/Llama-3.2-1B-Instruct"), spelled_entry("nobody/no-model")
    ('hf:llama-3.2-1b', None)
    """
    plain = list(_of_its_version(plainer(name)))
    known = (zoo_entry(one) or hub_entry(one) or (_alike(one) or {}).get("entry") for one in plain)
    numbers = map(names_of("numbers").written.get, plain)
    return next(filter(None, known), None) or next(filter(None, numbers), None)


def _of_its_version(plain: Iterable[str]) -> Iterator[str]:
    """Spellings, down to one whose version is told apart from others by its sizes.

    >>> list(_of_its_version(plainer("whisper-large-v4"))), has_versions("whisper-large")
    (['whisper-large-v4'], True)
    """
    for one in plain:
        yield one
        if (match := _VERSIONED.fullmatch(one)) and has_versions(match[1]):
            return


@lru_cache(maxsize=4096)
def has_versions(stem: str) -> bool:
    """Whether versions of a name have entries of their own, so that another is not known by it.

    >>> has_versions("whisper-large"), has_versions("mistral-7b")
    (True, False)
    """
    return any((m := _VERSIONED.fullmatch(one)) and m[1] == stem for one in names_of("hub").written)


def hub_row(plain: str) -> dict[str, str] | None:
    """The ``entry`` of an undecorated name, with the length its ``seq`` says; None if unknown."""
    entry = names_of("numbers").written.get(plain) or names_of("hub").written.get(plain)
    return {"entry": entry, "seq": "", "reading": ""} if entry else _alike(plain)


@lru_cache(maxsize=8192)
def _alike(plain: str) -> dict[str, str] | None:
    """What has the sizes of another model, or is another spelling of its name."""
    for spelling, alias in patterns():
        if match := spelling.fullmatch(plain):
            return {"entry": match.expand(alias.entry), "seq": alias.seq, "reading": alias.reading}
    return None


def hub_entry(name: str) -> str | None:
    """Entry of a model whose sizes are known by name, however it is spelled."""
    names = names_of("hub")
    return names.written.get(name) or names.spelled.get(name_key(name))
