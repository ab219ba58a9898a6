"""How much a strategy asks of a training script, as kinds that it needs and as a rank.

Data parallel wraps the model in one call, fully sharded data parallel and recomputation in one
more. Tensor, pipeline, context and expert parallel are written into the model, and several of them
at once must fit each other.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import IntArray
from paceline.parallelism.strategy.strategy import Strategy

StrategyKind = Literal["dp", "fsdp", "recompute", "offload", "tp", "pp", "cp", "ep", "interleaved"]
#: What a script can be able to do, simplest first; the bit of a kind is its place here.
STRATEGY_KINDS: tuple[StrategyKind, ...] = get_args(StrategyKind)

#: What every script can do, or learns with a call.
USUAL_KINDS: tuple[StrategyKind, ...] = ("dp", "fsdp", "recompute")

#: Rank of a strategy whose most demanding kind it is.
RANK_OF_KIND: dict[StrategyKind, int] = {
    "dp": 0, "fsdp": 1, "recompute": 2, "offload": 2, "tp": 3, "pp": 4, "cp": 5, "ep": 5,
    "interleaved": 7,
}  # fmt: skip
#: Kinds that are written into the model. Two of them at once rank above each alone, cut sequences
#: beside another like a schedule that cuts stages, and more than two above that.
_MODEL_KINDS: tuple[StrategyKind, ...] = ("tp", "pp", "cp", "ep")
_RANK_OF_TWO, _RANK_OF_CUT, _RANK_OF_MORE = 6, 7, 8


def kinds_mask(*kinds: StrategyKind) -> int:
    """Kinds as the bits of a number.

    >>> kinds_mask("dp", "tp")
    17
    """
    return sum(1 << STRATEGY_KINDS.index(kind) for kind in set(kinds))


def kinds_in(mask: int) -> tuple[StrategyKind, ...]:
    """The kinds of a mask, simplest first.

    >>> kinds_in(17)
    ('dp', 'tp')
    """
    return tuple(kind for bit, kind in enumerate(STRATEGY_KINDS) if mask >> bit & 1)


def kinds_of(strategy: Strategy) -> int:
    """What a script must be able to do for a strategy, as a mask.

    >>> kinds_in(kinds_of(Strategy.parse("dp4.tp2+zero3+recompute-block")))
    ('dp', 'fsdp', 'recompute', 'tp')
    >>> kinds_in(kinds_of(Strategy.parse("pp2@interleaved2/mb8")))
    ('pp', 'interleaved')
    """
    needed: dict[StrategyKind, bool] = {
        "dp": strategy.size("dp") > 1 or strategy.num_ranks == 1,
        "fsdp": strategy.sharding != "none" or strategy.size("fsdp") > 1,
        "recompute": strategy.recompute != "none",
        "offload": strategy.offloads_optimizer,
        "tp": strategy.size("tp") > 1,
        "pp": strategy.size("pp") > 1,
        "cp": strategy.size("cp") > 1,
        "ep": strategy.size("ep") > 1,
        "interleaved": strategy.schedule.kind in ("interleaved", "zbh1"),
    }
    return kinds_mask(*(kind for kind, is_needed in needed.items() if is_needed))


def complexity(masks: npt.ArrayLike) -> IntArray:
    """Rank of strategies by their kinds, of the shape of the masks; simpler ones are lower.

    dp, fsdp, with recomputation, tensor parallel, pipeline, context or expert parallel, two of
    them, context parallel beside another or schedules that cut stages or backward into pieces, and
    three or more of them.

    >>> texts = ("dp8", "dp8+zero3", "dp8+zero3+recompute-block", "dp4.tp2", "dp4.pp2", "dp2.cp4",
    ...     "pp2.dp2.tp2", "pp2.dp2.cp2", "pp2.tp2.cp2")
    >>> complexity([kinds_of(Strategy.parse(text)) for text in texts]).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    mask = np.asarray(masks, dtype=np.int64)
    rank = np.zeros_like(mask)
    for kind, of_kind in RANK_OF_KIND.items():
        rank = np.where(mask & kinds_mask(kind), np.maximum(rank, of_kind), rank)
    several = num_splits(mask & kinds_mask(*_MODEL_KINDS))
    of_two = np.where(mask & kinds_mask("cp"), _RANK_OF_CUT, _RANK_OF_TWO)
    of_several = np.select([several > 2, several == 2], [_RANK_OF_MORE, of_two], 0)
    return np.asarray(np.maximum(rank, of_several))


def num_splits(masks: npt.ArrayLike) -> IntArray:
    """How many of the kinds that share a model's computation strategies have, schedules with them.

    >>> num_splits([kinds_of(Strategy.parse(text)) for text in ("dp8+zero3", "pp2.dp2.tp2")])
    array([0, 2])
    """
    mask, split = np.asarray(masks, dtype=np.int64), (*_MODEL_KINDS, "interleaved")
    return np.asarray(sum((mask & kinds_mask(kind) > 0).astype(np.int64) for kind in split))
