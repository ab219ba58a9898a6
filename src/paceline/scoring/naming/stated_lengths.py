"""How long the sequences of a training row were, where they were not all as long."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from statistics import NormalDist

from paceline.scoring.tables import fitting_lines

#: Of data for fine-tuning, the longest sequence over the mean one: of 60 rows of
#: fms-acceleration whose data are not packed, 9 on one device and 4 to 5 where each of several
#: sees a part; the geometric mean.
LONGEST_OF_MEAN = 6.0
#: Texts of a run: as many as the smaller of the sets have whose lengths are published.
SEEN_TEXTS = 10_000
#: What runs on texts that are cut and joined to one length.
_PRETRAINS = re.compile(r".*pre-?train.*", re.IGNORECASE)
_PACKED = re.compile(r"yes|true|packed.*", re.IGNORECASE)
_UNPADDED = re.compile(r"padding[- ]?free.*|unpadded.*|varlen.*", re.IGNORECASE)
#: A stated mean that differs by less from the length of the row is that length.
_SAME_FRAC = 0.05


def stated_lengths(remarks: Mapping[str, str], row: Mapping[str, str]) -> dict[str, str]:
    """Columns that say whether lengths vary, and at which length memory peaks.

    Sequences that are not packed are as long as their texts, and fine-tuning packs them only where
    it is told to (``packing`` of TRL's `SFTConfig`, ``packed`` of torchtune's datasets and
    ``sample_packing`` of axolotl are off by default; recalled 2026-11-28). Where the row's length
    is their mean, memory peaks at the longest: in a padded batch all are as long as that, without
    padding one is. Where it is what texts are cut at, none is longer than the longest that a run
    meets in the sets of texts that the row names, if their lengths are published
    (``data/text_lengths.csv``).

    Args:
        remarks: By key.
        row: Cells of the row by column.

    >>> stated_lengths({"packing": "yes"}, {"seq_len": "4096"})
    {}
    >>> stated_lengths({"finetuning": "lora"}, {"seq_len": "2048"})
    {'lengths': 'vary'}
    >>> stated_lengths({"finetuning": "pretraining"}, {"seq_len": "2048"})
    {}
    >>> said = {"packing": "padding-free", "mean_tokens_per_sample": "300"}
    >>> stated_lengths(said, {"seq_len": "300", "batch_per_gpu": "5"})
    {'lengths': 'vary', 'peak_seq': '600'}
    >>> stated_lengths({"dataset": "blossom-math-zh"}, {"seq_len": "2048"})
    {'lengths': 'vary', 'peak_seq': '560'}
    """
    packing, tuning = remarks.get("packing", ""), remarks.get("finetuning", "")
    tunes = bool(tuning) and not _PRETRAINS.fullmatch(tuning)
    if _PACKED.fullmatch(packing) or not (packing or tunes or remarks.get("dataset")):
        return {}
    mean = _number(remarks.get("mean_tokens_per_sample", ""))
    length, items = (_number(row.get(name, "")) for name in ("seq_len", "batch_per_gpu"))
    if not mean or not length or abs(length / mean - 1.0) > _SAME_FRAC:
        longest = _longest_named(remarks.get("dataset", ""))
        is_cut = not longest or longest >= length
        return {"lengths": "vary"} | ({} if is_cut else {"peak_seq": f"{longest:.0f}"})
    alone = items if items and _UNPADDED.fullmatch(packing) else 1.0
    peak = length * (1.0 + (LONGEST_OF_MEAN - 1.0) / alone)
    return {"lengths": "vary", "peak_seq": f"{peak:.0f}"}


def reaches_limit(remarks: Mapping[str, str], row: Mapping[str, str]) -> bool:
    """Whether the longest text of the data is known to fill the length at which it is cut.

    >>> reaches_limit({"dataset": "news (tokens: mean 300, max 9000)"}, {"seq_len": "2048"})
    True
    """
    longest = re.search(r"\bmax (\d+)", remarks.get("dataset", ""))
    return longest is not None and float(longest[1]) >= _number(row.get("seq_len", ""))


def _longest_named(sets: str) -> float:
    """Tokens of the longest text met in sets that are named; 0 where that of one is not known.

    >>> _longest_named("alpaca-zh#5000 alpaca-en"), _longest_named("alpaca-zh my.jsonl")
    (856.0, 0.0)
    """
    whole = _longest(sets)
    lengths = [whole] if whole else [_longest(name.partition("#")[0]) for name in sets.split()]
    return max(lengths, default=0.0) if all(lengths) else 0.0


def _longest(name: str) -> float:
    line = next(fitting_lines("text_lengths.csv", {"name": name}), None)
    if line is None:
        return 0.0
    longest = float(line["longest_tokens"])
    spread = _number(line["std_tokens"])
    return longest if not spread else min(longest, longest_seen(float(line["mean_tokens"]), spread))


def longest_seen(mean: float, std: float, num_texts: int = SEEN_TEXTS) -> float:
    """Tokens of the longest of so many texts, whose lengths are spread as a lognormal.

    The one longest text of a large set is often an outlier, as the 4,039 tokens of 50,000 remarks
    of 66 in the mean, which a run meets in one step or never. Where it is not, as in the ten
    thousand exercises of blossom-math-zh, it is what the law says, 563 tokens:

    >>> round(longest_seen(169.3, 58.7, 10_000)), round(longest_seen(66.0, 83.2))
    (560, 1543)
    """
    variance = math.log1p((std / mean) ** 2)
    beyond = NormalDist().inv_cdf(1.0 - 1.0 / num_texts)
    return mean * math.exp(math.sqrt(variance) * beyond - variance / 2.0)


def decoding_steps(entry: str, framework: str, batch: float, usual: float) -> float:
    """Passes of a batch whose texts are written token by token.

    A batch runs until its longest text is done, so that it takes more passes than a text of its
    own, if its texts are not sorted by length (``data/decoded_texts.csv``).

    Args:
        entry: The model.
        framework: As the row writes it.
        batch: Texts that are written beside each other; NaN where that is not known.
        usual: Passes of one text.

    >>> steps = [decoding_steps("published_sequences:gnmt_beam1", "PyTorch", n, 28) for n in (1, 8)]
    >>> [round(count) for count in steps], decoding_steps("gpt2", "PyTorch", 8, 1)
    ([28, 51], 1)
    """
    asked = {"entry": entry, "framework": framework}
    line = next(fitting_lines("decoded_texts.csv", asked), None)
    if line is None or math.isnan(batch):
        return usual
    texts = next(fitting_lines("text_lengths.csv", {"name": line["texts"]}))
    mean, std, longest = (float(texts[f"{what}_tokens"]) for what in ("mean", "std", "longest"))
    return usual * min(mean_longest(mean, std, batch) / mean, longest / mean)


def mean_longest(mean: float, std: float, num_texts: float) -> float:
    """Tokens of the longest of so many texts on average, whose lengths are spread as a lognormal.

    >>> [round(mean_longest(28.0, 14.0, count)) for count in (1, 2, 8, 32, 512)]
    [28, 35, 51, 68, 107]
    """
    variance = math.log1p((std / mean) ** 2)
    levels = ((2 * i + 1) / (2 * _NUM_LEVELS) for i in range(_NUM_LEVELS))
    beyond = (NormalDist().inv_cdf(level ** (1.0 / num_texts)) for level in levels)
    longest = sum(math.exp(math.sqrt(variance) * one) for one in beyond) / _NUM_LEVELS
    return mean * longest * math.exp(-variance / 2.0)


#: Quantiles at which a mean over texts is taken.
_NUM_LEVELS = 1000


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0
