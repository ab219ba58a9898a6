"""Which number format a published row runs in, by what its table calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paceline.model.graph.costs import CacheFormat
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.rows import Row
from paceline.scoring.tables import read_table

_SEPARATORS = re.compile(r"[\s_,;:()\[\]/+&|-]+")
_BITS_APART = re.compile(r"\b([48])[ -]bits?\b")
#: Bits of a weight, by format.
_BITS = {
    "fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8,
    "int8-full": 8, "int4": 4, "mxfp4": 4, "nvfp4": 4,
}  # fmt: skip
#: A cache of keys and values, and its format.
_CACHE = re.compile(
    r"kv[-_ ]?cache([-_ ]?(d?type|quant\w*))?\s*[=: ]\s*(?P<format>[\w-]+)", re.IGNORECASE
)
_NARROW_CACHE = re.compile(r"fp8|e[45]m[23]|int8|8-?bit", re.IGNORECASE)
_SIXTEEN = ("fp16", "bf16")
_LORA = re.compile(r"\bq?lora\b", re.IGNORECASE)
#: Weights of 8 bits that are widened before they are multiplied.
_WIDENED = {"int8-full": "int8"}


def resolve_precision(row: Row) -> str:
    """The format that runs; FP32 is TF32, where units have it, in releases that turn it on.

    A row without a precision may say it in its flags or in the name of its model, as
    ``Qwen2.5-7B-Instruct-AWQ`` does; narrow weights of a served model stand there too.

    Raises:
        UnresolvedRowError: None is stated, or none of that name is known.
    """
    stated = row.precision or next(filter(_format, _said_elsewhere(row)), "")
    precision = _format(stated)
    if precision is None:
        raise UnresolvedRowError(
            f"the precision `{stated}` is not known" if stated else "no precision"
        )
    if row.task.startswith("train"):
        precision = "bf16" if precision == "int4" and names_adapters(row) else precision
    elif precision in _SIXTEEN:
        return format_of_name(row.model) or precision
    is_silent = precision == "fp32" and "tf32" not in stated.lower()
    return "tf32" if is_silent and _has_tf32(row.framework) else precision


def names_adapters(row: Row) -> bool:
    """Whether the flags of a row or the name of its model say LoRA, whose base may be narrow."""
    return _LORA.search(f"{row.flags}; {row.model}") is not None


def cache_format_of(row: Row) -> CacheFormat:
    """The format of keys and values that a row states beside its weights.

    >>> from paceline.scoring.rows import parse_row
    >>> row = {"model": "m", "gpu": "g", "precision": "Weight = fp16, KV Cache = fp8"}
    >>> cache_format_of(parse_row(row))
    'fp8'
    """
    stated = _CACHE.search(f"{row.precision}; {row.flags}")
    if stated is None:
        return "usual"
    return "fp8" if _NARROW_CACHE.search(stated["format"]) else "wide"


def _said_elsewhere(row: Row) -> Iterator[str]:
    yield from (part.strip() for part in re.split(r"[;,]", row.flags))
    yield format_of_name(row.model) or ""


def _format(stated: str) -> str | None:
    """The format of one cell; None where it is not known.

    >>> _format("Mixed Precision (BF16)"), _format("W4A16 AWQ"), _format("fp16 or bf16")
    ('bf16', 'int4', None)
    """
    for known in read_table("precision_names.csv"):
        if re.fullmatch(known["pattern"], stated.strip(), re.IGNORECASE):
            return known["precision"]
    plain = _BITS_APART.sub(r"\1bit", stated.lower())
    return _narrowest(word for word in _SEPARATORS.split(plain) if word)


def _narrowest(words: Iterator[str]) -> str | None:
    """Of the formats that words name the narrowest, if each word is known and one alone is."""
    found = [_word(word) for word in words]
    formats = {one for one in found if one in _BITS}
    if None in found or not formats:
        return None
    bits = min(_BITS[one] for one in formats)
    narrow = [one for one in formats if _BITS[one] == bits]
    if len(narrow) > 1 or (bits == _BITS["int4"] and formats & {"int8", "int8-full"}):
        return None
    return _WIDENED.get(narrow[0], narrow[0]) if "weights" in found else narrow[0]


def _word(word: str) -> str | None:
    """What a word of a precision says: a format, ``weights`` or nothing; None is not known."""
    for known in read_table("precision_words.csv"):
        if re.fullmatch(known["pattern"], word):
            return known["means"]
    return None


def format_of_name(model: str) -> str | None:
    """Weights of 8 or 4 bits that a model is published with."""
    for known in read_table("published_formats.csv"):
        if re.search(known["pattern"], model, re.IGNORECASE):
            return known["precision"]
    return None


def _has_tf32(framework: str) -> bool:
    releases = read_table("tf32_releases.csv")
    return any(re.fullmatch(r["pattern"], framework, re.IGNORECASE) for r in releases)
