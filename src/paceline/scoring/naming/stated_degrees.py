"""How a row says that its devices share a model: degrees of parallelism by name."""

from __future__ import annotations

import re

from paceline.parallelism.strategy.strategy import Sharding
from paceline.values import dataclass

#: What each degree is called; the longest words first.
_NAMES = {
    "tp": r"tensor(?:[_ -]model)?[_ -]parallel(?:ism)?(?:[_ -]size)?|tensor|tp",
    "pp": r"pipeline(?:[_ -]model)?[_ -]parallel(?:ism)?(?:[_ -]size)?|pipeline|pp",
    "cp": r"(?:context|sequence)[_ -]parallel(?:ism)?(?:[_ -]size)?|context|ulysses|cp",
    "ep": r"expert(?:[_ -]model)?[_ -]parallel(?:ism)?(?:[_ -]size)?|expert|ep",
    "dp": r"data[_ -]parallel(?:ism)?(?:[_ -]size)?|dp",
    "chunks": r"virtual[_ -]pipeline(?:[_ -]model)?[_ -]parallel(?:[_ -]size)?|vpp?",
    "fsdp": r"fsdp",
}
_PATTERNS = {
    name: re.compile(rf"(?<![a-z])(?:{words})\s*[=:]?\s*(\d+)(?![\d.])", re.IGNORECASE)
    for name, words in _NAMES.items()
}
_SHARDED = re.compile(
    r"fsdp(?! ?[=:]? ?0)|full_shard|zero[- ]?(stage ?)?3|sharding stage 3", re.IGNORECASE
)
_GRADIENTS_SHARDED = re.compile(
    r"shard_grad_op|zero[- ]?(stage ?)?2|sharding stage 2|os\+g", re.IGNORECASE
)
_STATES_SHARDED = re.compile(r"zero|sharding stage 1|distributed[ _-]optimizer", re.IGNORECASE)
#: Layers laid out over devices one after the other, as ``device_map`` of Hugging Face does.
_LAYERS_SPLIT = re.compile(r"layers split over (\d+)", re.IGNORECASE)
#: Ranks that share an item where only their number is known: how many as tensor ranks at most.
_SHARED = re.compile(r"tp up to (\d+), then cp", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Ranks of each kind; None or one where the row says nothing.

    Attributes:
        tp: Tensor ranks.
        pp: Pipeline stages.
        cp: Context ranks.
        ep: Expert ranks, tensor ranks that hold experts of their own among them.
        chunks: Stages of the model on each pipeline rank.
        dp: Data-parallel replicas; None where they are what is left.
        is_fully_sharded: Replicas shard parameters too.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    chunks: int = 1
    dp: int | None = None
    is_fully_sharded: bool = False

    @property
    def splits_model(self) -> bool:
        """Whether a rank computes less than the whole model."""
        return self.tp * self.pp * self.cp * self.ep > 1


def stated_degrees(parallelism: str) -> Degrees:
    """Degrees in a cell of a table; where one stands twice, the first.

    >>> stated_degrees("TP=2 PP=4 (8) CP=1 VP=5 EP=n/a FSDP=0").chunks
    5
    >>> stated_degrees("tensor_parallel_size: 8, dp2"), stated_degrees("FSDP FULL_SHARD").tp
    (Degrees(tp=8, pp=1, cp=1, ep=1, chunks=1, dp=2, is_fully_sharded=False), 1)
    >>> stated_degrees("layers split over 2 GPUs x DDP 2").pp
    2
    >>> stated_degrees("DDP 2 x sequence parallel 4").cp
    4
    """
    found = {name: match for name, one in _PATTERNS.items() if (match := one.search(parallelism))}
    sizes = {name: int(match[1]) for name, match in found.items()}
    is_fully_sharded = sizes.pop("fsdp", 0) > 0
    if split := _LAYERS_SPLIT.search(parallelism):
        sizes["pp"] = int(split[1])
    # A degree of none is one: MLPerf and Megatron logs print 0 where nothing is split.
    return Degrees(
        **{name: max(size, 1) for name, size in sizes.items()}, is_fully_sharded=is_fully_sharded
    )


def shared_degrees(parallelism: str, num_sharing: int) -> Degrees | None:
    """Degrees of ranks of which only their number is known; None where no rule is stated.

    >>> shared_degrees("tp up to 4, then cp", 8)
    Degrees(tp=4, pp=1, cp=2, ep=1, chunks=1, dp=None, is_fully_sharded=False)
    """
    rule = _SHARED.search(parallelism)
    if rule is None:
        return None
    tensor = min(num_sharing, int(rule[1]))
    return Degrees(tp=tensor, cp=num_sharing // tensor)


def are_independent(parallelism: str) -> bool:
    """Whether each device runs a job of its own and exchanges nothing.

    >>> are_independent("Independent"), are_independent("dp")
    (True, False)
    """
    return parallelism.strip().lower() == "independent"


def sharding_of(parallelism: str) -> Sharding:
    """What replicas shard.

    >>> sharding_of("FSDP SHARD_GRAD_OP"), sharding_of("TP=2 FSDP=0"), sharding_of("ZeRO-3")
    ('zero2', 'none', 'zero3')
    >>> sharding_of("DeepSpeed zero2"), sharding_of("ZeRO-1"), sharding_of("sharding stage 2")
    ('zero2', 'zero1', 'zero2')
    """
    if _GRADIENTS_SHARDED.search(parallelism):
        return "zero2"
    if _SHARDED.search(parallelism):
        return "zero3"
    return "zero1" if _STATES_SHARDED.search(parallelism) else "none"
