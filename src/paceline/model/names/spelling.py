"""Names of models however people spell them: keys, owners and decorations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from paceline.patterns import pattern

_BETWEEN_DIGITS = pattern(r"(?<=\d)[^a-z0-9]+(?=\d)")
_SEPARATORS = pattern(r"[^a-z0-9_]+|(?<![0-9])_+|_+(?![0-9])")
#: ``owner/name``, as hubs write it, or the module that holds the model.
_OWNER = pattern(r"^(?:[\w.-]+/|(?:torchvision|(?:tf\.)?keras)(?:\.(?:models|applications))?[.:])")
#: Endings that name another training of the same architecture or another file format.
_SAME_SIZES = pattern(
    r"[-_ ](instruct|chat|it|base|hf|thinking|reasoning|uncased|cased|fp8|fp8-dynamic|bf16|fp16|"
    r"awq|gptq|bnb-4bit|int4|int8|w4a16|w8a8|quantized\.w\d+a\d+|nvfp4|gguf|v\d(\.\d)?|\d{4}|"
    r"preview|sft|dpo|finetuned|zero|0324|0528)$"
)
#: The point of a size in a name that may hold none: ``1_8b``.
_POINT_OF_SIZE = pattern(r"(?<=\d)_(?=\d+b\b)")
#: The open end of a pattern, and what it may not be: more digits, a version, another size.
_OPEN_END = pattern(r"\.\*(?=$|\|)")
_VERSION = r"\d{1,2}(?![\dkp])|[-_. ]\d{1,2}(?:\.\d+)?(?![\w.])"
_SIZE = r".*(?<![a-z\d.])\d+(?:\.\d+)?b(?![a-z])"
_NO_OTHER = f"(?!{_VERSION}|{_SIZE}).*"
#: What may follow a word for a model, and says no more.
_NOUN = pattern(r"(model|network|classifier|architecture)s?$")

#: Words in the names of releases that turn texts into vectors or scores, and write none.
_READERS = pattern(r"(^|[-_/])(embed(ding)?s?|rerank(er)?|e5|gte|bge|simcse)(?=[-_.]|$)", re.I)


def name_key(name: str) -> str:
    """``name`` in lower case; what separates two digits stays, as an underscore.

    >>> name_key("RegNetY-1.6GF"), name_key("regnet_y_1_6gf"), name_key("regnet_y_16gf")
    ('regnety1_6gf', 'regnety1_6gf', 'regnety16gf')
    >>> name_key("PointNet++")
    'pointnetplusplus'
    """
    return _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("_", name.lower().replace("+", "plus")))


def word_keys(name: str) -> tuple[str, str]:
    """Keys of a word for a model: as it stands, and without a noun that says no more.

    >>> word_keys("VGG model")
    ('vggmodel', 'vgg')
    """
    key = name_key(without_owner(name.replace("×", "x")))
    return key, _NOUN.sub("", key)


def reads_only(name: str) -> bool:
    """Whether a name is that of a model whose answers are vectors or scores of whole texts.

    >>> reads_only("Qwen/Qwen3-Embedding-8B"), reads_only("e5-mistral-7b"), reads_only("qwen3-8b")
    (True, True, False)
    """
    return _READERS.search(name) is not None


def of_one_size(pattern: str) -> re.Pattern[str]:
    """A pattern of names whose open end takes no other version or size.

    >>> [bool(of_one_size("bart-base.*").fullmatch(f"bart-base{end}")) for end in ("-cnn", "-77b")]
    [True, False]
    """
    return re.compile(_OPEN_END.sub(lambda _: _NO_OTHER, pattern), re.IGNORECASE)


def without_owner(name: str) -> str:
    """A name without the owner or module before it.

    >>> without_owner("microsoft/resnet-50"), without_owner("torchvision.models.alexnet")
    ('resnet-50', 'alexnet')
    """
    return _OWNER.sub("", name.strip())


def plainer(name: str) -> Iterator[str]:
    """``name`` with one decoration after another taken off, without its owner first.

    >>> list(plainer("Qwen/Qwen2.5-7B-Instruct-AWQ"))[:3]
    ['qwen2.5-7b-instruct-awq', 'qwen2.5-7b-instruct', 'qwen2.5-7b']
    >>> list(plainer("Qwen-1_8B-Chat"))
    ['qwen-1-8b-chat', 'qwen-1-8b', 'qwen-1.8b-chat', 'qwen-1.8b']
    """
    plain = without_owner(name).lower()
    pointed = _POINT_OF_SIZE.sub(".", plain)
    for written in dict.fromkeys((plain, name.strip().lower(), pointed)):
        yield from _undecorated(re.sub("[ _]", "-", written))


def _undecorated(plain: str) -> Iterator[str]:
    yield plain
    while (shorter := _SAME_SIZES.sub("", plain)) != plain:
        plain = shorter
        yield plain
