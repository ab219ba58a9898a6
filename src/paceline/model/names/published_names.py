"""Names as tables of measurements write them: ``bert-99``, ``RN50``, ``3D U-Net (KiTS-19)``.

``data/published_names.csv`` holds a line per pattern: the entry, and on which conditions of a row
it is meant. Who scores a table reads them all; who types a name means those without conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache

from paceline.model.names.spelling import without_owner
from paceline.patterns import pattern
from paceline.shipped import shipped_rows

#: Targets of accuracy and scenarios of MLPerf Inference.
_MLPERF = pattern(r"(-(99(\.9)?|interactive|offline|server))+$")
#: Data sets and jobs after a name, which say nothing of its sizes; those of small pictures do.
_DATA = pattern(
    r"[\s_-]*\((\d{2,4}( ?[x×] ?\d{2,4})?|seq[\w\s=]*\d+)\)$|"
    r"[\s_-]+[(\[]?(imagenet(-?\d+k)?|ilsvrc\w*|criteo[\w\s]*|kits-?\d+|movielens[\w\s-]*|"
    r"squad[\w\s.]*|wmt[\w\s-]*|librispeech|lj-?speech|coco( ?\d+)?|wikipedia|wikitext[\w\s-]*|"
    r"(pre-?|fine-?)?(train|tun)ing|inference|q?lora)[)\]]?$",
    re.IGNORECASE,
)
#: Endings of language models that tables of image models never have.
_TRAININGS = pattern(r"[-_ ](instruct|chat|it|hf|awq|gptq|fp8|storywriter|\d{4})$", re.IGNORECASE)
#: Columns that a line leaves empty where it is meant of every row of its task.
_CONDITIONS = ("framework", "flags", "unit", "seq_is", "passes")


def without_data(name: str) -> str:
    """A name without the data set or the job after it.

    >>> without_data("3D U-Net (KiTS-19)"), without_data("bert_base_uncased (squad)")
    ('3D U-Net', 'bert_base_uncased')
    """
    return _DATA.sub("", name.strip())


def without_target(name: str) -> str:
    """A name without what MLPerf Inference writes after it, and without data.

    >>> without_target("gptj-99.9"), without_target("llama2-70b-interactive-99")
    ('gptj', 'llama2-70b')
    """
    return _DATA.sub("", _MLPERF.sub("", name.strip()))


@lru_cache(maxsize=8192)
def lines_of(name: str) -> tuple[tuple[dict[str, str], re.Match[str]], ...]:
    """Lines of the table whose pattern fits a spelling of ``name``, with how it does."""
    return tuple(
        (line, match)
        for spelling in _spellings(name)
        for line in shipped_rows("model", "published_names.csv")
        if (match := _pattern(line["pattern"]).fullmatch(spelling))
    )


def entry_in(line: dict[str, str], match: re.Match[str]) -> str:
    """The entry that a line means; names of libraries of image models are in lower case."""
    entry = match.expand(line["entry"])
    is_lower = entry.startswith(("timm:", "torchvision:", "published_gpunet:"))
    return entry.lower() if is_lower else entry


def published_entry(name: str) -> str | None:
    """What a published name means on no condition; None where no line, or another too, says so.

    >>> published_entry("bert-99"), published_entry("RN50"), published_entry("nobody's model")
    ('published:bert_squad_large', 'resnet50', None)
    """
    meant = [one for one in lines_of(name) if not any(map(one[0].get, _CONDITIONS))]
    tasks = {
        task: entry_in(line, match) for line, match in reversed(meant) for task in _tasks(line)
    }
    return next(iter(tasks.values())) if len(set(tasks.values())) == 1 else None


def _tasks(line: dict[str, str]) -> tuple[str, ...]:
    return (line["task"],) if line["task"] else ("train", "infer")


def _spellings(name: str) -> Iterator[str]:
    """``name`` as written, then without its owner, then with hyphens between its words.

    >>> list(_spellings("microsoft/ResNet 50"))
    ['microsoft/ResNet 50', 'ResNet 50', 'ResNet-50']
    >>> list(_spellings("torchvision.models.alexnet"))
    ['torchvision.models.alexnet', 'alexnet']
    """
    plain = without_owner(name)
    bare = _TRAININGS.sub("", _DATA.sub("", _MLPERF.sub("", plain)))
    spaced = (re.sub(r"[\s_]+", "-", one) for one in (plain, bare))
    yield from dict.fromkeys((name.strip(), plain, bare, *spaced))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)
