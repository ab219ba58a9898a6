"""How a model is run, as a line of text: ``checkpointing=full,precision=fp32``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from paceline.dtypes import usual_spelling
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.costs import AdapterKind, Configuration

_COMMAND = "paceline trace --help"
#: What says something here, and what other tools call it.
WORDS_OF_OTHERS: Mapping[str, str] = {
    "the option `--precision`, as in `--precision int4`": "weights quantize quantization "
    "quant bits dtype torch_dtype load_in_4bit load_in_8bit",
    "the option `--seq N`": "seq seq_len seq_length max_length max_seq_length",
    "the option `--optimizer NAME`": "optim optimizer",
    "the option `--compiler compiled`": "compile torch_compile",
    "`lora_rank=16`": "lora r rank lora_r",
    "`checkpointing=full`": "gradient_checkpointing activation_checkpointing recompute",
    "`attention=flash`": "flash flash_attention flash_attn sdpa attn attn_implementation",
    "`cache_format=fp8`": "kv_cache kv kv_cache_dtype kv_cache_precision",
}
_MEANT = {word: here for here, words in WORDS_OF_OTHERS.items() for word in words.split()}
_TRUTHS = {"yes": True, "true": True, "no": False, "false": False}


def read_settings(text: str, base: Configuration) -> Configuration:
    """``base`` with the fields that ``text`` names.

    Args:
        text: ``field=value`` pairs joined by commas; several module patterns joined by ``|``.
        base: What is left as it is.

    Raises:
        UnknownNameError: No such field, or no such value of a field that has a list of them.
        InvalidInputError: A pair that is none, or a value of another kind.

    >>> read_settings("lora_rank=8,lora_modules=*.q|*.v", Configuration()).lora_modules
    ('*.q', '*.v')
    >>> read_settings("frozen_weights=nf4", Configuration()).frozen_weights
    'int4'
    """
    changes: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidInputError(
                f"`{pair}` is no setting", hint="write `field=value`, as in `checkpointing=full`"
            )
        known = [field.name for field in fields(Configuration)]
        if name not in known:
            raise _unknown_setting(name, value, known)
        changes[name] = _value(name, value)
    return replace(base, **changes)


def _unknown_setting(name: str, value: str, known: Collection[str]) -> UnknownNameError:
    """No such field; of the rank of a kind of adapter, and of others' words, how it is written."""
    kind = name.removesuffix("_rank")
    if kind != name and kind in get_args(AdapterKind):
        hint = f"write lora_rank={value},lora_kind={kind}"
        return UnknownNameError(f"no setting named `{name}`", hint=hint)
    if meant := _MEANT.get(name):
        return UnknownNameError(f"no setting named `{name}`", hint=f"write {meant}")
    return UnknownNameError.from_name("setting", name, known, command=_COMMAND)


def format_settings(configuration: Configuration, base: Configuration) -> str:
    """What `read_settings` makes ``configuration`` of, on ``base``; empty where they are equal.

    >>> format_settings(Configuration(lora_rank=8, is_served=True), Configuration())
    'lora_rank=8,is_served=yes'
    """
    changed = (
        (field.name, value)
        for field in fields(Configuration)
        if (value := getattr(configuration, field.name)) != getattr(base, field.name)
    )
    return ",".join(f"{name}={_text(value)}" for name, value in changed)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "|".join(value) if isinstance(value, tuple) else str(value)


def _value(name: str, text: str) -> object:
    wanted = _kinds()[name]
    if get_origin(wanted) is Literal:
        found = text if text in get_args(wanted) else usual_spelling(text)
        if found not in get_args(wanted):
            raise UnknownNameError.from_name(name, text, get_args(wanted), command=_COMMAND)
        return found
    if wanted is bool:
        if text.lower() not in _TRUTHS:
            raise InvalidInputError(f"`{name}={text}` is no answer", hint="write yes or no")
        return _TRUTHS[text.lower()]
    if wanted is int:
        if not text.isdecimal() or int(text) < 1:
            raise InvalidInputError(
                f"`{name}={text}` is no count", hint="write a whole number above zero"
            )
        return int(text)
    return tuple(text.split("|")) if wanted == tuple[str, ...] else text


@cache
def _kinds() -> Mapping[str, Any]:
    """What each setting is, by its name."""
    return get_type_hints(Configuration)
