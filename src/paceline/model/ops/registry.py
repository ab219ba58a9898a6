"""All op kinds, with their facts as columns over kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.kinds import OpKind
from paceline.model.ops import (
    attention,
    convolution,
    host,
    memory_bound,
    optimizer,
    products,
    recurrent,
)
from paceline.model.ops.facts import PLAIN_DIMS, KindFacts

_FAMILIES = (products, convolution, attention, recurrent, memory_bound, optimizer, host)
#: Facts of every kind.
FACTS: Mapping[OpKind, KindFacts] = {
    facts.kind: facts for family in _FAMILIES for facts in family.KINDS
}
#: Meaning of shape numbers of the kinds that have some of their own; all others have
#: `facts.PLAIN_DIMS`.
DIM_NAMES: Mapping[OpKind, tuple[str, ...]] = {
    kind: facts.dims for kind, facts in FACTS.items() if facts.dims != PLAIN_DIMS
}


@cache
def dims_of(kind: OpKind, *names: str) -> tuple[int, ...]:
    """Columns of shape numbers.

    >>> dims_of(OpKind.MATMUL, "m", "k")
    (1, 3)
    """
    return tuple(FACTS[kind].dims.index(name) for name in names)


def kinds_where(chosen: Callable[[KindFacts], bool]) -> tuple[OpKind, ...]:
    """Kinds whose facts fulfil a condition, by number.

    >>> [kind.name for kind in kinds_where(lambda facts: facts.is_cell)]
    ['RECURRENT', 'RECURRENT_BACKWARD']
    """
    return tuple(kind for kind in OpKind if chosen(FACTS[kind]))


def is_one_of(kinds: Iterable[OpKind]) -> npt.NDArray[np.bool_]:
    """A mask over kinds, to be indexed by columns of kinds: (num_kinds,)."""
    mask = np.zeros(len(OpKind), dtype=np.bool_)
    mask[[int(kind) for kind in kinds]] = True
    return mask


@cache
def column(name: str) -> npt.NDArray[np.bool_]:
    """One of the yes-or-no facts over kinds, (num_kinds,)."""
    return is_one_of(kinds_where(lambda facts: bool(getattr(facts, name))))
